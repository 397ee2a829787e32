"""Sinks against bare clients: the rows of one epoch, staged before, in turns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from report import Number
from timing import Work, compare

from lamina.connectors.opening import open_sink
from lamina.engine.ports import Output, Publication, Sink
from lamina.format.commit import Point
from lamina.format.pipeline_record import Owner
from lamina.pipeline.model import DeclaredSink, Option
from lamina.workspace.model import Staged
from lamina.workspace.notes import LocalNotes
from lamina.workspace.staging import HomeStaged
from tests.servers import KafkaServer, PostgresServer
from tests.servers.postgres import ADMIN

PIPELINE = Owner("b" * 32, "benchmark")


@dataclass
class Bench:
    """One epoch's rows, staged; sinks that publish them again and again."""

    folder: Path
    rows: int
    rounds: int
    epochs: Iterator[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        draw = np.random.default_rng(1)
        self.table = pa.table(
            {
                "id": pa.array(np.arange(self.rows)),
                "symbol": pa.array([f"S{n}" for n in draw.integers(0, 500, self.rows)]),
                "price": pa.array(draw.integers(100, 99_999, self.rows) / 100).cast(
                    pa.decimal128(12, 2), safe=False
                ),
                "volume": pa.array(draw.integers(1, 500, self.rows)),
                "ts": pa.array(
                    1_700_000_000_000_000 + np.arange(self.rows) * 1_000, pa.timestamp("us", "UTC")
                ),
            }
        )
        self.home = self.folder / "home"
        self.home.mkdir()
        path = self.home / "staged.parquet"
        pq.write_table(self.table, path, use_dictionary=["symbol"])
        data = path.read_bytes()
        self._file = Staged(path.name, len(data), hashlib.sha256(data).hexdigest(), self.rows)
        self.mib = self.table.nbytes / (1 << 20)

    def open(self, format: str, **options: object) -> Sink:  # noqa: A002  the word of the file
        given = {name.replace("__", "."): Option.plain(str(v)) for name, v in options.items()}
        sink = DeclaredSink("out", "s", format, given)
        opened = open_sink(
            sink, self.folder, notes=LocalNotes(self.home), output=Output(self.table.schema)
        )
        opened.fence(1, PIPELINE)
        return opened

    def publish(self, sink: Sink) -> None:
        epoch = next(self.epochs)
        point, staged = Point(epoch, f"{epoch:064x}"), HomeStaged(self.home)
        output = Output(self.table.schema)
        sink.publish(Publication(PIPELINE, 1, point, [self._file], staged, output))

    def number(self, key: str, sink: Sink, bare: Work, *, at_least: float) -> Number:
        with closing(sink):
            found = compare(
                lambda: lambda: self.publish(sink),
                lambda: bare,
                rounds=self.rounds,
                mib=self.mib,
            )
        ours, bare = (self.rows / median(each) / 1000 for each in (found.ours, found.bare))
        told = f"{self.rows} rows an epoch: {ours:.0f} of {bare:.0f} k rows/s; {found.describe()}"
        return Number(key, found.ratio, told, at_least=at_least)


def sink_numbers(
    folder: Path, broker: KafkaServer, database: PostgresServer, *, rows: int, rounds: int
) -> Iterator[Number]:
    place = folder / "sinks"
    place.mkdir()
    bench = Bench(place, rows, rounds)
    yield bench.number("kafka_sink_ratio", *_kafka(bench, broker), at_least=0.7)
    yield bench.number("postgres_sink_ratio", *_postgres(bench, database), at_least=0.8)
    yield bench.number("delta_sink_ratio", *_delta(bench), at_least=0.8)
    yield bench.number("iceberg_sink_ratio", *_iceberg(bench), at_least=0.8)


def _kafka(bench: Bench, broker: KafkaServer) -> tuple[Sink, Work]:
    """Bare: one transactional producer; its values are encoded before the clock starts."""
    for topic in ("ours", "bare"):
        broker.create_topic(topic, 2)
    sink = bench.open("kafka", kafka__bootstrap__servers=broker.bootstrap, topic="ours")
    values = encoded(bench.table)
    producer = broker.producer(**{"transactional.id": "bare", "linger.ms": "50"})
    producer.init_transactions()

    def bare() -> None:
        producer.begin_transaction()
        for value in values:
            produce(producer, value)
        producer.commit_transaction()

    return sink, bare


def produce(producer: Any, value: bytes) -> None:
    while True:
        try:
            producer.produce("bare", value)
        except BufferError:
            producer.poll(0.05)
        else:
            return


def encoded(table: pa.Table) -> list[bytes]:
    """One JSON object a row."""
    import duckdb  # noqa: PLC0415  only here

    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("rows", table)
        found = database.sql(
            "SELECT to_json({'id': id, 'symbol': symbol, 'price': price, 'volume': volume, "
            "'ts': strftime(ts, '%Y-%m-%dT%H:%M:%S.%fZ')})::VARCHAR FROM rows"
        ).fetchall()
    return [text.encode() for (text,) in found]


def _postgres(bench: Bench, database: PostgresServer) -> tuple[Sink, Work]:
    """Bare: ADBC's own COPY into a temporary table, and the INSERT from it, in one transaction."""
    from adbc_driver_postgresql import dbapi  # noqa: PLC0415  an extra

    login = {"host": "127.0.0.1", "port": database.port, "database": "postgres"}
    sink = bench.open("postgres", **login, user=ADMIN, table="ours")
    database.execute(
        "CREATE TABLE bare (id bigint, symbol text, price numeric(12,2), volume bigint, "
        "ts timestamptz)"
    )
    connection = dbapi.connect(f"postgresql://{ADMIN}@127.0.0.1:{database.port}/postgres")

    def bare() -> None:
        with connection.cursor() as cursor:
            cursor.adbc_ingest("staged", bench.table, mode="create", temporary=True)
            cursor.execute(
                "INSERT INTO bare SELECT id, symbol, price::numeric(12,2), volume, ts FROM staged"
            )
            cursor.execute("DROP TABLE staged")
        connection.commit()

    return sink, bare


def _delta(bench: Bench) -> tuple[Sink, Work]:
    from deltalake import write_deltalake  # noqa: PLC0415  an extra

    sink = bench.open("delta", path="delta-ours")
    target = str(bench.folder / "delta-bare")
    return sink, lambda: write_deltalake(target, bench.table, mode="append")


def _iceberg(bench: Bench) -> tuple[Sink, Work]:
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415  an extra

    places = {
        "uri": f"sqlite:///{bench.folder}/catalog.db",
        "warehouse": f"file://{bench.folder}/warehouse",
    }
    sink = bench.open("iceberg", table="b.ours", **{f"catalog__{n}": v for n, v in places.items()})
    catalog = SqlCatalog("default", **places)
    catalog.create_namespace_if_not_exists("b")
    table = catalog.create_table("b.bare", schema=bench.table.schema)
    return sink, lambda: table.append(bench.table)
