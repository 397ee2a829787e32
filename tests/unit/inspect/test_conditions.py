"""Conditions that people write, over the names that they see."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from lamina.errors import UsageError
from lamina.inspect.conditions import parse_condition

AT = [datetime(2026, 11, 19, hour, tzinfo=UTC) for hour in (10, 11, 12)]
KEY = pa.schema([("symbol", pa.string()), ("window_start", pa.timestamp("us", "UTC"))])
VALUE = pa.schema(
    [
        ("sum(price * volume)", pa.decimal128(38, 2)),
        ("count(*)", pa.int64()),
        ("Flag", pa.bool_()),
    ]
)
ROWS = pa.record_batch(
    [
        pa.array(["a", "b", None]),
        pa.array(AT, KEY.field(1).type),
        pa.array([Decimal("1.50"), Decimal("-2.00"), Decimal("9.00")], VALUE.field(0).type),
        pa.array([1, 2, 3]),
        pa.array([True, False, None]),
    ],
    schema=pa.schema([*KEY, *VALUE]),
)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("symbol = 'a'", [1]),
        ("'b' <= symbol", [2]),
        ("SYMBOL <> 'a'", [2]),
        ("sum(price*volume) > 1.2", [1, 3]),
        ("SUM( price * volume ) = -2", [2]),
        ("`sum(price * volume)` < 0 or count(*) = 3", [2, 3]),
        ("symbol is null", [3]),
        ("symbol is not null and not (count(*) in (1, 7))", [2]),
        ("count(*) between 2 and 3 and 3 > count(*)", [2]),
        ("window_start >= '2026-11-19 11:00:00'", [2, 3]),
        ("window_start < timestamp '2026-11-19T11:00:00+00:00'", [1]),
        ("flag = true", [1]),
        ("count(*) > sum(price * volume)", [2]),
    ],
)
def test_a_condition_keeps_the_rows_that_it_holds_for(text: str, counts: list[int]) -> None:
    found = ROWS.filter(parse_condition(ROWS.schema, text))
    assert found["count(*)"].to_pylist() == counts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not SQL"),
        ("symbol = ", "not SQL"),
        ("prices = 1", "'prices' is not a column of this state"),
        ("volume > 3", "'volume' is not a column"),
        ("count(*) = 'many'", "'many' is not a value of the column 'count(*)': int64"),
        ("count(*) + 1 = 2", "is not a column"),
        ("count(*) = 1 + 1", "cannot filter by '1 + 1'"),
        ("exists (select 1)", "cannot filter by"),
        ("symbol in (select 1)", "cannot filter by"),
        ("symbol", "cannot filter by 'symbol'"),
        ("symbol = null", "cannot filter by 'NULL'"),
    ],
)
def test_what_is_not_understood_is_named(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_condition(ROWS.schema, text)
    assert said in refused.value.message
    assert refused.value.advice or "not a value" in said
