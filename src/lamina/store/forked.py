"""A store whose bases may be forks: files that a fork names and does not have are its origin's.

Only a file that is missing costs anything: then the base is asked for its origin.json. Nothing is
ever written to an origin through this store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from lamina.errors import NotFound
from lamina.format.names import CheckpointPaths, base_of_file
from lamina.format.origin import Origin, decode_origin
from lamina.store.base import Data, Folder, ObjectInfo, Store
from lamina.store.counts import StoreCounts, counts_of

T = TypeVar("T")
Opener = Callable[[str, bool], Store]
"""Opens the store at the address an origin names, to read or also to write."""


class ForkedStore:
    """Reads as *inner* does, and missing files of a fork from its origin."""

    def __init__(self, inner: Store, opener: Opener) -> None:
        self._inner, self._opener = inner, opener
        self._origins: dict[str, tuple[Origin, Store]] = {}

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def counts(self) -> StoreCounts | None:
        return counts_of(self._inner)

    def get(self, key: str) -> bytes:
        return self._read(key, lambda store, at: store.get(at))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._read(key, lambda store, at: store.get_range(at, start, length))

    def head(self, key: str) -> ObjectInfo:
        found = self._read(key, lambda store, at: store.head(at))
        return ObjectInfo(key, found.size)

    def put(self, key: str, data: Data) -> None:
        self._inner.put(key, data)

    def put_if_absent(self, key: str, data: Data) -> None:
        self._inner.put_if_absent(key, data)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        return self._inner.list(prefix, after=after)

    def list_folder(self, prefix: str = "") -> Folder:
        return self._inner.list_folder(prefix)

    def delete(self, key: str) -> None:
        self._inner.delete(key)

    def copy(self, source: str, target: str) -> None:
        self._inner.copy(source, target)

    def open_origin(self, origin: Origin, *, writable: bool = False) -> Store:
        """The store that a fork of this one comes from. NotFound if it is gone."""
        return self._opener(origin.store, writable)

    def _read(self, key: str, read: Callable[[Store, str], T]) -> T:
        try:
            return read(self._inner, key)
        except NotFound:
            base = base_of_file(key)
            found = None if base is None else self._origin(base)
            if base is None or found is None:
                raise
        origin, store = found
        path = CheckpointPaths(base).relative(key)
        assert path is not None, "the key is below its own base"
        try:
            return read(store, CheckpointPaths(origin.base).absolute(path))
        except NotFound as error:
            raise _lost(error) from error

    def _origin(self, base: str) -> tuple[Origin, Store] | None:
        """Where the base was forked from; None if it is not a fork."""
        if base not in self._origins:
            key = CheckpointPaths(base).origin()
            try:
                data = self._inner.get(key)
            except NotFound:
                return None
            origin = decode_origin(data, f"{self.url.rstrip('/')}/{key}")
            try:
                self._origins[base] = origin, self.open_origin(origin)
            except NotFound as error:
                raise _lost(error) from error
        return self._origins[base]


def _lost(error: NotFound) -> NotFound:
    return NotFound(
        f"this is a fork, and a file that it shares with its origin is missing: {error.message}",
        where=error.where,
        advice="If the origin was moved, move the fork along with it",
    )
