"""Old and new versions of rows, and the changes that people see of them (EMIT CHANGES).

versions     of every key that an epoch has changed: its row of the state before, and after
changes_of   what the final projection has made of them: +I, -U and +U, -D; nothing of equal ones

The projection may leave a version out (HAVING), or make several rows of one (ranks). So every row
carries a number that both versions of it share, and that of the old one is turned into its
complement, which is negative. Within an epoch a row has one old version and one new one at most, so
nobody has to ask in which order changes came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamina.engine.ports import CHANGE, DELETE, INSERT, TAKE_BACK, UPDATE
from lamina.errors import UsageError
from lamina.state.key_columns import check_key_type
from lamina.state.keys import equal, normalise
from lamina.state.partition import Applied, Looked
from lamina.state.schema import StateSchema
from lamina.state.vnodes import Mask

PAIR = "_lamina_pair"
"""The column with the number that the old and the new version of a row share."""


def versions(schema: StateSchema, applied: Applied) -> list[pa.RecordBatch]:
    """The rows of the state before and after, each with its number."""
    numbers = np.arange(applied.keys.num_rows)
    sides = ((applied.old, ~numbers), (applied.new, numbers))
    return [_version(schema, applied, *side) for side in sides if side[0].found.any()]


def _version(
    schema: StateSchema, applied: Applied, side: Looked, numbers: npt.NDArray[Any]
) -> pa.RecordBatch:
    columns = [*applied.keys.columns, *side.values.columns]
    rows = pa.RecordBatch.from_arrays(columns, names=schema.row.names)
    numbered = rows.append_column(PAIR, pa.array(numbers, pa.int64()))
    return numbered.filter(pa.array(side.found))


def changed_only(applied: Applied) -> Applied:
    """Without keys whose values are as they were: nothing is written of them."""
    old, new = applied.old, applied.new
    both = old.found & new.found
    same = both & _same(old.values.columns, new.values.columns)
    return only(applied, ~same) if same.any() else applied


def only(applied: Applied, kept: Mask) -> Applied:
    """The keys of *kept*."""
    mask = pa.array(kept)

    def looked(side: Looked) -> Looked:
        return Looked(side.found[kept], side.values.filter(mask))

    return Applied(
        applied.keys.filter(mask),
        looked(applied.old),
        looked(applied.new),
        applied.run.filter(mask),
    )


def changes_of(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Versions of rows as changes: without their numbers, with the column CHANGE behind them.

    An old version comes directly before the new one.
    """
    numbers = rows.column(PAIR).to_numpy()
    plain = rows.drop_columns([PAIR])
    is_old = numbers < 0
    row_of = np.where(is_old, ~numbers, numbers)
    old, new = np.flatnonzero(is_old), np.flatnonzero(~is_old)
    _, old_at, new_at = np.intersect1d(
        row_of[old], row_of[new], assume_unique=True, return_indices=True
    )
    old, new = old[old_at], new[new_at]
    kinds = np.where(is_old, DELETE, INSERT)
    kinds[old], kinds[new] = TAKE_BACK, UPDATE
    same = _same(plain.take(pa.array(old)).columns, plain.take(pa.array(new)).columns)
    differs = np.ones(len(numbers), np.bool_)
    differs[old[same]] = differs[new[same]] = False
    order = np.lexsort((~is_old, row_of))
    order = order[differs[order]]
    changes = plain.append_column(CHANGE, pa.array(kinds, pa.string()))
    return changes.take(pa.array(order))


def _same(old: Sequence[pa.Array], new: Sequence[pa.Array]) -> Mask:
    """Where two rows are equal. Values of a type that cannot be compared count as different."""
    if any(not _has_equality(column.type) for column in old):
        return np.zeros(len(old[0]), np.bool_)
    return equal([normalise(column) for column in old], [normalise(column) for column in new])


def _has_equality(kind: pa.DataType) -> bool:
    try:
        check_key_type(kind, "")
    except UsageError:
        return False
    return True
