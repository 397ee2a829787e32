"""How much a process has asked of a store over the network."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass(slots=True)
class StoreCounts:
    """Since the store was opened."""

    requests: Counter[str] = field(default_factory=Counter)  # by operation, each try counts
    retries: int = 0


@runtime_checkable
class Counted(Protocol):
    """A store that counts; None if what is behind it does not."""

    @property
    def counts(self) -> StoreCounts | None: ...


def counts_of(store: object) -> StoreCounts | None:
    return store.counts if isinstance(store, Counted) else None
