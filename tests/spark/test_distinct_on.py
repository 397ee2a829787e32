"""DISTINCT ON in epochs: the first row of each key, as a plain model of it has them, and DuckDB."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lamina.engine.ports import Change
from lamina.errors import BadPipeline
from lamina.testing.faulty import Killed
from tests.engine.pipelines import Bomb
from tests.spark.running import Place, Run, compiled, job_count, pipeline_text, plain

COLUMNS = "k STRING, g INT, d DOUBLE, v BIGINT, l ARRAY<INT>, ts TIMESTAMP"
DELAY = timedelta(seconds=20)
MARK = "WATERMARK ts DELAY OF INTERVAL 20 SECONDS"
START = datetime(2024, 1, 1, tzinfo=UTC)

Row = dict[str, Any]


def made(seed: int, rows: int, *, behind: int) -> list[Row]:
    """Times that rise, each up to *behind* seconds too early: beyond the delay some are late."""
    rng = random.Random(seed)
    found: list[Row] = []
    for number in range(rows):
        if found and rng.random() < 0.25:  # sent twice
            found.append(rng.choice(found[-30:]))
            continue
        at = START + timedelta(seconds=number // 2 - rng.randint(0, behind))
        found.append(
            {
                "k": rng.choice(["a", "b", "ü", "", None, *(f"k{i}" for i in range(8))]),
                "g": rng.choice([None, 0, 1, 2]),
                "d": rng.choice([None, "NaN", -0.0, 0.0, 1.5]),
                "v": rng.choice([None, rng.randint(-(1 << 40), 1 << 40)]),
                "l": rng.choice([None, [], [1, None], [rng.randint(0, 3)]]),
                "ts": at.isoformat().replace("+00:00", "Z"),
            }
        )
    return found


def cut(rows: list[Row], seed: int) -> list[list[Row]]:
    rng = random.Random(seed)
    at = sorted(rng.sample(range(1, len(rows)), 3))
    return [rows[i:j] for i, j in zip([0, *at], [*at, len(rows)], strict=True)]


def time_of(row: Row) -> datetime:
    return datetime.fromisoformat(row["ts"])


def first_rows(
    epochs: Iterable[list[Row]], key_of: Callable[[Row], Any]
) -> tuple[list[list[Row]], int]:
    """Of each first row all rows that it may be, since some are equal in key and time; late ones.

    A key is known until the watermark is at the time of its row and the delay.
    """
    mark, late = datetime.min.replace(tzinfo=UTC), 0
    expires: dict[str, datetime] = {}
    chosen: list[list[Row]] = []
    for rows in epochs:
        on_time = [row for row in rows if time_of(row) > mark]
        late += len(rows) - len(on_time)
        by_key: dict[str, list[Row]] = {}
        for row in on_time:
            by_key.setdefault(repr(plain(key_of(row))), []).append(row)
        for key, mine in by_key.items():
            if key in expires and expires[key] > mark:
                continue
            earliest = min(map(time_of, mine))
            expires[key] = earliest + DELAY
            chosen.append([row for row in mine if time_of(row) == earliest])
        mark = max([mark, *(time_of(row) - DELAY for row in rows)])
    return chosen, late


def as_read(row: Row) -> str:
    """A row of the input as the sink has it."""
    return said({**row, "ts": time_of(row), "d": None if row["d"] is None else float(row["d"])})


def said(row: Row) -> str:
    return repr(plain({**row, "ts": row["ts"].isoformat()}))


KEYS: dict[str, Callable[[Row], Any]] = {
    "k": lambda row: [row["k"]],
    "d, l IS NULL, g": lambda row: [
        None if row["d"] is None else float(row["d"]), row["l"] is None, row["g"]
    ],
}  # fmt: skip


def test_the_first_rows_of_keys_are_those_of_a_model(spark: Any, tmp_path: Path) -> None:
    """Killed once, and then with twice as many partitions; every stream is one job."""
    epochs = cut(made(1, 500, behind=35), 1)
    place = Place(tmp_path)
    place.put_json(epochs)
    text = f"CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in') {MARK};\n"
    for number, keys in enumerate(KEYS):
        text += (
            f"CREATE STREAM s{number} AS SELECT DISTINCT ON ({keys}) * FROM t;\n"
            f"CREATE SINK o{number} FROM s{number} USING parquet OPTIONS (path 'out{number}');\n"
        )
    with pytest.raises(Killed):
        Run(spark, place, partitions=2, fail_point=Bomb("before COMMIT", 2))(text)
    before, run = job_count(spark), Run(spark, place, partitions=4)
    run(text)
    jobs = job_count(spark) - before
    late = 0
    for number, key_of in enumerate(KEYS.values()):
        chosen, too_late = first_rows(epochs, key_of)
        late += too_late
        found = [said(row) for row in place.rows(f"out{number}")]
        assert 20 < len(found) == len(chosen) < 400
        left = [set(map(as_read, rows)) for rows in chosen]
        for row in found:
            left.remove(next(rows for rows in left if row in rows))
    assert sum(report.late for report in run.reports) == late > 20
    assert jobs <= len(KEYS) * len(run.reports) + 4  # and some to look at files and executors


def test_one_epoch_is_what_duckdb_has(spark: Any, tmp_path: Path) -> None:
    """Rows of one key and time are copies of each other, so that there is one answer.

    A window over it counts what is there once.
    """
    rows = list({(r["k"], r["g"], r["ts"]): r for r in made(7, 300, behind=9)}.values())
    rows += rows[::3]
    random.Random(3).shuffle(rows)
    place = Place(tmp_path)
    place.put_json([rows])
    query = "SELECT DISTINCT ON (k, g) k, g, v * 2 AS w, ts FROM t WHERE v IS NOT NULL"
    once = "(SELECT DISTINCT ON (k) k, ts FROM t{})".format
    text = pipeline_text(COLUMNS, f"{query} ORDER BY g, k, ts", emit="", mark=MARK) + (
        f"CREATE STREAM m AS SELECT count(*) AS n, window.start AS minute FROM {once('')}"
        " GROUP BY window(ts, INTERVAL 1 MINUTE) EMIT ON WINDOW CLOSE;"
        "CREATE SINK p FROM m USING parquet OPTIONS (path 'minutes');"
    )
    Run(spark, place, drain=True)(text)
    kept = [{**row, "d": None, "ts": time_of(row)} for row in rows]
    with duckdb.connect() as oracle:
        oracle.register("t", pa.Table.from_pylist(kept))
        wanted = oracle.sql(f"{query} ORDER BY k, g, ts").arrow().read_all().to_pylist()
        minute = "SELECT count(*) AS n, time_bucket(INTERVAL 1 MINUTE, ts) AS minute FROM "
        ordered = f"{minute}{once(' ORDER BY k, ts')} GROUP BY 2"
        minutes = oracle.sql(ordered).arrow().read_all().to_pylist()
    assert sorted(map(said, place.rows())) == sorted(map(said, wanted))
    assert found(place.rows("minutes")) == found(minutes)
    assert len(wanted) > 30


def found(rows: list[Row]) -> list[tuple[int, str]]:
    return sorted((row["n"], row["minute"].isoformat()) for row in rows)


def test_the_keys_of_the_output_are_not_those_of_its_rows(spark: Any) -> None:
    """A key may come again once it is forgotten: nothing tells its two rows apart."""
    query = "SELECT DISTINCT ON (k) k, ts FROM t"
    output = compiled(spark, pipeline_text(COLUMNS, query, emit="", mark=MARK)).outputs["o"]
    assert output.change is Change.APPEND
    assert output.keys is None


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT DISTINCT ON (m) k FROM (SELECT *, map(k, v) AS m FROM t)", "cannot be a key"),
        ("SELECT DISTINCT ON (rand()) k FROM t", "its value changes when a task is retried"),
        ("SELECT DISTINCT ON (k) k FROM (SELECT k, v FROM t)", "without their event time"),
        ("SELECT DISTINCT ON (k) string_agg(k) AS x FROM t", "GROUP BY"),
    ],
)
def test_what_it_cannot_be_over_is_said(spark: Any, query: str, message: str) -> None:
    with pytest.raises(BadPipeline, match=message):
        compiled(spark, pipeline_text(COLUMNS, query, emit="", mark=MARK))
