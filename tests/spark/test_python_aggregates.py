"""A user's own aggregates, cut into epochs, killed and rescaled: as plain Python computes them."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lamina.errors import BadPipeline, LaminaError, StateChanged
from lamina.pipeline import Option, parse_pipeline
from lamina.spark.explanation import explain_types
from lamina.testing.faulty import Killed
from tests.engine.pipelines import Bomb
from tests.spark.changes import applied
from tests.spark.python_aggregates import (
    DECLARED,
    MODULE,
    geometric_mean,
    longest,
    tally,
    weighted_sum,
)
from tests.spark.running import FILE, Place, Run, comparable, compiled

Row = dict[str, Any]
COLUMNS = "k STRING, g INT, x DOUBLE, v BIGINT, w INT, s STRING, ts TIMESTAMP"
SOURCE = (
    f"CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in')"
    " WATERMARK ts DELAY OF INTERVAL 30 SECONDS;\n"
)
START = datetime(2024, 1, 1, tzinfo=UTC)


def made(seed: int, rows: int = 200) -> list[list[Row]]:
    rng = random.Random(seed)
    everything = [
        {
            "k": rng.choice([None, "", "a", "b", "ü", "c"]),
            "g": rng.randint(0, 2),
            "x": rng.choice([None, math.nan, -0.0, 0.0, -1.5, 0.5, 2.0, 3.25]),
            "v": rng.choice([None, -3, 0, 1, 2, 5, 7, 2**40]),
            "w": rng.choice([None, 1, 2, 3]),
            "s": rng.choice([None, "", "x", "yy", "zz", "ümit", "long text"]),
            "ts": START + timedelta(seconds=number - rng.randint(0, 20)),
        }
        for number in range(rows)
    ]
    cut = rng.randint(1, rows - 1)
    return [everything[:cut], everything[cut:]]


def as_json(row: Row) -> Row:
    x = row["x"]
    text = "NaN" if x is not None and math.isnan(x) else x
    return row | {"x": text, "ts": row["ts"].isoformat().replace("+00:00", "Z")}


def by(rows: Iterable[Row], key: Callable[[Row], Iterable[Hashable]]) -> dict[Any, list[Row]]:
    """Groups of rows; a row may be in several."""
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        for each in key(row):
            found[each].append(row)
    return found


def xs(rows: list[Row]) -> list[Any]:
    return [row["x"] for row in rows]


def pairs(rows: list[Row]) -> list[Any]:
    return [(row["v"], row["w"]) for row in rows]


def above(rows: list[Row]) -> list[Any]:
    return [row["s"] for row in rows if (row["v"] or 0) > 0]


def plus_one(value: float | None) -> float | None:
    return None if value is None else 1 + value


def windows(row: Row) -> list[tuple[Any, datetime]]:
    """Of ten seconds, each five."""
    second = int((row["ts"] - START).total_seconds())
    first = second - second % 5 - 5
    return [(row["k"], START + timedelta(seconds=each)) for each in (first, first + 5)]


def sessions(rows: list[Row]) -> list[list[Row]]:
    """Rows of a key that follow each other within two seconds."""
    found: list[list[Row]] = []
    for group in by(rows, lambda row: [row["k"]]).values():
        ordered = sorted(group, key=lambda row: row["ts"])
        found.append([ordered[0]])
        for row in ordered[1:]:
            if row["ts"] > found[-1][-1]["ts"] + timedelta(seconds=2):
                found.append([])
            found[-1].append(row)
    return found


def rollup(row: Row) -> list[tuple[Any, Any, int]]:
    return [(row["k"], row["g"], 0), (row["k"], None, 1), (None, None, 3)]


STREAMS: dict[str, tuple[str, Callable[[list[Row]], list[list[Any]]]]] = {
    "plain": (
        "SELECT k, 1 + gmean(x) AS m, wsum(v, w) AS total, count(*) AS n,"
        " longest(s) FILTER (WHERE v > 0) AS l, tally(x) AS t, gmean(x) / gmean(x) AS one"
        " FROM t GROUP BY k EMIT ON UPDATE",
        lambda rows: [
            [k, plus_one(m := geometric_mean(xs(each))), weighted_sum(pairs(each)), len(each),
             longest(above(each)), tally(xs(each)), None if m is None else 1.0]
            for k, each in by(rows, lambda row: [row["k"]]).items()
        ],
    ),
    "beside_doubles": (
        "SELECT g, sum(v * 0.5D) AS halves, wsum(v, w) AS total, tally(x) FILTER (WHERE k = 'a') t"
        " FROM t GROUP BY ALL EMIT ON UPDATE",
        lambda rows: [
            [g, sum(row["v"] or 0 for row in each) / 2, weighted_sum(pairs(each)),
             tally([row["x"] for row in each if row["k"] == "a"])]
            for g, each in by(rows, lambda row: [row["g"]]).items()
        ],
    ),
    "hops": (
        "SELECT k, window.start AS starts, longest(s) AS l, count(*) AS n FROM t"
        " GROUP BY k, window(ts, '10 seconds', '5 seconds') HAVING wsum(v, w) > 0"
        " EMIT ON WINDOW CLOSE",
        lambda rows: [
            [k, starts, longest([row["s"] for row in each]), len(each)]
            for (k, starts), each in by(rows, windows).items()
            if (weighted_sum(pairs(each)) or 0) > 0
        ],
    ),
    "visits": (
        "SELECT k, session_window.start AS starts, wsum(v, w) AS total, tally(x) AS t, max(v) AS v"
        " FROM t GROUP BY k, session_window(ts, '2 seconds') EMIT ON WINDOW CLOSE",
        lambda rows: [
            [each[0]["k"], each[0]["ts"], weighted_sum(pairs(each)), tally(xs(each)),
             max((row["v"] for row in each if row["v"] is not None), default=None)]
            for each in sessions(rows)
        ],
    ),
    "each_once": (
        "SELECT k, gmean(DISTINCT v) AS m, gmean(v) AS every, count(DISTINCT v) AS n FROM t"
        " GROUP BY k EMIT ON UPDATE",
        lambda rows: [
            [k, geometric_mean(sorted(once := {r["v"] for r in each if r["v"] is not None})),
             geometric_mean([row["v"] for row in each]), len(once)]
            for k, each in by(rows, lambda row: [row["k"]]).items()
        ],
    ),
    "sets": (
        "SELECT k, g, grouping_id() AS id, wsum(v, w) AS total FROM t GROUP BY ROLLUP (k, g)"
        " EMIT ON UPDATE",
        lambda rows: [
            [*key, weighted_sum(pairs(each))] for key, each in by(rows, rollup).items()
        ],
    ),
    "everything": (
        "SELECT 1 AS one, wsum(v, w) AS total, longest(k) AS l FROM t EMIT ON UPDATE",
        lambda rows: [[1, weighted_sum(pairs(rows)), longest([row["k"] for row in rows])]],
    ),
    "of_groups": (
        "SELECT n % 2 AS odd, wsum(total, 1) AS total, longest(DISTINCT l) AS l, count(*) AS n FROM"
        " (SELECT k, g, count(*) AS n, wsum(v, w) AS total, longest(s) AS l FROM t GROUP BY k, g)"
        " GROUP BY n % 2 EMIT CHANGES",
        lambda rows: [
            [odd, weighted_sum([(weighted_sum(pairs(e)), 1) for e in each]),
             longest([longest([row["s"] for row in e]) for e in each]), len(each)]
            for odd, each in by(
                by(rows, lambda row: [(row["k"], row["g"])]).values(),  # type: ignore[arg-type]
                lambda group: [len(group) % 2],
            ).items()
        ],
    ),
}  # fmt: skip
KEYS = {"plain": 1, "beside_doubles": 1, "each_once": 1, "sets": 3, "everything": 1}
"""Of streams that emit on update: how many columns are the key."""


def rounded(value: Any) -> Any:
    """To twelve digits: the order of additions differs. Times in one spelling."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, float):
        return value if not math.isfinite(value) else float(f"{value:.11e}")
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def shown(rows: Iterable[Any]) -> list[str]:
    listed = [list(row.values()) if isinstance(row, dict) else row for row in rows]
    return comparable({str(i): v for i, v in enumerate(rounded(row))} for row in listed)


def test_aggregates_of_users_are_what_plain_python_computes(spark: Any, tmp_path: Path) -> None:
    place, epochs = Place(tmp_path), made(11)
    place.put_json([[as_json(row) for row in epoch] for epoch in epochs])
    text = SOURCE + DECLARED
    for name, (select, _) in STREAMS.items():
        text += f"CREATE STREAM {name} AS {select};\n"
        text += f"CREATE SINK o_{name} FROM {name} USING parquet OPTIONS (path 'out/{name}');\n"
    pipeline = parse_pipeline(text, file=FILE)
    changes: list[list[Row]] = []

    def keep(table: pa.Table, epoch: int) -> None:
        changes.append(table.to_pylist())

    sink = replace(
        pipeline.sinks["o_of_groups"],
        format="function",
        options={"function": Option("keep", "keep", made=keep)},
    )
    pipeline = replace(pipeline, sinks={**pipeline.sinks, "o_of_groups": sink})
    with pytest.raises(Killed):
        Run(spark, place, partitions=1, fail_point=Bomb("before COMMIT", 2)).run(pipeline)
    run = Run(spark, place, partitions=2, drain=True)
    run.run(pipeline)
    assert sum(report.late for report in run.reports) == 0
    rows = [row for epoch in epochs for row in epoch]
    for name, (_, model) in STREAMS.items():
        wanted = shown(model(rows))
        assert len(wanted) > 1 or name == "everything"
        if name == "of_groups":
            assert applied([[rounded(row) for row in epoch] for epoch in changes]) == wanted
            continue
        sink_of = f"out/{name}"
        found = place.latest(KEYS[name], sink_of) if name in KEYS else place.rows(sink_of)
        assert shown(found) == wanted, name


def text_of(select: str, declared: str = DECLARED, emit: str = "EMIT ON UPDATE") -> str:
    return (
        f"{SOURCE}{declared}CREATE STREAM s AS {select} {emit};\n"
        "CREATE SINK o FROM s USING parquet OPTIONS (path 'out');"
    )


def some(k: str, v: int, w: int) -> Row:
    return {"k": k, "v": v, "w": w, "ts": "2024-01-01T00:00:00Z"}


WSUM = f"""CREATE AGGREGATE FUNCTION wsum(v BIGINT, w BIGINT) RETURNS BIGINT LANGUAGE PYTHON
AS '{MODULE}:WeightedSum' VERSION '1';"""


def test_an_aggregate_that_fails_is_named_with_its_stream_and_rows(
    spark: Any, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    place.put_json([[some("a", 1, 1), some("b", 2**62, 3)]])
    with pytest.raises(LaminaError) as raised:
        Run(spark, place, partitions=1)(text_of("SELECT k, wsum(v, w) AS t FROM t GROUP BY k"))
    said = str(raised.value)
    assert "the stream 's', partition 0: the aggregate 'wsum' failed in partial()" in said
    assert "with the rows {'v': 4611686018427387904, 'w': 3}: ArrowInvalid: overflow" in said
    assert "python_aggregates.py:" in said
    assert place.rows() == []


def test_another_version_or_state_asks_before_old_state_is_used(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put_json([[some("a", 2, 3)]])
    select = "SELECT k, wsum(v, w) AS total FROM t GROUP BY k"
    Run(spark, place)(text_of(select, WSUM))
    place.put_json([[some("a", 2, 3)], [some("a", 5, 1)]])
    with pytest.raises(StateChanged, match="--reuse-state"):
        Run(spark, place)(text_of(select, WSUM.replace("VERSION '1'", "VERSION '2'")))
    other = WSUM.replace("WeightedSum", "Tally").replace("v BIGINT, w BIGINT", "x BIGINT, y INT")
    with pytest.raises(StateChanged, match="struct<nulls"):
        Run(spark, place, reuse_state=frozenset({"s"}))(text_of(select, other))
    again = Run(spark, place, reuse_state=frozenset({"s"}))
    again(text_of(select, WSUM.replace("VERSION '1'", "VERSION '2'")))
    assert place.latest(1) == [{"k": "a", "total": 11}]


def test_check_says_what_an_aggregate_keeps(spark: Any) -> None:
    select = "SELECT k, 2 * wsum(v, w) AS total, tally(x) AS t FROM t GROUP BY k"
    pipeline = parse_pipeline(text_of(select), file=FILE)
    said = explain_types(pipeline, name="p", file=FILE, spark=spark)["s"]
    assert said["columns"][1] == {"name": "total", "type": "bigint"}
    assert said["state"][1] == {
        "name": "wsum(v, w)",
        "type": "struct<total: int64, n: int64>",
        "merge": "python",
    }
    assert 60 < said["bytes_per_key"] < 80


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("SELECT k, wsum(v) AS t FROM t GROUP BY k", "wsum() takes 2 arguments; it was given 1"),
        ("SELECT k, wsum(v, array(w)) AS t FROM t GROUP BY k", "DATATYPE_MISMATCH.CAST"),
        ("SELECT k, wsum(DISTINCT v, w) AS t FROM t GROUP BY k", "FROM (SELECT DISTINCT ...)"),
        ("SELECT k, wsum(v, sum(w)) AS t FROM t GROUP BY k", "an aggregate inside an aggregate"),
        ("SELECT k, sum(wsum(v, w)) AS t FROM t GROUP BY k", "an aggregate inside an aggregate"),
    ],
)
def test_a_call_that_cannot_work_is_refused_with_what_to_do(
    spark: Any, select: str, said: str
) -> None:
    with pytest.raises(BadPipeline) as raised:
        compiled(spark, text_of(select))
    assert said in str(raised.value)
