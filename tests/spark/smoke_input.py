"""The input of the smoke job: rows of every type that Spark groups by, in slices of Parquet."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 1500
KEYS = 400
SLICES = 6
EMPTY_SLICE = 2
"""This one has no rows: every stream runs its tasks all the same (R8)."""

UTC = pa.timestamp("us", "UTC")
POINT = pa.struct(
    [("a", pa.int32()), ("b", pa.string()), ("t", UTC), ("d", pa.float64())],
)
ITEM = pa.struct([("z", pa.decimal128(38, 6)), ("y", pa.date32())])
SCHEMA = pa.schema(
    [
        # keys of the stream `plain`
        ("s", pa.string()),
        ("l", pa.int64()),
        ("i", pa.int32()),
        ("b", pa.bool_()),
        ("day", pa.date32()),
        ("ts", UTC),
        ("tn", pa.timestamp("us")),
        ("x", pa.binary()),
        # keys of `numbers`
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("d12", pa.decimal128(12, 2)),
        ("d38", pa.decimal128(38, 6)),
        ("small", pa.int16()),
        # keys of `nested`
        ("point", POINT),
        ("list", pa.list_(pa.field("element", pa.float64()))),
        ("items", pa.list_(pa.field("element", ITEM))),
        # what is aggregated
        ("u", pa.int64()),
        ("v", pa.int64()),
        ("w", pa.float64()),
        ("q", pa.float64()),
        ("m", pa.decimal128(12, 2)),
        ("n", pa.decimal128(38, 6)),
        ("e", UTC),
        ("t", pa.string()),
    ]
)
DDL = (
    "s string, l bigint, i int, b boolean, day date, ts timestamp, tn timestamp_ntz, x binary, "
    "d double, f float, d12 decimal(12,2), d38 decimal(38,6), small smallint, "
    "point struct<a: int, b: string, t: timestamp, d: double>, list array<double>, "
    "items array<struct<z: decimal(38,6), y: date>>, "
    "u bigint, v bigint, w double, q double, m decimal(12,2), n decimal(38,6), e timestamp, "
    "t string"
)

_START = dt.datetime(2024, 3, 10, tzinfo=dt.UTC)
_STRANGE = (math.nan, -0.0, 0.0, math.inf, -math.inf, 5e-324, 1.5, None)
_TEXTS = (
    "",
    "a",
    "ab",
    "é",
    "\uffff",
    "\U0001f600",
    "a longer text than thirty-two bytes have",
    None,
)


def write_slices(folder: Path, seed: int) -> None:
    """Write all slices; the same seed gives the same rows."""
    rng = random.Random(seed)
    pools = [[make(rng) for _ in range(KEYS)] for make in (_plain, _numbers, _nested)]
    folder.mkdir(parents=True)
    for number in range(SLICES):
        count = 0 if number == EMPTY_SLICE else ROWS
        rows = [
            {**_chosen(rng, pools), **_measures(rng, number * ROWS + row)} for row in range(count)
        ]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), slice_path(folder, number))


def slice_path(folder: Path, number: int) -> Path:
    return folder / f"slice-{number:02d}.parquet"


def _chosen(rng: random.Random, pools: list[list[dict[str, Any]]]) -> dict[str, Any]:
    return {name: value for pool in pools for name, value in rng.choice(pool).items()}


def _maybe(rng: random.Random, value: Any) -> Any:
    return None if rng.random() < 0.2 else value


def _instant(rng: random.Random) -> dt.datetime:
    return _START + dt.timedelta(microseconds=rng.randrange(-(10**16), 10**15))


def _date(rng: random.Random) -> dt.date:
    return dt.date(1970, 1, 1) + dt.timedelta(days=rng.randint(-20000, 30000))


def _decimal(rng: random.Random, digits: int, scale: int) -> Decimal:
    unscaled = rng.randint(-(10**digits) + 1, 10**digits - 1)
    return Decimal(f"{unscaled}E-{scale}")


def _plain(rng: random.Random) -> dict[str, Any]:
    return {
        "s": rng.choice(_TEXTS),
        "l": _maybe(rng, rng.choice([-(2**63), 2**63 - 1, 0, rng.randrange(100)])),
        "i": _maybe(rng, rng.choice([-(2**31), 2**31 - 1, rng.randrange(100)])),
        "b": _maybe(rng, rng.random() < 0.5),
        "day": _maybe(rng, _date(rng)),
        "ts": _maybe(rng, _instant(rng)),
        "tn": _maybe(rng, _instant(rng).replace(tzinfo=None)),
        "x": _maybe(rng, rng.randbytes(rng.choice([0, 1, 4, 33]))),
    }


def _numbers(rng: random.Random) -> dict[str, Any]:
    """Few values, so that -0.0 and 0.0 meet in one group."""
    return {
        "d": rng.choice(_STRANGE),
        "f": rng.choice([math.nan, -0.0, 0.0, None]),
        "d12": _maybe(rng, rng.choice([Decimal("0.00"), Decimal("9999999999.99")])),
        "d38": _maybe(rng, rng.choice([Decimal("-0.000001"), Decimal(f"{10**38 - 1}E-6")])),
        "small": _maybe(rng, -(2**15)),
    }


def _nested(rng: random.Random) -> dict[str, Any]:
    point = {
        "a": _maybe(rng, rng.randrange(3)),
        "b": rng.choice(_TEXTS),
        "t": _maybe(rng, _instant(rng)),
        "d": rng.choice(_STRANGE),
    }
    items = [
        _maybe(rng, {"z": _maybe(rng, _decimal(rng, 38, 6)), "y": _maybe(rng, _date(rng))})
        for _ in range(rng.randrange(3))
    ]
    return {
        "point": _maybe(rng, point),
        "list": _maybe(rng, [rng.choice(_STRANGE) for _ in range(rng.randrange(4))]),
        "items": _maybe(rng, items),
    }


def _measures(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "u": number,
        "v": _maybe(rng, rng.randrange(-(10**12), 10**12)),
        "w": _maybe(rng, rng.uniform(-1000, 1000)),
        "q": rng.choice(_STRANGE),
        "m": _maybe(rng, _decimal(rng, 12, 2)),
        "n": _maybe(rng, _decimal(rng, 15, 6)),
        "e": _maybe(rng, _START + dt.timedelta(seconds=rng.randrange(24 * 3600))),
        "t": rng.choice(_TEXTS),
    }
