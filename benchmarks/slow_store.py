"""An object store of which every request takes 30 ms more than it does, and is counted.

Requests of all processes count, those of Spark's workers too: each adds a byte to a file in the
folder that the environment names, one file for each store and operation.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from lamina.store import open_store
from lamina.store.base import Store

LATENCY_S = 0.030
COUNTS = "LAMINA_BENCHMARK_REQUESTS"


@dataclass(frozen=True, slots=True)
class SlowPlace:
    """A store by its address; credentials are those of the environment."""

    url: str

    def open(self) -> Store:
        return cast("Store", slow_store(self.url))


class SlowStore:
    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._counted = _counts(inner.url)
        self._counted.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return self._inner.url

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            with (self._counted / name).open("ab", buffering=0) as file:
                file.write(b".")
            time.sleep(LATENCY_S)
            return asked(*args, **kwargs)

        return call


@cache
def slow_store(url: str) -> SlowStore:
    """One in a process."""
    return SlowStore(open_store(url, probe=False))


def requests(url: str) -> Counter[str]:
    """How often each operation was asked of the store at *url*, by any process."""
    folder = _counts(slow_store(url).url)
    return Counter({file.name: file.stat().st_size for file in folder.iterdir()})


def _counts(url: str) -> Path:
    return Path(os.environ[COUNTS]) / quote(url, safe="")
