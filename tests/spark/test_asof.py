"""ASOF and temporal joins: run in epochs, all in one pipeline, equal to one batch over all rows."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from lamina.engine.asof import Asof
from lamina.errors import BadPipeline
from lamina.pipeline import parse_pipeline
from tests.spark.running import FILE, Place, Run, batch, comparable, compiled

Rows = list[dict[str, Any]]
ORDERS = "id BIGINT, state STRING, total DECIMAL(9,2), ts TIMESTAMP"
PRICES = "sym INT, price DECIMAL(9,2), kind STRING, ts TIMESTAMP"
MARK = "WATERMARK ts DELAY OF INTERVAL 10 MINUTES"
MATCH = "MATCH_CONDITION (o.ts >= p.ts)"
ON = "ON o.id = p.sym"
LISTED = "o.id, o.ts AS at, p.price, p.ts AS since"
QUERIES = {
    "inner": f"SELECT {LISTED} FROM o ASOF JOIN p {MATCH} {ON}",
    "lefts": f"SELECT {LISTED}, p.kind FROM o LEFT OUTER ASOF JOIN p {MATCH} {ON}",
    "strict": f"SELECT {LISTED} FROM o LEFT ASOF JOIN p MATCH_CONDITION (p.ts < o.ts) {ON}",
    "earlier": f"SELECT {LISTED} FROM o LEFT ASOF JOIN p "
    f"MATCH_CONDITION (o.ts - INTERVAL 5 MINUTES >= p.ts) {ON}",
    "bounded": f"SELECT {LISTED} FROM o LEFT ASOF JOIN p {MATCH} {ON} "
    "AND p.ts >= o.ts - INTERVAL 9 MINUTES",
    "ahead": f"SELECT {LISTED} FROM o LEFT ASOF JOIN p MATCH_CONDITION (o.ts <= p.ts) {ON} "
    "AND p.ts < o.ts + INTERVAL 15 MINUTES",
    "asked": f"SELECT {LISTED} FROM o LEFT ASOF JOIN p {MATCH} {ON} "
    "AND p.kind <> 'x' AND o.state = 'a'",
    "named": "SELECT k, a.total, b.price FROM (SELECT id AS k, total, ts FROM o) a ASOF JOIN "
    "(SELECT sym AS k, price, ts AS since FROM p) b MATCH_CONDITION (a.ts >= b.since) USING (k)",
    "where_later": f"SELECT {LISTED} FROM o ASOF JOIN p {MATCH} {ON} "
    "WHERE p.price > 2 AND o.total > 0",
    "groups": f"SELECT o.state, count(*) AS n, sum(p.price) AS s FROM o ASOF JOIN p {MATCH} {ON} "
    "GROUP BY o.state",
    "windows": "SELECT window.start AS at, count(*) AS n, sum(p.price) AS s FROM o "
    f"LEFT ASOF JOIN p {MATCH} {ON} GROUP BY window(o.ts, '10 minutes')",
    "twice": "SELECT o.id, p.price, z.kind, o.ts AS at FROM o LEFT ASOF JOIN p "
    f"{MATCH} {ON} LEFT ASOF JOIN (SELECT sym, kind, ts FROM p WHERE price > 2) z "
    "MATCH_CONDITION (o.ts > z.ts) ON z.sym = o.id",
    "beside": f"SELECT o.id, p.price, n.state, o.ts AS at FROM o ASOF JOIN p {MATCH} {ON} JOIN "
    "(SELECT id, state, ts FROM o) n ON n.id = o.id AND n.ts BETWEEN o.ts AND "
    "o.ts + INTERVAL 6 MINUTES",
}
SEVERAL = ("inner", "strict", "ahead", "asked", "named", "where_later", "windows", "twice")
"""What is run by default, with all of the others in other words: each is two jobs of an epoch."""
EMITS = {"groups": "EMIT ON UPDATE", "windows": "EMIT ON WINDOW CLOSE"}
OTHER_WORDS = {
    "temporal": (
        "SELECT o.id, o.ts AS at, v.price FROM o LEFT JOIN p FOR SYSTEM_TIME AS OF o.ts AS v "
        "ON o.id = v.sym",
        "SELECT o.id, o.ts AS at, v.price FROM o ASOF LEFT JOIN p v ON o.id = v.sym "
        "AND o.ts >= v.ts",
    ),
    "as_in_duckdb": (2 * ("SELECT o.id, o.ts AS at, p.price FROM o ASOF JOIN p ON o.id = p.sym "
    "AND o.ts >= p.ts",)),
    "ttl": (
        f"SELECT o.id, o.ts AS at, p.price FROM o LEFT ASOF JOIN p {MATCH} {ON} "
        "STATE TTL INTERVAL 4 MINUTES",
        "SELECT o.id, o.ts AS at, CASE WHEN p.ts >= o.ts - INTERVAL 4 MINUTES THEN p.price END "
        "FROM o ASOF LEFT JOIN p ON o.id = p.sym AND o.ts >= p.ts",
    ),
}  # fmt: skip
"""What Spark does not know, and the same in DuckDB's words."""


def orders_of(rng: random.Random, count: int) -> Rows:
    return [
        {
            "id": rng.choice([None, *range(9)]),
            "state": rng.choice(["a", "b", None]),
            "total": rng.choice([None, "1.25", "7.50", "-3.00"]),
            "ts": time,
        }
        for time in times_of(rng, count)
    ]


def prices_of(rng: random.Random, count: int) -> Rows:
    """Of a key no two have the same time: which of them Spark takes is not said."""
    return [
        {
            "sym": rng.choice([None, *range(9)]),
            "price": rng.choice([None, "1.25", "5.00", "9.99"]),
            "kind": rng.choice(["x", "ü", None]),
            "ts": time,
        }
        for time in times_of(rng, count)
    ]


def times_of(rng: random.Random, count: int) -> list[str]:
    """Of two hours, each once, out of order by less than the watermark's delay."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    seconds = sorted(rng.sample(range(7200), count), key=lambda s: s + rng.randrange(590))
    return [f"{start + timedelta(seconds=s):%Y-%m-%dT%H:%M:%SZ}" for s in seconds]


def cut(rows: Rows, epochs: int) -> list[Rows]:
    size = -(-len(rows) // epochs)
    return [rows[first : first + size] for first in range(0, len(rows), size)]


def text_of(queries: dict[str, str], mark: str = MARK) -> str:
    return (
        f"CREATE SOURCE o ({ORDERS}) USING json OPTIONS (path 'orders/in') {mark};\n"
        f"CREATE SOURCE p ({PRICES}) USING json OPTIONS (path 'prices/in') {mark};\n"
        + "".join(
            f"CREATE STREAM {name} AS {query} {EMITS.get(name, '')};\n"
            f"CREATE SINK out_{name} FROM {name} USING parquet OPTIONS (path '{name}');\n"
            for name, query in queries.items()
        )
    )


@contextmanager
def with_asof(spark: Any) -> Iterator[None]:
    """Spark knows ASOF JOIN if it is told to."""
    spark.conf.set("spark.sql.join.asofJoin.enabled", "true")
    yield
    spark.conf.unset("spark.sql.join.asofJoin.enabled")


def in_duckdb(query: str, orders: Rows, prices: Rows) -> list[tuple[Any, ...]]:
    database = duckdb.connect()
    database.execute("CREATE TABLE o (id BIGINT, state TEXT, total DECIMAL(9,2), ts TIMESTAMP)")
    database.execute("CREATE TABLE p (sym INT, price DECIMAL(9,2), kind TEXT, ts TIMESTAMP)")
    for name, rows in (("o", orders), ("p", prices)):
        values = [[str(v)[:19] if k == "ts" else v for k, v in row.items()] for row in rows]
        database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", values)
    return sorted(map(_plain, database.execute(query).fetchall()), key=str)


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(v.replace(tzinfo=None) if isinstance(v, datetime) else v for v in row)


def test_every_asof_join_equals_one_batch_over_all_rows(spark: Any, tmp_path: Path) -> None:
    chosen = QUERIES if "LAMINA_QUERIES" in os.environ else {n: QUERIES[n] for n in SEVERAL}
    rng = random.Random(12)
    orders, prices = orders_of(rng, 120), prices_of(rng, 100)
    Place(tmp_path / "orders").put_json(cut(orders, 3))
    Place(tmp_path / "prices").put_json(cut(prices, 3))
    others = {name: query for name, (query, _) in OTHER_WORDS.items()}
    place = Place(tmp_path)
    Run(spark, place, drain=True)(text_of(chosen | others))
    spark.read.schema(ORDERS).json(f"{tmp_path}/orders/in").createOrReplaceTempView("o")
    spark.read.schema(PRICES).json(f"{tmp_path}/prices/in").createOrReplaceTempView("p")
    with with_asof(spark):
        for name, query in chosen.items():
            found = place.latest(1, name) if name == "groups" else place.rows(name)
            assert comparable(found) == comparable(batch(spark, query)), name
            assert found, name
    for name, (_, query) in OTHER_WORDS.items():
        found = sorted((_plain(tuple(row.values())) for row in place.rows(name)), key=str)
        assert found == in_duckdb(query, orders, prices), name
        assert found, name


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT o.id FROM o ASOF JOIN p ON o.id = p.sym", "is not one comparison of the event"),
        (
            "SELECT o.id FROM o ASOF JOIN p MATCH_CONDITION (o.total >= p.price) ON o.id = p.sym",
            "o.total >= p.price is not one comparison of the event times of both sides, o.ts and",
        ),
        (
            f"SELECT o.id FROM o ASOF JOIN p MATCH_CONDITION (o.ts <= p.ts) {ON}",
            "the next row of a key may never come",
        ),
        (f"SELECT o.id FROM o ASOF JOIN p {MATCH}", "ASOF JOIN without ON"),
        (f"SELECT o.id FROM o ASOF JOIN p {MATCH} ON o.state = 'a'", "without equal columns"),
        (
            f"SELECT o.id FROM o ASOF JOIN p {MATCH} {ON} AND p.price < o.total",
            "p.price < o.total in the ON of an ASOF JOIN compares both sides",
        ),
        (
            "SELECT o.id FROM o JOIN p FOR SYSTEM_TIME AS OF o.total ON o.id = p.sym",
            "FOR SYSTEM_TIME AS OF o.total is not one comparison",
        ),
        (
            "SELECT o.id FROM o JOIN (SELECT sym FROM p) v FOR SYSTEM_TIME AS OF o.ts "
            "ON o.id = v.sym",
            "the right side has no event time",
        ),
        (
            "SELECT o.id FROM o LEFT JOIN (SELECT sym, max(ts) AS ts FROM p GROUP BY sym) v "
            "FOR SYSTEM_TIME AS OF o.ts ON o.id = v.sym",
            "whose rows are replaced or taken back: that has no event time of its own",
        ),
        (
            f"SELECT count(*) AS n FROM o ASOF JOIN p {MATCH} {ON} GROUP BY window(p.ts, '1 hour')",
            "a window over p.ts, the time of the right side of an ASOF JOIN",
        ),
        (
            f"SELECT o.id FROM o ASOF JOIN p {MATCH} {ON} JOIN (SELECT id, ts FROM o) n ON "
            "n.id = o.id AND n.ts BETWEEN p.ts AND p.ts + INTERVAL 1 HOUR",
            "without bounds of time, between o.ts and n.ts",
        ),
    ],
)
def test_an_asof_join_that_cannot_be_kept_is_refused_with_the_reason(
    spark: Any, query: str, said: str
) -> None:
    emit = "EMIT ON WINDOW CLOSE" if "window(" in query else ""
    with pytest.raises(BadPipeline) as caught:
        compiled(spark, text_of({"s": f"{query} {emit}"}))
    assert said in str(caught.value)
    assert f"{FILE}:" in str(caught.value)


def test_check_says_what_each_side_keeps(spark: Any) -> None:
    from lamina.spark.explanation import explain_types  # noqa: PLC0415  an extra

    queries = {name: QUERIES[name] for name in ("lefts", "bounded", "ahead")}
    pipeline = parse_pipeline(text_of(queries), {}, file=FILE)
    found = explain_types(pipeline, name="p", file=FILE, spark=spark)
    assert {name: found[f"{name}.join"]["kept_for"] for name in queries} == {
        "lefts": "rows of the left side until the watermark is past their time, those of the right "
        "side until the watermark is past the next one of their key, and the last one of each key "
        "for ever: it grows with the number of keys",
        "bounded": "rows of the left side until the watermark is past their time, those of the "
        "right side until it is past the next one of their key, or 540 s past theirs",
        "ahead": "rows of the left side until the watermark is 900 s past their time, those of the "
        "right side until it is 900 s past theirs",
    }
    plan = compiled(spark, text_of(queries))
    steps = [o.step for s in plan.streams for n, o in s.operators.items() if n == "lefts.join"]
    assert [(s.low, s.high) for s in steps if isinstance(s, Asof)] == [(None, 0)]
