"""The merge `bag`: values of which each may be there several times, and may be taken out again.

A bag is a list of structs (v, n): each value once, in Spark's order (element_order.py), and how
often it is there. Merged, numbers are added, and what is there no more is left out. New rows have a
number of 1, rows that are taken back one of -1; they may come unsorted, and a value twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.state.element_order import has_order, in_order
from lamina.state.merge_function import Columns, Function, Mask, Step
from lamina.state.merge_lists import extents, lists, ranges


def _bag(step: Step) -> Sequence[pa.Array]:
    (field,), (old,), (new,) = step.fields, step.old, step.new
    (old_start, old_size), (new_start, new_size) = extents(old), extents(new)
    starts = np.column_stack((old_start, new_start + len(old.values)))
    places = ranges(starts, np.column_stack((old_size, new_size)))
    taken = pa.concat_arrays([old.values, new.values]).take(pa.array(places))
    values, counts = taken.field(0), taken.field(1).to_numpy()
    groups = np.repeat(np.arange(len(old)), old_size + new_size)
    order, is_first = in_order(values, groups, descending=False)
    first = np.flatnonzero(is_first)
    sums = np.add.reduceat(counts[order], first) if len(first) else counts[:0]
    kept = sums != 0
    places = order[first][kept]
    columns = [values.take(pa.array(places)), pa.array(sums[kept], pa.int64())]
    made = pa.StructArray.from_arrays(columns, fields=list(field.type.value_type))
    sizes = np.bincount(groups[places], minlength=len(old))
    return (lists(field, sizes, made, pc.and_(pc.is_null(old), pc.is_null(new))),)


def counts_of(bags: pa.Array) -> pa.Array:
    """How often each value of all bags is there."""
    return pc.struct_field(pc.list_flatten(bags), 1)


def signed_bags(bags: pa.Array, taken_back: Mask) -> pa.Array:
    """The bags, and where *taken_back* is true those that take out what they would put in."""
    start, size = extents(bags)
    taken = bags.values.take(pa.array(ranges(start, size)))
    signs = np.repeat(np.where(taken_back, -1, 1), size)
    columns = [taken.field(0), pa.array(taken.field(1).to_numpy() * signs, pa.int64())]
    made = pa.StructArray.from_arrays(columns, fields=list(bags.type.value_type))
    return lists(pa.field("", bags.type), size, made, pc.is_null(bags))


def _check_bag(columns: Columns) -> None:
    columns.count(1, 1, what="one column")
    columns.each(0, _is_bag, what="lists of structs of an ordered value and an int64")


def _is_bag(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    item = kind.value_type
    if not pa.types.is_struct(item) or item.num_fields != 2:
        return False
    return has_order(item.field(0).type) and bool(pa.types.is_int64(item.field(1).type))


BAGS = {"bag": Function(_bag, _check_bag, {})}
