"""A pipeline with all the systems its users have at both ends, and how its result is judged.

    two Kafka topics, JSON on S3  ->  Kafka, PostgreSQL, Delta, Iceberg, Parquet here and on S3

The truth is computed twice over the whole input, by plain Spark and by DuckDB.
"""

from __future__ import annotations

import json
import random
import runpy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.store import from_url

from lamina.store import open_store
from tests.servers import KafkaServer, PostgresServer, S3Server
from tests.servers.kafka import SPARK_JARS
from tests.servers.postgres import ADMIN
from tests.servers.s3 import ACCESS_KEY, REGION, SECRET_KEY

READER = Path(__file__).parents[2] / "docs" / "read_parquet_sink.py"
Rows = Counter[tuple[Any, ...]]
BEGIN = datetime(2024, 2, 29, 23, 50, tzinfo=UTC)
ORDERS = pa.schema(
    {
        "id": pa.int64(),
        "symbol": pa.string(),
        "price": pa.decimal128(12, 2),
        "volume": pa.int64(),
        "ts": pa.timestamp("us", "UTC"),
    }
)
PAYMENTS = pa.schema(
    {
        "id": pa.int64(),
        "account": pa.string(),
        "amount": pa.decimal128(12, 2),
        "ts": pa.timestamp("us", "UTC"),
    }
)
REFUNDS = pa.schema({"id": pa.int64(), "account": pa.string(), "amount": pa.decimal128(12, 2)})
SELECTS = {
    "totals": "SELECT symbol, sum(price * volume) AS turnover, count(*) AS orders, max(ts) AS "
    "latest FROM orders GROUP BY symbol",
    "minutes": "SELECT symbol, {minute} AS minute, sum(volume) AS volume, count(*) AS orders "
    "FROM orders GROUP BY symbol, {window}",
    "large": "SELECT id, account, amount, ts FROM payments WHERE amount > 50",
    "accounts": "SELECT account, sum(amount) AS refunded, count(*) AS refunds FROM refunds "
    "GROUP BY account",
}
SPARK_WINDOW = {"minute": "window.start", "window": "window(ts, '1 minute')"}
DUCK_WINDOW = {"minute": "time_bucket(INTERVAL 1 MINUTE, ts)", "window": "2"}
EMITS = {
    "totals": "EMIT ON UPDATE",
    "minutes": "EMIT ON WINDOW CLOSE",
    "large": "",
    "accounts": "EMIT ON UPDATE",
}
SINKS = {
    "totals_pg": "totals",
    "totals_delta": "totals",
    "totals_kafka": "totals",
    "minutes_iceberg": "minutes",
    "minutes_delta": "minutes",
    "large_kafka": "large",
    "large_pg": "large",
    "large_parquet": "large",
    "accounts_pg": "accounts",
    "accounts_iceberg": "accounts",
    "accounts_s3": "accounts",
}
"""By the stream that each gets."""


@dataclass(frozen=True, slots=True)
class Servers:
    kafka: KafkaServer
    postgres: PostgresServer
    s3: S3Server


@dataclass(frozen=True, slots=True)
class Systems:
    """A pipeline file, its input in the systems, and what has come out."""

    folder: Path
    servers: Servers
    epochs: int  # so many at the least, at ROWS of each source
    prefix: str = "systems"

    ROWS = 12

    # input

    def write(self) -> Systems:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "systems.sql").write_text(self.pipeline())
        rows = self.input()
        self._produce("orders", 3, rows["orders"])
        self._produce("payments", 2, rows["payments"])
        store = open_store(
            self.servers.s3.url(f"{self.prefix}/refunds"), **self.servers.s3.options()
        )
        for number, part in enumerate(_parts(rows["refunds"], self.ROWS)):
            store.put(f"{number:05d}.json", b"".join(_json(row) + b"\n" for row in part))
        return self

    def input(self) -> dict[str, list[dict[str, Any]]]:
        draw = random.Random(11)
        count = self.epochs * self.ROWS
        names = ["A", "B", "it's", "é", None]
        late = timedelta(seconds=30)
        return {
            "orders": [
                {
                    "id": at,
                    "symbol": draw.choice(names),
                    "price": Decimal(draw.randrange(100, 99_999)) / 100,
                    "volume": draw.randrange(1, 400),
                    "ts": BEGIN + timedelta(seconds=at) - late * draw.random(),
                }
                for at in range(count)
            ],
            "payments": [
                {
                    "id": at,
                    "account": f"account {draw.randrange(20)}",
                    "amount": Decimal(draw.randrange(100, 9_999)) / 100,
                    "ts": BEGIN + timedelta(milliseconds=at * 250),
                }
                for at in range(count)
            ],
            "refunds": [
                {
                    "id": at,
                    "account": f"account {draw.randrange(20)}",
                    "amount": Decimal(draw.randrange(100, 9_999)) / 100,
                }
                for at in range(count)
            ],
        }

    def _produce(self, name: str, partitions: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """In transactions, of which some are aborted: their rows never were."""
        topic = self.topic(name)
        self.servers.kafka.create_topic(topic, partitions)
        producer = self.servers.kafka.producer(**{"transactional.id": f"{topic}-writer"})
        producer.init_transactions()
        for number, part in enumerate(_parts(list(rows), 50)):
            for is_real in (False, True) if number % 3 == 1 else (True,):
                producer.begin_transaction()
                for row in part:
                    value = _json(row if is_real else {**row, "id": -1})
                    producer.produce(topic, value, partition=row["id"] % partitions)
                producer.flush()  # an abort before the broker knows of any row is refused by it
                producer.commit_transaction() if is_real else producer.abort_transaction()

    def topic(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    # the pipeline

    def pipeline(self) -> str:
        bootstrap = f"kafka.bootstrap.servers '{self.servers.kafka.bootstrap}'"
        streams = "".join(
            f"CREATE STREAM {name} AS {select.format(**SPARK_WINDOW)} {EMITS[name]};\n"
            for name, select in SELECTS.items()
        )
        return f"""
CREATE SOURCE orders
  (id BIGINT, symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP)
  USING kafka OPTIONS ({bootstrap}, subscribe '{self.topic("orders")}', format 'json')
  WATERMARK ts DELAY OF INTERVAL 1 HOUR;
CREATE SOURCE payments (id BIGINT, account STRING, amount DECIMAL(12,2), ts TIMESTAMP)
  USING kafka OPTIONS ({bootstrap}, subscribe '{self.topic("payments")}', format 'json');
CREATE SOURCE refunds (id BIGINT, account STRING, amount DECIMAL(12,2))
  USING json OPTIONS (path '{self.servers.s3.url(f"{self.prefix}/refunds")}', {self._s3()});
{streams}
CREATE SINK totals_pg FROM totals USING postgres OPTIONS ({self._postgres("totals")});
CREATE SINK totals_delta FROM totals USING delta OPTIONS (path 'delta/totals');
CREATE SINK totals_kafka FROM totals USING kafka
  OPTIONS ({bootstrap}, topic '{self.topic("totals")}', create_partitions 2);
CREATE SINK minutes_iceberg FROM minutes USING iceberg OPTIONS ({self._iceberg("minutes")});
CREATE SINK minutes_delta FROM minutes USING delta OPTIONS (path 'delta/minutes');
CREATE SINK large_kafka FROM large USING kafka
  OPTIONS ({bootstrap}, topic '{self.topic("large")}', create_partitions 2);
CREATE SINK large_pg FROM large USING postgres OPTIONS ({self._postgres("large")});
CREATE SINK large_parquet FROM large USING parquet OPTIONS (path 'out/large');
CREATE SINK accounts_pg FROM accounts USING postgres OPTIONS ({self._postgres("accounts")});
CREATE SINK accounts_iceberg FROM accounts USING iceberg OPTIONS ({self._iceberg("accounts")});
CREATE SINK accounts_s3 FROM accounts USING parquet
  OPTIONS (path '{self.servers.s3.url(f"{self.prefix}/accounts")}', {self._s3()});
"""

    def _s3(self) -> str:
        return (
            f"endpoint 'http://127.0.0.1:{self.servers.s3.port}', region '{REGION}', "
            "access_key_id '${S3_KEY}', secret_access_key '${S3_SECRET}'"
        )

    def _postgres(self, table: str) -> str:
        server = f"host '127.0.0.1', port {self.servers.postgres.port}"
        return f"{server}, database 'postgres', user '{ADMIN}', schema 'systems', table '{table}'"

    def _iceberg(self, table: str) -> str:
        return (
            f"table 'systems.{table}', catalog 'sql', catalog.uri 'sqlite:///{self._catalog}', "
            f"catalog.warehouse 'file://{self.folder}/warehouse'"
        )

    @property
    def _catalog(self) -> Path:
        return self.folder / "catalog.db"

    def options(self) -> tuple[str | Path, ...]:
        """For `lamina run`."""
        places = ("--home", self.folder / "home", "--store", self.folder / "store")
        rows = ("--max-rows", str(self.ROWS), "--max-files", "1", "--checkpoint-epochs", "4")
        return (*places, *rows, "--jars", SPARK_JARS)

    @property
    def environment(self) -> dict[str, str]:
        return {"S3_KEY": ACCESS_KEY, "S3_SECRET": SECRET_KEY}

    # what has come out

    def shown(self) -> dict[str, Rows]:
        """What a reader of each outside system finds, with the system's own client."""
        read = {
            "totals_pg": self._table("totals"),
            "large_pg": self._table("large"),
            "accounts_pg": self._table("accounts"),
            "totals_delta": self._delta("totals"),
            "minutes_delta": self._delta("minutes"),
            "minutes_iceberg": self._iceberg_rows("minutes"),
            "accounts_iceberg": self._iceberg_rows("accounts"),
            "totals_kafka": _latest(self._messages("totals"), 1),
            "large_kafka": self._messages("large"),
            "large_parquet": self._files(),
            "accounts_s3": _latest(self._objects(), 1),
        }
        return {name: Counter(map(plain, rows)) for name, rows in read.items()}

    def _table(self, name: str) -> list[tuple[Any, ...]]:
        return self.servers.postgres.execute(f"SELECT * FROM systems.{name}")

    def _delta(self, name: str) -> Iterator[tuple[Any, ...]]:
        from deltalake import DeltaTable  # noqa: PLC0415  an extra

        rows = pa.table(DeltaTable(str(self.folder / "delta" / name)).to_pyarrow_table())
        return _tuples(rows)

    def _iceberg_rows(self, name: str) -> Iterator[tuple[Any, ...]]:
        from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415  an extra

        warehouse = f"file://{self.folder}/warehouse"
        catalog = SqlCatalog("default", uri=f"sqlite:///{self._catalog}", warehouse=warehouse)
        try:
            return _tuples(catalog.load_table(("systems", name)).scan().to_arrow())
        finally:
            catalog.close()

    def _messages(self, name: str) -> list[tuple[Any, ...]]:
        """In the order of their offsets; what was aborted is not among them."""
        found = self.servers.kafka.read_all(self.topic(name))
        rows = (json.loads(message.value(), parse_float=Decimal) for message in found)
        return [tuple(_json_row(row, name)) for row in rows]

    def _files(self) -> Iterator[tuple[Any, ...]]:
        for path in sorted((self.folder / "out" / "large").glob("epoch-*/*.parquet")):
            yield from _tuples(pq.read_table(path))

    def _objects(self) -> Iterator[tuple[Any, ...]]:
        """By the reader that the documentation shows."""
        url = self.servers.s3.url(f"{self.prefix}/accounts")
        store = from_url(url, **self.servers.s3.options())
        yield from _tuples(runpy.run_path(str(READER))["read"](store))

    # what has to come out

    def truth(self, spark: Any) -> dict[str, Rows]:
        """By Spark and by DuckDB, which have to agree."""
        tables = {
            name: pa.Table.from_pylist(rows, schema)
            for (name, rows), schema in zip(
                self.input().items(), (ORDERS, PAYMENTS, REFUNDS), strict=True
            )
        }
        by_spark, by_duckdb = dict[str, Rows](), dict[str, Rows]()
        for name, table in tables.items():
            spark.createDataFrame(table).createOrReplaceTempView(name)
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            for name, table in tables.items():
                database.register(name, table)
            for name, select in SELECTS.items():
                found = spark.sql(select.format(**SPARK_WINDOW)).toArrow()
                by_spark[name] = Counter(map(plain, _tuples(found)))
                answer = database.sql(select.format(**DUCK_WINDOW)).to_arrow_table()
                by_duckdb[name] = Counter(map(plain, _tuples(answer)))
        assert by_spark == by_duckdb
        assert all(by_spark.values()), "a stream without rows shows nothing"
        return by_spark

    def check_whole(self, truth: Mapping[str, Rows]) -> None:
        """Everything, once, in every system."""
        for name, rows in self.shown().items():
            wanted = truth[SINKS[name]]
            missing, extra = wanted - rows, rows - wanted
            assert not missing, (name, len(missing), missing.most_common(3))
            assert not extra, (name, len(extra), extra.most_common(3))


def _json(row: Mapping[str, Any]) -> bytes:
    """Decimals as numbers with all their digits, times as ISO has them."""
    texts = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in row.items()
    }
    return json.dumps(texts, default=float).encode()


def plain(row: Iterable[Any]) -> tuple[Any, ...]:
    """A row in one spelling, whichever client has read it."""
    return tuple(_plain(value) for value in row)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal | int):
        return format(Decimal(value).normalize(), "f")
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else f"{value.isoformat()}+00:00"
    return value


_DECIMALS, _TIMES = {"turnover", "amount", "refunded"}, {"latest", "ts", "minute"}
_COLUMNS = {
    "totals": ("symbol", "turnover", "orders", "latest"),
    "large": ("id", "account", "amount", "ts"),
}


def _json_row(row: Mapping[str, Any], stream: str) -> Iterator[Any]:
    """A JSON object has no types, and leaves nulls out."""
    assert set(row) <= set(_COLUMNS[stream]), row
    for name in _COLUMNS[stream]:
        value = row.get(name)
        if value is not None and name in _DECIMALS:
            value = Decimal(str(value))
        elif value is not None and name in _TIMES:
            value = datetime.fromisoformat(value)
        yield value


def _tuples(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return (tuple(row.values()) for row in table.to_pylist())


def _latest(rows: Iterable[tuple[Any, ...]], keys: int) -> list[tuple[Any, ...]]:
    """Of a stream that emits on update: the last row of each key."""
    return list({row[:keys]: row for row in rows}.values())


def _parts(rows: list[Any], size: int) -> Iterator[list[Any]]:
    for at in range(0, len(rows), size):
        yield rows[at : at + size]
