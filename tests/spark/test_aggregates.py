"""Every aggregate, over random rows in epochs, is what plain Spark makes of all rows at once."""

from __future__ import annotations

import bisect
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lamina.errors import BadPipeline
from tests.spark.aggregate_rows import COLUMNS, assert_same, epochs
from tests.spark.running import Place, Run, batch, comparable, compiled, pipeline_text
from tests.spark.together import Together

NEVER_LATE = "WATERMARK ts DELAY OF INTERVAL 1500000 DAYS"
ALGEBRAIC = {
    **{f"{name}_{c}": f"{name}({c})" for name in ("bit_and", "bit_or", "bit_xor") for c in "til"},
    **{f"{name}_b": f"{name}(b)" for name in ("every", "some", "any")},
    **{
        f"{name}_{y}{x}": f"{name}({y}, {x})"
        for name in (
            *("covar_pop", "covar_samp", "corr", "regr_count", "regr_avgx", "regr_avgy"),
            *("regr_sxx", "regr_syy", "regr_sxy", "regr_r2", "regr_slope", "regr_intercept"),
        )
        for y, x in ("de", "ed", "tm", "en", "ne", "dd")
    },
    **{f"{name}_{x}": f"{name}({x})" for name in ("skewness", "kurtosis") for x in "detn"},
    "corr_filtered": "corr(d, e) FILTER (WHERE t > 0)",
    "skewness_filtered": "skewness(d) FILTER (WHERE t > 0)",
    "kurtosis_filtered": "kurtosis(d) FILTER (WHERE t > 0)",
    "least": "any_value(s)",
    **{f"try_sum_{c}": f"try_sum({c})" for c in "tien"},
    **{f"try_avg_{c}": f"try_avg({c})" for c in "tilen"},
}


PAIR = "struct(ts AS at, s, n)"
BOUNDED = {
    "least": "slice(collect_list(l), 1, 5)",
    **{f"least_{c}": f"slice(sort_array(collect_list({c})), 1, 5)" for c in "kgtilmwdnsb"},
    "latest": f"slice(sort_array(collect_list({PAIR}), false), 1, 7)",
    "many": "slice(array_sort(collect_list(s)), 1, 10000)",
    "texts": "slice(sort_array(collect_set(s)), 1, 20)",
    **{f"set_{c}": f"slice(sort_array(collect_set({c}), false), 1, 50)" for c in "gnbst"},
    "some": "slice(sort_array(collect_list(t) FILTER (WHERE b)), 1, 4)",
    "size": "size(slice(collect_list(e), 1, 3))",
    # No two rows have the same `w`, so that Spark says which ones they are.
    "top": "max_by(s, w, 4)",
    "bottom": "min_by(n, w, 3) FILTER (WHERE b)",
}
WINDOWED = {
    "list": "collect_list(s)",
    "numbers": "array_agg(n)",
    "nested": "collect_list(array(t, i))",
    "pairs": f"collect_list({PAIR})",
    "kinds": "collect_set(g)",
    "texts": "collect_set(s)",
    "size": "size(collect_list(l) FILTER (WHERE b))",
}


EXACT = {
    **{f"median_{c}": f"median({c})" for c in "tlmwdn"},
    **{f"fifth_{c}": f"percentile({c}, 0.2)" for c in "ilmdn"},
    "several": "percentile(d, array(0, 0.33, 0.5, 0.99, 1.0)) FILTER (WHERE b)",
    "cont": "percentile_cont(0.7) WITHIN GROUP (ORDER BY e)",
    "descending": "percentile_cont(array(0.1, 0.8)) WITHIN GROUP (ORDER BY m DESC)",
    **{
        f"disc_{i}": f"percentile_disc({share}) WITHIN GROUP (ORDER BY {values})"
        for i, (share, values) in enumerate(
            [("0", "t"), ("0.1", "n DESC"), ("array(0.5, 0.75, 1)", "l"), ("0.5", "d ASC")]
        )
    },
}
JOINED = {
    # No two rows have the same `w`.
    "joined": "string_agg(s, ', ') WITHIN GROUP (ORDER BY w)",
    "backwards": "listagg(s, '{}') WITHIN GROUP (ORDER BY w DESC) FILTER (WHERE b)",
    "once": "string_agg(DISTINCT s, '/') WITHIN GROUP (ORDER BY s DESC)",
    "glued": "upper(string_agg(CAST(g AS STRING)) WITHIN GROUP (ORDER BY CAST(g AS STRING)))",
    **{f"mode_{c}": f"mode({c}, true)" for c in "gtsnb"},
    "mode_some": "mode(s, true) FILTER (WHERE b)",
}
SKETCHED = {
    **{f"approx_{c}": f"percentile_approx({c}, 0.3)" for c in "tilmde"},
    "approx_times": "approx_percentile(ts, array(0.0, 0.5, 1.0), 1000)",
    "approx_dates": "approx_percentile(CAST(ts AS DATE), 0.9)",
    "approx_some": "percentile_approx(l, array(0.25D, 0.5D), 100) FILTER (WHERE b)",
    # As few as these, a sketch counts exactly.
    **{f"count_{c}": f"approx_count_distinct({c}, 0.001)" for c in "gtilmwdnsb"},
    "count_some": "approx_count_distinct(struct(coalesce(g, 0), s), 0.001) FILTER (WHERE b)",
}


KEYS = {
    "case_key": "CASE WHEN l > 0 THEN 'up' WHEN l < 0 THEN s END",
    "struct_key": "struct(g, b, n)",
    "array_key": "array(g, CAST(t % 3 AS INT))",
    "nested_key": "struct(array(b) AS b, named_struct('g', g) AS g)",
    "all_keys": "map_keys(map(coalesce(g, 0), s))",
}
SETS = (
    "GROUPING SETS ((k, g), (k), (b), ())",
    "ROLLUP (k, g)",
    "CUBE (k, g, b)",
    "b, ROLLUP (k, (g, upper(s)))",
    "k, g WITH CUBE",
)


def by_key(items: dict[str, str], window: str = "") -> str:
    keys = "k" if not window else "concat_ws('/', k, window.start) AS id, k, window.start AS at"
    group = "k" if not window else f"k, window(ts, '{window}')"
    named = ", ".join(f"{sql} AS {name}" for name, sql in items.items())
    source = "timed" if window else "t"
    return f"SELECT {keys}, {named} FROM {source} GROUP BY {group}"


def by_sets(sets: str) -> str:
    """Nulls that are values are told from those of keys that are left out."""
    keys = [key for key in ("k", "g", "b", "upper(s)") if key in sets]
    listed = ", ".join(f"{key} AS k{i}, grouping({key}) AS left_{i}" for i, key in enumerate(keys))
    given = "concat_ws('/', grouping_id(), " + ", ".join(
        f"coalesce(CAST({key} AS STRING), 'null')" for key in keys
    )
    return (
        f"SELECT {given}) AS id, {listed}, grouping_id() AS gid, count(*) AS n, sum(m) AS m,"
        f" min(k) AS least, corr(d, e) AS c, max(ts) AS at FROM t GROUP BY {sets}"
    )


def asked(items: dict[str, str], oracle: dict[str, str], window: str = "") -> tuple[str, str]:
    return by_key(items, window), by_key({**items, **oracle}, window)


QUERIES = {  # what is asked of us, and of Spark
    "algebraic": asked(ALGEBRAIC, {"least": "min(s)"}),
    "bounded": asked(
        BOUNDED,
        {
            "least": "slice(sort_array(collect_list(l)), 1, 5)",
            "size": "least(size(collect_list(e)), 3)",
        },
    ),
    "lists of windows, in order": asked(
        WINDOWED,
        {name: f"sort_array({sql})" for name, sql in WINDOWED.items() if name != "size"},
        "3650 days",
    ),
    "percentiles of windows": asked(EXACT, {}, "36500 days"),
    "texts of windows": asked(JOINED, {}, "36500 days"),
    # Times come back to the microsecond, decimals to the digit.
    "small sketches": asked(
        SKETCHED,
        {
            name: sql.replace("approx_count_distinct(", "count(DISTINCT ").replace(", 0.001)", ")")
            for name, sql in SKETCHED.items()
            if name.startswith("count")
        },
    ),
    **{sets: (by_sets(sets), by_sets(sets)) for sets in SETS},
    **{
        name: (f"SELECT {key} AS key, count(*) AS n, sum(m) AS m FROM t GROUP BY ALL",) * 2
        for name, key in KEYS.items()
    },
}
SEED = 2  # which cuts the rows into three epochs


@pytest.fixture(scope="module")
def outputs(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Together:
    """All of them in one pipeline; the views `t` and `timed` have all rows at once."""
    place = Place(tmp_path_factory.mktemp("aggregates"))
    place.put_tables(epochs(SEED))
    read = f"({COLUMNS}) USING parquet OPTIONS (path 'in')"
    head = f"CREATE SOURCE t {read};\nCREATE SOURCE timed {read} {NEVER_LATE};\n"
    together = Together(head, [(ours, "EMIT ON UPDATE") for ours, _ in QUERIES.values()])
    together.run_with_a_kill(Run(spark, place, partitions=2), then=4)
    for view in ("t", "timed"):
        spark.read.schema(COLUMNS).parquet(place.source).createOrReplaceTempView(view)
    return together


@pytest.mark.parametrize("name", list(QUERIES))
def test_aggregates_in_epochs_equal_spark(spark: Any, outputs: Together, name: str) -> None:
    found = outputs.latest(list(QUERIES).index(name), 1)
    wanted = batch(spark, QUERIES[name][1])
    if name in KEYS:
        assert comparable(found) == comparable(wanted)
    else:
        assert_same(found, wanted)
    assert found


def test_large_sketches_are_as_near_as_was_asked_for(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    rng = random.Random(5)
    values = [rng.lognormvariate(3, 2) for _ in range(60_000)]
    parts = [values[first::4] for first in range(4)]
    place.put_tables([pa.table({"d": part, "k": ["x"] * len(part)}) for part in parts])
    select = (
        "SELECT k, approx_count_distinct(d) AS n, approx_count_distinct(d, 0.01) AS nearer,"
        " percentile_approx(d, array(0.01, 0.5, 0.99), 100) AS p,"
        " percentile_approx(d, array(0.01, 0.5, 0.99), 1000) AS q,"
        " hll_sketch_estimate(hll_sketch_agg(CAST(d * 1e6 AS BIGINT), 14)) AS m,"
        " kll_sketch_get_n_double(kll_sketch_agg_double(d)) AS rows FROM t GROUP BY k"
    )
    Run(spark, place)(pipeline_text("k STRING, d DOUBLE", select, kind="parquet"))
    (row,) = place.latest(1)
    assert row["rows"] == len(values)
    for name, error in (("n", 0.2), ("nearer", 0.04), ("m", 0.04)):
        assert row[name] == pytest.approx(len(set(values)), rel=error)
        assert row[name] != len(set(values)), "it is not exact, so this test tries something"
    ordered = sorted(values)
    for name, error in (("p", 0.01), ("q", 0.001)):
        for share, found in zip((0.01, 0.5, 0.99), row[name], strict=True):
            assert abs(bisect.bisect(ordered, found) / len(ordered) - share) < 2 * error


def test_percentiles_that_cannot_be_had_are_refused_with_a_way_around(spark: Any) -> None:
    for call, said in (
        ("median(d)", "percentile_approx"),
        ("percentile_approx(w, 0.5)", "CAST it to DOUBLE"),
        ("percentile_approx(d, 0.5, 10 * 10)", "Write it as one: 1000"),
        ("approx_count_distinct(d, 0.1 / 2)", "Write it as one: 0.01"),
        ("median(ts - TIMESTAMP '2020-01-01')", "CAST the values to DOUBLE"),
    ):
        with pytest.raises(BadPipeline) as refused:
            compiled(spark, pipeline_text(COLUMNS, f"SELECT k, {call} AS q FROM t GROUP BY k"))
        assert said in refused.value.advice, call


def test_elements_without_an_order_are_refused(spark: Any) -> None:
    for call in ("slice(collect_list(array(s)), 1, 3)", "max_by(array(s), l, 3)"):
        with pytest.raises(BadPipeline, match=r"elements of type .*array<string>.* have no order"):
            compiled(spark, pipeline_text(COLUMNS, f"SELECT k, {call} AS q FROM t GROUP BY k"))
    windowed = "SELECT collect_list(map(s, s)) AS q FROM t GROUP BY window(ts, '1 day')"
    with pytest.raises(BadPipeline, match="does not support ordering"):
        compiled(spark, pipeline_text(COLUMNS, windowed, mark=NEVER_LATE))


def test_sets_of_keys_in_windows_equal_spark_and_late_rows_count_once(
    spark: Any, tmp_path: Path
) -> None:
    hours = [[1, 1, 2], [3, 3, 1], [9]]
    place = Place(tmp_path)
    place.put_json(
        [
            [
                {"k": k, "ts": f"2024-01-01T0{hour}:30:00Z"}
                for hour in each
                for k in ("a", "b", None)
            ]
            for each in hours
        ]
    )
    select = (
        "SELECT window.start AS at, k, grouping_id() AS id, count(*) AS n FROM t"
        " GROUP BY window(ts, '1 hour'), CUBE (k)"
    )
    mark = "WATERMARK ts DELAY OF INTERVAL 0 SECONDS"
    columns = "k STRING, ts TIMESTAMP"
    run = Run(spark, place)
    run(pipeline_text(columns, select, emit="EMIT ON WINDOW CLOSE", mark=mark))
    spark.read.schema(columns).json(place.source).createOrReplaceTempView("t")
    on_time = [row for row in batch(spark, select) if row["at"].hour in (1, 2, 3)]
    for row in on_time:
        row["n"] -= (row["at"].hour == 1) * (
            1 if row["id"] == 0 else 3
        )  # those of the second epoch
    assert comparable(place.rows()) == comparable(on_time)
    assert sum(report.late for report in run.reports) == 3
