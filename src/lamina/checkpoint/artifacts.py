"""Moving the bytes of checkpoints: hashed when written, checked when read.

Size first, then digest; a file is moved part by part, so that one larger than memory can be.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from lamina.clock import Clock, new_writer_id
from lamina.errors import DigestMismatch, SizeMismatch, UsageError
from lamina.os_errors import typed_errors
from lamina.store.base import PART_SIZE_BYTES, Data, Store, parts_of, size_of

T = TypeVar("T")

READS_MAX = 2
"""What is wrong or too short is read once more: a network may lie, a disk will say it again."""

HASH_SIZE_BYTES = 1024 * 1024
"""How much of a file is read at a time to be hashed: it is still in the CPU's cache then."""


@dataclass(frozen=True, slots=True)
class Digest:
    sha256: str
    size: int


class Named(Protocol):
    """What a manifest says about a file."""

    @property
    def size(self) -> int | None: ...
    @property
    def sha256(self) -> str | None: ...


def digest_of(data: Data) -> Digest:
    """Size and SHA-256, in one pass over parts."""
    digest = hashlib.sha256()
    size = 0
    with typed_errors(data if isinstance(data, Path) else "memory"):
        for part in parts_of(data, HASH_SIZE_BYTES):
            digest.update(part)
            size += len(part)
        if size != size_of(data):
            raise UsageError(f"the data changed while it was read: {size} of {size_of(data)} bytes")
    return Digest(digest.hexdigest(), size)


def upload(store: Store, key: str, data: Data) -> Digest:
    """Put create-only and return what a manifest has to say about it."""
    digest = digest_of(data)
    store.put_if_absent(key, data)
    return digest


def download(store: Store, key: str, expected: Named) -> bytes:
    """The whole object, proven to be the one that was saved."""
    return _twice(lambda: _joined(store, key, expected))


def download_into(store: Store, key: str, expected: Named, target: Path, clock: Clock) -> None:
    """Stream the object into a file that appears only when it is proven whole."""
    with _appearing(target, clock) as partial:
        _twice(lambda: _fill(partial, store, key, expected))


def append(file: BinaryIO, store: Store, key: str, expected: Named) -> None:
    """Stream the object to the end of a file; it counts only when this returns."""
    start = file.tell()

    def fill() -> None:
        file.seek(start)
        file.truncate()
        _read(store, key, expected, take=file.write)

    _twice(fill)


def write_into(data: bytes, target: Path, clock: Clock) -> None:
    """Bytes that are proven already, into a file that appears whole."""
    with _appearing(target, clock) as partial:
        partial.write_bytes(data)


@contextmanager
def _appearing(target: Path, clock: Clock) -> Iterator[Path]:
    partial = target.with_name(f".{target.name[:100]}.{new_writer_id(clock)[:8]}.partial")
    with typed_errors(target):
        try:
            yield partial
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


def check(store: Store, key: str, expected: Named) -> int:
    """Read the whole object and keep nothing; returns its size."""
    return _twice(lambda: _read(store, key, expected, take=len))


def check_size(actual: int, expected: Named, where: str) -> None:
    if expected.size is not None and actual != expected.size:
        raise SizeMismatch(f"{actual} bytes where {expected.size} were saved", where=where)


def _read(store: Store, key: str, expected: Named, *, take: Callable[[bytes], object]) -> int:
    """Give the parts of an object to *take*, one at a time; raise if they are not what was saved.

    Nobody holds a part while the next is read: memory is one part for each object under way.
    """
    where = f"{store.url}/{key}"
    size = store.head(key).size
    check_size(size, expected, where)
    digest = hashlib.sha256()
    for start in range(0, size, PART_SIZE_BYTES):
        part = store.get_range(key, start, min(PART_SIZE_BYTES, size - start))
        digest.update(part)
        take(part)
        del part
    if expected.sha256 is not None and digest.hexdigest() != expected.sha256:
        raise DigestMismatch(
            f"SHA-256 is {digest.hexdigest()}, {expected.sha256} was saved", where=where
        )
    return size


def _joined(store: Store, key: str, expected: Named) -> bytes:
    parts: list[bytes] = []
    _read(store, key, expected, take=parts.append)
    return b"".join(parts)


def _fill(path: Path, store: Store, key: str, expected: Named) -> None:
    with path.open("wb") as file:
        _read(store, key, expected, take=file.write)


def _twice(read: Callable[[], T]) -> T:
    for _ in range(READS_MAX - 1):
        try:
            return read()
        except (DigestMismatch, SizeMismatch):
            continue
    return read()
