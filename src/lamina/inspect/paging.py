"""State page by page: the next rows after a place, without reading what was shown before.

Rows come in the order of their slots, so the place is a slot and how many of its rows were shown:
two keys can share a slot. A filter may pass over a great many rows; a page stops after so many and
says where to go on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lamina.errors import UsageError
from lamina.inspect.view import Lists, View
from lamina.inspect.where import Where, matching, point_key
from lamina.state.partition import StatePartition
from lamina.state.run import slots_of_batch
from lamina.state.scanning import scan_runs
from lamina.state.vnodes import SlotRange

LOOKED_AT_MAX = 500_000
_LAST_SLOT = 2**64 - 1
_CURSOR = re.compile(r"([0-9]{1,20})-([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class Cursor:
    """The slot of the last row that was looked at, and how many rows of it."""

    slot: int
    rows: int

    def __str__(self) -> str:
        return f"{self.slot}-{self.rows}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        found = _CURSOR.fullmatch(text)
        if found is None or int(found[1]) > _LAST_SLOT:
            raise UsageError(f"{text[:40]!r} is not a place in a state")
        return cls(int(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True)
class Page:
    """Rows as people see them, and where the next page begins; None at the end."""

    schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...]
    after: Cursor | None

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches)


def page(
    view: View,
    operator: str,
    where: Where = None,
    *,
    after: Cursor | None = None,
    rows_max: int = 50,
) -> Page | None:
    """At most *rows_max* rows of an operator, behind *after*; None if it was never written to."""
    lists = view.lists(operator)
    if lists is None:
        return None
    schema = lists.columns
    if point_key(schema, where) is not None:
        return Page(schema.row, tuple(view.scan(operator, where)), None)
    wanted = matching(schema, where)
    shown: list[pa.RecordBatch] = []
    left, seen = rows_max, 0
    for batch, slots in _from(lists, after):
        rows = _as_rows(lists, batch)
        marks = wanted(rows.append_column("", pa.array(np.arange(batch.num_rows))))
        if marks.num_rows > left or (marks.num_rows == left and batch.num_rows):
            last = int(marks.column(rows.num_columns)[left - 1].as_py())
            shown.append(_cut(marks, rows.schema, left))
            return Page(schema.row, tuple(shown), _cursor(after, slots, last))
        shown.append(_cut(marks, rows.schema, marks.num_rows))
        left, seen = left - marks.num_rows, seen + batch.num_rows
        if seen >= LOOKED_AT_MAX:
            return Page(schema.row, tuple(shown), _cursor(after, slots, batch.num_rows - 1))
        after = _cursor(after, slots, batch.num_rows - 1)
    return Page(schema.row, tuple(shown), None)


def _from(
    lists: Lists, after: Cursor | None
) -> Iterator[tuple[pa.RecordBatch, np.ndarray[tuple[int], np.dtype[np.uint64]]]]:
    """Batches in a run's form from a place on, each with its slots."""
    rest = SlotRange(after.slot if after else 0, _LAST_SLOT)
    skip = after.rows if after else 0
    for partition in lists.by_slot:
        if not partition.within.meets(rest):
            continue
        for batch in _scanned(partition, rest):
            slots = slots_of_batch(batch)
            start = 0
            if after is not None and skip:
                there = int(np.count_nonzero(slots == np.uint64(after.slot)))
                start, skip = min(skip, there), max(skip - there, 0) if there else 0
            if start < batch.num_rows:
                yield batch.slice(start), slots[start:]


def _scanned(partition: StatePartition, rest: SlotRange) -> Iterator[pa.RecordBatch]:
    within = partition.within.cut(rest)
    runs, schema = partition.runs, partition.schema
    yield from scan_runs(runs, schema, within=within, bottom=True, floor=partition.floor)


def _as_rows(lists: Lists, batch: pa.RecordBatch) -> pa.RecordBatch:
    return lists.state.schema.rows_of(batch).rename_columns(lists.columns.row.names)


def _cut(marked: pa.RecordBatch, schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Without the column of row numbers."""
    return pa.RecordBatch.from_arrays(marked.columns[:-1], schema=schema).slice(0, rows)


def _cursor(
    before: Cursor | None, slots: np.ndarray[tuple[int], np.dtype[np.uint64]], last: int
) -> Cursor:
    """Behind the row *last*: how many rows of its slot have been looked at."""
    slot = int(slots[last])
    rows = int(np.count_nonzero(slots[: last + 1] == slots[last]))
    if before is not None and before.slot == slot:
        rows += before.rows
    return Cursor(slot, rows)
