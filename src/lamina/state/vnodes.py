"""Where a key lives: its vnode, the owner of that vnode, and its place in a run.

vnode      pmod(hash(key), 256), as Spark computes it
owner      vnode mod P, for P a power of two: so task p of `repartition(P, key)` is the owner
slot       64 bits: the vnode with its bits reversed, then the upper 56 bits of the key's xxhash64

Timers have another slot: the vnode is that of their keys without the time, so that they live where
those keys do. Then come 36 bits of the time, which are steps of 16.8 seconds, and 20 of the hash.
What is due of a vnode stands together then, at its beginning.

Rows that are found by a part of their key (the buffered rows of a join) have a third: the vnode and
32 bits of the hash are those of that part, then come 24 bits of the hash of the whole key. The rows
of a part stand together then, and nearly all have a slot of their own.

Runs are sorted by slot. With its bits reversed, the low bits that choose the owner come first: so
the vnodes of any owner, for any P, are one slice of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lamina.errors import UsageError

VNODE_COUNT = 256
PARTITIONS_MAX = VNODE_COUNT
_HASH_BITS = np.uint64(56)
_DROPPED_BITS = np.uint64(8)
_STEP_BITS = 24  # of microseconds
_STEPS = 1 << 36  # with the epoch in the middle: 18,000 years before it and after it
_TIMED_HASH_BITS = 20
_GROUP_BITS, _MEMBER_BITS = 32, 24

Slots: TypeAlias = npt.NDArray[np.uint64]
Rows: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Vnodes: TypeAlias = npt.NDArray[np.uint8]

REVERSED: Vnodes = np.array([int(f"{v:08b}"[::-1], 2) for v in range(VNODE_COUNT)], np.uint8)
"""A vnode with its bits reversed: its rank in a run. It is its own inverse."""


def check_partitions(partitions: int) -> int:
    """P as it may be: a power of two from 1 to 256."""
    if not 1 <= partitions <= PARTITIONS_MAX or partitions & (partitions - 1):
        raise UsageError(
            f"{partitions} partitions: the number must be a power of two from 1 to {PARTITIONS_MAX}"
        )
    return partitions


def slots_of(vnodes: npt.NDArray[np.integer], hashes: npt.NDArray[np.integer]) -> Slots:
    """The sort key of a run, from the two columns that Spark computes."""
    if vnodes.size and (vnodes.min() < 0 or vnodes.max() >= VNODE_COUNT):
        raise UsageError(f"a vnode is from 0 to {VNODE_COUNT - 1}, not {vnodes.max()}")
    ranks = REVERSED[vnodes.astype(np.uint8, copy=False)].astype(np.uint64)
    return (ranks << _HASH_BITS) | (hashes.view(np.uint64) >> _DROPPED_BITS)


def timed_slots_of(
    vnodes: npt.NDArray[np.integer], times: Rows, hashes: npt.NDArray[np.integer]
) -> Slots:
    """The sort key of timers; *times* are in microseconds."""
    steps = np.clip((times >> _STEP_BITS) + _STEPS // 2, 0, _STEPS - 1).astype(np.uint64)
    ranks = REVERSED[vnodes.astype(np.uint8, copy=False)].astype(np.uint64)
    low = hashes.view(np.uint64) >> np.uint64(64 - _TIMED_HASH_BITS)
    slots: Slots = (ranks << _HASH_BITS) | (steps << np.uint64(_TIMED_HASH_BITS)) | low
    return slots


def group_slots_of(
    vnodes: npt.NDArray[np.integer],
    groups: npt.NDArray[np.integer],
    hashes: npt.NDArray[np.integer],
) -> Slots:
    """The sort key of rows that are found by a part of their key, which *groups* are hashes of."""
    members = hashes.view(np.uint64) >> np.uint64(64 - _MEMBER_BITS)
    slots: Slots = _group_starts(vnodes, groups) | members
    return slots


def group_ranges(
    vnodes: npt.NDArray[np.integer], groups: npt.NDArray[np.integer]
) -> tuple[Slots, Slots]:
    """The first and the last slot that the rows of each group may have; sorted, each range once."""
    firsts = np.unique(_group_starts(vnodes, groups))
    return firsts, firsts | np.uint64((1 << _MEMBER_BITS) - 1)


def _group_starts(vnodes: npt.NDArray[np.integer], groups: npt.NDArray[np.integer]) -> Slots:
    ranks = REVERSED[vnodes.astype(np.uint8, copy=False)].astype(np.uint64)
    high = groups.view(np.uint64) >> np.uint64(64 - _GROUP_BITS)
    starts: Slots = (ranks << _HASH_BITS) | (high << np.uint64(_MEMBER_BITS))
    return starts


def timed_ranges(within: SlotRange, since: int | None, before: int | None) -> tuple[Slots, Slots]:
    """Of every vnode in *within*, the first and the last slot of timers in a range of time."""
    ranks = np.arange(within.first >> 56, (within.last >> 56) + 1, dtype=np.uint64)
    first = 0 if since is None else _step(since)
    last = _STEPS - 1 if before is None else _step(before)
    low, high = first << _TIMED_HASH_BITS, ((last + 1) << _TIMED_HASH_BITS) - 1
    starts = ranks << _HASH_BITS
    return starts | np.uint64(low), starts | np.uint64(high)


def _step(time: int) -> int:
    return min(max((time >> _STEP_BITS) + _STEPS // 2, 0), _STEPS - 1)


def vnodes_of_slots(slots: Slots) -> Vnodes:
    """The vnode that each slot begins with."""
    return REVERSED[(slots >> _HASH_BITS).astype(np.uint8)]


@dataclass(frozen=True, slots=True)
class SlotRange:
    """A slice of the key space: every slot from *first* to *last*."""

    first: int = 0
    last: int = 2**64 - 1

    @classmethod
    def of_partition(cls, partition: int, partitions: int) -> SlotRange:
        """The vnodes of one owner."""
        width = VNODE_COUNT // check_partitions(partitions)
        if not 0 <= partition < partitions:
            raise UsageError(f"there is no partition {partition} of {partitions}")
        rank = int(REVERSED[partition])
        return cls(rank << 56, ((rank + width) << 56) - 1)

    @classmethod
    def of_vnode(cls, vnode: int) -> SlotRange:
        rank = int(REVERSED[vnode])
        return cls(rank << 56, ((rank + 1) << 56) - 1)

    def meets(self, other: SlotRange) -> bool:
        return self.first <= other.last and other.first <= self.last

    def cut(self, other: SlotRange) -> SlotRange:
        """What two ranges that meet have in common."""
        assert self.meets(other), (self, other)
        return SlotRange(max(self.first, other.first), min(self.last, other.last))

    def slice_of(self, slots: Slots) -> slice:
        """Which rows of sorted *slots* are in it."""
        first = int(np.searchsorted(slots, np.uint64(self.first), "left"))
        return slice(first, int(np.searchsorted(slots, np.uint64(self.last), "right")))


EVERYTHING = SlotRange()
