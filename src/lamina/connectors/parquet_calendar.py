"""Parquet files with days of the old calendar, as Spark before 3.0 and Hive write them.

Such a file says so in its footer. Spark then moves days before 1582-10-15, and times before 1900,
whose time zones were counted otherwise. Arrow reads the numbers as they are: other days.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lamina.errors import Refused

_KEYS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VERSION = b"org.apache.spark.version"
_NEW_SINCE = (3, 1)  # 3.0 still wrote INT96 so
_FIRST_DAY = -141_427  # 1582-10-15
_FIRST_SECOND = -2_208_988_800  # 1900-01-01
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def has_old_calendar(footer: Mapping[bytes, bytes] | None) -> bool:
    """By the key-value metadata of a file, read as Spark reads it."""
    said = footer or {}
    if any(key in said for key in _KEYS):
        return True
    major, _, rest = said.get(_VERSION, b"").partition(b".")
    minor = rest.partition(b".")[0]
    if not (major.isdigit() and minor.isdigit()):
        return False  # of another program
    return (int(major), int(minor)) < _NEW_SINCE


def check_calendar(columns: Iterable[pa.Array], where: str) -> None:
    """Refused if a day or a time of a file with the old calendar is another one in the new."""
    for column in columns:
        for leaf in _leaves(column):
            if _is_old(leaf):
                raise Refused(
                    "a file has days before 1582-10-15 or times before 1900 in the old calendar, "
                    "which are other ones today",
                    where=where,
                    advice="Write the file again with Spark 3.1 or newer and"
                    " spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED"
                    " (and int96RebaseModeInWrite)",
                )


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    if types.is_dictionary(column.type):
        yield from _leaves(column.dictionary_decode())
    elif types.is_struct(column.type):
        for part in column.flatten():
            yield from _leaves(part)
    elif types.is_map(column.type):
        yield from _leaves(column.keys)
        yield from _leaves(column.items)
    elif types.is_list(column.type) or types.is_large_list(column.type):
        yield from _leaves(column.flatten())
    else:
        yield column


def _is_old(leaf: pa.Array) -> bool:
    if types.is_date32(leaf.type):
        first, numbers = _FIRST_DAY, leaf.view(pa.int32())
    elif types.is_timestamp(leaf.type):
        first, numbers = _FIRST_SECOND * _TICKS[leaf.type.unit], leaf.view(pa.int64())
    else:
        return False
    least = pc.min(numbers).as_py()
    return least is not None and least < first
