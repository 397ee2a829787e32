"""The pipeline of the kill tests, its input, and how its result is judged."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from click.testing import CliRunner

from lamina.cli.main import cli
from tests.spark.oracle import Rows, duckdb_epochs, in_the_end, plain, spark_batch

ROWS, SYMBOLS, EVERY_US = 40, 6, 1_500_000  # trades of an epoch
ORDERS = 60  # in a file
JITTER_S = 9  # less than the delay: nothing is late
STREAMS = (
    *("bars", "even", "best", "totals", "dear", "backed", "answered", "met", "sold", "visits"),
    "top",
)
PIPELINE = """
CREATE SOURCE orders
  (id BIGINT, symbol STRING, side STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP)
  USING json OPTIONS (path 'orders') WATERMARK ts DELAY OF INTERVAL 10 SECONDS;
CREATE SOURCE trades (symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP)
  USING trades OPTIONS (rows '{trades}', symbols '{symbols}', every_us '{every_us}')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
CREATE STREAM bars AS
  SELECT symbol, window.start AS minute, sum(price * volume) AS turnover,
         sum(volume) FILTER (WHERE side = 'buy') AS bought, max(price) - min(price) AS spread,
         count(*) AS orders
  FROM orders GROUP BY symbol, window(ts, '1 minute') HAVING count(*) > 2 EMIT ON WINDOW CLOSE;
CREATE STREAM even AS SELECT symbol, minute, turnover * 2 AS twice FROM bars WHERE orders % 2 = 0;
CREATE STREAM best AS
  SELECT symbol, count(*) AS minutes, max(turnover) AS most, sum(orders) AS orders
  FROM bars GROUP BY symbol EMIT ON UPDATE;
CREATE STREAM totals AS
  SELECT symbol, sum(price * volume) AS turnover,
         count(*) FILTER (WHERE volume > 250) AS large, max(ts) AS latest
  FROM trades GROUP BY symbol EMIT ON UPDATE;
CREATE STREAM dear AS SELECT DISTINCT symbol, price * 3 AS price, ts FROM trades WHERE price > 60;
CREATE STREAM visits AS
  SELECT symbol, session_window.start AS starts, session_window.end AS ends, count(*) AS orders,
         count(DISTINCT side) AS sides
  FROM orders WHERE symbol IS NOT NULL GROUP BY symbol, SESSION(ts, INTERVAL 12 SECONDS)
  EMIT ON WINDOW CLOSE;
CREATE STREAM top AS
  SELECT symbol, id, price FROM orders WHERE symbol IS NOT NULL
  QUALIFY row_number() OVER (PARTITION BY symbol ORDER BY price DESC, id) = 1 EMIT ON UPDATE;
CREATE STREAM backed AS
  SELECT s.id, s.price, b.price AS bought
  FROM (SELECT id, symbol, price, ts FROM orders WHERE side = 'sell') s
  LEFT ASOF JOIN (SELECT symbol, price, ts FROM orders WHERE side = 'buy') b
    MATCH_CONDITION (s.ts >= b.ts) ON s.symbol = b.symbol;
CREATE STREAM answered AS
  SELECT b.id, b.symbol, s.id AS sale FROM (SELECT * FROM orders WHERE side = 'buy') b
  LEFT JOIN (SELECT * FROM orders WHERE side <> 'buy') s ON b.symbol = s.symbol
    AND s.ts BETWEEN b.ts AND b.ts + INTERVAL 20 SECONDS AND s.price < b.price;
CREATE STREAM met AS
  SELECT b.id, s.id AS sale FROM (SELECT id, symbol, ts FROM orders WHERE side = 'buy') b
  FULL JOIN (SELECT id, symbol, ts FROM orders WHERE side = 'sell') s ON b.symbol = s.symbol
    AND s.ts BETWEEN b.ts AND b.ts + INTERVAL 5 SECONDS;
CREATE STREAM sold AS
  SELECT b.id, b.price FROM (SELECT id, symbol, price, ts FROM orders WHERE side = 'buy') b
  LEFT SEMI JOIN (SELECT symbol, ts FROM orders WHERE side = 'sell') s ON b.symbol = s.symbol
    AND s.ts BETWEEN b.ts AND b.ts + INTERVAL 20 SECONDS;
""" + "".join(
    f"CREATE SINK {name}_out FROM {name} USING parquet OPTIONS (path 'out/{name}');\n"
    for name in STREAMS
)


@dataclass(frozen=True, slots=True)
class Truth:
    """What has to come out: by stream and epoch, and in the end."""

    epochs: dict[str, dict[int, Rows]]
    batch: dict[str, Rows]


@dataclass(frozen=True, slots=True)
class Project:
    """A pipeline file with its input and output, as a person has it."""

    folder: Path
    files: int  # one per epoch

    def write(self) -> Project:
        """The pipeline, and its files with times that give one order."""
        (self.folder / "orders").mkdir(parents=True)
        text = PIPELINE.format(**self.trades, trades=self.trades["rows"])
        (self.folder / "kills.sql").write_text(text)
        draw = random.Random(7)
        for number in range(self.files):
            file = self.folder / "orders" / f"{number:05d}.json"
            orders = (order(draw, number * ORDERS + each) for each in range(ORDERS))
            file.write_text("".join(json.dumps(each) + "\n" for each in orders))
            os.utime(file, (1_700_000_000 + number,) * 2)
        return self

    @property
    def trades(self) -> dict[str, int]:
        return {"rows": self.files * ROWS, "symbols": SYMBOLS, "every_us": EVERY_US}

    def asked(self, **more: Any) -> dict[str, Any]:
        """A run, for a child."""
        usual = {"home": "home", "partitions": 2, "rows": ROWS, "checkpoint_epochs": 2}
        return {"folder": str(self.folder), **usual, **more}

    def options(self) -> tuple[str | Path, ...]:
        """The same, for `lamina run`."""
        places = ("--home", self.folder / "home", "--store", self.folder / "store")
        return (*places, "--max-rows", str(ROWS), "--max-files", "1", "--checkpoint-epochs", "2")

    def truth(self, spark: Any) -> Truth:
        """By plain Spark and by DuckDB, which have to agree."""
        orders = self.folder / "orders"
        batch = spark_batch(spark, orders, self.trades)
        epochs = duckdb_epochs(spark, orders, self.trades, rows=ROWS)
        assert {name: in_the_end(name, epochs[name]) for name in STREAMS} == batch
        assert all(epochs[name] for name in STREAMS), "a stream without rows shows nothing"
        return Truth(epochs, batch)

    # what has come out

    def published(self) -> dict[str, dict[int, Rows]]:
        found: dict[str, dict[int, Rows]] = {name: {} for name in STREAMS}
        for name in STREAMS:
            for folder in (self.folder / "out" / name).glob("epoch-*"):
                files = sorted(folder.glob("*.parquet"))
                rows = [plain(row) for file in files for row in pq.read_table(file).to_pylist()]
                found[name][int(folder.name.removeprefix("epoch-"))] = Counter(rows)
        return found

    def check_whole(self, truth: Truth) -> None:
        """Everything, once, in its epoch."""
        found = self.published()
        for name in STREAMS:
            assert found[name] == truth.epochs[name], name
            assert in_the_end(name, found[name]) == truth.batch[name], name

    def check_so_far(self, truth: Truth, home: str = "home") -> int:
        """After a kill: what is visible is right, the log is whole; the epoch it stands at."""
        found = self.published()
        for name in STREAMS:
            shown = {epoch: truth.epochs[name].get(epoch) for epoch in found[name]}
            assert found[name] == shown, name
        ask("wal", "verify", "--home", str(self.folder / home))
        plan = self.plan(home)
        assert not plan["skipped"]
        newest = max((epoch for each in found.values() for epoch in each), default=0)
        assert newest <= plan["epoch"], "a sink has an epoch that recovery does not know"
        return int(plan["epoch"])

    def plan(self, home: str = "home") -> Any:
        """What a start would recover."""
        places = ("--home", str(self.folder / home), "--store", str(self.folder / "store"))
        return ask("recover", "--dry-run", *places)


def ask(*arguments: str) -> Any:
    """What a command of ours says that needs no Spark; without a process."""
    result = CliRunner().invoke(cli, [*arguments, "--json"])
    assert result.exit_code == 0, (arguments, result.output, result.exception)
    return json.loads(result.stdout)


def order(draw: random.Random, number: int) -> dict[str, Any]:
    late = timedelta(milliseconds=draw.randrange(JITTER_S * 1000))
    at = datetime(2024, 2, 29, 23, 50, tzinfo=UTC) + timedelta(seconds=2 * number) - late
    return {
        "id": number,
        "symbol": draw.choice(["A", "B", "C", "it's", "é", None]),
        "side": draw.choice(["buy", "sell"]),
        "price": draw.randrange(1_000, 99_999) / 100,
        "volume": draw.randrange(1, 400),
        "ts": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
