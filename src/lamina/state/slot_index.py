"""Where slots stand in a block, for many of them at once.

A binary search waits for memory at every step. Slots are hashes, evenly spread, so a table by their
upper bits says nearly where each stands, and the few steps that are left are made for all of them
together. Where many are asked for and most are not there, one bit for each of eight parts of a
row's share of the range tells that first.

Neither is needed for an answer, only for its speed: any sorted slots are found.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lamina.state.vnodes import Mask, Rows, Slots

FEW = 64  # so few are looked up one by one
DENSE = 32  # rows for each that is asked for
ROWS_PER_BUCKET = 8
BITS_PER_ROW = 8


class SlotIndex:
    """What is known about the slots of one block; made as it is needed. The slots are not kept."""

    def __init__(self) -> None:
        self._table: _Table | None = None
        self._bits: _Bits | None = None

    def find(self, slots: Slots, wanted: Slots) -> tuple[Rows, Rows]:
        """Which of *wanted* are among *slots*, and at which row each begins; both are sorted."""
        if not len(slots):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        start, end = wanted.searchsorted(slots[0], "left"), wanted.searchsorted(slots[-1], "right")
        wanted, which = wanted[start:end], None
        if len(wanted) >= FEW and len(wanted) * DENSE >= len(slots):
            which = self._bits_of(slots).may_have(wanted).nonzero()[0]
            wanted = wanted.take(which)
        if len(wanted) >= FEW:
            at = self._table_of(slots).lower_bounds(slots, wanted)
        else:
            at = slots.searchsorted(wanted, "left")
        there = (slots.take(at) == wanted).nonzero()[0]
        return (there if which is None else which.take(there)) + start, at.take(there)

    def _table_of(self, slots: Slots) -> _Table:
        if self._table is None:
            self._table = _Table(slots)
        return self._table

    def _bits_of(self, slots: Slots) -> _Bits:
        if self._bits is None:
            self._bits = _Bits(slots)
        return self._bits


class _Table:
    """The row at which each of equal parts of the range begins."""

    def __init__(self, slots: Slots) -> None:
        self._first = slots[0]
        self._shift = _shift(slots, max(1, len(slots) // ROWS_PER_BUCKET))
        counts = np.bincount(_parts(slots, self._first, self._shift))
        self._starts = np.zeros(len(counts), np.int32)
        np.cumsum(counts[:-1], out=self._starts[1:])
        self._steps = int(counts.max()).bit_length()

    def lower_bounds(self, slots: Slots, wanted: Slots) -> Rows:
        """As np.searchsorted; all of *wanted* are between the first slot and the last."""
        at = self._starts.take(_parts(wanted, self._first, self._shift)).astype(np.int64)
        for step in reversed(range(self._steps)):
            size = 1 << step
            at += (slots.take(at + (size - 1), mode="clip") < wanted) * np.int64(size)
        return at


class _Bits:
    """One bit for each of very small equal parts of the range: whether it has a slot."""

    def __init__(self, slots: Slots) -> None:
        self._first = slots[0]
        self._shift = _shift(slots, len(slots) * BITS_PER_ROW)
        parts = _parts(slots, self._first, self._shift)
        taken = np.zeros(int(parts[-1]) + 1, np.bool_)
        taken[parts] = True
        self._bits: npt.NDArray[np.uint8] = np.packbits(taken, bitorder="little")

    def may_have(self, wanted: Slots) -> Mask:
        parts = _parts(wanted, self._first, self._shift)
        octets = self._bits.take(parts >> 3)
        return np.asarray((octets >> (parts & 7).astype(np.uint8)) & 1, np.bool_)


def _shift(slots: Slots, parts: int) -> np.uint64:
    """How many lower bits are left out for about so many parts of the range."""
    span = int(slots[-1]) - int(slots[0])
    return np.uint64(max(0, span.bit_length() - parts.bit_length()))


def _parts(slots: Slots, first: np.uint64, shift: np.uint64) -> Rows:
    parts: Rows = ((slots - first) >> shift).view(np.int64)
    return parts
