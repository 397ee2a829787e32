"""Late rows and allowed lateness, against a model in plain Python with the same epochs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import BadPipeline
from tests.spark.running import Place, Run, compiled, job_count

START = datetime(2024, 1, 1, tzinfo=UTC)
DELAY = timedelta(minutes=15)
EPOCHS = 5
SOURCE = (
    "CREATE SOURCE t (n INT, k STRING, a BIGINT, ts TIMESTAMP) USING json OPTIONS (path 'in')"
    " WATERMARK ts DELAY OF INTERVAL 15 MINUTES;\n"
)
Row = dict[str, Any]


@dataclass(slots=True)
class Model:
    """One query: windows of *size* each *slide* minutes, counted by `k`, of rows with *where*."""

    size: int
    slide: int
    lateness: int = 0
    where: Any = lambda _: True
    cumulates: bool = False  # all windows of a size begin with it, and end after each slide
    open: Counter[tuple[datetime, str | None]] = field(default_factory=Counter)
    closed: list[tuple[datetime, str | None, int]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)  # numbers of rows
    left_out: int = 0  # a row counts in each of its windows

    def run(self, epochs: list[list[Row]]) -> Model:
        mark: datetime | None = None
        for rows in [*epochs, []]:  # a last one, to which the last watermark is applied
            shut = None if mark is None else mark - timedelta(minutes=self.lateness)
            for row in filter(self.where, rows):
                ends = list(self._ends(row["ts"]))
                gone = [end for end in ends if shut is not None and end <= shut]
                self.late += [row["n"]] if gone else []
                self.left_out += len(gone)
                self.open.update((end, row["k"]) for end in ends if end not in gone)
            for end, k in [key for key in self.open if shut is not None and key[0] <= shut]:
                self.closed.append((end, k, self.open.pop((end, k))))
            seen = [row["ts"] - DELAY for row in rows]
            mark = max([*seen, *([mark] if mark else [])], default=mark)
        return self

    def _ends(self, ts: datetime) -> Iterator[datetime]:
        slide, size = timedelta(minutes=self.slide), timedelta(minutes=self.size)
        end = START + slide * ((ts - START) // slide + 1)
        last = START + size * ((ts - START) // size + 1) if self.cumulates else ts + size
        while end <= last:
            yield end
            end += slide


def epochs_of(seed: int) -> list[list[Row]]:
    """Time goes on from epoch to epoch, and some rows are hours behind."""
    rng = random.Random(seed)
    numbers = iter(range(1000))
    return [
        [
            {
                "n": next(numbers),
                "k": rng.choice(["a", "b", "ü", None]),
                "a": rng.choice([None, -1, 1, 2]),
                "ts": START
                + timedelta(minutes=40 * epoch + rng.choice([0, 5, 20, -30, -60, -200]) + 1000)
                + timedelta(seconds=rng.randint(0, 59)),
            }
            for _ in range(rng.choice([0, 12, 25]) if epoch else 10)
        ]
        for epoch in range(EPOCHS)
    ]


QUERIES = {
    "tumbles": ("window.end AS at, k", "t", "window(ts, '10 minutes')", "", Model(10, 10)),
    "hops": (
        "window.end AS at, k",
        "t AS u",
        "HOP(u.ts, INTERVAL 20 MINUTES, INTERVAL 60 MINUTES)",
        "ALLOW LATENESS INTERVAL 1 HOUR",
        Model(60, 20, 60),
    ),
    "inner_query": (
        "window.end AS at, k",
        "(SELECT ts, k, n, count FROM (SELECT *, 1 AS count FROM t) WHERE a > 0) WHERE n >= 0",
        "window(ts, '10 minutes')",
        "ALLOW LATENESS INTERVAL 25 MINUTES",
        Model(10, 10, 25, lambda row: (row["a"] or 0) > 0),
    ),
    "cumulates": (
        "window.end AS at, k",
        "t",
        "CUMULATE(ts, INTERVAL 15 MINUTES, INTERVAL 1 HOUR)",
        "",
        Model(60, 15, cumulates=True),
    ),
}


def pipeline_of(epochs: list[list[Row]], place: Place) -> str:
    place.put_json([[{**row, "ts": row["ts"].isoformat()} for row in rows] for rows in epochs])
    text = SOURCE
    for name, (columns, read, window, allowed, _) in QUERIES.items():
        text += (
            f"CREATE STREAM {name} AS SELECT {columns}, count(*) AS rows, count(DISTINCT n) AS ns"
            f" FROM {read} GROUP BY k, {window}"
            f" EMIT ON WINDOW CLOSE {allowed} LATE ROWS TO late_{name};\n"
            f"CREATE SINK {name}_out FROM {name} USING parquet OPTIONS (path '{name}');\n"
            f"CREATE SINK late_{name}_out FROM late_{name} USING parquet"
            f" OPTIONS (path 'late_{name}');\n"
        )
    return text


def check(place: Place, epochs: list[list[Row]]) -> int:
    left_out = 0
    for name, (*_, asked) in QUERIES.items():
        model = replace(asked, open=Counter(), closed=[], late=[]).run(epochs)
        found = [tuple(row.values()) for row in place.rows(name)]
        assert Counter(found) == Counter((*each, each[2]) for each in model.closed), name
        assert Counter(row["n"] for row in place.rows(f"late_{name}")) == Counter(model.late), name
        assert model.late, "nothing was late"
        left_out += model.left_out
    return left_out


def test_late_rows_come_out_once_and_windows_wait_as_long_as_is_said(
    spark: Any, tmp_path: Path
) -> None:
    place, epochs = Place(tmp_path), epochs_of(6)
    run = Run(spark, place, partitions=2)
    text = pipeline_of(epochs, place)
    stops = iter([3, 6])
    stop, calls = next(stops), 0

    def die(at: str) -> None:
        """In the middle of two epochs, with late rows staged and before they count."""
        nonlocal calls, stop
        if at != "before COMMIT":
            return
        calls += 1
        if calls == stop:
            stop = next(stops, -1)
            raise KeyboardInterrupt

    run.fail_point = die
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(text)
    run(text)
    left_out = check(place, epochs)
    assert sum(report.late for report in run.reports) == left_out
    first = place.rows("late_tumbles")[0]
    assert list(first) == ["n", "k", "a", "ts"]
    assert list(place.rows("late_inner_query")[0]) == ["ts", "k", "n", "count"]


def test_late_rows_cost_a_job_in_the_epochs_that_have_them(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    at = "2024-01-01T{}:00Z".format
    times = ("10:00", "12:00", "12:01", "10:00", "12:02")
    place.put_json([[{"n": n, "ts": at(time)}] for n, time in enumerate(times)])
    run = Run(spark, place)
    jobs = list[int]()
    run.fail_point = lambda at: jobs.append(job_count(spark)) if at == "before COMMIT" else None
    run(
        f"{SOURCE}CREATE STREAM s AS SELECT window.start AS at, count(*) AS c FROM t"
        " GROUP BY window(ts, '10 minutes') EMIT ON UPDATE LATE ROWS TO behind;"
        "CREATE STREAM by_n AS SELECT n, count(*) AS c FROM behind GROUP BY n EMIT ON UPDATE;"
        "CREATE SINK o FROM s USING parquet OPTIONS (path 'out');"
        "CREATE SINK b FROM by_n USING parquet OPTIONS (path 'behind');"
    )
    assert [after - before for before, after in pairwise(jobs)][:4] == [2, 2, 3, 2]
    assert place.rows("behind") == [{"n": 3, "c": 1}]


def test_windows_over_windows_that_wait_wait_as_long(spark: Any, tmp_path: Path) -> None:
    """No row of the inner ones is late for the outer ones."""
    place, epochs = Place(tmp_path), [*epochs_of(5), [], []]
    place.put_json([[{**row, "ts": row["ts"].isoformat()} for row in rows] for rows in epochs])
    run = Run(spark, place, partitions=2)
    run(
        f"{SOURCE}CREATE STREAM inner_ones AS SELECT window.end - INTERVAL 1 MICROSECOND AS at, k,"
        " count(*) AS c FROM t GROUP BY k, window(ts, '10 minutes') EMIT ON WINDOW CLOSE"
        " ALLOW LATENESS INTERVAL 50 MINUTES;"
        "CREATE STREAM outer_ones AS SELECT window.end AS ends, sum(c) AS c FROM inner_ones"
        " GROUP BY window(at, '30 minutes') EMIT ON WINDOW CLOSE;"
        "CREATE SINK i FROM inner_ones USING parquet OPTIONS (path 'inner');"
        "CREATE SINK o FROM outer_ones USING parquet OPTIONS (path 'outer');"
    )
    inner = Model(10, 10, 50).run(epochs)
    assert sum(row["c"] for row in place.rows("inner")) == sum(n for _, _, n in inner.closed)
    last = max(row["ends"] for row in place.rows("outer"))
    within = [row["c"] for row in place.rows("inner") if row["at"] < last]
    assert sum(row["c"] for row in place.rows("outer")) == sum(within) > 0
    assert sum(report.late for report in run.reports) == inner.left_out > 0


def test_more_lateness_later_does_not_open_what_has_closed(spark: Any, tmp_path: Path) -> None:
    """The rows that a closed window leaves out are late rows, on every partition."""
    place = Place(tmp_path)
    at = "2024-01-01T{}:00Z".format
    rows = [[{"n": n, "k": k, "ts": at(time)} for n, k in enumerate("abcdefgh")] for time in
            ("10:00", "12:00", "12:01")]  # fmt: skip
    text = (
        f"{SOURCE}CREATE STREAM s AS SELECT window.start AS at, k, count(*) AS c FROM t"
        " GROUP BY k, window(ts, '10 minutes') EMIT ON WINDOW CLOSE {} LATE ROWS TO behind;"
        "CREATE SINK o FROM s USING parquet OPTIONS (path 'out');"
        "CREATE SINK b FROM behind USING parquet OPTIONS (path 'behind');"
    )
    place.put_json(rows)
    Run(spark, place)(text.format(""))
    assert len(place.rows()) == 8
    place.put_json([*rows, [{"n": 9, "k": k, "ts": at("10:00")} for k in "aceghijk"]])
    run = Run(spark, place)
    run(text.format("ALLOW LATENESS INTERVAL 5 HOURS"))
    assert sorted(row["k"] for row in place.rows("behind")) == list("aceghijk")
    assert sum(report.late for report in run.reports) == 8


def test_windows_over_late_rows_and_late_rows_of_nothing_are_refused(spark: Any) -> None:
    text = (
        f"{SOURCE}CREATE STREAM s AS SELECT count(*) AS c FROM t GROUP BY window(ts, '1 hour')"
        " EMIT ON WINDOW CLOSE LATE ROWS TO behind;CREATE SINK o FROM s USING console;"
        "CREATE STREAM r AS SELECT count(*) AS c FROM (SELECT * FROM behind)"
        " GROUP BY window(ts, '1 hour') EMIT ON WINDOW CLOSE {};CREATE SINK p FROM r USING console;"
    )
    with pytest.raises(BadPipeline, match="a window over late rows: it has closed before any"):
        compiled(spark, text.format(""))
    compiled(spark, text.format("ALLOW LATENESS INTERVAL 1 DAY"))


def test_late_rows_of_changes_are_refused(spark: Any) -> None:
    tail = "EMIT ON WINDOW CLOSE LATE ROWS TO behind;CREATE SINK o FROM s USING console;"
    late = "CREATE STREAM r AS SELECT * FROM behind;CREATE SINK p FROM r USING console;"
    over = "CREATE STREAM s AS SELECT count(*) AS c FROM c GROUP BY window(ts, '1 hour')"
    groups = "CREATE STREAM c AS SELECT k, max(ts) AS ts FROM t GROUP BY k EMIT CHANGES;"
    with pytest.raises(BadPipeline, match="a window over the changes of 'c', which has none"):
        compiled(spark, f"{SOURCE}{groups}{over} {tail}{late}")
    windows = (
        "CREATE STREAM c AS SELECT k, window.end - INTERVAL 1 MICROSECOND AS ts FROM t"
        " GROUP BY k, window(ts, '1 minute') EMIT CHANGES;"
    )
    with pytest.raises(BadPipeline, match="LATE ROWS of 's', which reads rows that replace others"):
        compiled(spark, f"{SOURCE}{windows}{over} {tail}{late}")
