"""How two states are walked side by side: by parts of the key space, a block's worth at a time.

A part is as large as the places of runs allow: in it each side has one list of runs. Where the two
lists are the very same runs, nothing differs. Otherwise it is walked in windows: slots are hashes,
so windows of one width hold about the same number of rows, whatever the runs look like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lamina.inspect.view import Lists
from lamina.state.partition import StatePartition
from lamina.state.run_file import BLOCK_BYTES, BLOCK_ROWS
from lamina.state.vnodes import EVERYTHING, SlotRange

WINDOWS_MAX = 1 << 24


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the key space, and whether both sides have the same runs there."""

    within: SlotRange
    same: bool


def parts(left: Lists | None, right: Lists | None) -> Iterator[Part]:
    """The key space in order; neighbours with the same answer are one part."""
    start, same = EVERYTHING.first, None
    for first, last in pairwise(_borders(left, right)):
        now = _runs_at(left, first) == _runs_at(right, first)
        if same is not None and now != same:
            yield Part(SlotRange(start, first - 1), same)
            start = first
        same = now
        if last > EVERYTHING.last:
            yield Part(SlotRange(start, EVERYTHING.last), same)


def windows(
    within: SlotRange, left: Lists | None, right: Lists | None, rows: int = BLOCK_ROWS
) -> Iterator[SlotRange]:
    """A part in windows of about a block of rows or bytes, each at a multiple of its width."""
    runs = [run for side in (left, right) if side is not None for run in side.state.runs()]
    stored, size = sum(run.rows for run in runs), sum(run.size for run in runs)
    wanted = min(WINDOWS_MAX, max(1, stored // rows, size // BLOCK_BYTES))
    width = 1 << (64 - (wanted - 1).bit_length())
    start = within.first
    while start <= within.last:
        end = min(within.last, (start // width + 1) * width - 1)
        yield SlotRange(start, end)
        start = end + 1


def _borders(left: Lists | None, right: Lists | None) -> Sequence[int]:
    """Where a list of runs may begin or end."""
    found = {EVERYTHING.first, EVERYTHING.last + 1}
    for side in (left, right):
        if side is not None:
            ranges = [placed.within for placed in side.placed]
            ranges += [partition.within for partition in side.state.partitions]
            found |= {border for each in ranges for border in (each.first, each.last + 1)}
    return sorted(found)


def _runs_at(side: Lists | None, slot: int) -> tuple[tuple[str, ...], int | None]:
    """What decides about the rows at a slot: the runs, and the floor of its partition."""
    if side is None:
        return (), None
    runs = tuple(p.identity for p in side.placed if p.within.first <= slot <= p.within.last)
    return runs, _owner(side, slot).floor


def _owner(side: Lists, slot: int) -> StatePartition:
    return next(p for p in side.state.partitions if p.within.first <= slot <= p.within.last)
