"""How a process gets at a store: a value that travels with a task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Protocol

from lamina.store import open_store
from lamina.store.base import Store


class StorePlace(Protocol):
    """Where a store is; credentials are not in it: each process has those of its environment."""

    def open(self) -> Store: ...


@dataclass(frozen=True, slots=True)
class Url:
    """A store by its address."""

    url: str

    def open(self) -> Store:
        return _opened(self.url)


@dataclass(frozen=True, slots=True)
class Held:
    """A store of this process: for tests, and for tasks that run in the driver."""

    store: Store

    def open(self) -> Store:
        return self.store


@cache
def _opened(url: str) -> Store:
    """Once in a process. The driver has probed it; a task need not."""
    return open_store(url, probe=False)
