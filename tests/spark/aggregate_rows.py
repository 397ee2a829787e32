"""Random rows for tests of aggregates: every odd value that a column can have, cut into epochs."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

COLUMNS = (
    "k STRING, g INT, t TINYINT, i INT, l BIGINT, m DECIMAL(12,2), w DECIMAL(30,4), d DOUBLE,"
    " e DOUBLE, n DOUBLE, s STRING, b BOOLEAN, ts TIMESTAMP"
)
SCHEMA = pa.schema(
    {
        "k": pa.string(),
        "g": pa.int32(),
        "t": pa.int8(),
        "i": pa.int32(),
        "l": pa.int64(),
        "m": pa.decimal128(12, 2),
        "w": pa.decimal128(30, 4),
        "d": pa.float64(),
        "e": pa.float64(),
        "n": pa.float64(),
        "s": pa.string(),
        "b": pa.bool_(),
        "ts": pa.timestamp("us", "UTC"),
    }
)
ZERO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ODD = (math.nan, -0.0, 0.0, 1.5, -2.25)


def epochs(seed: int, rows: int = 300) -> list[pa.Table]:
    """*rows* in one to five epochs, of different sizes."""
    rng = random.Random(seed)
    made = [_row(rng) for _ in range(rows)]
    cuts = sorted(rng.sample(range(1, rows), seed % 5))
    pairs = zip([0, *cuts], [*cuts, rows], strict=True)
    return [pa.Table.from_pylist(made[first:last], SCHEMA) for first, last in pairs]


def _row(rng: random.Random) -> dict[str, Any]:
    key = rng.choice([None, "a", "b", "é\U0001f600", "only nulls", "rare"])

    def maybe(value: Any) -> Any:
        return None if key == "only nulls" or rng.random() < 0.15 else value

    return {
        "k": "once" if rng.random() < 0.003 else key,
        "g": rng.choice([None, 1, 2]),
        "t": maybe(rng.randint(-128, 127)),
        "i": maybe(rng.randint(-(2**31), 2**31 - 1)),
        "l": maybe(rng.choice([rng.randint(-5, 5), rng.randint(-(10**15), 10**15)])),
        "m": maybe(Decimal(rng.randint(-(10**12) + 1, 10**12 - 1)).scaleb(-2)),
        "w": maybe(Decimal(rng.randint(-(10**29), 10**29)).scaleb(-4)),
        "d": maybe(rng.uniform(-1e3, 1e3)),
        "e": maybe(rng.gauss(50, 10)),
        "n": maybe(rng.choice(ODD)),
        "s": maybe("".join(rng.choices("aZé\uffff\U0001f600", k=rng.randrange(4)))),
        "b": maybe(rng.random() < 0.7),
        "ts": maybe(ZERO + dt.timedelta(microseconds=rng.randint(-(10**16), 10**17))),
    }


def assert_same(ours: Sequence[Mapping[str, Any]], oracle: Sequence[Mapping[str, Any]]) -> None:
    """Equal rows by their first column; doubles up to what the order of additions changes."""
    key = next(iter(oracle[0]))
    found = {repr(row[key]): row for row in ours}
    assert set(found) == {repr(row[key]) for row in oracle}
    assert len(ours) == len(oracle) == len(found)
    for row in oracle:
        for name, value in row.items():
            assert_near(found[repr(row[key])][name], value, f"{name} of {row[key]!r}")


def assert_near(found: Any, value: Any, what: str) -> None:
    if isinstance(value, float) and isinstance(found, float):
        assert found == pytest.approx(value, rel=1e-9, abs=1e-9, nan_ok=True), what
    elif isinstance(value, dict) and isinstance(found, dict):
        assert_near(list(found.values()), list(value.values()), what)
    elif isinstance(value, list) and isinstance(found, list):
        assert len(found) == len(value), what
        for mine, theirs in zip(found, value, strict=True):
            assert_near(mine, theirs, what)
    else:
        assert found == value, f"{what}: {found!r} is not {value!r}"
