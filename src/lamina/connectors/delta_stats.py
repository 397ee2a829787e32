"""Statistics of a file for the Delta log: rows, nulls, and smallest and largest values.

Readers leave out files by them, so what is not certain is not said: no limits for numbers with
NaN, for decimals (JSON would round them) and for long texts.
"""

from __future__ import annotations

import json
from datetime import date, datetime

import pyarrow.parquet as pq

COLUMNS_MAX = 32
TEXT_MAX = 64

Limit = str | int


def stats_of(file: pq.FileMetaData) -> str:
    """The statistics of a Parquet file, from its footer."""
    columns = {column: _limits(file, column) for column in _flat(file)[:COLUMNS_MAX]}
    names = {column: file.schema.column(column).name for column in columns}
    return json.dumps(
        {
            "numRecords": file.num_rows,
            "minValues": {names[c]: found[0] for c, found in columns.items() if found},
            "maxValues": {names[c]: found[1] for c, found in columns.items() if found},
            "nullCount": null_counts(file),
        }
    )


def null_counts(file: pq.FileMetaData) -> dict[str, int]:
    """Of the columns that are not nested."""
    found = {}
    for column in _flat(file):
        groups = [file.row_group(g).column(column).statistics for g in range(file.num_row_groups)]
        if all(each is not None and each.has_null_count for each in groups):
            found[file.schema.column(column).name] = sum(each.null_count for each in groups)
    return found


def _flat(file: pq.FileMetaData) -> list[int]:
    """Columns that are no part of another: their path is their name."""
    columns = range(file.num_columns)
    return [
        number
        for number in columns
        if file.schema.column(number).max_repetition_level == 0
        and file.schema.column(number).path == file.schema.column(number).name
    ]


def _limits(file: pq.FileMetaData, column: int) -> tuple[Limit, Limit] | None:
    """The smallest and the largest value, or None: not known, or not certain."""
    groups = [file.row_group(g).column(column).statistics for g in range(file.num_row_groups)]
    groups = [each for each in groups if each is not None]
    if len(groups) != file.num_row_groups or not all(each.has_min_max for each in groups):
        return None
    try:
        least, most = min(each.min for each in groups), max(each.max for each in groups)
    except (ValueError, OverflowError):  # a time that Python does not know; or no rows
        return None
    first, last = _written(least), _written(most)
    return None if first is None or last is None else (first, last)


def _written(value: object) -> Limit | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if len(value) <= TEXT_MAX else None
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text if value.tzinfo is None else f"{text}Z"
    return value.isoformat() if isinstance(value, date) else None
