"""Rows for the queries of query_grammar.py: a column of every type, with all that is odd in it."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa

T = TypeVar("T")

COLUMNS = (
    "u BIGINT, k STRING, g INT, l BIGINT, m DECIMAL(12,2), w DECIMAL(30,4), d DOUBLE, s STRING,"
    " b BOOLEAN, dt DATE, bi BINARY, st STRUCT<x: INT, y: STRING>, a ARRAY<INT>, ts TIMESTAMP"
)
SCHEMA = pa.schema(
    {
        "u": pa.int64(),
        "k": pa.string(),
        "g": pa.int32(),
        "l": pa.int64(),
        "m": pa.decimal128(12, 2),
        "w": pa.decimal128(30, 4),
        "d": pa.float64(),
        "s": pa.string(),
        "b": pa.bool_(),
        "dt": pa.date32(),
        "bi": pa.binary(),
        "st": pa.struct({"x": pa.int32(), "y": pa.string()}),
        "a": pa.list_(pa.int32()),
        "ts": pa.timestamp("us", "UTC"),
    }
)
ZERO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def rows_of(seed: int, count: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    made = [_row(rng, number) for number in range(count)]
    copies = rng.sample(made, count // 10)
    return [*made, *copies] if seed % 2 else made


def epochs_of(seed: int, rows: int, epochs: int) -> list[pa.Table]:
    """The rows, cut where the seed says; an epoch may be empty."""
    made, rng = rows_of(seed, rows), random.Random(seed + 1)
    cuts = sorted(rng.choices(range(len(made) + 1), k=epochs - 1))
    pairs = zip([0, *cuts], [*cuts, len(made)], strict=True)
    return [pa.Table.from_pylist(made[first:last], SCHEMA) for first, last in pairs]


def _row(rng: random.Random, number: int) -> dict[str, Any]:
    def maybe(value: T) -> T | None:
        return None if rng.random() < 0.15 else value

    near = rng.randint(-30 * 86_400, 30 * 86_400) * 1_000_000 + rng.choice((0, 1, 999_999))
    far = rng.choice((-(10**16), -86_400_000_001, 0, 10**15, 10**17)) + rng.randint(-9, 9)
    word = "".join(rng.choices("aZé\uffff\U0001f600 ", k=rng.randrange(4)))
    return {
        "u": number,
        "k": rng.choice((None, "a", "b", "ü\U0001f600", "", "A")),
        "g": rng.choice((None, 1, 2, 3)),
        "l": maybe(rng.choice((rng.randint(-5, 5), rng.randint(-(10**12), 10**12)))),
        "m": maybe(Decimal(rng.randint(-(10**9), 10**9)).scaleb(-2)),
        "w": maybe(Decimal(rng.randint(-(10**28), 10**28)).scaleb(-4)),
        "d": maybe(rng.choice((math.nan, -0.0, 0.0, 1.5, -2.25, float(rng.randint(-99, 99)) / 4))),
        "s": maybe(word),
        "b": maybe(rng.random() < 0.6),
        "dt": maybe(dt.date(1970, 1, 1) + dt.timedelta(days=rng.choice((-40_000, -1, 0, 9_999)))),
        "bi": maybe(rng.choice((b"", b"\x00", b"\xff", b"a"))),
        "st": maybe({"x": maybe(rng.randint(-1, 1)), "y": maybe(rng.choice(("", "é")))}),
        "a": maybe([maybe(rng.randint(-1, 1)) for _ in range(rng.randrange(3))]),
        "ts": maybe(ZERO + dt.timedelta(microseconds=near if rng.random() < 0.8 else far)),
    }
