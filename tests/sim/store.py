"""One object store for all: pauses before and after every effect, sometimes answers unclearly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from lamina.errors import AlreadyExists, NotFound, StoreUnavailable
from lamina.store.base import Data, Folder, ObjectInfo
from lamina.store.memory import MemoryStore
from tests.sim.scheduler import Scheduler

T = TypeVar("T")


class SimStore:
    """A MemoryStore under the scheduler. Below RetryingStore, like a real remote store."""

    url = "sim://store"

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.inner = MemoryStore()
        self.version = 0  # rises with every change

    def get(self, key: str) -> bytes:
        self._before(f"get {key}")
        return self.inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self._before(f"get_range {key}")
        return self.inner.get_range(key, start, length)

    def head(self, key: str) -> ObjectInfo:
        self._before(f"head {key}")
        return self.inner.head(key)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        self._before(f"list {prefix}")
        return iter([*self.inner.list(prefix, after=after)])

    def list_folder(self, prefix: str = "") -> Folder:
        self._before(f"list_folder {prefix}")
        return self.inner.list_folder(prefix)

    def put(self, key: str, data: Data) -> None:
        self._before(f"put {key}")
        self.inner.put(key, data)
        self.version += 1
        self._after(f"put {key}")

    def put_if_absent(self, key: str, data: Data) -> None:
        self._before(f"create {key}")
        self.create(key, data)
        self._after(f"create {key}")
        if self._scheduler.chance(0.05):
            raise AlreadyExists("a retry inside the client found its own first try", where=key)

    def create(self, key: str, data: Data) -> None:
        """The atomic step; a mutant makes it overwrite."""
        try:
            self.inner.head(key)
        except NotFound:
            self.inner.put(key, data)
            self.version += 1
            return
        raise AlreadyExists("taken", where=key)

    def delete(self, key: str) -> None:
        self._before(f"delete {key}")
        self.inner.delete(key)
        self.version += 1
        self._after(f"delete {key}")

    def copy(self, source: str, target: str) -> None:
        self._before(f"copy {source}")
        self.inner.copy(source, target)

    def _before(self, what: str) -> None:
        self._scheduler.pause(what)
        if self._scheduler.chance(0.01):
            raise StoreUnavailable("timeout before the effect", where=what)

    def _after(self, what: str) -> None:
        self._scheduler.pause(f"after {what}")
        if self._scheduler.chance(0.04):
            raise StoreUnavailable("timeout after the effect", where=what)
