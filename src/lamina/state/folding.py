"""Several new values of a key as one, before they meet the old one.

Rows are sorted by slot; those of one key stand together then. Sums, counts, minima and maxima of
whole numbers are one call for all keys, if no sum can overflow on its way. All else is merged two
by two, in as many rounds as the most frequent key needs, by the functions that merge old and new
values (merge.py), so rules about nulls, overflow and order are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from lamina.state.changes import changes, key_columns, slots_of_keys
from lamina.state.keys import canonical, equal
from lamina.state.merge import Merge, merge_rows
from lamina.state.run import by_slot
from lamina.state.schema import StateSchema
from lamina.state.vnodes import Mask, Rows, Slots

REDUCED = {"sum": np.add, "count": np.add, "min": np.minimum, "max": np.maximum}
SUM_MAX = 2.0**62  # half of what fits: what a float leaves off does not matter


def folded(schema: StateSchema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Partial values of keys, a key as often as it likes, as a sorted batch in a run's form."""
    keys = key_columns(schema, batch)
    slots = slots_of_keys(keys)
    order, firsts = grouped(slots, keys)
    if len(firsts) == len(order):
        return changes(schema, batch, slots=slots)
    lead = order.take(firsts)
    values = batch.select(schema.value.names)
    once = merge_groups(schema.merges, values, order, firsts, called=schema.called)
    columns = [*(key.take(pa.array(lead)) for key in keys), *once.columns]
    made = pa.RecordBatch.from_arrays(columns, schema=schema.row)
    return changes(schema, made, slots=slots.take(lead))


def merge_groups(
    merges: Sequence[Merge],
    values: pa.RecordBatch,
    order: Rows,
    firsts: Rows,
    *,
    called: Callable[[str], str] = str,
) -> pa.RecordBatch:
    """Each group of rows as one; in this *order* they stand together, and begin at *firsts*.

    *called* gives the names that errors have for columns.
    """
    sizes = np.diff(firsts, append=len(order))
    several = sizes > 1
    place = order.take(firsts)
    if not several.any():
        return values.take(pa.array(place))
    reduced = {merge: _reduced(merge, values, order, firsts) for merge in merges}
    made = {merge.columns[0]: each for merge, each in reduced.items() if each is not None}
    if len(made) < len(merges):
        left = [merge for merge in merges if merge.columns[0] not in made]
        others = values.select([name for merge in left for name in merge.columns])
        rows = order[np.repeat(several, sizes)]
        merged = _merged(left, others.take(pa.array(rows)), sizes[several], called)
        place[several] = np.arange(values.num_rows, values.num_rows + merged.num_rows)
        taken = pa.concat_batches([others, merged]).take(pa.array(place))
        made |= dict(zip(taken.schema.names, taken.columns, strict=True))
    columns = [made[name] for name in values.schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=values.schema)


def _reduced(merge: Merge, values: pa.RecordBatch, order: Rows, firsts: Rows) -> pa.Array | None:
    """All groups in one call: of whole numbers without nulls, whose sums fit in any order."""
    function, column = REDUCED.get(merge.function), values.column(merge.columns[0])
    if function is None or len(merge.columns) > 1:
        return None
    if column.type != pa.int64() or column.null_count:
        return None
    numbers = column.to_numpy()
    if function is np.add and np.abs(numbers.astype(np.float64)).sum() >= SUM_MAX:
        return None
    return pa.array(function.reduceat(numbers.take(order), firsts), pa.int64())


def grouped(slots: Slots, keys: Sequence[pa.Array]) -> tuple[Rows, Rows]:
    """The rows in an order in which those of a key stand together; and where each key begins."""
    order = by_slot(slots)
    ordered = slots.take(order)
    again = np.r_[False, ordered[1:] == ordered[:-1]]
    later = np.flatnonzero(again)
    if not later.size:
        return order, np.arange(len(order))
    this, before = pa.array(order[later]), pa.array(order[later - 1])
    if not equal([key.take(this) for key in keys], [key.take(before) for key in keys]).all():
        return _with_collisions(keys, order, ordered, again)
    return order, np.flatnonzero(~again)


def numbers_of(order: Rows, firsts: Rows) -> Rows:
    """Of each row the number of its group."""
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(order)))
    return numbers


def _with_collisions(
    keys: Sequence[pa.Array], order: Rows, ordered: Slots, again: Mask
) -> tuple[Rows, Rows]:
    """Some slot has several keys: its rows are put in the order of their keys."""
    tied = np.flatnonzero(again | np.r_[again[1:], False])
    names = canonical([key.take(pa.array(order[tied])) for key in keys]).to_pylist()
    ranked = sorted(range(len(tied)), key=lambda i: (int(ordered[tied[i]]), names[i]))
    order = order.copy()
    order[tied] = order[tied[ranked]]
    starts = ~again
    for place, (one, other) in enumerate(pairwise(ranked), start=1):
        if names[one] != names[other]:
            starts[tied[place]] = True
    return order, np.flatnonzero(starts)


def _merged(
    merges: Sequence[Merge], values: pa.RecordBatch, sizes: Rows, called: Callable[[str], str]
) -> pa.RecordBatch:
    """The rows of each group as one; *sizes* are those of the groups, which follow each other."""
    while len(sizes) < values.num_rows:
        starts = np.cumsum(sizes) - sizes
        within = np.arange(values.num_rows) - np.repeat(starts, sizes)
        right = np.flatnonzero(within & 1)
        both = merge_rows(
            merges,
            values.take(pa.array(right - 1)),
            values.take(pa.array(right)),
            np.ones(len(right), np.bool_),
            called=called,
        )
        place = np.flatnonzero(~within & 1)  # of a pair the left one, which is the older
        is_pair = np.r_[within[1:] & 1, 0][place] == 1
        place[is_pair] = values.num_rows + np.arange(len(right))
        values = pa.concat_batches([values, both]).take(pa.array(place))
        sizes = (sizes + 1) // 2
    return values
