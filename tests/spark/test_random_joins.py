"""Joins that hypothesis draws, over random rows in epochs: what one batch makes of them.

    LAMINA_QUERIES=200 .venv/bin/python -m pytest -s tests/spark/test_random_joins.py

Every kind of join is in one pipeline, which is run with 1, then 4, then 2 partitions. Late rows are
told by a model that knows nothing of the engine; of the others Spark's batch and DuckDB both say
what comes out. A failure prints the case, which can be kept as an @example.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings

from tests.spark.join_cases import (
    COLUMNS,
    NO_DELAY_S,
    Bounds,
    JoinCase,
    RandomJoin,
    Row,
    join_cases,
    table,
)
from tests.spark.running import Place, Run
from tests.spark.together import Together

CASES = int(os.environ.get("LAMINA_QUERIES", "1"))
NEAR = Bounds(-300, 450, 0)
ALL_KINDS = (
    RandomJoin("FULL", NEAR),
    RandomJoin("INNER", Bounds(0, 0, 4), ("l.s = r.s",)),
    RandomJoin("LEFT", Bounds(-700, -100, 1), ("l.v < r.v", "r.s <> 'b'")),
    RandomJoin("RIGHT", Bounds(100, 900, 3), ("(l.v <> r.v OR l.s = 'a')", "l.v > 2")),
    RandomJoin("SEMI", Bounds(-600, 0, 2)),
    RandomJoin("ANTI", NEAR, ("NOT (l.id = r.id)",)),
    RandomJoin("ASOF", Bounds(-30, 0, 0)),
    RandomJoin("LEFT ASOF", Bounds(0, 0, 1), ("r.ts < l.ts + INTERVAL 400 SECONDS",)),
    RandomJoin("WINDOWS FULL", NEAR),
)
LATE = JoinCase(ALL_KINDS, seed=7, rows=60, delay_s=120, stages=((2, 1), (2, 4), (2, 2)))


@settings(
    max_examples=CASES,
    derandomize="LAMINA_QUERIES" not in os.environ,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    report_multiple_bugs=False,
)
@given(case=join_cases())
@example(case=LATE)
def test_random_joins_in_epochs_equal_one_batch_of_what_was_not_late(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, case: JoinCase
) -> None:
    folder = tmp_path_factory.mktemp("joins")
    check(spark, folder, case)
    shutil.rmtree(folder)


def check(spark: Any, folder: Path, case: JoinCase) -> None:
    epochs = case.epochs
    mark = f"WATERMARK ts DELAY OF INTERVAL {case.delay_s} SECONDS"
    head = "".join(
        f"CREATE SOURCE {name} ({COLUMNS(key)}) USING parquet OPTIONS (path '{name}/in') {mark};\n"
        for name, key in (("l", "BIGINT"), ("r", "INT"))
    )
    together = Together(head, [(join.text, "") for join in case.joins])
    late = run(spark, folder, case, together)
    rows = {windows: case.on_time(epochs, windows=windows) for windows in (False, True)}
    timed = [sum(row["ts"] is not None for e in epochs for row in e[side]) for side in (0, 1)]
    counts = [timed[side] - len(rows[False][side]) for side in (0, 1)]
    assert late == counts, f"late rows of {case!r}"
    assert not any(late) or case.delay_s != NO_DELAY_S
    wrong = [
        f"{join.text}\n{batch.__name__}: {difference(found, batch(spark, join, rows))}"
        for number, join in enumerate(case.joins)
        for found in [together.rows(number)]
        for batch in (spark_says, duckdb_says)
        if difference(found, batch(spark, join, rows))
    ]
    assert not wrong, "\n\n".join([*wrong, f"of {case!r}"])


def run(spark: Any, folder: Path, case: JoinCase, together: Together) -> list[int]:
    """All stages; how many rows of each side were late for the first join."""
    epochs, done, late = case.epochs, 0, [0, 0]
    for files, partitions in case.stages:
        for number in range(done, done + files):
            for side, name in enumerate("lr"):
                Place(folder / name).put_table(number, table(epochs[number][side], side))
        done += files
        one = Run(spark, Place(folder), partitions, drain=done == len(epochs))
        together.run(one)
        for report in one.reports:
            sides = report.late_sides.get("q0.join", {})
            late = [late[0] + sides.get("left", 0), late[1] + sides.get("right", 0)]
    return late


Sides = Mapping[bool, tuple[list[Row], list[Row]]]


def spark_says(spark: Any, join: RandomJoin, rows: Sides) -> list[Row]:
    for side, name in enumerate("lr"):
        frame = spark.createDataFrame(table(rows[join.is_windows][side], side))
        frame.createOrReplaceTempView(name)
    return list(spark.sql(join.oracle).toArrow().to_pylist())


def duckdb_says(_: Any, join: RandomJoin, rows: Sides) -> list[Row]:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for side, name in enumerate("lr"):
            database.register(name, table(rows[join.is_windows][side], side))
        return list(database.sql(join.oracle).to_arrow_table().to_pylist())


def difference(found: Iterable[Row], expected: Iterable[Row]) -> str:
    left, right = _plain(found), _plain(expected)
    for row in left.copy():
        if row in right:
            left.remove(row)
            right.remove(row)
    return f"too many {left[:5]}, missing {right[:5]}" if left or right else ""


def _plain(rows: Iterable[Row]) -> list[Sequence[Any]]:
    return [
        tuple(v.astimezone(UTC) if isinstance(v, datetime) else v for v in row.values())
        for row in rows
    ]
