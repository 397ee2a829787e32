"""Which runs to compact into one: pure.

Runs are in tiers by size, each tier FAN_OUT times as large as the one above. When a tier is full,
it and everything newer become one run, which then belongs to a larger tier: so a row is rewritten
about once per tier, and a look-up touches fewer than FAN_OUT runs of each. The list is never longer
than RUNS_MAX: beyond, as many of the newest become one as cost least for each run that goes.

Every byte that changes is then written 5 times at 1 % of the state an epoch, 11 times at 0.01 %.
"""

from __future__ import annotations

from collections.abc import Sequence

FAN_OUT = 3
RUNS_MAX = 8
_TIER_BYTES = 64 * 1024  # everything smaller is of one tier
_BOTTOM_PART = 2


def plan_compaction(
    sizes: Sequence[int], *, fan_out: int = FAN_OUT, runs_max: int = RUNS_MAX
) -> range | None:
    """Which runs, next to each other, to compact into one; *sizes* are oldest first.

    The bottom run joins in when what comes onto it has half its size: then the rewriting pays,
    because deletes and old values go.
    """
    start = _full_tier(sizes, fan_out)
    if start is not None:
        return range(0 if start == 1 and _pays(sizes) else start, len(sizes))
    return _cheapest(sizes) if len(sizes) > runs_max else None


def _full_tier(sizes: Sequence[int], fan_out: int) -> int | None:
    """The oldest run of the largest tier that is full."""
    tiers = [tier_of(size, fan_out) for size in sizes]
    full = [tier for tier in set(tiers) if tiers.count(tier) >= fan_out]
    return tiers.index(max(full)) if full else None


def _cheapest(sizes: Sequence[int]) -> range:
    """The newest runs, from two on, with the least to write for each that goes."""
    total = sizes[-1]
    costs = []
    for count in range(2, len(sizes) + 1):
        total += sizes[-count]
        costs.append((total / (count - 1), count))
    return range(len(sizes) - min(costs)[1], len(sizes))


def tier_of(size: int, fan_out: int = FAN_OUT) -> int:
    tier = 0
    while size >= _TIER_BYTES * fan_out ** (tier + 1):
        tier += 1
    return tier


def _pays(sizes: Sequence[int]) -> bool:
    return sum(sizes[1:]) * _BOTTOM_PART >= sizes[0]
