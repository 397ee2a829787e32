"""The versions of keys: rows of the right side of an ASOF join, one for each key and time.

Of several rows with the same key and time the one with the greatest values counts, column by column
and null before everything: a task that is tried again, or has its rows in another order, takes the
same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lamina.engine.asof import Asof
from lamina.state.element_order import has_order, in_order
from lamina.state.keys import canonical, normalise
from lamina.state.vnodes import Mask, Rows


@dataclass(frozen=True, slots=True)
class Versions:
    """Numbers of rows, by key and time."""

    rows: Rows
    codes: Rows  # of their keys
    at: Rows

    @classmethod
    def of(cls, rows: Rows, codes: Rows, at: Rows, values: Sequence[pa.Array]) -> Versions:
        """*codes*, *at* and *values* are of all rows; *rows* says which are versions."""
        order = rows[np.lexsort((at[rows], codes[rows]))]
        again = _as_before(codes[order], at[order])
        if again.any() and values:
            tied = np.flatnonzero(again | np.r_[again[1:], False])
            groups = np.cumsum(~again, dtype=np.int64)[tied]
            taken = [column.take(pa.array(order[tied])) for column in values]
            best, _ = in_order(_comparable(taken), groups, descending=False)
            order[tied] = order[tied][best]
        last = order[~np.r_[again[1:], False]] if len(order) else order
        return cls(last, codes[last], at[last])

    @property
    def is_last(self) -> Mask:
        """Of their keys."""
        if not len(self.rows):
            return np.zeros(0, np.bool_)
        return np.asarray(np.r_[self.codes[1:] != self.codes[:-1], True])

    def chosen(self, step: Asof, codes: Rows, at: Rows) -> Rows:
        """The row for each of the left side, whose keys and times these are; -1 is none."""
        if not len(self.rows):
            return np.full(len(codes), -1)
        times = np.unique(self.at)
        steps = len(times) + 1
        places = self.codes * steps + np.searchsorted(times, self.at)
        low = None if step.low is None else at + step.low
        if step.looks_ahead:
            assert low is not None
            until = codes * steps + np.searchsorted(times, low, "left")
            found = np.searchsorted(places, until, "left")
        else:
            until = codes * steps + np.searchsorted(times, at + step.high, "right")
            found = np.searchsorted(places, until, "left") - 1
        there = np.clip(found, 0, len(places) - 1)
        fits = (found == there) & (self.codes[there] == codes)
        fits &= self.at[there] <= at + step.high
        if low is not None:
            fits &= self.at[there] >= low
        return np.where(fits, self.rows[there], -1)


def _as_before(*columns: Rows) -> Mask:
    """Where a row is as the one before it."""
    if not len(columns[0]):
        return np.zeros(0, np.bool_)
    same = [column[1:] == column[:-1] for column in columns]
    return np.asarray(np.r_[False, np.logical_and.reduce(same)])


def _comparable(columns: Sequence[pa.Array]) -> pa.StructArray:
    """Columns as one that has an order: Spark's, or, of lists and maps, that of their bytes."""
    made = [
        column
        if has_order(column.type)
        else canonical([normalise(column.cast(_without_maps(column.type)))])
        for column in columns
    ]
    return pa.StructArray.from_arrays(made, names=[str(number) for number in range(len(made))])


def _without_maps(kind: pa.DataType) -> pa.DataType:
    """A map as the list of its entries."""
    if pa.types.is_map(kind):
        entry = [("key", _without_maps(kind.key_type)), ("value", _without_maps(kind.item_type))]
        return pa.list_(pa.struct(entry))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _without_maps(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_without_maps(kind.value_type))
    return kind
