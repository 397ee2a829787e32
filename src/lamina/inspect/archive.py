"""A store, with or without its home, opened to look. Nothing is claimed, nothing is changed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.errors import Corrupt, LaminaError, NotFound
from lamina.inspect.files import RunFiles
from lamina.inspect.places import locate, of_pipeline
from lamina.inspect.reach import At, reach
from lamina.inspect.view import View, look
from lamina.store import open_store
from lamina.store.address import home_address
from lamina.workspace.remote.copying import copied_home

LOOKS_MAX = 10


class Archive:
    """Views of one store; what several of them need is fetched once."""

    def __init__(self, checkpointer: Checkpointer, home: Path | None = None) -> None:
        self.checkpointer = checkpointer
        self.home = home
        self.closing = ExitStack()  # what goes with it
        self._files = RunFiles(checkpointer)

    def view(self, at: At = None) -> View:
        """The keyed state at a checkpoint (id, savepoint, epoch, `latest`) or, with a home, epoch.

        If a running pipeline drops what was just found, it is looked up again.
        """
        for _ in range(LOOKS_MAX):
            before = self.checkpointer.history()
            try:
                return look(self.checkpointer, reach(self.checkpointer, at, self.home), self._files)
            except (Corrupt, NotFound) as error:
                failure: LaminaError = error
                if self.checkpointer.history() == before:
                    break
        raise failure

    def close(self) -> None:
        """Remove the files that were fetched; its views cannot be used any more."""
        self._files.close()
        self.closing.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_archive(store: str | Path | Checkpointer, *, home: str | Path | None = None) -> Archive:
    """Open a store by folder, URL or checkpointer; a pipeline by its file; or the folder that
    `lamina.open` was given.

    A *home* in an object store is copied first: the archive shows it as it is now.
    """
    if not isinstance(store, Checkpointer):
        store, home = of_pipeline(store, home)
    if address := home_address(home):
        with ExitStack() as copies:
            archive = open_archive(store, home=copies.enter_context(copied_home(address)))
            archive.closing = copies.pop_all()
        return archive
    if isinstance(store, Checkpointer):
        return Archive(store, Path(home) if home is not None else None)
    places = locate(store, home)
    checkpointer = Checkpointer(open_store(places.store, writable=False), vnode_count=None)
    return Archive(checkpointer, places.home)


def open_view(
    store: str | Path | Checkpointer, at: At = None, *, home: str | Path | None = None
) -> View:
    """The whole keyed state at one point, by default the newest checkpoint; close it when done."""
    archive = open_archive(store, home=home)
    try:
        view = archive.view(at)
    except BaseException:
        archive.close()
        raise
    view.owner = archive
    return view
