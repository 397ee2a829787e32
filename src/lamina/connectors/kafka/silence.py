"""Which partitions hold the watermark of a source: those that were not silent for long.

The clock is the process's, and counts from its start: a partition holds the watermark for so long
after every start. What follows from it is committed with the epoch, so a replay does not ask again.
"""

from __future__ import annotations

from collections.abc import Iterable

from lamina.clock import Clock
from lamina.connectors.kafka.planning import Part, Slice


class Silence:
    """When each partition had rows the last time."""

    def __init__(self, idle_after_us: int, clock: Clock) -> None:
        self._idle_after_s, self._clock = idle_after_us / 1_000_000, clock
        self._heard: dict[Part, float] = {}
        self.numbers: dict[Part, int] = {}

    def holding(self, parts: Iterable[Part], read: Iterable[Slice]) -> tuple[Part, ...]:
        """Of all *parts* those that are heard of; *read* is what an epoch reads of them."""
        now, found = self._clock.monotonic(), list(parts)
        speaking = {(each.topic, each.partition) for each in read}
        for part in found:
            self.numbers.setdefault(part, len(self.numbers))
            if part in speaking:
                self._heard[part] = now
            else:
                self._heard.setdefault(part, now)
        return tuple(part for part in found if now - self._heard[part] < self._idle_after_s)
