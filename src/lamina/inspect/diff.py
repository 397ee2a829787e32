"""What differs between two states of an operator: counts first, then the rows, streamed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lamina.checkpoint.progress import Progress, Report, silent
from lamina.errors import NotFound, StateChanged
from lamina.inspect.compare import differing, match
from lamina.inspect.view import Lists, View
from lamina.inspect.windows import Part, parts, windows
from lamina.state.meanings import for_people
from lamina.state.run import slots_of_batch
from lamina.state.scanning import scan_runs
from lamina.state.schema import StateSchema, check_successor
from lamina.state.vnodes import EVERYTHING, Rows, SlotRange

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
_STEPS = 1 << 16


@dataclass(frozen=True, slots=True)
class Counts:
    """How many keys are only in the second state, only in the first, in both with other values,
    in both with the same."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    same: int = 0

    @property
    def equal(self) -> bool:
        return not (self.added or self.removed or self.changed)

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.added + other.added,
            self.removed + other.removed,
            self.changed + other.changed,
            self.same + other.same,
        )


@dataclass(frozen=True, slots=True)
class _Window:
    """What was found in a window: rows of each side in a run's form, and which of them differ."""

    left: pa.RecordBatch
    right: pa.RecordBatch
    added: Rows  # of right
    removed: Rows  # of left
    changed: tuple[Rows, Rows]  # of left, of right
    same: int

    @property
    def counts(self) -> Counts:
        return Counts(len(self.added), len(self.removed), len(self.changed[0]), self.same)


class OperatorDiff:
    """Made by `diff`. Memory does not depend on the size of the states."""

    def __init__(
        self, operator: str, left: Lists | None, right: Lists | None, columns: StateSchema | None
    ) -> None:
        self.operator = operator
        self._stored = columns
        self.columns = None if columns is None else for_people(columns)
        """None if nothing was ever written to it."""
        self._left = left
        self._right = right

    @property
    def schema(self) -> pa.Schema:
        """`change`, the key columns, `old_...` and `new_...` of each value column."""
        if self.columns is None:
            raise NotFound(f"nothing was ever written to {self.operator!r}")
        return _output(self.columns)

    def counts(self, report: Report = silent) -> Counts:
        """Everything is compared, except where both sides have the very same runs."""
        total = Counts()
        for part in parts(self._left, self._right):
            if part.same:
                total += Counts(same=self._count(part.within))
                _tell(report, part.within, self.operator)
                continue
            for window in self._compared(part, report):
                total += window.counts
        return total

    def batches(self, report: Report = silent) -> Iterator[pa.RecordBatch]:
        """The keys that differ, in the order of their slots, with their values before and after."""
        for part in parts(self._left, self._right):
            if part.same:
                continue
            for window in self._compared(part, report):
                if not window.counts.equal:
                    yield self._rows(window)

    # steps

    def _compared(self, part: Part, report: Report) -> Iterator[_Window]:
        for within in windows(part.within, self._left, self._right):
            yield self._compare(within)
            _tell(report, within, self.operator)

    def _compare(self, within: SlotRange) -> _Window:
        assert self._stored is not None
        left, right = self._read(self._left, within), self._read(self._right, within)
        found = match(left, right, self._stored)
        values = [
            self._stored.values_of(side.take(pa.array(rows)))
            for side, rows in ((left, found.left), (right, found.right))
        ]
        differ = differing(*values)
        changed = found.left[differ], found.right[differ]
        same = len(found.left) - len(changed[0])
        return _Window(left, right, found.right_only, found.left_only, changed, same)

    def _read(self, side: Lists | None, within: SlotRange) -> pa.RecordBatch:
        """The newest row of every key of a window, as one batch in a run's form."""
        assert self._stored is not None
        batches = [b.replace_schema_metadata(None) for b in self._merged(side, within)]
        if batches:
            return pa.concat_batches(batches)
        return pa.RecordBatch.from_pylist([], self._stored.run.remove_metadata())

    def _merged(self, side: Lists | None, within: SlotRange) -> Iterator[pa.RecordBatch]:
        assert self._stored is not None
        for partition in side.by_slot if side is not None else ():
            if partition.within.meets(within):
                cut = partition.within.cut(within)
                yield from scan_runs(
                    partition.runs, self._stored, within=cut, bottom=True, floor=partition.floor
                )

    def _count(self, within: SlotRange) -> int:
        """How many keys both sides have where nothing differs: one side tells."""
        side = self._left
        if side is None:
            return 0
        runs = side.state.runs()
        if within == EVERYTHING and len(runs) == 1 and runs[0].path and side.state.floor is None:
            return runs[0].rows  # the oldest file has no deletes
        return sum(batch.num_rows for batch in self._merged(side, within))

    def _rows(self, window: _Window) -> pa.RecordBatch:
        """The three kinds of change, in the order of their slots."""
        assert self._stored is not None
        nothing = np.zeros(0, np.int64)
        found = [
            self._kind(REMOVED, window, window.removed, nothing),
            self._kind(ADDED, window, nothing, window.added),
            self._kind(CHANGED, window, *window.changed),
        ]
        slots = np.concatenate(
            [
                slots_of_batch(window.left)[window.removed],
                slots_of_batch(window.right)[window.added],
                slots_of_batch(window.left)[window.changed[0]],
            ]
        )
        order = np.argsort(slots, kind="stable")
        return pa.concat_batches(found).take(pa.array(order))

    def _kind(self, change: str, window: _Window, left: Rows, right: Rows) -> pa.RecordBatch:
        assert self._stored is not None
        schema, rows = self._stored, max(len(left), len(right))
        old, new = window.left.take(pa.array(left)), window.right.take(pa.array(right))
        keys = schema.keys_of(old if len(left) else new)
        before = _values(schema, old, rows)
        after = _values(schema, new, rows)
        paired = [column for pair in zip(before, after, strict=True) for column in pair]
        columns = [pa.repeat(pa.scalar(change), rows), *keys, *paired]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def diff(left: View, right: View, operator: str, *, report: Report = silent) -> OperatorDiff:
    """Compare an operator's state in two views; a view without the operator counts as empty."""
    views = [view for view in (left, right) if operator in view.operators]
    if not views:
        left.lists(operator)  # raises why not
    lists = [v.lists(operator, report) if v in views else None for v in (left, right)]
    schemas = [each.state.schema for each in lists if each is not None]
    return OperatorDiff(operator, lists[0], lists[1], _wider(schemas, operator))


def _wider(schemas: Sequence[StateSchema], operator: str) -> StateSchema | None:
    """The columns that both sides can be read with: of two, the later ones."""
    if not schemas:
        return None
    first, last = schemas[0], schemas[-1]
    try:
        check_successor(first, last, operator)
    except StateChanged:
        check_successor(last, first, operator)
        return first
    return last


def _output(schema: StateSchema) -> pa.Schema:
    taken = set(schema.key.names)
    fields = [pa.field(_free("change", taken), pa.string(), nullable=False)]
    fields += [field.remove_metadata() for field in schema.key]
    for field in schema.value:
        fields += [
            pa.field(_free(f"{age}_{field.name}", taken), field.type) for age in ("old", "new")
        ]
    return pa.schema(fields)


def _free(name: str, taken: set[str]) -> str:
    """A name that no other column has."""
    while name in taken:
        name = f"_{name}"
    taken.add(name)
    return name


def _values(schema: StateSchema, batch: pa.RecordBatch, rows: int) -> list[pa.Array]:
    """The value columns, or nulls where this side has no such keys."""
    if batch.num_rows or not rows:
        return list(schema.values_of(batch).columns)
    return [pa.nulls(rows, field.type) for field in schema.value]


def _tell(report: Report, within: SlotRange, operator: str) -> None:
    done = (within.last + 1) * _STEPS >> 64
    report(Progress(done, _STEPS, "steps", operator))
