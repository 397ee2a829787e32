"""Statistics of a file for the Delta log: rows, nulls, and smallest and largest values.

Readers leave out files by them. deltalake 1.6.6, as a PyArrow dataset, also leaves out files whose
limits are known for some columns and not for the one that is asked for. So the limits of a file are
there for all of its columns, or for none.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from io import BufferedIOBase

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

TEXT_MAX = 64
_LAST_CHARACTER = chr(0x10FFFF)


@dataclass(frozen=True, slots=True)
class FileStats:
    text: str  # for the log
    nulls: dict[str, int]  # by column; of nested ones only where that was wanted


@dataclass(frozen=True, slots=True)
class StatsWanted:
    """Columns of the table that a file does not have, and those that must not be null."""

    absent: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


class _UnknownError(Exception):
    """A limit that is not known, or that JSON cannot express."""


def read_stats(
    opened: BufferedIOBase | pa.NativeFile, wanted: StatsWanted = StatsWanted()
) -> FileStats:
    """Of a Parquet file, from its footer; absent columns of the table are null in it."""
    file = pq.ParquetFile(opened)
    rows = file.metadata.num_rows
    nulls = {name: _nulls(file, number) for name, number in _flat(file)}
    counts = {name: count for name, count in nulls.items() if count is not None}
    said = {"numRecords": str(rows)}
    try:
        known = [(n, number) for n, number in _flat(file) if counts.get(n) != rows]
        limits = {name: _limits(file, number) for name, number in known if _counts(file, number)}
        _refuse_nan(file)
    except (_UnknownError, ValueError, OverflowError):  # times that Python does not have
        pass
    else:
        said["minValues"] = _object({name: least for name, (least, _) in limits.items()})
        said["maxValues"] = _object({name: most for name, (_, most) in limits.items()})
    everywhere = dict.fromkeys(wanted.absent, rows)
    said["nullCount"] = json.dumps(counts | everywhere, ensure_ascii=False)
    nested = [name for name in wanted.required if name not in counts]
    return FileStats(_object(said), counts | _nulls_in_rows(file, nested))


def _object(values: dict[str, str]) -> str:
    """JSON of values that are JSON already: a decimal keeps all of its digits."""
    parts = (f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in values.items())
    return "{" + ",".join(parts) + "}"


def _flat(file: pq.ParquetFile) -> list[tuple[str, int]]:
    """Columns that are not a part of another: their path is their name."""
    schema = file.metadata.schema
    columns = [(schema.column(number), number) for number in range(len(schema))]
    return [
        (column.name, number)
        for column, number in columns
        if column.max_repetition_level == 0 and column.path == column.name
    ]


def _nulls(file: pq.ParquetFile, column: int) -> int | None:
    groups = _statistics(file, column)
    known = all(each is not None and each.has_null_count for each in groups)
    return sum(each.null_count for each in groups) if known else None


def _nulls_in_rows(file: pq.ParquetFile, names: list[str]) -> dict[str, int]:
    """A footer counts the nulls of a nested column's parts only."""
    there = [name for name in names if name in file.schema_arrow.names]
    counts = dict.fromkeys(there, 0)
    for group in range(file.metadata.num_row_groups) if there else ():
        rows = file.read_row_group(group, columns=there)
        for name in there:
            counts[name] += rows[name].null_count
    return counts


def _statistics(file: pq.ParquetFile, column: int) -> list[pq.Statistics]:
    metadata = file.metadata
    return [
        metadata.row_group(group).column(column).statistics
        for group in range(metadata.num_row_groups)
    ]


def _counts(file: pq.ParquetFile, column: int) -> bool:
    """Delta has no limits of bytes."""
    name = file.metadata.schema.column(column).name
    kind = file.schema_arrow.field(name).type
    return not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _limits(file: pq.ParquetFile, column: int) -> tuple[str, str]:
    """The smallest and the largest value, as JSON. A group may have nothing but nulls."""
    groups = _statistics(file, column)
    rows = [file.metadata.row_group(group).num_rows for group in range(len(groups))]
    if any(each is None for each in groups):
        raise _UnknownError
    pairs = zip(groups, rows, strict=True)
    found = [each for each, count in pairs if not each.has_null_count or each.null_count < count]
    if not found or not all(each.has_min_max for each in found):
        raise _UnknownError
    return _least(min(each.min for each in found)), _most(max(each.max for each in found))


def _least(value: object) -> str:
    return _json(value[:TEXT_MAX] if isinstance(value, str) else value)


def _most(value: object) -> str:
    """A long text is cut, and then something is put behind it that comes after the rest."""
    if not isinstance(value, str) or len(value) <= TEXT_MAX:
        return _json(value)
    if value[TEXT_MAX] == _LAST_CHARACTER:
        raise _UnknownError
    return _json(value[:TEXT_MAX] + _LAST_CHARACTER)


def _json(value: object) -> str:
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return json.dumps(text if value.tzinfo is None else f"{text}Z")
    if isinstance(value, date):
        return json.dumps(value.isoformat())
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        raise _UnknownError
    if not isinstance(value, bool | int | float | str):
        raise _UnknownError
    return json.dumps(value, ensure_ascii=False)


def _refuse_nan(file: pq.ParquetFile) -> None:
    """Parquet's limits pass NaN over; Spark takes it for the largest number."""
    kinds = file.schema_arrow
    names = [name for name, _ in _flat(file) if pa.types.is_floating(kinds.field(name).type)]
    if names:
        for column in file.read(columns=names).columns:
            if pc.any(pc.is_nan(column)).as_py():
                raise _UnknownError
