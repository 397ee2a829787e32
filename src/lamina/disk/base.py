"""What the write-ahead log asks of a file system: a handful of calls, with promises.

A path is relative to the home, with `/` between folders. The seam exists so that tests can record
every call and try every state a crash may leave behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

Bytes: TypeAlias = "bytes | memoryview | pa.Buffer"


class LogFile(Protocol):
    """A file open for appending, by one process."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """The end of the file: where the next append goes."""
        ...

    def append(self, parts: Sequence[Bytes]) -> None:
        """Write all parts at the end. If it raises, any part of them may be there."""
        ...

    def sync(self) -> None:
        """fdatasync: what was appended survives a power cut. Never called again after a failure."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file; only the explicit calls of the library and `repair` do this (R1)."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class EagerFile(Protocol):
    """A file that can sync in the background while its writer does something else."""

    def begin_sync(self) -> None:
        """Begin the sync of what was appended; `sync` waits for it, and raises what failed."""
        ...


class Lock(Protocol):
    """An flock: it goes when its holder does."""

    def release(self) -> None: ...


class Disk(Protocol):
    """One home on a local or coherently shared file system."""

    @property
    def root(self) -> str:
        """Where this is, for people."""
        ...

    def make_folder(self, path: str) -> None:
        """Create the folder if it is missing; durable."""
        ...

    def create(self, path: str) -> LogFile:
        """Create a file that must not exist (O_EXCL). Durable only after `sync_folder`."""
        ...

    def open(self, path: str) -> LogFile:
        """Open an existing file for appending. NotFound if there is none."""
        ...

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""
        ...

    def read(self, path: str, offset: int, size: int) -> bytes:
        """pread: up to *size* bytes, fewer only at the end of the file."""
        ...

    def map(self, path: str) -> pa.Buffer:
        """The whole file, memory-mapped, read-only. Only for ranges that a COMMIT names."""
        ...

    def size(self, path: str) -> int:
        """NotFound if there is no such file."""
        ...

    def list(self, folder: str) -> tuple[str, ...]:
        """The names in a folder, sorted; none if the folder is missing."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file; no error if there is none."""
        ...

    def rename(self, path: str, target: str) -> None:
        """Give a file another name in the same folder; `sync_folder` makes it durable."""
        ...

    def try_lock(self, path: str) -> Lock | None:
        """Take the lock on a file that exists for nothing else and is never deleted."""
        ...
