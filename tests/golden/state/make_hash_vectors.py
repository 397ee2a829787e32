"""Make hash_vectors.json: what a live Spark answers for hash() and xxhash64() of many values.

Run it from the root of the repository, with pyspark installed:

    python -m tests.golden.state.make_hash_vectors

A new Spark must give the same file: the hashes decide where keys are stored.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.spark.java import java_home

VECTORS = Path(__file__).with_name("hash_vectors.json")

POINT = pa.struct([("x", pa.int32()), ("y", pa.string())])

TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(5,2)": pa.decimal128(5, 2),
    "decimal(18,0)": pa.decimal128(18, 0),
    "decimal(19,0)": pa.decimal128(19, 0),
    "decimal(38,10)": pa.decimal128(38, 10),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "time(6)": pa.time64("ns"),
    "interval day to second": pa.duration("us"),
    "string": pa.string(),
    "binary": pa.binary(),
    "struct<x:int,y:string>": POINT,
    "struct<p:struct<x:int,y:string>,d:double>": pa.struct([("p", POINT), ("d", pa.float64())]),
    "array<bigint>": pa.list_(pa.int64()),
    "array<string>": pa.list_(pa.string()),
    "array<array<float>>": pa.list_(pa.list_(pa.float32())),
    "array<struct<x:int,y:string>>": pa.list_(POINT),
}

FLOATS = ["00000000", "80000000", "3fc00000", "bfc00000", "7f800000", "ff800000", "7fc00000"]
FLOATS += ["ffc00123", "00000001", "7f7fffff", None]
DOUBLES = ["0000000000000000", "8000000000000000", "3ff8000000000000", "bff8000000000000"]
DOUBLES += ["7ff0000000000000", "fff0000000000000", "7ff8000000000000", "fff8000000000123"]
DOUBLES += ["0000000000000001", "7fefffffffffffff", None]
WIDE = [0, 1, -1, 127, 128, -128, -129, 255, 256, 32767, 32768, -32769, 10**18, 10**19 - 1, None]
WIDEST = [*WIDE, -(10**19), 2**63, -(2**63), 2**64, -(2**71), 2**71, 10**38 - 1, 1 - 10**38]
TEXT = ["", "a", "ab", "abc", "abcd", "abcde", "abcdefg", "abcdefgh", "key-000000000042", "\u00e9"]
TEXT += ["\u00e4\u00f6\u00fc\u00df", "\u65e5\u672c\u8a9e", "\U0001f9ca", "\x00", "\x00\x00", None]
TEXT += ["x" * n for n in (31, 32, 33, 36, 40, 63, 64, 65, 71, 100, 1000, 4095, 5003)]
OCTETS = ["", "00", "80", "ff", "7f80", "ff00ff", "80808080", "8081828384", "fffefdfcfbfaf9", None]
OCTETS += [bytes((i * 37 + n) % 256 for i in range(n)).hex() for n in (8, 15, 31, 32, 39, 47, 95)]
MICROS = [0, 1, -1, 1_700_000_000_123_456, -62_135_596_800_000_000, 253_402_300_799_999_999, None]
POINTS = [[1, "a"], [None, "a"], [1, None], [None, None], None, [-7, ""]]


def _bounds(bits: int) -> list[int | None]:
    top = 1 << (bits - 1)
    return [0, 1, -1, 42, top - 1, -top, None]


def _decimals(unscaled: list[int | None], scale: int) -> list[str | None]:
    return [None if n is None else str(Decimal(f"{n}e-{scale}")) for n in unscaled]


SINGLE: dict[str, list[Any]] = {
    "boolean": [True, False, None],
    "tinyint": _bounds(8),
    "smallint": _bounds(16),
    "int": _bounds(32),
    "bigint": [*_bounds(64), 2**32, -(2**32), 1_234_567_890_123],
    "float": FLOATS,
    "double": DOUBLES,
    "decimal(5,2)": _decimals([0, 1, -1, 150, -150, 99999, -99999, None], 2),
    "decimal(18,0)": _decimals([0, 1, -1, 10**18 - 1, 1 - 10**18, None], 0),
    "decimal(19,0)": _decimals(WIDE, 0),
    "decimal(38,10)": _decimals(WIDEST, 10),
    "date": [0, 1, -1, 19_000, -719_162, 2_932_896, None],
    "timestamp": MICROS,
    "timestamp_ntz": MICROS,
    "time(6)": [0, 1_000, 43_200_000_000_000, 86_399_999_999_000, None],
    "interval day to second": [0, 1, -1, 86_400_000_000, -(2**62), None],
    "string": TEXT,
    "binary": OCTETS,
    "struct<x:int,y:string>": POINTS,
    "struct<p:struct<x:int,y:string>,d:double>": [[p, DOUBLES[i]] for i, p in enumerate(POINTS)],
    "array<bigint>": [[], [0], [None], [1, 2, 3], [1, None, 3], None, list(range(50))],
    "array<string>": [[], [""], ["a", "bc"], ["ab", "c"], [None, "x"], None],
    "array<array<float>>": [[], [[]], [FLOATS[:3], None, []], [None], None, [[FLOATS[1]]]],
    "array<struct<x:int,y:string>>": [[], POINTS, [None], None, POINTS[:1]],
}

SEVERAL: list[dict[str, list[Any]]] = [
    {"int": [1, None, 1, None], "string": ["a", "a", None, None]},
    {"string": ["ab", "a", ""], "binary": ["63", "6263", "616263"]},
    {"bigint": [1, 2, None], "date": [1, None, 3], "double": DOUBLES[:3], "boolean": [True] * 3},
    {"array<bigint>": [[1], [], None], "int": [2, 2, 2], "struct<x:int,y:string>": POINTS[:3]},
]


def column(name: str, values: list[Any]) -> pa.Array:
    """The Arrow array of a vector's column."""
    return pa.array([_decoded(TYPES[name], value) for value in values], TYPES[name])


def _decoded(kind: pa.DataType, value: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {f.name: _decoded(f.type, v) for f, v in zip(kind, value, strict=True)}
    if pa.types.is_list(kind):
        return [_decoded(kind.value_type, item) for item in value]
    if pa.types.is_floating(kind):
        octets = bytes.fromhex(value)
        return struct.unpack(">f" if len(octets) == 4 else ">d", octets)[0]
    if pa.types.is_decimal(kind):
        return Decimal(value)
    return bytes.fromhex(value) if pa.types.is_binary(kind) else value


def answers(spark: Any, columns: list[pa.Array]) -> dict[str, list[int]]:
    """What Spark gives for every row of *columns*."""
    names = [f"c{i}" for i in range(len(columns))]
    key = ", ".join(names)
    frame = spark.createDataFrame(pa.table(columns, names))
    table = frame.selectExpr(f"hash({key}) AS hash", f"xxhash64({key}) AS xxhash64").toArrow()
    return {name: table[name].to_pylist() for name in table.column_names}


def main() -> None:
    """Ask Spark, and write the file."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as scratch:
        os.environ["JAVA_HOME"] = str(java_home(Path(scratch)))
        os.environ["PYSPARK_PYTHON"] = sys.executable
        spark = SparkSession.builder.master("local[1]").config(map=CONF).getOrCreate()
        cases: list[dict[str, Any]] = [{"columns": [[k, v]]} for k, v in SINGLE.items()]
        cases += [{"columns": [[k, v] for k, v in case.items()]} for case in SEVERAL]
        for case in cases:
            case.update(answers(spark, [column(name, values) for name, values in case["columns"]]))
        text = ",\n".join(json.dumps(case) for case in cases)
        VECTORS.write_text(f'{{"spark": "{spark.version}", "cases": [\n{text}\n]}}\n')
        spark.stop()


# Without the rule Spark computes the hashes as it does in a job, not while it plans.
CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    ),
}

if __name__ == "__main__":
    main()
