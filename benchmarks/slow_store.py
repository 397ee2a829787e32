"""An object store of which every request takes 30 ms more than it does."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from lamina.store import open_store
from lamina.store.base import Store

LATENCY_S = 0.030


@dataclass(frozen=True, slots=True)
class SlowPlace:
    """A store by its address; credentials are those of the environment."""

    url: str

    def open(self) -> Store:
        return cast("Store", slow_store(self.url))


class SlowStore:
    """`calls` counts what was asked of it in this process."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.calls: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return self._inner.url

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            time.sleep(LATENCY_S)
            return asked(*args, **kwargs)

        return call


@cache
def slow_store(url: str) -> SlowStore:
    """One in a process."""
    return SlowStore(open_store(url, probe=False))
