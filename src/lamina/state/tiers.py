"""Which runs to merge: pure.

Runs are in tiers by size, each tier FAN_OUT times as large as the one above. When a tier is full,
it and everything newer become one run, which then belongs to a larger tier: so a row is rewritten
about once per tier, and a look-up touches fewer than FAN_OUT runs of each. The list is never longer
than RUNS_MAX: beyond, the two neighbours that cost least become one.
"""

from __future__ import annotations

from collections.abc import Sequence

FAN_OUT = 4
RUNS_MAX = 8
_TIER_BYTES = 64 * 1024  # everything smaller is of one tier
_BOTTOM_PART = 2


def plan_merge(
    sizes: Sequence[int], *, fan_out: int = FAN_OUT, runs_max: int = RUNS_MAX
) -> range | None:
    """Which runs, next to each other, to merge into one; *sizes* are oldest first.

    The bottom run joins in when what is merged onto it has half its size: then the rewriting pays,
    because deletes and old values go.
    """
    start = _full_tier(sizes, fan_out)
    if start is not None:
        return range(0 if start == 1 and _pays(sizes) else start, len(sizes))
    if len(sizes) > runs_max:
        cheapest = min(range(len(sizes) - 1), key=lambda i: sizes[i] + sizes[i + 1])
        return range(cheapest, cheapest + 2)
    return None


def _full_tier(sizes: Sequence[int], fan_out: int) -> int | None:
    """The oldest run of the largest tier that is full."""
    tiers = [tier_of(size, fan_out) for size in sizes]
    full = [tier for tier in set(tiers) if tiers.count(tier) >= fan_out]
    return tiers.index(max(full)) if full else None


def tier_of(size: int, fan_out: int = FAN_OUT) -> int:
    tier = 0
    while size >= _TIER_BYTES * fan_out ** (tier + 1):
        tier += 1
    return tier


def _pays(sizes: Sequence[int]) -> bool:
    return sum(sizes[1:]) * _BOTTOM_PART >= sizes[0]
