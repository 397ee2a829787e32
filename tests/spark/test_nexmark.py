"""Nexmark's queries over bids that need no join, in epochs: sinks hold what DuckDB computes.

Words are Nexmark's own but for types and functions that Spark calls otherwise. Where q5 and q7 join
a query with itself, they are by window functions over closed windows, and q7 also by top n, with
updates; test_nexmark_joins.py has them as they are. q11 is by sessions; DuckDB finds them as gaps
and islands.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lamina.connectors.opening import open_source
from lamina.engine.model import SourceRange
from lamina.pipeline import parse_pipeline
from lamina.pipeline.model import Column, DeclaredSource, Option
from tests.spark.running import Place, Run

EVENTS, FILES = 12_000, 4
SPLIT = "split_part(url, '/', {})".format
BANDS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
COUNTS = ", ".join(
    [
        "count(*) AS total_bids",
        *(f"count(*) FILTER (WHERE {band}) AS rank{i}_bids" for i, band in enumerate(BANDS, 1)),
        *(
            f"count(DISTINCT {who}){f' FILTER (WHERE {band})' if band else ''} AS {name}_{who}s"
            for who in ("bidder", "auction")
            for name, band in zip(("total", "rank1", "rank2", "rank3"), ("", *BANDS), strict=True)
        ),
    ]
)
CHANNEL = """
SELECT auction, bidder, price, channel,
       CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
            WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3'
            ELSE {extract} END AS channel_id
FROM bid WHERE {extract} IS NOT NULL OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')
"""
BOTH = {  # the same text for Spark and for DuckDB
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q14": """
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN hour(dateTime) >= 8 AND hour(dateTime) <= 18 THEN 'dayTime'
            WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bidTimeType,
       dateTime, length(extra) - length(replace(extra, 'C', '')) AS c_counts
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q22": f"SELECT auction, bidder, price, channel, {SPLIT(4)} AS dir1, {SPLIT(5)} AS dir2,"
    f" {SPLIT(6)} AS dir3 FROM bid",
}
SPARK = {
    **BOTH,
    "q5": """
SELECT starts, auction, num FROM (
  SELECT starts, auction, num,
         row_number() OVER (PARTITION BY starts ORDER BY num DESC, auction DESC) AS place
  FROM (SELECT window.start AS starts, auction, count(*) AS num FROM bid
        GROUP BY auction, HOP(dateTime, INTERVAL 2 SECONDS, INTERVAL 10 SECONDS))
) WHERE place = 1""",
    "q5_rank": """
SELECT auction, num, starts, ends FROM (
  SELECT auction, num, starts, ends, rank() OVER (PARTITION BY starts, ends ORDER BY num DESC) AS r
  FROM (SELECT auction, count(*) AS num, window.start AS starts, window.end AS ends FROM bid
        GROUP BY auction, HOP(dateTime, INTERVAL 2 SECONDS, INTERVAL 10 SECONDS))
) WHERE r <= 1 EMIT ON WINDOW CLOSE""",
    "q7_max": """
WITH bids AS (
  SELECT window.end AS ends, auction, price, bidder, dateTime, extra FROM bid
  GROUP BY window(dateTime, '10 seconds'), auction, price, bidder, dateTime, extra)
SELECT auction, price, bidder, dateTime, extra FROM (
  SELECT *, max(price) OVER (PARTITION BY ends) AS highest FROM bids)
WHERE price = highest EMIT ON WINDOW CLOSE""",
    "q7": """
SELECT ends, auction, price, bidder FROM (
  SELECT window(dateTime, '10 seconds').end AS ends, auction, price, bidder FROM bid)
QUALIFY row_number() OVER (PARTITION BY ends ORDER BY price DESC, auction DESC, bidder DESC) = 1
EMIT ON UPDATE""",
    "q10": "SELECT *, date_format(dateTime, 'yyyy-MM-dd') AS day, date_format(dateTime, 'HH:mm') AS"
    " minute FROM bid",
    "q11": """
SELECT
    B.bidder,
    count(*) as bid_count,
    SESSION_START(B.`dateTime`, INTERVAL '2' SECOND) as starttime,
    SESSION_END(B.`dateTime`, INTERVAL '2' SECOND) as endtime
FROM bid B
GROUP BY B.bidder, SESSION(B.`dateTime`, INTERVAL '2' SECOND) EMIT ON WINDOW CLOSE""",
    "q11_table": """
SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(dateTime), INTERVAL '2' SECOND))
GROUP BY bidder, window_start, window_end EMIT ON WINDOW CLOSE""",
    "q7_top": """
SELECT window_end, auction, price, bidder FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end
                               ORDER BY price DESC, auction DESC, bidder DESC) AS rownum
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
) WHERE rownum <= 1 EMIT ON UPDATE""",
    "q7_cumulated": """
SELECT window_start, window_end, count(*) AS bids, sum(price) AS total
FROM TABLE(CUMULATE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
GROUP BY window_start, window_end EMIT ON WINDOW CLOSE""",
    "q11_gaps": """
SELECT channel, session_window.end AS ends, count(*) AS bids, sum(price) AS total, max(price) AS
       highest
FROM bid WHERE auction % 3 = 0
GROUP BY channel, session_window(dateTime, CASE WHEN price < 10000 THEN '100 milliseconds'
                                                ELSE '500 milliseconds' END)
EMIT ON WINDOW CLOSE""",
    "q15": f"SELECT date_format(dateTime, 'yyyy-MM-dd') AS day, {COUNTS} FROM bid"
    " GROUP BY date_format(dateTime, 'yyyy-MM-dd') EMIT ON UPDATE",
    "q16": f"SELECT channel, date_format(dateTime, 'yyyy-MM-dd') AS day, {COUNTS} FROM bid"
    " GROUP BY channel, date_format(dateTime, 'yyyy-MM-dd') EMIT ON UPDATE",
    "q17": "SELECT auction, date_format(dateTime, 'yyyy-MM-dd') AS day, count(*) AS total_bids,"
    " count(*) FILTER (WHERE price < 10000) AS rank1_bids, min(price) AS min_price, max(price) AS"
    " max_price, avg(price) AS avg_price, sum(price) AS sum_price FROM bid"
    " GROUP BY auction, date_format(dateTime, 'yyyy-MM-dd') EMIT ON UPDATE",
    "q18": """
SELECT auction, bidder, price, channel, url, dateTime FROM (
  SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS place
  FROM bid) WHERE place <= 1 EMIT ON UPDATE""",
    "q19": """
SELECT auction, place, bidder, price, dateTime FROM (
  SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime DESC) AS place
  FROM bid) WHERE place <= 10 EMIT ON UPDATE""",
    "q21": CHANNEL.format(extract="nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')"),
}
ISLANDS = """
WITH ends AS (SELECT *, dateTime + {gap} AS until FROM bid WHERE {where}), begins AS (
  SELECT *, coalesce(dateTime > max(until) OVER (PARTITION BY {key} ORDER BY dateTime, until
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true) AS is_first FROM ends), numbered AS (
  SELECT *, count_if(is_first) OVER (PARTITION BY {key} ORDER BY dateTime, until
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS number FROM begins)
SELECT {key}, {what} FROM numbered GROUP BY {key}, number
HAVING max(until) <= (SELECT max(dateTime) FROM bid) - INTERVAL 4 SECONDS""".format
DUCK = {
    **BOTH,
    "q7_cumulated": """
WITH windows AS (
  SELECT *, time_bucket(INTERVAL 10 SECONDS, dateTime) AS starts,
         starts + INTERVAL (2 * n) SECONDS AS ends
  FROM bid, range(1, 6) AS r(n))
SELECT starts, ends, count(*), CAST(sum(price) AS BIGINT) FROM windows WHERE dateTime < ends
AND ends <= (SELECT max(dateTime) FROM bid) - INTERVAL 4 SECONDS GROUP BY ALL""",
    "q11": ISLANDS(
        key="bidder",
        gap="INTERVAL 2 SECONDS",
        where="true",
        what="count(*), min(dateTime), max(until)",
    ),
    "q11_gaps": ISLANDS(
        key="channel",
        gap="CASE WHEN price < 10000 THEN INTERVAL 100 MILLISECONDS"
        " ELSE INTERVAL 500 MILLISECONDS END",
        where="auction % 3 = 0",
        what="max(until), count(*), CAST(sum(price) AS BIGINT), max(price)",
    ),
    "q5": """
WITH starts AS (
  SELECT auction, time_bucket(INTERVAL 2 SECONDS, dateTime) - INTERVAL (2 * back) SECONDS AS starts
  FROM bid, range(5) AS r(back)), counted AS (
  SELECT starts, auction, count(*) AS num FROM starts
  WHERE starts + INTERVAL 10 SECONDS <= (SELECT max(dateTime) FROM bid) - INTERVAL 4 SECONDS
  GROUP BY ALL)
SELECT * FROM counted
QUALIFY row_number() OVER (PARTITION BY starts ORDER BY num DESC, auction DESC) = 1""",
    "q5_rank": """
WITH starts AS (
  SELECT auction, time_bucket(INTERVAL 2 SECONDS, dateTime) - INTERVAL (2 * back) SECONDS AS starts
  FROM bid, range(5) AS r(back)), counted AS (
  SELECT auction, count(*) AS num, starts, starts + INTERVAL 10 SECONDS AS ends FROM starts
  WHERE starts + INTERVAL 10 SECONDS <= (SELECT max(dateTime) FROM bid) - INTERVAL 4 SECONDS
  GROUP BY ALL)
SELECT a.* FROM counted a JOIN (SELECT starts, max(num) AS most FROM counted GROUP BY starts) b
ON a.starts = b.starts AND a.num >= b.most""",
    "q7_max": """
WITH bids AS (
  SELECT *, time_bucket(INTERVAL 10 SECONDS, dateTime) + INTERVAL 10 SECONDS AS ends FROM bid)
SELECT auction, price, bidder, dateTime, extra FROM bids JOIN (
  SELECT ends, max(price) AS highest FROM bids
  WHERE ends <= (SELECT max(dateTime) FROM bid) - INTERVAL 4 SECONDS GROUP BY ends) USING (ends)
WHERE price = highest""",
    "q7": """
SELECT time_bucket(INTERVAL 10 SECONDS, dateTime) + INTERVAL 10 SECONDS AS ends, auction, price,
       bidder FROM bid
QUALIFY row_number() OVER (PARTITION BY ends ORDER BY price DESC, auction DESC, bidder DESC) = 1""",
    "q10": "SELECT *, strftime(dateTime, '%Y-%m-%d') AS day, strftime(dateTime, '%H:%M') AS minute"
    " FROM bid",
    "q15": f"SELECT strftime(dateTime, '%Y-%m-%d') AS day, {COUNTS} FROM bid GROUP BY day",
    "q16": f"SELECT channel, strftime(dateTime, '%Y-%m-%d') AS day, {COUNTS} FROM bid"
    " GROUP BY channel, day",
    "q17": "SELECT auction, strftime(dateTime, '%Y-%m-%d') AS day, count(*), count(*) FILTER (WHERE"
    " price < 10000), min(price), max(price), avg(price), CAST(sum(price) AS BIGINT) FROM bid"
    " GROUP BY auction, day",
    "q18": """
SELECT auction, bidder, price, channel, url, dateTime FROM bid
QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) = 1""",
    "q19": """
SELECT auction, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime DESC) AS
       place, bidder, price, dateTime FROM bid QUALIFY place <= 10""",
    "q21": CHANNEL.format(extract="nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')"),
}
DUCK |= {"q11_table": DUCK["q11"], "q7_top": DUCK["q7"]}
KEYS = {"q5": 1, "q7": 1, "q7_top": 1, "q15": 1, "q16": 2, "q17": 2, "q18": 2, "q19": 2}
COLUMNS = (
    "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP,"
    " extra STRING"
)
PIPELINE = (
    f"CREATE SOURCE bid ({COLUMNS}) USING parquet OPTIONS (path 'in')"
    " WATERMARK dateTime DELAY OF INTERVAL 4 SECONDS;\n"
    + "".join(
        f"CREATE STREAM {name} AS {text};\n"
        f"CREATE SINK {name}_out FROM {name} USING parquet OPTIONS (path '{name}');\n"
        for name, text in SPARK.items()
    )
)


@pytest.fixture(scope="module")
def place(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return run_queries(spark, tmp_path_factory.mktemp("nexmark"))


@pytest.mark.parametrize("query", SPARK)
def test_a_query_of_nexmark_equals_duckdb(place: Place, query: str) -> None:
    found, wanted = results(place, query)
    assert found == wanted
    assert wanted


def run_queries(spark: Any, folder: Path) -> Place:
    """The bids in four files, one for each epoch; all queries in one pipeline, run to the end."""
    place = Place(folder)
    made = bids(spark, 0, EVENTS, every_us=10_000)
    size = -(-made.num_rows // FILES)
    place.put_tables(made.slice(i * size, size) for i in range(FILES))
    Run(spark, place, partitions=2).run(parse_pipeline(PIPELINE, {}, file="p.sql"))
    return place


def bids(spark: Any, first: int, last: int, *, every_us: int) -> pa.Table:
    """Those among the events first..last, by time."""
    options = {"kind": "bid", "events": str(last), "every_us": str(every_us), "seed": "7"}
    given = {name: Option.plain(value) for name, value in options.items()}
    columns = tuple(Column(*each.split(" ")) for each in COLUMNS.split(", "))
    source: Any = open_source(DeclaredSource("bid", columns, "nexmark", given), Path())
    planned = SourceRange("bid", {"row": str(first)}, {"row": str(last)})
    rows: pa.Table = source.frame(spark, planned).toArrow().sort_by("dateTime")
    return rows


def results(place: Place, query: str) -> tuple[list[str], list[str]]:
    """What the sink of a query holds, and what DuckDB makes of all bids."""
    files = place.folder / "in" / "*.parquet"
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE VIEW bid AS SELECT * FROM read_parquet('{files}')")
    wanted = [row.values() for row in connection.sql(DUCK[query]).to_arrow_table().to_pylist()]
    found = place.latest(KEYS[query], query) if query in KEYS else place.rows(query)
    return _rows(row.values() for row in found), _rows(wanted)


def _rows(rows: Iterable[Iterable[Any]]) -> list[str]:
    """In one spelling: decimals and doubles as numbers of nine digits, times in UTC."""
    return sorted(repr([_value(each) for each in row]) for row in rows)


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return f"{value:.9g}" if isinstance(value, (Decimal, float)) else value
