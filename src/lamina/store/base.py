"""What Lamina asks of an object store: nine calls, with promises.

A key is a path of one or more segments joined by `/`; no segment is empty, `.` or `..`.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from lamina.errors import BadName, UsageError

KEY_BYTES_MAX = 1024
PART_SIZE_BYTES = 8 * 1024 * 1024

Data: TypeAlias = bytes | bytearray | memoryview | mmap.mmap | Path
"""What can be stored: bytes in memory, or a file that is read part by part."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    key: str
    size: int


@dataclass(frozen=True, slots=True)
class Folder:
    """What is directly below a prefix: objects, and the names of folders."""

    objects: tuple[ObjectInfo, ...]
    folders: tuple[str, ...]


class Store(Protocol):
    """Any object store. Every call is safe to use from many threads at once.

    All calls raise only errors of lamina.errors; StoreUnavailable is the one worth another try.
    """

    @property
    def url(self) -> str:
        """Where this is, for people: never holds a credential."""
        ...

    def get(self, key: str) -> bytes:
        """The whole object, for small ones. NotFound if there is none."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Exactly *length* bytes from *start*; SizeMismatch if the object ends before."""
        ...

    def put(self, key: str, data: Data) -> None:
        """Store under *key*, replacing what was there; durable and whole when it returns.

        No reader ever sees a part: before it the old object, after it the new one.
        """
        ...

    def put_if_absent(self, key: str, data: Data) -> None:
        """Store under *key* unless it is taken; atomic among all writers; durable.

        AlreadyExists if the key holds other bytes. If it holds exactly these bytes the call
        succeeds: after an unclear answer nobody can tell an own earlier attempt from another's,
        so a caller whose win matters puts a writer id into the bytes.
        """
        ...

    def head(self, key: str) -> ObjectInfo:
        """Size without content. NotFound if there is none."""
        ...

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Every object below the folder *prefix* whose key sorts after *after*, sorted by key."""
        ...

    def list_folder(self, prefix: str = "") -> Folder:
        """One level below *prefix*; the cost does not depend on deeper levels."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object; no error if there is none."""
        ...

    def copy(self, source: str, target: str) -> None:
        """Copy inside the store, replacing the target. NotFound if there is no source."""
        ...


def check_range(start: int, length: int) -> None:
    """Raise UsageError for a range that no object can have."""
    if start < 0 or length < 0:
        raise UsageError(f"cannot read {length} bytes from offset {start}")


def check_key(key: str) -> str:
    """Refuse a key that some backend would take for something else."""
    if not key or len(key.encode("utf-8", "replace")) > KEY_BYTES_MAX:
        raise BadName(f"a key has 1 to {KEY_BYTES_MAX} bytes, not {len(key)}: {key[:60]!r}")
    for segment in key.split("/"):
        if segment in ("", ".", "..") or segment.startswith(".tmp"):
            raise BadName(f"the key {key[:80]!r} holds the segment {segment!r}")
        if any(ord(c) < 0x20 or c in "\\\x7f" or 0xD800 <= ord(c) < 0xE000 for c in segment):
            raise BadName(f"the key {key[:80]!r} holds a character that no path can hold")
    return key


def size_of(data: Data) -> int:
    """The number of bytes of *data*."""
    return data.stat().st_size if isinstance(data, Path) else memoryview(data).nbytes


def parts_of(data: Data, part_size: int = PART_SIZE_BYTES) -> Iterator[memoryview]:
    """The bytes of *data* in order, at most *part_size* at a time; a part is valid until the next.

    A file is read into one buffer, so that a large one never has to fit into memory.
    """
    if not isinstance(data, Path):
        view = memoryview(data).cast("B")
        for start in range(0, len(view), part_size):
            yield view[start : start + part_size]
        return
    with data.open("rb", buffering=0) as file:
        buffer = memoryview(bytearray(min(part_size, max(1, os.fstat(file.fileno()).st_size))))
        while count := file.readinto(buffer):
            yield buffer[:count]
