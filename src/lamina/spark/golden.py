"""Keys and their hashes, frozen (R9): where keys are stored depends on what Spark answers here.

A key is a row of values of one type; Spark folds its hashes over them, and a null changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from lamina.errors import Refused
from lamina.state.vnodes import VNODE_COUNT

VALUES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Vector:
    """*values*, as SQL, are a key; `hash` and `xxhash64` of it are these."""

    type: str
    values: str
    hash: int
    xxhash64: int

    @property
    def vnode(self) -> int:
        return self.hash % VNODE_COUNT


VECTORS: Final = (
    Vector("boolean", "true, false", 292098604, -4248612865510463554),
    Vector("tinyint", "0Y, 127Y, -128Y", -1307045439, 2826031978285935555),
    Vector("smallint", "1S, -32768S", -380131585, -4438161367255879165),
    Vector("int", "42, -1, 2147483647", 684680440, 8586107850537125491),
    Vector("bigint", "42L, -1L, 1234567890123L", 2142373788, 1538178801267617185),
    Vector(
        "float",
        "float('-0.0'), float('1.5'), float('NaN')",
        -1495649745,
        4656353540527259194,
    ),
    Vector(
        "double",
        "double('-0.0'), double('-1.5'), double('NaN'), double('Infinity')",
        -170220234,
        -6951534871444232097,
    ),
    Vector(
        "decimal(5,2)",
        "1.50BD::decimal(5,2), -999.99BD::decimal(5,2)",
        681488324,
        1763969930160324208,
    ),
    Vector(
        "decimal(18,0)",
        "999999999999999999BD::decimal(18,0), -1BD::decimal(18,0)",
        -936453223,
        9009618197886136522,
    ),
    Vector(
        "decimal(19,0)",
        "9999999999999999999BD::decimal(19,0), -1BD::decimal(19,0)",
        -1165544970,
        889788502874606472,
    ),
    Vector(
        "decimal(38,10)",
        "1.5BD::decimal(38,10), -9999999999999999999999999999.9999999999BD::decimal(38,10)",
        -550245047,
        1212366557863091559,
    ),
    Vector(
        "date",
        "DATE'1970-01-01', DATE'2024-02-29', DATE'0001-01-01'",
        1960348989,
        -8818327563592640741,
    ),
    Vector(
        "timestamp",
        "TIMESTAMP'2024-02-29 23:59:59.999999Z', TIMESTAMP'1969-12-31 23:59:59.999999Z'",
        -2028948877,
        -2958336549444097384,
    ),
    Vector(
        "timestamp_ntz",
        "TIMESTAMP_NTZ'2024-02-29 23:59:59.999999', TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'",
        -2028948877,
        -2958336549444097384,
    ),
    Vector("time(6)", "TIME'00:00:00', TIME'23:59:59.999999'", -744609383, 936879666160928383),
    Vector(
        "interval day to second",
        "INTERVAL '1 02:03:04.567890' DAY TO SECOND, INTERVAL '-0 00:00:00.000001' DAY TO SECOND",
        42514531,
        -735882234234291246,
    ),
    Vector(
        "string",
        "'', 'a', 'key-000000000042', '日本語', repeat('x', 65)",
        916666459,
        -7358203400265002452,
    ),
    Vector("binary", "X'', X'00ff80', X'8081828384858687'", -552766690, -596017866261145781),
    Vector(
        "struct<x:int,y:string>",
        "named_struct('x', 1, 'y', 'a'), named_struct('x', CAST(NULL AS INT), 'y', '')",
        1096912559,
        5838318036121692887,
    ),
    Vector(
        "struct<p:struct<x:int,y:string>,d:double>",
        "named_struct('p', named_struct('x', 1, 'y', 'a'), 'd', double('-0.0'))",
        -1548031096,
        -6736356428048086040,
    ),
    Vector("array<bigint>", "array(1L, NULL, 3L), array(0L)", 1852606921, -8488182243190819853),
    Vector(
        "array<string>",
        "array('a', 'bc'), array('ab', 'c', NULL)",
        -1552047277,
        -5070243320636314386,
    ),
    Vector(
        "array<array<float>>",
        "array(array(float('1.5'), NULL), NULL, array())",
        -221251528,
        6163473420726370430,
    ),
    Vector(
        "array<struct<x:int,y:string>>",
        "CAST(array(named_struct('x', -7, 'y', 'z'), NULL) AS array<struct<x:int,y:string>>)",
        1624320672,
        9141895118561075992,
    ),
    Vector("null", "CAST(NULL AS STRING), CAST(NULL AS BIGINT)", 42, 42),
)
ALL: Final = Vector(
    "everything in one key",
    # Spark 4.3 has no columns of TIME, unless a setting that nobody has to have says otherwise.
    ", ".join(vector.values for vector in VECTORS if not vector.type.startswith("time(")),
    523689531,
    2995461344834195213,
)


def check_hashes(spark: SparkSession, vectors: tuple[Vector, ...] = VECTORS) -> None:
    """Ask this Spark for the hash of every key by itself; constants only, so no job runs.

    Refused if one differs: state that is there already would not be found again. `ALL` differs
    whenever one of them does and costs a start two seconds less; this says which one it is.
    """
    asked = (
        expression
        for v in vectors
        for expression in (
            f"hash({v.values})",
            f"xxhash64({v.values})",
            f"pmod(hash({v.values}), {VNODE_COUNT})",
        )
    )
    # From one row that is there: Spark folds it away. Without a FROM it would run a job.
    (row,) = spark.sql("VALUES (1)").selectExpr(*asked).collect()
    for position, vector in enumerate(vectors):
        found = tuple(row[3 * position : 3 * position + 3])
        check_hash(vector, found[0], found[1], where=f"Spark {spark.version}")
        assert found[2] == vector.vnode, vector.type


def check_hash(vector: Vector, found: int, found64: int, *, where: str) -> None:
    """Refused unless these are the hashes of this key."""
    if (found, found64) != (vector.hash, vector.xxhash64):
        raise Refused(
            f"keys of type {vector.type} have other hashes here than those state is stored by: "
            f"hash({vector.values[:VALUES_MAX]}) is {found}, not {vector.hash}; "
            f"xxhash64 is {found64}, not {vector.xxhash64}",
            where=where,
            advice="Run the pipeline on the Spark that this Lamina was made for: lamina[spark]",
        )
