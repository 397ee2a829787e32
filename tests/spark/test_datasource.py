"""`spark.read.format("lamina")`: state and metadata as DataFrames, as `lamina state` shows them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import lamina
import lamina.spark
from lamina.engine.plans import EngineSettings
from lamina.engine.ports import Limits
from lamina.errors import LaminaError
from lamina.spark.datasource import LaminaSource
from tests.spark.projects import Project
from tests.support.command_line import answer
from tests.support.command_line import lamina as command

AT = datetime(2026, 11, 19, 10, tzinfo=UTC)
SQL = """
CREATE SOURCE trades (symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP)
  USING json OPTIONS (path 'in') WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
CREATE STREAM totals AS
  SELECT symbol, sum(price * volume) AS turnover, count(*) AS trades FROM trades
  GROUP BY symbol EMIT ON UPDATE;
CREATE SINK out FROM totals USING parquet OPTIONS (path 'out');
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Project:
    """Three files, an epoch each; a checkpoint of each second epoch and one at the end."""
    made = Project(
        tmp_path_factory.mktemp("datasource"),
        spark,
        SQL,
        engine=EngineSettings(limits=Limits(files=1), checkpoint_epochs=2, partitions=4, retain=9),
    )
    for number in range(3):
        rows = [
            {
                "symbol": f"S{i % 7}",
                "price": f"{i}.25",
                "volume": i,
                "ts": f"2026-11-19 10:0{number}:00",
            }
            for i in range(number * 20, number * 20 + 20)
        ]
        made.put(f"in/{number}.json", "\n".join(map(json.dumps, rows)), at=1000 + number)
    made.run()
    (made.folder / "p.sql").write_text(SQL)
    lamina.spark.register(spark)
    return made


def read(project: Project, **options: str) -> Any:
    places = {"home": str(project.folder / "home"), "store": str(project.folder / "store")}
    reader = project.spark.read.format("lamina").options(**places, **options)
    return reader.load(str(project.folder / "p.sql"))


def state(project: Project, *options: str) -> list[dict[str, Any]]:
    found = command(
        *("state", project.folder / "store", "totals", "--home", project.folder / "home"),
        *(*options, "--json"),
    )
    return list(answer(found)["rows"])


def shapes(frame: Any) -> list[dict[str, Any]]:
    rows = (
        {n: v if isinstance(v, int | str) else str(v) for n, v in row.asDict().items()}
        for row in frame.collect()
    )
    return sorted(rows, key=lambda row: row["symbol"])


def by_symbol(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["symbol"])


def test_state_is_what_the_command_shows_and_what_the_sink_has_last(project: Project) -> None:
    frame = read(project, stream="totals")
    assert frame.schema.simpleString() == (
        "struct<symbol:string,sum(price * volume):decimal(38,2),count(*):bigint>"
    )
    assert frame.rdd.getNumPartitions() == 4
    found = shapes(frame)
    assert found == by_symbol(state(project))
    last: dict[str, tuple[Any, ...]] = {}
    for symbol, turnover, trades in sorted(project.rows(), key=lambda row: row[2]):
        last[symbol] = (str(turnover), trades)
    assert {row["symbol"]: (row["sum(price * volume)"], row["count(*)"]) for row in found} == last


def test_any_checkpoint_and_condition(project: Project) -> None:
    assert shapes(read(project, stream="TOTALS", at="2")) == by_symbol(state(project, "--at", "2"))
    few = read(project, stream="totals", where="count(*) > 8 and symbol <> 'S0'")
    wanted = [
        row for row in by_symbol(state(project)) if row["count(*)"] > 8 and row["symbol"] != "S0"
    ]
    assert wanted
    assert shapes(few) == wanted
    assert shapes(read(project, stream="totals", as_of="2999-01-01")) == by_symbol(state(project))


def test_what_a_pipeline_consists_of_as_tables(project: Project) -> None:
    checkpoints = read(project, table="checkpoints").orderBy("epoch").collect()
    listed = answer(command("list", "--store", project.folder / "store", "--json"))["checkpoints"]
    assert [(row.epoch, row.id, row.size_bytes) for row in checkpoints] == [
        (each["epoch"], each["id"], each["size_bytes"]) for each in listed
    ]
    assert [row.newest for row in checkpoints] == [False, True]
    commits = [row.epoch for row in read(project, table="commits").orderBy("epoch").collect()]
    assert commits
    assert commits[-1] == checkpoints[-1].epoch
    files = read(project, table="files", at="2").collect()
    assert {row.stream for row in files} >= {"totals"}
    (offset,) = read(project, table="offsets").where("kind = 'source'").collect()
    assert (offset.name, offset.epoch) == ("trades", checkpoints[-1].epoch)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stream": "total"}, "LAM-2000"),
        ({"stream": "totals", "at": "77"}, "epoch 77 cannot be reached"),
        ({"stream": "totals", "as_of": "yesterday"}, "'yesterday' is not a time"),
        ({"stream": "totals", "as_of": "2001-01-01"}, "all checkpoints are younger"),
        ({"table": "files", "stream": "totals"}, "give either a stream or a table"),
        ({"table": "keys"}, "there is no table 'keys'"),
        ({"stream": "totals", "password": "x"}, "has no option 'password'"),
        ({"stream": "totals", "where": "volume > 1"}, "'volume' is not a column of this state"),
    ],
)
def test_what_is_asked_wrongly_is_said(
    project: Project, options: dict[str, str], said: str
) -> None:
    places = {"home": str(project.folder / "home"), "store": str(project.folder / "store")}
    source = LaminaSource({"path": str(project.folder / "p.sql"), **places, **options})
    with pytest.raises(LaminaError) as refused:
        source.schema()
    assert said in str(refused.value)


def test_spark_says_it_in_our_words(project: Project) -> None:
    with pytest.raises(PySparkException, match="'volume' is not a column of this state"):
        read(project, stream="totals", where="volume > 1")


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    source = LaminaSource({"path": str(tmp_path / "none.sql"), "stream": "totals"})
    with pytest.raises(LaminaError, match="there is no such pipeline file"):
        source.schema()


def test_columns_of_every_type_arrive(tmp_path: Path, project: Project) -> None:
    """State of `lamina.open` has types of Arrow that Spark spells in another way."""
    key = pa.schema([("id", pa.int32()), ("at", pa.timestamp("us", "UTC"))])
    value = pa.schema(
        [
            ("tags", pa.list_(pa.string())),
            ("more", pa.struct([("n", pa.float64())])),
            ("b", pa.binary()),
        ]
    )
    rows = {
        "id": [1, 2],
        "at": [AT, None],
        "tags": [["a", None], None],
        "more": [{"n": 1.5}, None],
        "b": [b"x", None],
    }
    with lamina.open(tmp_path / "shop") as store:
        store.table("t", key, value).write(pa.table(rows, pa.schema([*key, *value])))
        store.commit()
    frame = project.spark.read.format("lamina").option("stream", "t").option("at", "head")
    found = sorted(
        frame.load(str(tmp_path / "shop")).toArrow().to_pylist(), key=lambda row: row["id"]
    )
    assert found == [
        dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)
    ]
