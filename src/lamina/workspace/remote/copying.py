"""A copy of a remote home on this machine, to look at. Nothing is claimed, nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from lamina.clock import SystemClock
from lamina.disk import LocalDisk
from lamina.errors import NotFound
from lamina.format.home_names import STAGED
from lamina.format.remote_names import RUNS
from lamina.store import open_store
from lamina.store.base import Store
from lamina.workspace.remote.disk import RemoteDisk
from lamina.workspace.remote.files import write_whole
from lamina.workspace.remote.log import PieceLog

_TRIES = 5


class HomeCopy(LocalDisk):
    """A folder with the files that a remote home stands for; people know it by its address."""

    def __init__(self, folder: Path, address: str) -> None:
        super().__init__(folder)
        self._address = address

    @property
    def root(self) -> str:
        return self._address


@contextmanager
def copied_home(address: str) -> Iterator[Path]:
    """A folder of its own, for as long as somebody looks."""
    with TemporaryDirectory(prefix="lamina-home-") as folder:
        copy_home(open_store(address, writable=False), Path(folder))
        yield Path(folder)


def copy_home(store: Store, folder: Path) -> None:
    """The log, and the runs and the output that tasks have put into the store.

    NotFound if there is no home. A process that runs may drop what is no longer needed while it is
    copied: then it is copied again, so that everything is of one moment.
    """
    clock = SystemClock()
    log = PieceLog(store, clock)
    disk = RemoteDisk(store, folder, log, clock)
    if not disk.identify():
        raise NotFound("there is no home at this address", where=disk.root, advice="Check --home")
    for _ in range(_TRIES):
        disk.restore()
        before = {slot.sequence for slot in log.slots}
        _copy_objects(store, folder)
        if before <= set(log.listed()):
            return


def _copy_objects(store: Store, folder: Path) -> None:
    for prefix, start in ((RUNS, f"{RUNS}/"), (STAGED, "")):
        for info in store.list(prefix):
            target = folder / info.key.removeprefix(start)
            if not target.exists():
                try:
                    write_whole(target, store.get(info.key))
                except NotFound:
                    continue  # dropped since it was listed
