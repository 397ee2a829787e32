"""--home: which folder holds the write-ahead log, and how it is looked at.

Nothing here takes a lock or makes a folder: a look must not stop a pipeline from starting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from lamina.cli.support.shapes import Shape
from lamina.disk import LocalDisk
from lamina.disk.base import Disk
from lamina.errors import NotFound, UsageError, WalDamaged
from lamina.format.home_names import IDENTITY, parse_segment
from lamina.os_errors import typed_errors
from lamina.store.address import home_address
from lamina.wal.home import Home, read_home
from lamina.wal.scan import all_segments

F = TypeVar("F", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class HomeTarget:
    """A folder that should be a home, or that has a copy of the one at *address*."""

    folder: str
    address: str = ""

    def disk(self) -> LocalDisk:
        if self.address:
            from lamina.workspace.remote.copying import HomeCopy  # noqa: PLC0415  slow to import

            return HomeCopy(Path(self.folder), self.address)
        if not self.folder.strip() or "\0" in self.folder:
            raise UsageError("--home is empty or not a valid path")
        folder = Path(self.folder)
        with typed_errors(folder):
            if folder.is_file():
                raise UsageError("--home is a file, not a folder", where=self.folder)
        return LocalDisk(folder)

    @property
    def path(self) -> Path:
        """Where its files are."""
        self.disk()
        return Path(self.folder).absolute()

    def to_read(self) -> Home:
        return home_on(self.disk())


def home_on(disk: Disk) -> Home:
    """Whoever's it is, to read. NotFound or WalDamaged says what is missing."""
    try:
        return read_home(disk)
    except NotFound as error:
        raise _no_home(disk) from error


@contextmanager
def home_target(home: str) -> Iterator[HomeTarget]:
    """The home that --home names; if it is in an object store, a temporary local copy of it."""
    address = home_address(home)
    if not address:
        yield HomeTarget(home)
        return
    from lamina.workspace.remote.copying import copied_home  # noqa: PLC0415  slow to import

    with copied_home(address) as folder:
        yield HomeTarget(str(folder), address)


def _no_home(disk: Disk) -> NotFound | WalDamaged:
    if any(True for _ in all_segments(disk)):
        return WalDamaged(
            "home.json is missing, and there are segments",
            where=f"{disk.root}/{IDENTITY}",
            advice="Restore home.json from a copy",
        )
    return NotFound(
        "this folder is not a home: it has no home.json",
        where=disk.root,
        advice="Check --home",
    )


def find_segment(disk: Disk, given: str) -> str:
    """The segment that a person names, as `lamina wal list` does or by where the file is."""
    path = given
    if parse_segment(path) is None:
        file = Path(given).absolute()
        root = Path(disk.root)
        path = file.relative_to(root).as_posix() if file.is_relative_to(root) else ""
    if parse_segment(path) is None:
        raise UsageError(
            f"{given[:200]!r} is not the name of a segment of this home",
            advice="`lamina wal list` shows them",
        )
    if path not in all_segments(disk):
        raise NotFound(
            f"there is no segment {path}",
            where=disk.root,
            advice="`lamina wal list` shows those that exist",
        )
    return path


def place(home: Home) -> Shape:
    """Which home an answer is about; `home` is how the commit log names it."""
    return {"folder": home.disk.root, "home": home.name}


def home_option(command: F) -> F:
    """Give a command --home; it gets it as `home_target`."""

    @wraps(command)
    def run(home: str, **rest: Any) -> None:
        with home_target(home) as target:
            command(home_target=target, **rest)

    return click.option(
        "--home",
        metavar="PATH|URL",
        envvar="LAMINA_HOME",
        show_envvar=True,
        required=True,
        help="Folder of the pipeline's write-ahead log, or its address in an object store.",
    )(run)  # type: ignore[return-value]
