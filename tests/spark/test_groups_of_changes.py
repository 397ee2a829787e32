"""Aggregates, DISTINCT and top n over changes: equal to the nested query over all rows at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lamina.engine.ports import CHANGE, Change
from lamina.errors import BadPipeline, StateChanged
from tests.spark.changes import applied, check_keys, kinds, run_changes
from tests.spark.running import Place, Run, batch, comparable, compiled, pipeline_text
from tests.spark.test_blocks import COLUMNS, MARK, cut, rows_of
from tests.spark.together import Together

INNER = (
    "SELECT k, g, sum(a) AS a, max(d) AS d, sum(m) AS m, count(*) AS n, max(ts) AS ts, min(a) AS i"
    " FROM t GROUP BY k, g, a % 7"
)
VALUE = f"SELECT n % 4 AS k, g, a, d, m, i, n, ts FROM (SELECT * FROM ({INNER}) WHERE n > 1)"


def rounded(rows: list[Any]) -> list[Any]:
    """Doubles to twelve digits: the order of additions is not Spark's."""
    return [_rounded(row) for row in rows]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return value if not math.isfinite(value) or not value else float(f"{value:.9e}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


ALGEBRAIC = (
    *("sum(a)", "count(a)", "count(*)", "avg(a)", "count_if(n > 2)", "sum(m)", "avg(m)"),
    *("sum(a) FILTER (WHERE g = 'x')", "min(a)", "max(d)", "min(m)", "max(ts)", "max(g)"),
    *("min(k)", "bool_and(n > 2)", "bool_or(a > 0)", "any_value(n) IS NULL"),
    *("sum(d)", "avg(d)", "var_samp(n)", "stddev_pop(a)", "kurtosis(n)", "skewness(n)"),
    *("corr(n, i)", "covar_samp(n, i)", "regr_slope(n, i)", "regr_sxx(n, i)"),
    *("regr_count(n, i)", "regr_avgx(n, i)", "bit_and(n)", "bit_or(n)", "bit_xor(n)"),
)
DISTINCT = (
    *("count(DISTINCT g)", "count(DISTINCT g, n)", "sum(DISTINCT n)", "avg(DISTINCT m)"),
    *("sum(DISTINCT a)", "avg(DISTINCT n)", "bit_xor(DISTINCT n)", "bit_xor(n)"),
)
LISTED = (
    *("median(n)", "percentile(n, array(0.1, 0.9))"),
    "percentile_disc(0.5) WITHIN GROUP (ORDER BY n DESC)",
    *("sort_array(collect_list(n))", "sort_array(collect_set(g))"),
    "slice(sort_array(collect_list(a), false), 1, 3)",
    # Of rows with the same second argument Spark takes any, so their values are the same here.
    *("min_by(n, n)", "max_by(n, n)", "max_by(n, n, 3)", "min_by(n, n, 2)"),
    *("mode(n, true)", "mode(g, true) FILTER (WHERE a > 0)", "try_sum(a)", "try_avg(n)"),
    "string_agg(g, ', ') WITHIN GROUP (ORDER BY g)",
    "listagg(DISTINCT g, '/') WITHIN GROUP (ORDER BY g DESC)",
)


def by_k(items: Sequence[str]) -> str:
    listed = ", ".join(f"{item} AS x{number}" for number, item in enumerate(items))
    return f"SELECT k, {listed} FROM {{value}} GROUP BY k"


GROUPS: list[tuple[str, tuple[str, ...] | None]] = [
    ("SELECT count(*) AS n, sum(a) AS s, max(n) AS m FROM {value}", ()),
    ("SELECT DISTINCT n, g FROM {value}", ("n", "g")),
    ("SELECT k, max(n) AS n FROM {value} GROUP BY k HAVING max(n) % 2 = 0", ("k",)),
    ("SELECT g, n, count(*) AS c FROM {value} GROUP BY CUBE (g, n)", None),
    ("SELECT c, count(*) AS n FROM (SELECT n, count(*) AS c FROM {value} GROUP BY n)"
     " GROUP BY c", ("c",)),
    ("SELECT k, r, n, a FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY n DESC,"
     " g DESC, a DESC, i DESC, m DESC, d DESC, ts DESC) AS r FROM {value}) WHERE r <= 3",
     ("k", "r")),
    ("SELECT k, n, i FROM {value} QUALIFY"
     " row_number() OVER (PARTITION BY k ORDER BY n, i, g, a, m, d, ts) = 1", ("k",)),
    ("SELECT count(*) AS c, sum(n) AS n FROM (SELECT g, n FROM {value} QUALIFY"
     " row_number() OVER (PARTITION BY g ORDER BY n DESC) <= 2)", ()),
    ("SELECT x, count(*) AS c FROM (SELECT n AS x FROM {value} UNION ALL"
     " SELECT a FROM t) GROUP BY x", ("x",)),
    (f"SELECT min(n) AS least, count(*) AS n FROM ({VALUE})", ()),  # all in one query
]  # fmt: skip
HOT = """
SELECT starts, auction, num FROM (
  SELECT starts, auction, num,
         row_number() OVER (PARTITION BY starts ORDER BY num DESC, auction DESC) AS place
  FROM (SELECT window.start AS starts, k AS auction, count(*) AS num FROM t
        GROUP BY k, window(ts, '20 minutes', '10 minutes') {emit}))
WHERE place = 1"""
WINDOWS = (
    "SELECT window.start AS h, count(*) AS n, max(c) AS c, sum(s) AS s FROM"
    " (SELECT k, window.end - INTERVAL 1 MICROSECOND AS at, count(*) AS c, sum(a) AS s FROM t"
    " GROUP BY k, window(ts, '10 minutes') {emit}) GROUP BY window(at, '1 hour')"
)
SOURCE = f"CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in') {MARK};\n"
CHANGING = [
    *((by_k(items), ("k",)) for items in (ALGEBRAIC, DISTINCT, LISTED)),
    *GROUPS,
    (HOT, ("starts",)),
    (WINDOWS, ("h",)),
]
UPDATING = "SELECT count(*) AS n, max(n) AS m, sum(a) AS s FROM {value}"


@pytest.fixture(scope="module")
def outputs(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Together:
    """All queries over the same changes, in three epochs; the view `t` has all rows at once."""
    place = Place(tmp_path_factory.mktemp("changes"))
    rows = rows_of(17, 320)
    place.put_json([rows[:180], rows[180:190], rows[190:]])
    queries = [
        (query.format(value="changing", emit="EMIT CHANGES"), "EMIT CHANGES")
        for query, _ in CHANGING
    ]
    queries.append((UPDATING.format(value="changing"), "EMIT ON UPDATE"))
    together = Together(f"{SOURCE}CREATE STREAM changing AS {VALUE} EMIT CHANGES;\n", queries)
    together.run_with_a_kill(Run(spark, place, partitions=2), then=4)
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    return together


def oracle(spark: Any, query: str) -> list[str]:
    text = query.format(value=f"({VALUE})", emit="")
    return comparable(rounded(batch(spark, text)))


@pytest.mark.parametrize("number", range(len(CHANGING)))
def test_groups_over_changes_equal_the_nested_query(
    spark: Any, outputs: Together, number: int
) -> None:
    query, keys = CHANGING[number]
    epochs = outputs.epochs(number)
    assert applied([rounded(epoch) for epoch in epochs]) == oracle(spark, query)
    assert epochs
    if keys is not None:
        check_keys(epochs, keys)


def test_the_hottest_item_of_every_window_is_known_before_it_closes(outputs: Together) -> None:
    """Nexmark's q5 over windows that are still open."""
    epochs = outputs.epochs(CHANGING.index((HOT, ("starts",))))
    assert {kind for epoch in epochs for kind in kinds(epoch)} == {"+I", "-D"}


def test_one_group_over_changes_may_emit_on_update(spark: Any, outputs: Together) -> None:
    rows = outputs.rows(len(CHANGING))
    assert comparable(rounded(rows[-1:])) == oracle(spark, UPDATING)


def test_a_window_over_changes_comes_out_once_when_it_closes(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    rows = cut(rows_of(5, 120), 3)
    place.put_json([*rows, [{"k": "z", "a": 1, "ts": "2024-01-02T00:00:00Z"}], []])
    inner = WINDOWS.format(emit="EMIT CHANGES")
    text = pipeline_text(COLUMNS, inner, emit="EMIT ON WINDOW CLOSE", mark=MARK)
    assert compiled(spark, text).outputs["o"].change is Change.APPEND
    Run(spark, place)(text)
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    wanted = [row for row in batch(spark, WINDOWS.format(emit="")) if row["h"].day == 1]
    assert comparable(place.rows()) == comparable(wanted)
    assert wanted


def test_a_group_that_has_lost_its_last_row_is_gone_and_comes_again(
    spark: Any, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    place.put_json([[{"k": "a"}], [{"k": "a"}], [{"k": "b"}], [{"k": "b"}, {"k": "c"}]])
    query = "SELECT n, count(*) AS c FROM (SELECT k, count(*) AS n FROM t GROUP BY k) GROUP BY n"
    text = pipeline_text(COLUMNS, query, emit="EMIT CHANGES")
    epochs = run_changes(Run(spark, place), text)
    said = [sorted((row["n"], row["c"], row[CHANGE]) for row in epoch) for epoch in epochs]
    assert said == [
        [(1, 1, "+I")],
        [(1, 1, "-D"), (2, 1, "+I")],
        [(1, 1, "+I")],
        [(2, 1, "-U"), (2, 2, "+U")],
    ], "in the last epoch one group of 1 goes and another comes"


def test_a_delta_table_by_key_has_what_one_batch_has(spark: Any, tmp_path: Path) -> None:
    """Through every part: aggregates of aggregates, a condition, rows that are taken back."""
    deltalake = pytest.importorskip("deltalake")
    query = f"SELECT n, count(*) AS c, max(a) AS a FROM ({VALUE}) GROUP BY n HAVING count(*) < 9"
    text = (
        f"CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in');\n"
        f"CREATE STREAM s AS {query} EMIT CHANGES;\n"
        "CREATE STREAM p AS SELECT c, n, a FROM s WHERE a > 0;\n"
        "CREATE SINK o FROM s USING delta OPTIONS (path 'all');\n"
        "CREATE SINK q FROM p USING delta OPTIONS (path 'some');"
    )
    place = Place(tmp_path)
    place.put_json(cut(rows_of(3, 300), 11))
    Run(spark, place)(text)
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    for name, select in (("all", query), ("some", f"SELECT c, n, a FROM ({query}) WHERE a > 0")):
        found = deltalake.DeltaTable(str(tmp_path / name)).to_pyarrow_table().to_pylist()
        assert comparable(found) == comparable(batch(spark, select)), name
        assert found


@pytest.mark.parametrize(
    ("query", "emit", "said"),
    [
        (f"SELECT n, count(*) AS c FROM ({INNER}) GROUP BY n", "EMIT ON UPDATE",
         "could not be taken back"),
        (f"SELECT n FROM ({INNER}) QUALIFY row_number() OVER (ORDER BY n) < 3", "EMIT ON UPDATE",
         "could not be taken back"),
        (f"SELECT window.end AS e, count(*) AS c FROM ({INNER}) GROUP BY window(ts, '1 hour')",
         "EMIT CHANGES", "its rows could change after the window has closed"),
        (f"SELECT n, percentile_approx(a, 0.5) AS p FROM ({INNER}) GROUP BY n", "EMIT CHANGES",
         "out of a sketch"),
        (f"SELECT n, max(array(a)) AS p FROM ({INNER}) GROUP BY n", "EMIT CHANGES",
         "have no order here"),
        (f"SELECT n, sum(a) AS p FROM ({INNER}) WHERE rand() < 1 GROUP BY n", "EMIT CHANGES",
         "must be as it was"),
        ("SELECT sum(n) AS n FROM (SELECT k, count(*) AS n FROM t GROUP BY k EMIT ON UPDATE)",
         "EMIT CHANGES", "an aggregate over the updating stream"),
    ],
)  # fmt: skip
def test_what_cannot_be_over_changes_is_refused_with_the_reason(
    spark: Any, query: str, emit: str, said: str
) -> None:
    with pytest.raises(BadPipeline) as raised:
        compiled(spark, pipeline_text(COLUMNS, query, emit=emit, mark=MARK))
    assert said in raised.value.message


def test_a_new_aggregate_on_old_state_is_refused_and_not_guessed(
    spark: Any, tmp_path: Path
) -> None:
    """What it never saw would be taken from it."""
    inner = "SELECT k, count(*) AS n FROM t GROUP BY k"
    place = Place(tmp_path)
    place.put_json([[{"k": "a", "a": 1}]])
    run_changes(
        Run(spark, place),
        pipeline_text(COLUMNS, f"SELECT sum(n) AS s FROM ({inner})", emit="EMIT CHANGES"),
    )
    place.put_json([[{"k": "a", "a": 1}], [{"k": "a", "a": 2}]])
    run = Run(spark, place, reuse_state=frozenset({"s"}))
    with pytest.raises(StateChanged, match="'s' has a new aggregate over changes"):
        run_changes(
            run,
            pipeline_text(
                COLUMNS,
                f"SELECT sum(n) AS s, count(n) + 1 AS m, min(k) AS k FROM ({inner})",
                emit="EMIT CHANGES",
            ),
        )
