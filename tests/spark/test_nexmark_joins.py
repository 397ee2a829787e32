"""Nexmark's queries with joins, in epochs: sinks hold what DuckDB computes of the same events.

Words are Nexmark's own. Where they set no bounds of time, STATE TTL is longer than the test's data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from lamina.pipeline import parse_pipeline
from tests.spark.running import Place, Run
from tests.spark.test_nexmark import _rows

EVENTS = 6_000
SOURCES = {
    "person": "id BIGINT, name STRING, city STRING, state STRING, dateTime TIMESTAMP",
    "auction": "id BIGINT, itemName STRING, seller BIGINT, category BIGINT, dateTime TIMESTAMP, "
    "expires TIMESTAMP",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, dateTime TIMESTAMP",
}
Q3 = """
SELECT P.name, P.city, P.state, A.id FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')"""
Q7 = """
SELECT B.auction, B.price, B.bidder, B.dateTime FROM bid B
JOIN (SELECT max(price) AS maxprice, {ends} AS dateTime FROM bid GROUP BY {window}) B1
ON B.price = B1.maxprice WHERE B.dateTime BETWEEN B1.dateTime - INTERVAL '10' SECOND
AND B1.dateTime"""
Q8 = """
SELECT P.id, P.name, P.starttime FROM (
  SELECT id, name, {starts} AS starttime, {ends} AS endtime FROM person
  GROUP BY id, name, {window}) P
JOIN (
  SELECT seller, {starts} AS starttime, {ends} AS endtime FROM auction GROUP BY seller, {window}) A
ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime"""
Q9 = """
SELECT id, itemName, bidder, price, bid_dateTime FROM (
  SELECT A.id, A.itemName, B.bidder, B.price, B.dateTime AS bid_dateTime,
         row_number() OVER (PARTITION BY A.id ORDER BY B.price DESC, {first} DESC) AS rownum
  FROM auction A, bid B
  WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires {ttl})
WHERE rownum <= 1"""
Q20 = """
SELECT B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime, A.itemName, A.seller, A.category
FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id WHERE A.category = 10"""
TTL = "STATE TTL INTERVAL 1 DAY"
SPARK_WINDOW = {
    "starts": "window.start",
    "ends": "window.end",
    "window": "window(dateTime, '10 seconds')",
}
_BUCKET = "time_bucket(INTERVAL 10 SECONDS, dateTime)"
DUCK_WINDOW = {"starts": _BUCKET, "ends": f"{_BUCKET} + INTERVAL 10 SECONDS", "window": _BUCKET}
QUERIES = {
    "q3": (Q3, f"{Q3} {TTL}"),
    "q7": (Q7.format(**DUCK_WINDOW), Q7.format(**SPARK_WINDOW)),
    "q8": (Q8.format(**DUCK_WINDOW), Q8.format(**SPARK_WINDOW)),
    "q9": (
        Q9.format(ttl="", first="-epoch_us(B.dateTime)"),
        Q9.format(ttl=TTL, first="-unix_micros(B.dateTime)") + " EMIT ON UPDATE",
    ),
    "q20": (Q20, f"{Q20} {TTL}"),
}
KEYS = {"q9": 1}


def pipeline() -> str:
    texts = [
        f"CREATE SOURCE {name} ({columns}) USING nexmark OPTIONS (kind '{name}', events "
        f"'{EVENTS}', every_us '10000', seed '7') WATERMARK dateTime DELAY OF INTERVAL 4 SECONDS;"
        for name, columns in SOURCES.items()
    ]
    streams = {name: text for name, (_, text) in QUERIES.items()}
    streams |= {f"all_{name}": f"SELECT * FROM {name}" for name in SOURCES}
    for name, text in streams.items():
        texts.append(f"CREATE STREAM {name} AS {text};")
        texts.append(f"CREATE SINK {name}_out FROM {name} USING parquet OPTIONS (path '{name}');")
    return "\n".join(texts)


@pytest.fixture(scope="module")
def place(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Place:
    made = Place(tmp_path_factory.mktemp("nexmark_joins"))
    run = Run(spark, made, partitions=2, rows=2_000, drain=True)
    run.run(parse_pipeline(pipeline(), {}, file="p.sql"))
    return made


@pytest.mark.parametrize("query", QUERIES)
def test_a_join_of_nexmark_equals_duckdb(place: Place, query: str) -> None:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name in SOURCES:
        files = Path(place.folder) / f"all_{name}" / "epoch-*" / "*.parquet"
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{files}')")
    wanted = connection.sql(QUERIES[query][0]).to_arrow_table().to_pylist()
    found = place.latest(KEYS[query], query) if query in KEYS else place.rows(query)
    assert _rows(row.values() for row in found) == _rows(row.values() for row in wanted)
    assert wanted
