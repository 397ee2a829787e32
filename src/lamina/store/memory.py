"""A store in memory: for tests, and for trying things out. Nothing survives the process."""

from __future__ import annotations

import builtins
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from lamina.errors import AlreadyExists, NotFound, SizeMismatch
from lamina.os_errors import typed_errors
from lamina.store.base import Data, Folder, ObjectInfo, check_key, check_range
from lamina.store.folders import check_prefix, level_of
from lamina.store.readback import create, whole


class MemoryStore:
    """A dict behind a lock. What is put is copied, so that the caller may reuse its buffer.

    The keys are kept in order, so that a listing costs what it returns and not what there is.
    """

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._keys: builtins.list[str] = []
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return "memory://"

    def get(self, key: str) -> bytes:
        check_key(key)
        with self._lock:
            found = self._objects.get(key)
        if found is None:
            raise NotFound("no such object", where=self._where(key))
        return found

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        data = self.get(key)
        if start + length > len(data):
            raise SizeMismatch(
                f"{length} bytes from {start} are wanted, the object has {len(data)}",
                where=self._where(key),
            )
        return data[start : start + length]

    def put(self, key: str, data: Data) -> None:
        check_key(key)
        copied = self._copied(key, data)
        with self._lock:
            self._store(key, copied)

    def put_if_absent(self, key: str, data: Data) -> None:
        check_key(key)
        copied = self._copied(key, data)
        create(self, key, copied, attempt=lambda: self._create(key, copied))

    def _create(self, key: str, data: bytes) -> None:
        with self._lock:
            if key in self._objects:
                raise AlreadyExists("the key holds other bytes", where=self._where(key))
            self._store(key, data)

    def _store(self, key: str, data: bytes) -> None:
        if key not in self._objects:
            insort(self._keys, key)
        self._objects[key] = data

    def head(self, key: str) -> ObjectInfo:
        return ObjectInfo(key, len(self.get(key)))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        return iter(self._below(check_prefix(prefix), after))

    def list_folder(self, prefix: str = "") -> Folder:
        prefix = check_prefix(prefix)
        return level_of(self._below(prefix), prefix)

    def _below(self, prefix: str, after: str = "") -> builtins.list[ObjectInfo]:
        with self._lock:
            first = bisect_right(self._keys, after)
            last = len(self._keys)
            if prefix:
                first = max(first, bisect_left(self._keys, f"{prefix}/"))
                last = bisect_left(self._keys, f"{prefix}0")  # the character after the slash
            return [ObjectInfo(key, len(self._objects[key])) for key in self._keys[first:last]]

    def delete(self, key: str) -> None:
        check_key(key)
        with self._lock:
            if self._objects.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    def copy(self, source: str, target: str) -> None:
        self.put(target, self.get(source))

    def _copied(self, key: str, data: Data) -> bytes:
        with typed_errors(self._where(key)):
            return whole(data)

    def _where(self, key: str) -> str:
        return f"memory://{key}"
