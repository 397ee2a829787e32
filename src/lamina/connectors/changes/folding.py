"""All changes of an epoch, folded: of each key at most one row that is gone and one that is new.

What happened to a key is a sequence of versions, each taken back before the next one comes. If its
first entry is one that is taken back, that row was there before the epoch; if its last one is new,
that row is there after it. All between them is nobody's business (decision 0028).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lamina.engine.ports import CHANGE, DELETE, INSERT, TAKE_BACK, UPDATE
from lamina.state.keys import equal, normalise

SEQUENCE, IS_NEW = "_lamina_sequence", "_lamina_new"
NEVER = -(1 << 63)
"""Before all entries. Those with numbers below 0 were there before the epoch."""


def fold(entries: pa.Table, keys: Sequence[str], cleared_at: int = NEVER) -> pa.Table:
    """The changes that *entries* come to: rows with IS_NEW and a SEQUENCE of its own each.

    What came before *cleared_at* is gone: the table was truncated there.
    """
    names = [f"k{number}" for number in range(len(keys))]
    sequence = entries[SEQUENCE].to_numpy()
    ordered = np.argsort(sequence)
    keyed = entries.select(keys).rename_columns(names).append_column("s", entries[SEQUENCE])
    # In one thread: the rows are in the same order whenever the range is read.
    ends = keyed.group_by(names, use_threads=False).aggregate([("s", "min"), ("s", "max")])
    first, last = (
        ordered[np.searchsorted(sequence, ends[each].to_numpy(), sorter=ordered)]
        for each in ("s_min", "s_max")
    )
    is_new = entries[IS_NEW].to_numpy()
    was_there, is_there = ~is_new[first], is_new[last] & (sequence[last] > cleared_at)
    rows = entries.drop_columns([SEQUENCE, IS_NEW]).combine_chunks()
    both = np.flatnonzero(was_there & is_there)
    same = both[_same(rows.take(pa.array(first[both])), rows.take(pa.array(last[both])))]
    was_there[same] = is_there[same] = False
    old, new = first[was_there], last[is_there]
    kinds = np.concatenate(
        [
            np.where(is_there[was_there], TAKE_BACK, DELETE),
            np.where(was_there[is_there], UPDATE, INSERT),
        ]
    )
    found = rows.take(pa.array(np.concatenate([old, new])))
    return found.append_column(CHANGE, pa.array(kinds, pa.string()))


def _same(left: pa.Table, right: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    mine, theirs = ([normalise(_one(column)) for column in side.columns] for side in (left, right))
    return equal(mine, theirs)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
