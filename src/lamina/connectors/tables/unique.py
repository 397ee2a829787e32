"""Whether the keys of a table tell its rows apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lamina.errors import Refused


def check_unique(table: str, files: Sequence[Path], keys: Sequence[str]) -> None:
    """Refused, with its values, at a key that two rows have; nulls are equal to nothing."""
    if not keys or not files:
        return
    rows = pa.concat_tables(pq.read_table(file, columns=list(keys)) for file in files).drop_null()
    try:
        counts = rows.group_by(list(keys)).aggregate([([], "count_all")])
    except pa.ArrowNotImplementedError as error:
        raise Refused(
            f"the keys of the table {table!r} cannot be compared: {error}",
            advice="Leave out the option `keys`, or name columns of simple types",
        ) from error
    twice = counts.filter(pc.greater(counts["count_all"], 1))
    if twice.num_rows:
        first = twice.slice(0, 1).to_pylist()[0]
        said = ", ".join(f"{key} = {first[key]!r}" for key in keys)
        raise Refused(
            f"{first['count_all']} rows of the table {table!r} have the key {said}, and "
            f"{twice.num_rows} keys are there more than once",
            advice="Remove the duplicates, or leave out the option `keys`: then a row of a stream "
            "comes out once for each of them",
        )
