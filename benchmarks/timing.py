"""Two ways of doing the same work, timed in turns: A B, B A, A B, ...

A shared machine is never quiet, so a time of one run says little about another run. What is
compared here ran within the same second: the ratio of each round counts, and their median.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

Work = Callable[[], object]
Prepare = Callable[[], Work]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of ours and of the bare work, round by round."""

    ours: tuple[float, ...]
    bare: tuple[float, ...]
    mib: float  # that each of them moved in a round

    @property
    def ratios(self) -> tuple[float, ...]:
        """Our throughput as a share of the bare one."""
        return tuple(bare / ours for ours, bare in zip(self.ours, self.bare, strict=True))

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    def describe(self) -> str:
        low, high = min(self.ratios), max(self.ratios)
        ours, bare = (self.mib / median(each) for each in (self.ours, self.bare))
        return f"{ours:.0f} of {bare:.0f} MiB/s, rounds {low:.2f} to {high:.2f}"


def compare(ours: Prepare, bare: Prepare, *, rounds: int, mib: float) -> Comparison:
    """Time both in every round, each of them first in every other round.

    *ours* and *bare* return the work to be timed: what they do before is preparation. One round
    more is made at first, and not counted.
    """
    seconds: dict[str, list[float]] = {"ours": [], "bare": []}
    both = (("ours", ours), ("bare", bare))
    for turn in range(-1, rounds):
        for name, prepare in both if turn % 2 else reversed(both):
            spent = seconds_of(prepare())
            if turn >= 0:
                seconds[name].append(spent)
    return Comparison(tuple(seconds["ours"]), tuple(seconds["bare"]), mib)


def seconds_of(work: Work) -> float:
    """Time one call, with a disk that has nothing left to write from before."""
    os.sync()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
