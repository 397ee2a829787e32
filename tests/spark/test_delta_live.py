"""Pipelines on Spark into Delta tables: what is there is what one Spark batch computes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lamina.errors import BadPipeline
from lamina.testing.faulty import Killed
from tests.spark.running import Place, Run, batch, comparable

EXAMPLE = Path(__file__).parents[2] / "examples" / "delta" / "pipeline.sql"
COLUMNS = "k STRING, v BIGINT, at TIMESTAMP"
EVERY_TYPE = """
  SELECT k, v, CAST(v % 100 AS TINYINT) AS tiny, CAST(v % 100 AS SMALLINT) AS small,
         CAST(v % 100 AS INT) AS whole, v % 2 = 0 AS even, CAST(v / 4 AS FLOAT) AS single,
         v / 7 AS double, CAST(v AS DECIMAL(38, 18)) / 7 AS exact, CAST(k AS BINARY) AS bytes,
         CAST(at AS DATE) AS day, at, CAST(at AS TIMESTAMP_NTZ) AS local,
         array(v, NULL) AS several, named_struct('a', v, 'b', array(k)) AS nested,
         map('x', v) AS named
  FROM t"""
TOTALS = "SELECT k, count(*) AS n, sum(v) AS total FROM t GROUP BY k"
TEXT = f"""
    CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in');
    CREATE STREAM rows AS {EVERY_TYPE};
    CREATE STREAM totals AS {TOTALS} EMIT ON UPDATE;
    CREATE SINK rows_out FROM rows USING delta OPTIONS (path 'out/rows');
    CREATE SINK by_parity FROM rows USING delta OPTIONS (path 'out/parity', partition_by 'even');
    CREATE SINK totals_out FROM totals USING delta OPTIONS (path 'out/totals', compact '2');"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.put_moments(["a", "b", "Ω", None, ""])
    return made


def table_of(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return found


def check(spark: Any, place: Place) -> None:
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    for name, select in (("rows", EVERY_TYPE), ("parity", EVERY_TYPE), ("totals", TOTALS)):
        wanted = comparable(map(plain, batch(spark, select)))
        assert comparable(map(plain, table_of(place.folder / "out" / name))) == wanted, name


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Instants in one spelling of their zone, maps as PyArrow has them; columns by name."""
    return {name: _plain(row[name]) for name in sorted(row)}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC)
    if isinstance(value, dict) and set(value) == {"x"}:
        return list(value.items())
    return bytes(value) if isinstance(value, bytearray) else value


def test_every_spark_type_and_updates_by_key_are_what_spark_computes(
    spark: Any, place: Place
) -> None:
    run = Run(spark, place)
    assert run(TEXT) == 3
    check(spark, place)
    assert run(TEXT) == 3


def test_killed_at_steps_of_an_epoch_every_row_is_there_once(spark: Any, place: Place) -> None:
    passed: list[str] = []
    for nth in (2, 5, 8):
        with pytest.raises(Killed):
            Run(spark, place, fail_point=_kill_at(nth, passed))(TEXT)
    Run(spark, place)(TEXT)
    assert len(set(passed)) > 1, passed
    check(spark, place)


def _kill_at(nth: int, passed: list[str]) -> Callable[[str], None]:
    seen: list[str] = []

    def point(name: str) -> None:
        seen.append(name)
        passed.append(name)
        if len(seen) == nth:
            raise Killed(name)

    return point


def test_what_delta_has_no_type_for_is_refused_with_a_place(spark: Any, place: Place) -> None:
    wrong = TEXT.replace("map('x', v)", "at - TIMESTAMP '2000-01-01 00:00:00'")
    with pytest.raises(BadPipeline, match="'named' of the type duration"):
        Run(spark, place)(wrong)
    assert not (place.folder / "out").exists(), "nothing is claimed"


def test_the_example_runs(spark: Any, tmp_path: Path) -> None:
    Run(spark, Place(tmp_path), rows=7_000, files=None)(EXAMPLE.read_text())
    totals = table_of(tmp_path / "tables" / "totals")
    minutes = table_of(tmp_path / "tables" / "minutes")
    assert len(totals) == 20
    assert sum(row["trades"] for row in totals) == 20_000
    assert {row["symbol"] for row in totals} == {row["symbol"] for row in minutes}
    assert len({(row["symbol"], row["minute"]) for row in minutes}) == len(minutes)
