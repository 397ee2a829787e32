"""R8 and R9 through the runner: every shape of keys and every key type, over several epochs.

A task refuses rows that it does not own, and an epoch without an answer from each task is not
committed: so a plan that Spark makes otherwise shows as an error, not only as a wrong result. The
session is a hostile one: adaptive execution on, other partitions, other time zone, no ANSI.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lamina.errors import BadPipeline
from tests.spark.running import Place, Run, batch, comparable, compiled, pipeline_text

ODD = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "3",
    "spark.sql.shuffle.partitions": "7",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # joins by shuffle: another partitioning
    "spark.sql.files.ignoreCorruptFiles": "true",
}
COLUMNS = "k STRING, side STRING, v INT, m DECIMAL(12,2), ts TIMESTAMP"
MARK = "WATERMARK ts DELAY OF INTERVAL 5 SECONDS"

# name: (how many of the first columns are the key, the SELECT)
SHAPES = {
    "a literal": (1, "SELECT 'x' AS x, sum(v) AS v FROM t GROUP BY 'x'"),
    "literals and a column": (3, "SELECT 1 AS one, k, 2 AS two, max(v) AS v FROM t"
                                 " GROUP BY 1, 2, 3"),
    "repeated": (1, "SELECT k, sum(v) AS v FROM t GROUP BY k, upper(k), k, t.k"),
    "expressions": (3, "SELECT v % 3 AS third, CASE WHEN v > 2 THEN \"big\" ELSE side END AS way,"
                       " named_struct('k', k, 'v', v % 2) AS s, avg(m) AS m FROM t"
                       " GROUP BY v % 3, way, 3"),
    "no key": (0, "SELECT count(*) AS n, sum(m) AS m, max(K) AS k FROM T"),
    "no key and no row": (0, "SELECT count(*) AS n, sum(m) AS m FROM t WHERE v > 1000"),
    "no row in an epoch": (1, "SELECT k, sum(v) AS v FROM t WHERE side <> 'gone' GROUP BY k"),
    "never a row": (1, "SELECT k, sum(v) AS v FROM t WHERE 1 = 0 GROUP BY k"),
    "a function in Python": (1, "SELECT loud(k) AS k, sum(v) AS v FROM t GROUP BY loud(k)"),
    "a join on a part of the keys": (3, "SELECT region_of(k) AS r, side, k, sum(v) AS v FROM t"
                                        " GROUP BY region_of(k), side, k"),
    "in a subquery": (2, "SELECT side, v, count(*) AS n FROM t WHERE is_known(k)"
                         " GROUP BY side, v"),
}  # fmt: skip
STATELESS = "SELECT k, side, v FROM t WHERE side <> 'gone'"
WINDOWED = "SELECT window.start AS s, k, sum(v) AS v FROM t GROUP BY k, window(ts, '1 minute')"


def trade(k: str | None, side: str, v: int | None, second: int) -> dict[str, Any]:
    ts = f"2024-02-29T23:{second // 60:02d}:{second % 60:02d}Z"
    return {"k": k, "side": side, "v": v, "m": None if v is None else f"{v}.25", "ts": ts}


EPOCHS = [
    [trade(k, side, n, 10 * n) for n, k in enumerate(["a", "b", None, "é", ""]) for side in "xy"],
    [trade("gone", "gone", None, 70)],
    [trade(k, "x", 2 * n, 80 * n) for n, k in enumerate(["b", "c", None, "d", "a", "a"])],
]


def prepare(session: Any) -> None:
    """What a user has in a session."""
    session.udf.register("loud", lambda text: "nobody" if text is None else text.upper() + "!")
    frame = session.createDataFrame(
        [("a", "east"), ("b", "west"), ("c", "east"), ("é", "west")], "symbol string, region string"
    )
    frame.createOrReplaceTempView("regions")
    for definition in (
        "region_of(s STRING) RETURNS STRING RETURN"
        " (SELECT max(region) FROM regions WHERE symbol = s)",
        "is_known(s STRING) RETURNS BOOLEAN RETURN s IN (SELECT symbol FROM regions)",
    ):
        session.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {definition}")


@pytest.fixture(scope="module")
def odd(spark: Any) -> Any:
    session = spark.newSession()
    for name, value in ODD.items():
        session.conf.set(name, value)
    prepare(session)
    return session


@pytest.fixture(scope="module")
def place(odd: Any, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """One pipeline with a stream for each shape, run to its end."""
    place = Place(tmp_path_factory.mktemp("shapes"))
    place.put_json(EPOCHS)
    selects = [f"{select} EMIT ON UPDATE" for _, select in SHAPES.values()]
    selects += [STATELESS, f"{WINDOWED} EMIT ON WINDOW CLOSE"]
    streams = [
        f"CREATE STREAM s{number} AS {select};\n"
        f"CREATE SINK o{number} FROM s{number} USING parquet OPTIONS (path 'out{number}');"
        for number, select in enumerate(selects)
    ]
    source = f"CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in') {MARK};"
    before, tables = odd.conf.getAll, odd.catalog.listTables()
    Run(odd, place)("\n".join([source, *streams]))
    assert odd.conf.getAll == before
    assert odd.catalog.listTables() == tables
    return place


@pytest.fixture(scope="module")
def oracle(spark: Any, place: Place) -> Iterator[Any]:
    """Plain Spark with all rows in one view, and settings as everybody has them."""
    session = spark.newSession()
    prepare(session)
    session.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    yield session
    session.catalog.dropTempView("t")


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_of_keys_has_the_result_of_a_batch(
    oracle: Any, place: Place, name: str
) -> None:
    keys, select = SHAPES[name]
    rows = place.latest(keys, f"out{list(SHAPES).index(name)}")
    assert comparable(rows) == comparable(batch(oracle, select))
    assert rows or name == "never a row"


def test_a_stream_without_state_has_the_rows_of_a_batch(oracle: Any, place: Place) -> None:
    rows = place.rows(f"out{len(SHAPES)}")
    assert comparable(rows) == comparable(batch(oracle, STATELESS))


def test_windows_close_in_an_epoch_without_rows(oracle: Any, place: Place) -> None:
    sink = f"out{len(SHAPES) + 1}"
    closed = f"{WINDOWED} HAVING window.end <= TIMESTAMP'2024-02-29 23:06:35Z'"  # 400 s - 5 s
    assert comparable(place.rows(sink)) == comparable(batch(oracle, closed))
    last = max((place.folder / sink).glob("epoch-*")).name
    assert int(last.removeprefix("epoch-")) == len(EPOCHS) + 1  # there are as many files


# Every key type: columns of the source, as SQL makes them, and their values in three epochs.
TYPES = {
    "b": ("BOOLEAN", ["true", "false"]),
    "i1": ("TINYINT", ["-128", "127", "0"]),
    "i2": ("SMALLINT", ["-32768", "32767"]),
    "i4": ("INT", ["-2147483648", "2147483647"]),
    "i8": ("BIGINT", ["-9223372036854775808", "9223372036854775807"]),
    "f": ("FLOAT", ["'NaN'", "0.0", "'-0.0'", "1.5", "'-Infinity'"]),
    "d": ("DOUBLE", ["'NaN'", "0.0", "'-0.0'", "1e-300", "'Infinity'"]),
    "n5": ("DECIMAL(5,2)", ["-999.99", "0.01"]),
    "n18": ("DECIMAL(18,4)", ["99999999999999.9999", "-0.0001"]),
    "n19": ("DECIMAL(19,0)", ["9999999999999999999", "-1"]),
    "n38": ("DECIMAL(38,10)", ["-9999999999999999999999999999.9999999999", "0"]),
    "s": ("STRING", ["''", "'a'", "'A'", "'é'", "'e\\u0301'", "'\\U0001F600'", "' a'"]),
    "x": ("BINARY", ["X''", "X'00'", "X'FF00'"]),
    "day": ("DATE", ["'0001-01-01'", "'1969-12-31'", "'9999-12-31'"]),
    "t": ("TIMESTAMP", ["'1900-01-01 00:00:00.000001Z'", "'2024-02-29 23:59:59.999999Z'"]),
    "ntz": ("TIMESTAMP_NTZ", ["'1969-12-31 23:59:59.999999'", "'2024-03-10 02:30:00'"]),
    "dt": ("INTERVAL DAY TO SECOND", ["INTERVAL '-1 02:03:04.000005' DAY TO SECOND",
                                      "INTERVAL '0 00:00:00' DAY TO SECOND"]),
    "st": ("STRUCT<a: INT, z: STRING>", ["named_struct('a', 1, 'z', 'x')",
                                         "named_struct('a', 1, 'z', CAST(NULL AS STRING))"]),
    "ar": ("ARRAY<DOUBLE>", ["array()", "array(1.0, NULL)",
                             "array(double('NaN'), double('-0.0'))"]),
    "deep": ("ARRAY<STRUCT<l: ARRAY<INT>, d: DECIMAL(20,1)>>",
             ["array(named_struct('l', array(1, 2), 'd', 1.5), NULL)",
              "array(named_struct('l', array(1), 'd', 1.5))"]),
}  # fmt: skip
GROUPS = (
    *(("b", "i1", "i2", "i4", "i8"), ("f", "d"), ("n5", "n18", "n19", "n38"), ("s",), ("x",)),
    *(("day", "t", "ntz"), ("dt",), ("st",), ("ar",), ("deep",)),
)
EPOCH_COUNT = 3


@pytest.fixture(scope="module")
def typed(spark: Any, odd: Any, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A pipeline with a stream for each group of types."""
    place = Place(tmp_path_factory.mktemp("types"))
    length = max(len(values) for _, values in TYPES.values()) + 1
    for epoch in range(EPOCH_COUNT):
        rows = []
        for row in range(epoch, length):
            values = [
                f"CAST({[*values, 'NULL'][row % (len(values) + 1)]} AS {kind}) AS {name}"
                for name, (kind, values) in TYPES.items()
            ]
            rows.append(f"SELECT {', '.join(values)}, {row} AS v")
        folder = place.folder / "in" / str(epoch)
        spark.sql(" UNION ALL ".join(rows)).coalesce(1).write.parquet(str(folder))
        for file in folder.glob("*.parquet"):
            os.utime(file, (1_000 + epoch, 1_000 + epoch))
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
    streams = [
        f"CREATE STREAM s{n} AS {by_types(keys)} EMIT ON UPDATE;\n"
        f"CREATE SINK o{n} FROM s{n} USING parquet OPTIONS (path 'out{n}');"
        for n, keys in enumerate(GROUPS)
    ]
    source = f"CREATE SOURCE t ({columns}, v INT) USING parquet OPTIONS (path 'in');"
    last = Run(odd, place)("\n".join([source, *streams]))
    assert last == EPOCH_COUNT
    return place


def by_types(keys: tuple[str, ...]) -> str:
    names = ", ".join(keys)
    return f"SELECT {names}, count(*) AS n, sum(v) AS v FROM t GROUP BY {names}"


def test_every_type_is_in_a_group() -> None:
    assert sorted(name for group in GROUPS for name in group) == sorted(TYPES)


@pytest.mark.parametrize("keys", GROUPS, ids="-".join)
def test_every_key_type_has_the_result_of_a_batch(
    spark: Any, typed: Place, keys: tuple[str, ...]
) -> None:
    session = spark.newSession()
    folders = [f"{typed.source}/{epoch}" for epoch in range(EPOCH_COUNT)]
    session.read.parquet(*folders).createOrReplaceTempView("t")
    rows = typed.latest(len(keys), f"out{GROUPS.index(keys)}")
    truth = batch(session, by_types(keys))
    assert comparable(rows) == comparable(truth)
    assert any(all(row[key] is None for key in keys) for row in truth) or len(keys) > 1


REFUSED_KEYS = {
    "map(k, v)": "map<string,int> cannot be a key",
    "array(map(k, v))": "array<map<string,int>> cannot be a key",
    "parse_json(k)": "variant cannot be a key",
    "named_struct('a', parse_json(k))": "variant> cannot be a key",
    "make_ym_interval(v)": "interval year to month cannot be a key",
    "make_interval(v)": "interval cannot be a key",
    "k COLLATE UNICODE_CI": "equal in a collation",
    "struct(lower(k COLLATE UTF8_LCASE))": "equal in a collation",
    "NULL": "it has no type",
    "rand()": "its value changes when a task is retried",
    "concat(k, uuid())": "its value changes when a task is retried",
    "monotonically_increasing_id()": "its value changes when a task is retried",
    "spark_partition_id()": "its value changes when a task is retried",
    "input_file_name()": "its value changes when a task is retried",
}


@pytest.mark.parametrize("key", REFUSED_KEYS)
def test_a_key_that_cannot_be_one_is_refused_at_its_place(spark: Any, key: str) -> None:
    select = f"SELECT count(*) AS n FROM t GROUP BY k, {key}"
    with pytest.raises(BadPipeline) as caught:
        compiled(spark, pipeline_text(COLUMNS, select))
    assert REFUSED_KEYS[key] in caught.value.message
    assert caught.value.where == "p.sql:2:60"


def test_a_key_that_another_stream_made_is_refused_by_its_type(spark: Any) -> None:
    text = (
        f"CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in');\n"
        "CREATE STREAM a AS SELECT map(k, v) AS m, k COLLATE UNICODE_CI AS c FROM t;\n"
        "CREATE STREAM s AS SELECT count(*) AS n FROM a GROUP BY {} EMIT ON UPDATE;\n"
        "CREATE SINK o FROM s USING parquet OPTIONS (path 'out');"
    )
    for key, said in (("m", "Spark cannot group by a MAP"), ("c", "in a collation")):
        with pytest.raises(BadPipeline, match=said) as caught:
            compiled(spark, text.format(key))
        assert caught.value.where == "p.sql:3:57"


def test_a_key_that_varies_is_a_key_once_it_is_written_down(spark: Any, tmp_path: Path) -> None:
    """What the refusal advises: rows of a stream are kept, so the key stays what it was."""
    place = Place(tmp_path)
    place.put_json(EPOCHS)
    text = (
        f"CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in');\n"
        "CREATE STREAM a AS SELECT substring_index(input_file_name(), '/', -1) AS file FROM t;\n"
        "CREATE STREAM s AS SELECT file, count(*) AS n FROM a GROUP BY file EMIT ON UPDATE;\n"
        "CREATE SINK o FROM s USING parquet OPTIONS (path 'out');"
    )
    Run(spark, place, files=None)(text)
    found = {row["file"]: row["n"] for row in place.latest(1)}
    assert found == {f"{n:05d}.json": len(rows) for n, rows in enumerate(EPOCHS)}


REFUSED_VALUES = {
    "max(array(v))": "max() of type array<int>",
    "min(struct(v, k))": "min() of type struct<v:int,k:string>",
    "max(NULL)": "max() of type void",
    "max(k COLLATE UNICODE_CI)": "not that of its bytes",
    "max(make_ym_interval(v)) FILTER (WHERE v > 0)": "interval year to month",
}


@pytest.mark.parametrize("call", REFUSED_VALUES)
def test_values_that_cannot_be_merged_are_refused_at_their_place(spark: Any, call: str) -> None:
    with pytest.raises(BadPipeline) as caught:
        compiled(spark, pipeline_text(COLUMNS, f"SELECT k, 1 + {call} AS x FROM t GROUP BY k"))
    assert REFUSED_VALUES[call] in caught.value.message
    assert caught.value.where == "p.sql:2:34"


REFUSED_SHAPES = {
    "a view": ("SELECT symbol FROM regions", "no source or stream 'regions'"),
    "a table function": ("SELECT id FROM range(10)", "'('"),
    "a subquery": ("SELECT k FROM t WHERE k IN (SELECT symbol FROM regions)",
                   "no source or stream 'regions'"),
    "an aggregate of the user": ("SELECT total(v) AS v FROM t", "of one epoch (Aggregate)"),
}  # fmt: skip
REFUSED_FINALS = {
    "explode(array(min(v), max(v)))": "several rows of one",
    "region_of(k)": "reads a table",
    "region_of(max(k))": "reads a table",
    "loud(k)": "the function loud() of this session",
    "1 + length(loud(max(k)))": "the function loud() of this session",
}


@pytest.mark.parametrize("name", REFUSED_SHAPES)
def test_a_shape_that_would_not_work_is_refused(odd: Any, name: str) -> None:
    from pyspark.sql.functions import arrow_udf  # noqa: PLC0415  an extra

    def total(values: Any) -> int:
        return int(sum(values.to_pylist()))

    total.__annotations__ = {"values": pa.Array, "return": int}  # which make it an aggregate
    odd.udf.register("total", arrow_udf(total, "long"))
    select, said = REFUSED_SHAPES[name]
    with pytest.raises(BadPipeline) as caught:
        compiled(odd, pipeline_text(COLUMNS, select, emit=""))
    assert said in caught.value.message


@pytest.mark.parametrize("expression", REFUSED_FINALS)
def test_nothing_that_moves_rows_or_is_foreign_may_follow_the_state(
    odd: Any, expression: str
) -> None:
    """R8: behind the state step an exchange would run it twice."""
    select = f"SELECT k, {expression} AS x, sum(v) AS v FROM t GROUP BY k"
    with pytest.raises(BadPipeline) as caught:
        compiled(odd, pipeline_text(COLUMNS, select))
    assert REFUSED_FINALS[expression] in caught.value.message
    assert "stream of its own" in caught.value.advice
