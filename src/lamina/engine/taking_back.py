"""Aggregates over changes: partials that take rows back, and groups that have no rows left.

Spark computes the partials of what is new and of what is taken back apart, and says which are
which. Here those that take back are turned around: sums and counts are negative then, and so is how
often a value is put into a bag. Which merges can do that: `TURNED`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.engine.changing import only
from lamina.errors import Overflow, Refused
from lamina.state.merge import Merge
from lamina.state.merge_bags import counts_of, signed_bags
from lamina.state.partition import Applied, Looked
from lamina.state.schema import DELETE, OP, PUT, SYSTEM_COLUMNS, StateSchema, null_where
from lamina.state.vnodes import Mask

TAKEN_BACK = "_lamina_taken_back"
"""The column beside partials that says that they are of rows that are taken back."""


def _negative(column: pa.Array, taken_back: Mask) -> pa.Array:
    try:
        return pc.if_else(pa.array(taken_back), pc.negate_checked(column), column)
    except pa.ArrowInvalid as error:
        raise Overflow(f"a sum of {column.type} that is taken back is too large") from error


TURNED: Mapping[str, Callable[[pa.Array, Mask], pa.Array]] = {
    "sum": _negative,
    "count": _negative,
    "bag": signed_bags,
}
"""How a partial is turned around, by merge function."""


def turned(
    schema: StateSchema, columns: Sequence[pa.Array], taken_back: pa.Array
) -> list[pa.Array]:
    """Partials, keys first, with those turned around that are of rows taken back."""
    mask: Mask = taken_back.fill_null(False).to_numpy(zero_copy_only=False)
    functions = {column: merge.function for merge in schema.merges for column in merge.columns}
    return [
        TURNED[functions[name]](column, mask) if name in functions else column
        for name, column in zip(schema.row.names, columns, strict=True)
    ]


def without_empty(schema: StateSchema, applied: Applied, live: str | None) -> Applied:
    """Groups whose last row was taken back are gone; *live* is the column that counts rows."""
    _check_counts(schema.merges, applied.new.values)
    if live is None or not applied.rows:
        return applied
    empty = applied.new.values.column(live).to_numpy(zero_copy_only=False) == 0
    if not empty.any():
        return applied
    run = applied.run
    values = null_where(run.columns[SYSTEM_COLUMNS + len(schema.key) :], empty)
    operations = pa.array(np.where(empty, np.uint8(DELETE), np.uint8(PUT)), pa.uint8())
    columns = [*run.columns[: SYSTEM_COLUMNS + len(schema.key)], *values]
    columns[run.schema.get_field_index(OP)] = operations
    gone = pa.RecordBatch.from_arrays(columns, schema=run.schema)
    new = Looked(applied.new.found & ~empty, applied.new.values)
    there = applied.old.found | ~empty  # what comes and goes in one epoch never was
    return only(Applied(applied.keys, applied.old, new, gone), there)


def _check_counts(merges: Sequence[Merge], values: pa.RecordBatch) -> None:
    """Nothing is taken back that was never counted: then the state is of another SELECT."""
    for merge in merges:
        if merge.function not in ("count", "bag"):
            continue
        column = values.column(merge.columns[0])
        least = pc.min(counts_of(column) if merge.function == "bag" else column).as_py()
        if least is not None and least < 0:
            raise Refused(
                "rows are taken back that this state has never counted",
                advice="Give the stream, and the one that it reads, new names",
            )
