"""EMIT CHANGES: all changes, applied in order, are what one batch over all rows has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lamina.engine.ports import CHANGE, Change
from lamina.errors import BadPipeline, Refused
from tests.spark.changes import applied, check_keys, kinds, run_changes
from tests.spark.running import Place, Run, batch, comparable, compiled, pipeline_text
from tests.spark.test_blocks import COLUMNS, MARK, rows_of
from tests.spark.together import Together

EMIT = "EMIT CHANGES"
HAVING = "SELECT k, g, sum(a) AS s FROM t GROUP BY k, g HAVING sum(a) BETWEEN -5 AND 20"
OVER = "row_number() OVER (PARTITION BY k ORDER BY ts DESC, a DESC, d DESC, m DESC, g DESC)"


SUMS = "SELECT k, g, sum(a) AS s, count(*) AS n FROM t GROUP BY k, g"
SOURCE = f"CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in') {MARK};\n"
GROUPS: list[tuple[str, tuple[str, ...] | None]] = [
    ("SELECT k, sum(a) AS s, count(*) AS n, avg(m) AS m FROM t GROUP BY k", ("k",)),
    (HAVING, ("k", "g")),
    ("SELECT sum(a) + 1 AS s, max(d) AS d FROM t", ()),
    ("SELECT g, window.start AS at, count(DISTINCT k) AS n FROM t"
     " GROUP BY g, window(ts, '20 minutes')", ("g", "at")),
    ("SELECT max(a) AS m FROM t GROUP BY k HAVING count(*) > 20", None),
    (f"SELECT k, n, a, d FROM (SELECT *, {OVER} AS n FROM t) WHERE n <= 3", ("k", "n")),
    (f"SELECT k, a, ts FROM t QUALIFY {OVER} <= 2", None),
    ("SELECT k, g, grouping_id() AS i, min(a) AS a FROM t GROUP BY ROLLUP (k, g)",
     ("k", "g", "i")),
]  # fmt: skip
OVER_GROUPS: list[tuple[str, tuple[str, ...] | None]] = [
    ("SELECT * FROM (%s) WHERE s > 3 AND n % 2 = 0", ("k", "g")),
    ("SELECT g, to_json(struct(*)) AS all, k FROM (%s) AS q", ("k", "g")),
    ("SELECT k, explode(array(s, n, s)) AS x FROM (%s)", None),
    ("SELECT k, s FROM (%s) UNION ALL SELECT g, a FROM t WHERE a > 0", None),
    ("SELECT k, 1 AS x FROM (%s) UNION ALL SELECT g, n FROM (%s)", None),
    ("SELECT k, g, s + 1 AS s FROM (SELECT k, g, s * 2 AS s FROM (%s) WHERE s > 0)",
     ("k", "g")),
]  # fmt: skip
QUERIES = [*GROUPS, *((query.replace("%s", SUMS), keys) for query, keys in OVER_GROUPS)]


@pytest.fixture(scope="module")
def outputs(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Together:
    """All of them in one pipeline, over three epochs; the view `t` has all rows at once."""
    place = Place(tmp_path_factory.mktemp("changes"))
    rows = rows_of(23, 240)
    place.put_json([rows[:130], rows[130:140], rows[140:]])
    together = Together(SOURCE, [(query, EMIT) for query, _ in QUERIES])
    together.run_with_a_kill(Run(spark, place, partitions=2), then=4)
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    return together


def compare(spark: Any, outputs: Together, number: int) -> None:
    query, keys = QUERIES[number]
    epochs = outputs.epochs(number)
    assert applied(epochs) == comparable(batch(spark, query))
    assert epochs
    if keys is not None:
        check_keys(epochs, keys)


@pytest.mark.parametrize("number", range(len(GROUPS)))
def test_all_changes_together_equal_one_batch(spark: Any, outputs: Together, number: int) -> None:
    compare(spark, outputs, number)


@pytest.mark.parametrize("number", range(len(OVER_GROUPS)))
def test_streams_over_changes_equal_one_batch(spark: Any, outputs: Together, number: int) -> None:
    compare(spark, outputs, len(GROUPS) + number)


def test_each_kind_of_change(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    epochs = [
        [{"k": "a", "a": 1}, {"k": "b", "a": 9}, {"k": "c", "a": 1}],
        [{"k": "a", "a": 2}, {"k": "b", "a": 9}, {"k": "c", "a": 0}, {"k": "d", "a": 99}],
        [{"k": "d", "a": -98}],
    ]
    place.put_json(epochs)
    query = "SELECT k, sum(a) AS s FROM t GROUP BY k HAVING sum(a) < 10"
    first, second, third = run_changes(Run(spark, place), pipeline_text(COLUMNS, query, emit=EMIT))
    assert kinds(first) == {"+I": 3}
    assert sorted((row["k"], row["s"], row[CHANGE]) for row in second) == [
        ("a", 1, "-U"),
        ("a", 3, "+U"),
        ("b", 9, "-D"),
    ], "c is as it was, and d is not there yet"
    assert [(row["k"], row["s"], row[CHANGE]) for row in third] == [("d", 1, "+I")]


def test_an_old_version_comes_directly_before_the_new_one(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put_json([[{"k": str(n), "a": n} for n in range(40)]] * 2)
    query = "SELECT k, sum(a) + 1 AS s FROM t GROUP BY k"
    _, second = run_changes(Run(spark, place), pipeline_text(COLUMNS, query, emit=EMIT))
    assert [row[CHANGE] for row in second] == ["-U", "+U"] * 39, "of k = 0 nothing changes"
    assert all(old["k"] == new["k"] for old, new in zip(second[::2], second[1::2], strict=True))


def test_closed_windows_take_nothing_back(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    at = "2024-01-0{}T00:00:00Z".format
    place.put_json([[{"k": "a", "ts": at(day)}] for day in (1, 3, 1, 5, 7)])
    query = "SELECT k, window.start AS s, count(*) AS n FROM t GROUP BY k, window(ts, '1 day')"
    text = pipeline_text(COLUMNS, query, emit=EMIT, mark="WATERMARK ts DELAY OF INTERVAL 1 SECOND")
    run = Run(spark, place)
    epochs = run_changes(run, text)
    assert [kinds(epoch) for epoch in epochs] == [{"+I": 1}] * 4
    assert sum(report.late for report in run.reports) == 1


def test_what_a_sink_is_told(spark: Any) -> None:
    plan = compiled(spark, pipeline_text(COLUMNS, HAVING, emit=EMIT))
    assert plan.outputs["o"].change is Change.CHANGES
    assert plan.outputs["o"].keys == ("k", "g")
    assert plan.outputs["o"].schema.names == ["k", "g", "s"], "the column of changes is beside it"


def test_a_sink_that_only_adds_rows_refuses_changes(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put_json([[]])
    with pytest.raises(Refused, match="cannot take a stream of changes rows") as raised:
        Run(spark, place)(pipeline_text(COLUMNS, HAVING, emit=EMIT))
    assert "goes by keys" in raised.value.advice


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT k, sum(a) + rand() AS s FROM t GROUP BY k", "gives other values again"),
        ("SELECT k, sum(a) AS s, now() AS at FROM t GROUP BY k", "now()"),
        ("SELECT k, sum(a) AS s, CURRENT_DATE AS at FROM t GROUP BY k", "CURRENT_DATE"),
        ("SELECT k AS _change, sum(a) AS s FROM t GROUP BY k", "'_change'"),
    ],
)
def test_what_cannot_be_taken_back_as_it_was_is_refused(spark: Any, query: str, said: str) -> None:
    with pytest.raises(BadPipeline, match="changes") as raised:
        compiled(spark, pipeline_text(COLUMNS, query, emit=EMIT))
    assert said in str(raised.value)
