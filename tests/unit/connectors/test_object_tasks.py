"""What tasks make of objects: refused where they would be read as something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamina.connectors.object_tasks import Fetch, Placed, ReadLines, ReadParquet
from lamina.connectors.parquet_calendar import has_old_calendar
from lamina.errors import Refused


@dataclass
class Found:
    path: str


class OneObject(Fetch):
    """One object, from memory."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self.data = path, data

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def of(self, _: object) -> Iterator[Any]:  # type: ignore[override]
        yield Placed(Found(self.path)), f"s3://b/{self.path}", BytesIO(self.data)  # type: ignore[arg-type]


# compressed


@pytest.mark.parametrize("ending", [".snappy", ".lz4", ".deflate", ".SNAPPY"])
def test_a_compression_that_is_not_known_is_refused_and_not_read_as_text(ending: str) -> None:
    read = ReadLines(OneObject(f"a.json{ending}", b"\x00\x01"), ("value", "path"))
    with pytest.raises(Refused, match=f"not known: {ending.lower()}") as raised:
        list(read(iter(())))
    assert raised.value.where == f"s3://b/a.json{ending}"
    assert ".gz" in raised.value.advice


# the old calendar

LEGACY, INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
OLD_DAY, OLD_TIME = date(1582, 10, 14), datetime(1899, 12, 31, 23, 59, 59, tzinfo=UTC)
FIRST_DAY, FIRST_TIME = date(1582, 10, 15), datetime(1900, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")


def read(table: pa.Table, footer: dict[bytes, bytes], **how: Any) -> list[Any]:
    data = BytesIO()
    pq.write_table(table.replace_schema_metadata(footer), data, **how)
    schema = table.schema.serialize().to_pybytes()
    task = ReadParquet(OneObject("a.parquet", data.getvalue()), ("x",), schema)
    return [value for batch in task(iter(())) for value in batch.column(0).to_pylist()]


@pytest.mark.parametrize(
    ("column", "footer"),
    [
        (pa.array([None, OLD_DAY]), {LEGACY: b""}),
        (pa.array([OLD_TIME], TIME), {LEGACY: b""}),
        (pa.array([OLD_TIME], TIME), {INT96: b""}),
        (pa.array([OLD_DAY]), {b"org.apache.spark.version": b"2.4.8"}),
        (pa.array([[OLD_DAY]]), {LEGACY: b""}),
        (pa.array([{"a": OLD_DAY}]), {LEGACY: b""}),
        (pa.array([[("k", OLD_DAY)]], pa.map_(pa.string(), pa.date32())), {LEGACY: b""}),
        (pa.array([OLD_DAY]).dictionary_encode(), {LEGACY: b""}),
    ],
)
def test_days_of_the_old_calendar_are_refused_and_not_read_as_others(
    column: pa.Array, footer: dict[bytes, bytes]
) -> None:
    with pytest.raises(Refused, match="old calendar") as raised:
        read(pa.table({"x": column}), footer)
    assert raised.value.where == "s3://b/a.parquet"


def test_old_times_of_int96_are_refused() -> None:
    table = pa.table({"x": pa.array([OLD_TIME], TIME)})
    with pytest.raises(Refused, match="old calendar"):
        read(table, {INT96: b""}, use_deprecated_int96_timestamps=True)


@pytest.mark.parametrize(
    ("column", "footer"),
    [
        (pa.array([None, FIRST_DAY]), {LEGACY: b""}),
        (pa.array([FIRST_TIME], TIME), {LEGACY: b"", INT96: b""}),
        (pa.array([OLD_DAY]), {b"org.apache.spark.version": b"3.5.1"}),
        (pa.array([OLD_DAY]), {}),
        (pa.array([None], pa.date32()), {LEGACY: b""}),
        (pa.array(["0001-01-01"]), {LEGACY: b""}),
    ],
)
def test_days_that_are_the_same_in_both_calendars_are_read(
    column: pa.Array, footer: dict[bytes, bytes]
) -> None:
    assert read(pa.table({"x": column}), footer) == column.to_pylist()


def test_a_version_that_is_not_one_says_nothing() -> None:
    assert not has_old_calendar({b"org.apache.spark.version": b"of my own"})
    assert not has_old_calendar(None)
    assert has_old_calendar({b"org.apache.spark.version": b"3.0.3"})
