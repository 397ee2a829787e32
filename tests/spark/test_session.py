"""`lamina.spark.run` in a user's session: what is in it can be used, and it stays as it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import Refused
from tests.spark.running import Place, Run, comparable, pipeline_text

COLUMNS = "k STRING, v INT"
USERS = {
    "spark.sql.session.timeZone": "Asia/Kolkata",
    "spark.sql.shuffle.partitions": "5",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConstantFolding",
}
DATABASE = "lamina_session_test"
FUNCTIONS = """
CREATE SOURCE t (k STRING, v INT) USING json OPTIONS (path 'in');
CREATE STREAM s AS SELECT shout(k) AS k, sum(plus(v)) AS a, sum(tenfold(v)) AS b,
  plus(CAST(sum(v) AS INT)) AS c FROM t WHERE v < bound() GROUP BY shout(k) EMIT ON UPDATE;
CREATE STREAM every AS SELECT k, rand() AS r, uuid() AS u, current_timestamp() AS now,
  monotonically_increasing_id() AS id, spark_partition_id() AS part, shout(k) AS loud FROM t;
CREATE SINK o FROM s USING parquet OPTIONS (path 'out');
CREATE SINK e FROM every USING parquet OPTIONS (path 'every');
"""
EPOCHS = [
    [{"k": k, "v": v} for k, v in [("a", 1), ("b", 2), ("a", 3), ("b", 1000)]],
    [{"k": k, "v": v} for k, v in [("a", 10), ("c", 4)]],
]


@pytest.fixture(scope="module")
def session(spark: Any) -> Iterator[Any]:
    """With settings, functions of all kinds, a view and a database of the user's own."""
    users = spark.newSession()
    for name, value in USERS.items():
        users.conf.set(name, value)
    users.sql(f"CREATE DATABASE {DATABASE}")
    users.sql(f"USE {DATABASE}")
    users.udf.register("shout", lambda text: text.upper() + "!")  # fails at None
    users.createDataFrame([(100,), (50,)], "n int").createOrReplaceTempView("limits")
    users.sql("CREATE TEMPORARY FUNCTION plus(x INT) RETURNS INT RETURN x + 1")
    users.sql("CREATE TEMPORARY FUNCTION bound() RETURNS INT RETURN (SELECT max(n) FROM limits)")
    users.sql("CREATE FUNCTION tenfold(x INT) RETURNS INT RETURN x * 10")
    yield users
    users.sql(f"DROP DATABASE {DATABASE} CASCADE")


def looks(session: Any) -> tuple[Any, ...]:
    """All that a user could find changed."""
    return (
        session.conf.getAll,
        session.catalog.listTables(),
        session.sql("SHOW USER FUNCTIONS").collect(),
        session.catalog.currentDatabase(),
        session.sql("SELECT current_timezone() AS zone").collect(),
    )


def test_functions_and_views_are_used_in_a_thread_while_the_session_is_used_elsewhere(
    session: Any, tmp_path: Path
) -> None:
    """A job's settings were once put into the user's session for as long as it ran."""
    place = Place(tmp_path)
    place.put_json(EPOCHS)
    session.createDataFrame([], "x int")  # so the session is this thread's active one
    before, active = looks(session), type(session).getActiveSession()
    seen: list[tuple[Any, ...]] = []
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(Run(session, place), FUNCTIONS)
        while not running.done():
            seen.append(looks(session))
        assert running.result() == len(EPOCHS)
    assert len(seen) > 1
    assert all(look == before for look in seen)
    assert looks(session) == before
    assert type(session).getActiveSession() is active
    rows = [{"k": "A!", "a": 17, "b": 140, "c": 15}, {"k": "B!", "a": 3, "b": 20, "c": 3}]
    rows.append({"k": "C!", "a": 5, "b": 40, "c": 5})
    assert comparable(place.latest(1)) == comparable(rows)


def test_functions_that_vary_give_each_row_once(session: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put_json(EPOCHS)
    active = type(session).getActiveSession()
    Run(session, place)(FUNCTIONS)
    assert type(session).getActiveSession() is active
    epochs = place.epochs("every")
    assert [sorted(row["k"] for row in rows) for rows in epochs] == [
        sorted(str(row["k"]) for row in rows) for rows in EPOCHS
    ]
    rows = [row for rows in epochs for row in rows]
    assert len({row["u"] for row in rows}) == len(rows)
    assert [len({row["now"] for row in rows}) for rows in epochs] == [1, 1]  # one time a job
    assert all(row["loud"] == row["k"].upper() + "!" for row in rows)


def test_a_run_that_fails_leaves_the_session_as_it_was(session: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put_json([[{"k": "a", "v": 1}], [{"k": None, "v": 2}]])
    before, active = looks(session), type(session).getActiveSession()
    text = pipeline_text(COLUMNS, "SELECT shout(k) AS k, sum(v) AS v FROM t GROUP BY shout(k)")
    with pytest.raises(Refused, match="NoneType"):
        Run(session, place)(text)
    assert looks(session) == before
    assert type(session).getActiveSession() is active
    assert place.rows() == [{"k": "A!", "v": 1}]


def test_two_pipelines_with_streams_of_one_name_run_at_once_in_one_session(
    session: Any, tmp_path: Path
) -> None:
    """Their views had one name, and each could read the rows of the other."""
    text = pipeline_text(COLUMNS, "SELECT k, sum(v) AS v, count(*) AS n FROM t GROUP BY k")
    places = [Place(tmp_path / name) for name in ("one", "two")]
    for number, place in enumerate(places):
        place.put_json([[{"k": f"k{row % 3}", "v": number}] * 3 for row in range(6)])
    start = threading.Barrier(len(places))

    def run(place: Place) -> int:
        start.wait()
        return Run(session, place)(text)

    with ThreadPoolExecutor(len(places)) as threads:
        assert list(threads.map(run, places)) == [6, 6]
    for number, place in enumerate(places):
        truth = [{"k": f"k{n}", "v": number * 6, "n": 6} for n in range(3)]
        assert comparable(place.latest(1)) == comparable(truth)


def test_an_error_of_spark_was_written_to_stderr_beside_being_raised(
    session: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    from pyspark.errors import AnalysisException  # noqa: PLC0415  an extra

    from lamina.spark.session import say_errors_once  # noqa: PLC0415

    say_errors_once()
    with pytest.raises(AnalysisException):
        session.sql("SELECT no_such_column FROM limits")
    assert "no_such_column" not in capfd.readouterr().err
