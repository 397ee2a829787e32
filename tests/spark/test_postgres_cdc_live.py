"""Pipelines on Spark over the changes of a real PostgreSQL: what a table has, its streams have."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lamina.errors import BadPipeline, Refused
from lamina.testing.faulty import Killed
from tests.contract.cdc_rig import CdcRig, random_change
from tests.servers import KafkaServer, PostgresServer
from tests.servers.postgres import ADMIN
from tests.spark.running import Place, Run

pytestmark = pytest.mark.server

EXAMPLE = Path(__file__).parents[2] / "examples" / "postgres_cdc"
QUERIES = {
    "everything": "SELECT id, name, amount, length(big) AS size FROM t",
    "cheap": "SELECT id, amount * 2 AS doubled FROM t WHERE amount < 3",
    "totals": "SELECT id % 5 AS part, count(*) AS n, sum(amount) AS total, "
    "max(name) AS last FROM t GROUP BY id % 5",
}
COLUMNS = ("id", "name", "country", "credit")
RICHEST = """
SELECT country, count(*), (array_agg(name ORDER BY credit DESC))[1], sum(credit)
  FROM customers GROUP BY country HAVING count(*) > 1
"""
KEYS = {"everything": "id", "cheap": "id", "totals": "part"}


def text(rig: CdcRig) -> str:
    login = f"host '127.0.0.1', port '{rig.server.port}', database 'postgres', user '{ADMIN}'"
    login += f", schema '{rig.schema}'"
    parts = [
        "CREATE SOURCE t (id BIGINT, name STRING, amount DECIMAL(12, 2), big STRING) USING "
        f"postgres_cdc OPTIONS (table 't', publication '{rig.schema}', keys 'id', {login}, "
        f"slot '{rig.slot}', remember_rows '{str(rig.memory is not None).lower()}');"
    ]
    for name, select in QUERIES.items():
        emit = "EMIT CHANGES" if name == "totals" else ""
        parts.append(f"CREATE STREAM {name} AS {select} {emit};")
        parts.append(
            f"CREATE SINK {name}_out FROM {name} USING postgres OPTIONS (table '{name}_out', "
            f"keys '{KEYS[name]}', {login});"
        )
    return "\n".join(parts)


def in_postgres(rig: CdcRig, name: str) -> set[tuple[Any, ...]]:
    """The same query, over the table as it is."""
    return set(rig.server.execute(QUERIES[name], options=f"-c search_path={rig.schema}"))


def test_streams_have_what_the_table_has_whatever_is_killed(
    spark: Any, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    """Without the old values of rows in the log; some of the changes are TRUNCATE."""
    rig = CdcRig(postgres_server, postgres_server.new_schema(), tmp_path).remember()
    rig.create()
    random, place, passed = Random(7), Place(tmp_path), set[str]()

    for nth, rows in ((4, None), (0, 40), (7, None), (0, None)):
        rig.change("TRUNCATE TABLE_")
        for _ in range(4):
            random_change(rig, random)
        left = [nth]

        def fail_point(name: str, left: list[int] = left) -> None:
            passed.add(name)
            left[0] -= 1
            if left[0] == 0:
                raise Killed(name)

        run = Run(spark, place, rows=rows, fail_point=fail_point)
        if nth:
            with pytest.raises(Killed):
                run(text(rig))
            continue
        run(text(rig))
        for name in QUERIES:
            found = set(rig.server.execute(f"SELECT * FROM {rig.schema}.{name}_out"))
            assert found == in_postgres(rig, name), name
    assert len(passed) > 3
    slots = "SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE "
    assert rig.server.execute(f"{slots}'{rig.slot}%'") == [(rig.slot,)], "no copy is left"
    rig.drop()


def test_what_only_appends_takes_no_changes(
    spark: Any, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    rig = CdcRig(postgres_server, postgres_server.new_schema(), tmp_path)
    rig.create()
    head = text(rig).split("\n", maxsplit=1)[0]
    for stream, sink, said in (
        ("SELECT id FROM t", "parquet OPTIONS (path 'out')", "change"),
        ("SELECT count(*) AS n FROM t GROUP BY name EMIT ON UPDATE", "console", "EMIT CHANGES"),
        ("SELECT id FROM t", "postgres OPTIONS (mode 'append', table 'x', database 'd', user 'u')",
         "append the rows of a stream that deletes some"),
    ):  # fmt: skip
        with pytest.raises((BadPipeline, Refused), match=f"(?s){said}"):
            Run(spark, Place(tmp_path))(
                f"{head} CREATE STREAM s AS {stream}; CREATE SINK o FROM s USING {sink};"
            )


def test_the_example_runs(spark: Any, tmp_path: Path, postgres_server: PostgresServer) -> None:
    clean(postgres_server)
    postgres_server.execute((EXAMPLE / "setup.sql").read_text())
    port = str(postgres_server.port)
    variables = {"PGHOST": "127.0.0.1", "PGPORT": port, "PGUSER": ADMIN}
    run = Run(spark, Place(tmp_path), variables=variables)
    run((EXAMPLE / "pipeline.sql").read_text())
    postgres_server.execute("UPDATE customers SET country = 'FR' WHERE id = 3")
    postgres_server.execute("DELETE FROM customers WHERE id = 1")
    run((EXAMPLE / "pipeline.sql").read_text())
    countries = postgres_server.execute("SELECT * FROM customer_countries ORDER BY country")
    assert countries == [("DE", 1, 5, 5), ("FR", 2, 50, 30)]
    names = postgres_server.execute("SELECT * FROM customer_names ORDER BY id")
    assert names == [(2, "BLAISE"), (3, "CARL"), (4, "DMITRI")]
    postgres_server.execute("SELECT pg_drop_replication_slot('lamina_example')")


def test_the_example_of_copies_runs(
    spark: Any, tmp_path: Path, postgres_server: PostgresServer, kafka_server: KafkaServer
) -> None:
    """Delta, Iceberg, Kafka and PostgreSQL have what the table has, after TRUNCATE, too."""
    login = {"PGHOST": "127.0.0.1", "PGPORT": str(postgres_server.port), "PGUSER": ADMIN}
    variables = {**login, "KAFKA": kafka_server.bootstrap}
    run = Run(spark, Place(tmp_path), variables=variables)
    copies = (EXAMPLE / "copies.sql").read_text()
    clean(postgres_server)
    for statement in (
        (EXAMPLE / "setup.sql").read_text(),
        "INSERT INTO customers VALUES (5, 'Emmy', 'DE', 40); DELETE FROM customers WHERE id = 1; "
        "UPDATE customers SET id = 7, name = 'Évariste' WHERE id = 2",
        "TRUNCATE customers; INSERT INTO customers SELECT g, 'n' || g, 'X' || g % 2, g FROM "
        "generate_series(4, 9) g",
    ):
        postgres_server.execute(statement)
        run(copies)
        there = set(postgres_server.execute("SELECT id, name, country, credit FROM customers"))
        assert in_lake(tmp_path) == there
        assert in_warehouse(tmp_path) == there
        assert in_topic(kafka_server, "customers") == there
        view = postgres_server.execute("SELECT * FROM customer_richest")
        assert set(view) == set(postgres_server.execute(RICHEST))
    postgres_server.execute("SELECT pg_drop_replication_slot('lamina_copies')")


def clean(server: PostgresServer) -> None:
    """What another example, or another test, has left."""
    server.execute("DROP PUBLICATION IF EXISTS lamina_example")
    tables = "customers, customer_names, customer_countries, customer_richest, lamina_sinks"
    server.execute(f"DROP TABLE IF EXISTS {tables}")


def in_lake(folder: Path) -> set[tuple[Any, ...]]:
    from deltalake import DeltaTable  # noqa: PLC0415  an extra

    table: Any = DeltaTable(str(folder / "lake" / "customers")).to_pyarrow_table()
    return {tuple(row[name] for name in COLUMNS) for row in table.to_pylist()}


def in_warehouse(folder: Path) -> set[tuple[Any, ...]]:
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415  an extra

    place = folder / "warehouse"
    options = {"uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}"}
    with SqlCatalog("default", **options) as catalog:
        rows = catalog.load_table("shop.customers").scan().to_arrow().to_pylist()
    return {tuple(row[name] for name in COLUMNS) for row in rows}


def in_topic(server: KafkaServer, topic: str) -> set[tuple[Any, ...]]:
    """What is left when the topic is compacted: the last message of each key."""
    last = {message.key(): message.value() for message in server.read_all(topic)}
    rows = [json.loads(value, parse_float=Decimal) for value in last.values() if value]
    return {(*(row[name] for name in COLUMNS[:3]), Decimal(row["credit"])) for row in rows}
