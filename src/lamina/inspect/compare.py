"""Rows of two sides told apart: which key has which row on the other side, which values differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lamina.errors import UsageError
from lamina.state.key_columns import check_key_type
from lamina.state.keys import canonical, equal, normalise
from lamina.state.run import slots_of_batch
from lamina.state.schema import StateSchema
from lamina.state.vnodes import Mask, Rows, Slots


@dataclass(frozen=True, slots=True)
class Matched:
    """Row numbers: keys of one side only, and pairs of rows of keys that both sides have."""

    left_only: Rows
    right_only: Rows
    left: Rows
    right: Rows


def match(left: pa.RecordBatch, right: pa.RecordBatch, schema: StateSchema) -> Matched:
    """Pair the rows of sorted runs by key; nearly always the slot tells."""
    mine, theirs = slots_of_batch(left), slots_of_batch(right)
    if _repeated(mine) or _repeated(theirs):  # a slot with two keys is rare enough to cost
        mine, theirs = _numbered(left, right, schema)
        order = np.argsort(theirs, kind="stable")
    else:
        order = np.arange(len(theirs))
    ordered = theirs[order]
    at = np.searchsorted(ordered, mine, "left")
    hit = at < len(ordered)
    hit[hit] = ordered[at[hit]] == mine[hit]
    rows, others = np.flatnonzero(hit), order[at[hit]]
    keys = [column.take(pa.array(rows)) for column in schema.keys_of(left)]
    same = equal(keys, [column.take(pa.array(others)) for column in schema.keys_of(right)])
    rows, others = rows[same], others[same]
    return Matched(_rest(rows, len(mine)), _rest(others, len(theirs)), rows, others)


def differing(left: pa.RecordBatch, right: pa.RecordBatch) -> Mask:
    """Which rows have other values; null equals null, and NaN equals NaN."""
    found = np.zeros(left.num_rows, np.bool_)
    for mine, theirs in zip(left.columns, right.columns, strict=True):
        found |= ~_equal_values(mine, theirs)
    return found


def _repeated(slots: Slots) -> bool:
    return bool(np.any(slots[1:] == slots[:-1]))


def _numbered(
    left: pa.RecordBatch, right: pa.RecordBatch, schema: StateSchema
) -> tuple[Slots, Slots]:
    """One number per key, the same on both sides."""
    both = pa.concat_arrays([canonical(schema.keys_of(b)) for b in (left, right)])
    numbers = both.dictionary_encode().indices.to_numpy().astype(np.uint64)
    return numbers[: left.num_rows], numbers[left.num_rows :]


def _rest(rows: Rows, count: int) -> Rows:
    others = np.ones(count, np.bool_)
    others[rows] = False
    return np.flatnonzero(others)


def _equal_values(left: pa.Array, right: pa.Array) -> Mask:
    try:
        check_key_type(left.type, "")
    except UsageError:
        return _equal_maps(left, right)
    return equal([normalise(left)], [normalise(right)])


def _equal_maps(left: pa.Array, right: pa.Array) -> Mask:
    """Maps, and what else no key can be: as Arrow compares them, one by one."""
    pairs = zip(left, right, strict=True)
    return np.fromiter((mine.equals(theirs) for mine, theirs in pairs), np.bool_, len(left))
