"""Joins of a stream with tables: one version of each per epoch, equal to a batch with that one."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamina.connectors import table_sizes
from lamina.errors import BadPipeline, LaminaError
from tests.spark.running import FILE, Place, Run, batch, comparable, compiled
from tests.spark.test_joins import MARK, ORDERS, PAYMENTS, cut, orders_of, payments_of

ITEMS = "id INT, name STRING, price DECIMAL(9,2), since TIMESTAMP"
KINDS = "kind STRING, weight INT"
WITHIN = "p.ts BETWEEN o.ts - INTERVAL 5 MINUTES AND o.ts + INTERVAL 10 MINUTES"
QUERIES = {
    "inner": "SELECT o.id, i.name, o.total * i.price AS x FROM o JOIN items i ON o.id = i.id",
    "lefts": "SELECT o.id, o.state, i.name, i.since FROM o LEFT JOIN items AS i "
    "ON o.id = i.id AND i.price > 2 AND o.state <> 'b'",
    "semis": "SELECT o.* FROM o LEFT SEMI JOIN items i ON o.id = i.id AND i.name = '${NAME}'",
    "antis": "SELECT o.id, o.ts FROM o LEFT ANTI JOIN items ON o.id = items.id",
    "exists": "SELECT o.id FROM o WHERE EXISTS (SELECT 1 FROM items WHERE id = o.id AND "
    "price > 2) AND state = 'a'",
    "not_exists": "SELECT id, state FROM o WHERE NOT EXISTS (SELECT 1 FROM kinds "
    "WHERE kind = state AND weight > 3)",
    "ins": "SELECT id, ts FROM o WHERE state IN (SELECT name FROM items WHERE price IS NOT NULL)",
    "not_ins": "SELECT id, state FROM o WHERE id NOT IN (SELECT id FROM items) AND total > 0",
    "not_in_nulls": "SELECT id, state FROM o WHERE state NOT IN (SELECT i.name FROM items i WHERE "
    "i.id = o.id)",
    "stars": "SELECT * FROM (SELECT id AS n, state FROM o) a LEFT JOIN kinds ON state = kind",
    "usings": "SELECT id, o.state, name FROM o JOIN items USING (id) WHERE price IS NOT NULL",
    "ranges": "SELECT o.id, i.name FROM o JOIN items i ON o.total BETWEEN i.price AND i.price + 5",
    "commas": "SELECT o.id, k.weight FROM o, kinds AS k WHERE o.state = k.kind",
    "several": "SELECT o.id, i.name, k.weight FROM o LEFT JOIN items i ON o.id = i.id "
    "LEFT JOIN kinds k ON k.kind = i.name OR k.kind = o.state",
    "groups": "SELECT i.name, count(*) AS n, sum(o.total) AS total FROM o JOIN items i "
    "ON o.id = i.id GROUP BY i.name",
    "windows": "SELECT window.start AS at, coalesce(i.name, 'none') AS name, count(*) AS n "
    "FROM o LEFT JOIN items i ON o.id = i.id GROUP BY window(o.ts, '10 minutes'), 2",
    "of_windows": "SELECT a.at, a.n, k.weight FROM (SELECT window.end AS at, state, count(*) AS n "
    "FROM o GROUP BY window(ts, '10 minutes'), state) a LEFT JOIN kinds k ON a.state = k.kind",
    "distincts": "SELECT DISTINCT i.name, o.state FROM o JOIN items i ON o.id = i.id",
    "before": "SELECT o.id, i.name, p.amount FROM o JOIN items i ON o.id = i.id JOIN p "
    f"ON o.id = p.order_id AND i.name <> p.kind AND {WITHIN}",
    "after": "SELECT o.id, p.amount, k.weight FROM o JOIN p "
    f"ON o.id = p.order_id AND {WITHIN} LEFT JOIN kinds k ON p.kind = k.kind AND o.id < k.weight",
    "inside": "SELECT a.id, p.kind FROM (SELECT o.id, o.ts, i.name FROM o JOIN items i "
    "ON o.id = i.id) a JOIN p ON a.id = p.order_id AND a.name <> p.kind AND "
    f"{WITHIN.replace('o.', 'a.')}",
}
EMITS = {"groups": "EMIT ON UPDATE", "windows": "EMIT ON WINDOW CLOSE"}
ITEM_ROWS = [
    {"id": n, "name": name, "price": price, "since": f"2024-01-0{n % 9 + 1}T00:00:00Z"}
    for n, (name, price) in enumerate(
        [("a", "1.25"), ("x", None), ("ü", "4.00"), (None, "7.50"), ("a", "0.00"), ("b", "2.10")]
    )
] + [{"id": 2, "name": "twice", "price": "9.00", "since": None}]
KIND_ROWS = [("a", 3), ("x", 9), ("ü", 5), ("b", None)]


def text_of(queries: dict[str, str], options: str = "") -> str:
    return (
        f"CREATE SOURCE o ({ORDERS}) USING json OPTIONS (path 'orders/in') {MARK};\n"
        f"CREATE TABLE items ({ITEMS}) USING json OPTIONS (path 'items'{options});\n"
        + (
            f"CREATE SOURCE p ({PAYMENTS}) USING json OPTIONS (path 'payments/in') {MARK};\n"
            if any(" p " in query for query in queries.values())
            else ""
        )
        + (
            f"CREATE TABLE kinds ({KINDS}) USING csv OPTIONS (path 'kinds.csv', header 'true');\n"
            if any("kinds" in query for query in queries.values())
            else ""
        )
        + "".join(
            f"CREATE STREAM {name} AS {query} {EMITS.get(name, '')};\n"
            f"CREATE SINK out_{name} FROM {name} USING parquet OPTIONS (path '{name}');\n"
            for name, query in queries.items()
        )
    )


def put_tables(folder: Path, items: list[dict[str, Any]] = ITEM_ROWS) -> None:
    (folder / "items").mkdir(exist_ok=True)
    for number, half in enumerate((items[::2], items[1::2])):
        text = "".join(json.dumps(row) + "\n" for row in half)
        (folder / "items" / f"{number}.json").write_text(text)
    with (folder / "kinds.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("kind", "weight"), *KIND_ROWS])


def views(spark: Any, folder: Path, *, payments: bool = True) -> None:
    spark.read.schema(ORDERS).json(f"{folder}/orders/in").createOrReplaceTempView("o")
    if payments:
        spark.read.schema(PAYMENTS).json(f"{folder}/payments/in").createOrReplaceTempView("p")
    spark.read.schema(ITEMS).json(f"{folder}/items").createOrReplaceTempView("items")
    kinds = spark.read.schema(KINDS).option("header", "true").csv(f"{folder}/kinds.csv")
    kinds.createOrReplaceTempView("kinds")


def show(spark: Any, view: str, columns: str, rows: list[dict[str, Any]]) -> None:
    """Rows as a view, read as JSON files are."""
    texts = spark.createDataFrame([(json.dumps(row),) for row in rows], "value STRING")
    read = texts.selectExpr(f"from_json(value, '{columns}') AS r")
    read.select("r.*").createOrReplaceTempView(view)


def test_every_join_with_a_table_equals_one_batch_over_all_rows(spark: Any, tmp_path: Path) -> None:
    rng, place = random.Random(5), Place(tmp_path)
    Place(tmp_path / "orders").put_json(cut(orders_of(rng, 90), 2))
    Place(tmp_path / "payments").put_json(cut(payments_of(rng, 60), 2))
    put_tables(tmp_path)
    Run(spark, place, drain=True, variables={"NAME": "a"})(text_of(QUERIES))
    views(spark, tmp_path)
    for name, query in QUERIES.items():
        found = place.latest(1, name) if name == "groups" else place.rows(name)
        expected = batch(spark, query.replace("${NAME}", "a"))
        assert comparable(found) == comparable(expected), name
        assert found, name


def test_each_epoch_has_the_version_that_was_there_when_it_was_planned(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is replaced while an epoch runs; one version is large, and is moved by key."""
    rng, place = random.Random(7), Place(tmp_path)
    epochs = cut(orders_of(rng, 60), 4)
    Place(tmp_path / "orders").put_json(epochs)
    versions = [ITEM_ROWS, ITEM_ROWS[:3], [{**row, "name": "new"} for row in ITEM_ROWS], ITEM_ROWS]
    put_tables(tmp_path, versions[0])
    planned: list[int] = []

    def change(point: str) -> None:
        if point == "before groups":
            planned.append(len(planned))
            if len(planned) == 2:
                monkeypatch.setattr(table_sizes, "SENT_WHOLE_MAX", 0)
            if len(planned) < len(versions):
                put_tables(tmp_path, versions[len(planned)])

    queries = {name: QUERIES[name] for name in ("groups", "lefts", "antis", "inner")}
    run = Run(spark, place, fail_point=change)
    run(text_of(queries))
    assert len(planned) == 4
    wanted = {name: list[dict[str, Any]]() for name in queries}
    for rows, items in zip(epochs, versions, strict=True):
        show(spark, "o", ORDERS, rows)
        show(spark, "items", ITEMS, items)
        for name, query in queries.items():
            wanted[name] += batch(spark, query)
    for name in ("lefts", "antis", "inner"):
        assert comparable(place.rows(name)) == comparable(wanted[name]), name
    sums: dict[Any, int] = {}
    for row in wanted["groups"]:
        sums[row["name"]] = sums.get(row["name"], 0) + row["n"]
    assert {row["name"]: row["n"] for row in place.latest(1, "groups")} == sums
    said = [note for report in run.reports for note in report.notes]
    assert len(said) == 3
    assert "the table 'items' has changed: 3 rows (files 2, bytes " in said[0]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT o.id, i.nothing FROM o JOIN items i ON o.id = i.id", "nothing"),
        ("SELECT id FROM o JOIN items i ON o.id = i.id", "`id`"),
        ("SELECT o.id FROM o JOIN items i ON o.id = i.nix", "i`.`nix"),
        ("SELECT o.id FROM o JOIN items i USING (state)", "USING (state): 0 columns of that name"),
        ("SELECT o.id FROM o JOIN items i ON o.id", "NOT_BOOLEAN_TYPE"),
    ],
)
def test_a_join_with_a_table_that_makes_no_sense_is_refused(
    spark: Any, query: str, said: str
) -> None:
    with pytest.raises(BadPipeline) as caught:
        compiled(spark, text_of({"s": query}))
    assert said in str(caught.value)
    assert f"{FILE}:" in str(caught.value)


def test_a_table_that_is_not_as_declared_stops_with_its_name(spark: Any, tmp_path: Path) -> None:
    """Its keys, its columns and the types of them; nothing is committed."""
    place = Place(tmp_path)
    Place(tmp_path / "orders").put_json([orders_of(random.Random(1), 3)])
    put_tables(tmp_path)
    text = text_of({"inner": QUERIES["inner"]}, ", keys 'id'")
    with pytest.raises(LaminaError, match="2 rows of the table 'items' have the key id = 2"):
        Run(spark, place)(text)
    text = text.replace(
        "USING json OPTIONS (path 'items', keys 'id')", "USING parquet OPTIONS (path 'pq')"
    )
    (tmp_path / "pq").mkdir()
    columns = {"id": [1], "name": ["a"], "since": pa.array([None], pa.timestamp("us", "UTC"))}
    pq.write_table(pa.table({**columns, "price": [1]}), tmp_path / "pq" / "a.parquet")
    with pytest.raises(LaminaError, match="the column 'id' is INT64 in a file"):
        Run(spark, place)(text)
    pq.write_table(pa.table(columns), tmp_path / "pq" / "a.parquet")
    with pytest.raises(LaminaError, match="lacks the column 'price'"):
        Run(spark, place)(text)
    assert place.rows("inner") == []
