"""What can be measured of an engine at any moment, between epochs too. For people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamina.engine.ports import Backlog, Behind, Source
from lamina.engine.publishing import Publisher
from lamina.engine.saves import Saves
from lamina.store.base import Store
from lamina.store.counts import StoreCounts, counts_of


@dataclass(frozen=True, slots=True)
class Measured:
    """Read by another thread than the engine's: every answer is of one moment or another."""

    publisher: Publisher
    saves: Saves
    sources: Mapping[str, Source]
    stores: Sequence[Store]

    def backlogs(self) -> dict[str, Backlog]:
        """What sources have still to give, as far as they know; of those that know."""
        known = (
            (name, source.backlog)
            for name, source in self.sources.items()
            if isinstance(source, Behind)
        )
        return {name: backlog for name, backlog in known if backlog is not None}

    def store_counts(self) -> list[StoreCounts]:
        """Of stores over the network; tasks on other machines are not counted."""
        found = map(counts_of, self.stores)
        return [each for each in found if each is not None]
