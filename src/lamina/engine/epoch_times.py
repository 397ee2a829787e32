"""When an epoch was planned, by the driver's clock: the one time that rows may get from us.

It is taken once for each epoch, before its first task, so that a task that is tried again has the
same. An epoch that was committed is never computed again: its rows are in its runs and in what it
has staged. One that was thrown away is planned again, at a later time.

A clock may be set back, or may not have moved. This time rises with every epoch: by a microsecond
at least in one process, and after a start beyond what the watermark says that was committed of a
source. So no row of such a source is late because of its time.
"""

from __future__ import annotations

from lamina.clock import Clock
from lamina.engine.planning import DRAINED, Watermarks
from lamina.engine.plans import EnginePlan

_MILLISECOND_US = 1_000


class EpochTimes:
    """The times of one process's epochs, in microseconds."""

    def __init__(self, clock: Clock, plan: EnginePlan) -> None:
        self._clock = clock
        self._delays_us = {name: plan.delays_us[name] for name in plan.by_clock}
        self._last_us = 0

    def next_us(self, committed: Watermarks) -> int:
        """The time of an epoch that is planned now."""
        marks = {name: committed.by_source.get(name) for name in self._delays_us}
        known = [
            mark + self._delays_us[name] + 1
            for name, mark in marks.items()
            if mark is not None and mark not in DRAINED
        ]
        self._last_us = max(self._clock.now_ms() * _MILLISECOND_US, self._last_us + 1, *known)
        return self._last_us
