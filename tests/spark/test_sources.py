"""Generators: the same rows however they are cut, what they promise, and queries over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamina.connectors import nexmark
from lamina.connectors.opening import open_source
from lamina.engine.model import SourceRange
from lamina.engine.plans import EngineSettings
from lamina.engine.ports import Limits
from lamina.errors import BadPipeline
from lamina.pipeline.model import Column, DeclaredSource, Option
from tests.spark.projects import Project

pytest.importorskip("pyspark")
duckdb = pytest.importorskip("duckdb")

CYCLES = 300
EVENTS = CYCLES * 50
KINDS = nexmark.events(0, 0)
BIDS = """
CREATE SOURCE bids (bidder BIGINT, price BIGINT, dateTime TIMESTAMP, auction BIGINT)
  USING nexmark OPTIONS (kind 'bid', events '6000', seed '7', every_us '5000')
  WATERMARK dateTime DELAY OF INTERVAL 4 SECONDS;
CREATE STREAM highest AS SELECT window.start AS start, max(price) AS price, count(*) AS bids
  FROM bids GROUP BY window(dateTime, '2 seconds') EMIT ON WINDOW CLOSE;
CREATE STREAM bidders AS SELECT bidder, count(*) AS bids FROM bids GROUP BY bidder EMIT ON UPDATE;
CREATE SINK highest_out FROM highest USING parquet OPTIONS (path 'highest');
CREATE SINK bidders_out FROM bidders USING console OPTIONS (rows '3');
CREATE SINK bidders_kept FROM bidders USING parquet OPTIONS (path 'bidders');
"""


def types_of(kind: str) -> dict[str, str]:
    if kind:
        return {name: made.type for name, made in KINDS[kind].items()}
    return {name: made.type for name, made in nexmark.together(KINDS, 0).items()}


def opened(kind: str = "", columns: Mapping[str, str] | None = None, **options: object) -> Any:
    named = {"kind": kind} if kind else {}
    given = {name: Option.plain(str(value)) for name, value in {**named, **options}.items()}
    listed = tuple(Column(name, kind) for name, kind in (columns or types_of(kind)).items())
    return open_source(DeclaredSource("events", listed, "nexmark", given), Path())


def rows(spark: Any, source: Any, start: int, end: int) -> list[tuple[Any, ...]]:
    planned = SourceRange("events", {"row": str(start)}, {"row": str(end)})
    return [tuple(row) for row in source.frame(spark, planned).collect()]


def table(spark: Any, kind: str, **options: object) -> pa.Table:
    planned = SourceRange("events", {"row": "0"}, {"row": str(EVENTS)})
    return opened(kind, **options).frame(spark, planned).toArrow()


@pytest.fixture(scope="module")
def auctions(spark: Any) -> dict[str, pa.Table]:
    """Every kind over 300 whole cycles."""
    return {kind: table(spark, kind, seed=3, every_us=100) for kind in KINDS}


def test_every_fifty_events_are_a_person_three_auctions_and_46_bids(
    spark: Any, auctions: dict[str, pa.Table]
) -> None:
    found = {kind: each.num_rows for kind, each in auctions.items()}
    assert found == {"person": CYCLES, "auction": 3 * CYCLES, "bid": 46 * CYCLES}
    planned = SourceRange("events", {"row": "100"}, {"row": "200"})
    both = opened(columns={"event_type": "INT"}, seed=3).frame(spark, planned).collect()
    assert Counter(row[0] for row in both) == {0: 2, 1: 6, 2: 92}
    assert [row[0] for row in both[:5]] == [0, 1, 1, 1, 2]


def test_all_fields_are_there_and_have_values(auctions: dict[str, pa.Table]) -> None:
    fields = {
        "person": "id name emailAddress creditCard city state dateTime extra",
        "auction": "id itemName description initialBid reserve dateTime expires seller category"
        " extra",
        "bid": "auction bidder price channel url dateTime extra",
    }
    for kind, names in fields.items():
        assert auctions[kind].column_names == names.split()
        assert all(not column.null_count for column in auctions[kind].columns)
    assert auctions["bid"].schema.field("price").type == pa.int64()
    assert pa.types.is_timestamp(auctions["auction"].schema.field("expires").type)


def test_who_is_referred_to_is_there_already_and_some_are_hot(
    auctions: dict[str, pa.Table],
) -> None:
    """Asked of DuckDB: nothing here is computed with our own words."""
    with duckdb.connect() as database:
        for kind, each in auctions.items():
            database.register(kind, each)

        def one(sql: str) -> Any:
            return database.execute(sql).fetchall()[0][0]

        late = (
            "SELECT count(*) FROM {0} a LEFT JOIN {1} b"
            " ON a.{2} = b.id AND b.dateTime <= a.dateTime WHERE b.id IS NULL"
        )
        assert one(late.format("bid", "auction", "auction")) == 0
        assert one(late.format("bid", "person", "bidder")) == 0
        assert one(late.format("auction", "person", "seller")) == 0
        assert one("SELECT count(DISTINCT id) FROM person") == CYCLES
        assert one("SELECT count(*) FROM auction WHERE reserve <= initialBid") == 0
        assert one("SELECT count(*) FROM auction WHERE expires <= dateTime") == 0
        assert one("SELECT list(DISTINCT category ORDER BY category) FROM auction") == [
            *range(10, 15)
        ]
        assert one("SELECT min(price) >= 100 AND max(price) <= 100000000 FROM bid")
        hot = "SELECT avg(CAST(({0} - 1000) % 100 = {1} AS INT)) FROM {2}"
        assert 0.5 <= one(hot.format("auction", 0, "bid")) < 0.55
        assert 0.74 <= one(hot.format("bidder", 1, "bid")) < 0.79
        assert 0.75 <= one(hot.format("seller", 0, "auction")) < 0.8
        named = one("SELECT avg(CAST(channel LIKE 'channel-%' AS INT)) FROM bid")
        assert 0.45 < named < 0.55
        assert one("SELECT count(DISTINCT url) = count(DISTINCT channel) FROM bid")


@pytest.mark.parametrize(("kind", "group"), [("", 1), ("bid", 8)])
def test_the_same_rows_come_however_the_ranges_are_cut(spark: Any, kind: str, group: int) -> None:
    source = opened(kind, seed=5, out_of_order=group)
    whole = rows(spark, source, 0, 420)
    cuts = (0, 49, 203, 420)
    parts = [rows(spark, source, a, b) for a, b in pairwise(cuts)]
    assert [row for part in parts for row in part] == whole
    assert rows(spark, opened(kind, seed=6, out_of_order=group), 0, 420) != whole


def test_out_of_order_is_a_permutation_within_groups(spark: Any) -> None:
    columns = {"dateTime": "TIMESTAMP"}
    straight = rows(spark, opened("bid", columns), 0, 700)
    mixed = rows(spark, opened("bid", columns, out_of_order=14), 0, 700)
    assert mixed != straight
    assert sorted(mixed) == straight
    assert rows(spark, opened("bid", columns, out_of_order=2), 4, 8) != straight[:4]


def test_plan_goes_by_events_and_never_back() -> None:
    source = opened("person", events=120)
    ends = [source.plan({"row": start}, Limits(rows=50), None).end for start in ("0", "50", "100")]
    assert ends == [{"row": "50"}, {"row": "100"}, {"row": "120"}]
    assert source.plan({"row": "500"}, Limits(), None).end == {"row": "500"}, "fewer than before"


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"color": "STRING"}, {"kind": "bid"}, "no column 'color'"),
        ({"price": "STRING"}, {"kind": "bid"}, "'price' of 'events' is not STRING"),
        ({"price": "LONG"}, {"kind": "bidder"}, "kind 'bidder'"),
        ({"price": "LONG"}, {"kind": "bid", "sed": "1"}, "option 'sed'"),
        ({"price": "LONG"}, {"kind": "bid", "events": "many"}, "events 'many'"),
        ({"price": "LONG"}, {"kind": "bid", "out_of_order": "1906"}, "does not work"),
    ],
)
def test_what_is_not_there_is_refused_by_name(
    columns: dict[str, str], options: dict[str, str], message: str
) -> None:
    with pytest.raises(BadPipeline, match=message):
        opened(columns=columns, **options)
    opened(columns={"PRICE": " long "}, kind="bid")


def test_columns_of_trades_are_checked_as_well() -> None:
    column = Column("cents", "BIGINT")
    with pytest.raises(BadPipeline, match="no column 'cents'") as raised:
        open_source(DeclaredSource("t", (column,), "trades"), Path())
    assert "volume BIGINT" in raised.value.advice


def test_nexmark_queries_equal_duckdb_and_the_console_shows_every_epoch(
    spark: Any, tmp_path: Path
) -> None:
    """Like q7, the highest bid in a window, and a count by bidder."""
    project = Project(tmp_path, spark, BIDS, EngineSettings(partitions=2, limits=Limits(rows=3000)))
    reports = project.run()
    assert sum(report.rows.get("bids", 0) for report in reports) == 6000 // 50 * 46
    planned = SourceRange("events", {"row": "0"}, {"row": "6000"})
    frame = opened("bid", seed=7, every_us=5000).frame(spark, planned)
    with duckdb.connect() as database:
        database.register("bids", frame.toArrow())
        truth = database.execute(
            "WITH t AS (SELECT epoch_us(dateTime) // 2000000 AS two, price FROM bids)"
            " SELECT two, max(price), count(*) FROM t GROUP BY two HAVING (two + 1) * 2000000 <="
            " (SELECT max(epoch_us(dateTime)) - 4000000 FROM bids)"
        ).fetchall()
        by_bidder = database.execute("SELECT bidder, count(*) FROM bids GROUP BY bidder").fetchall()
    found = project.rows("highest")
    assert len(truth) > 10
    assert sorted((row[0].timestamp() // 2, *row[1:]) for row in found) == sorted(truth)
    assert sorted(newest(project)) == sorted(by_bidder)
    shown = project.out.getvalue()
    titles = [line for line in shown.splitlines() if line.startswith("bidders_out, epoch")]
    assert len(titles) == 2
    assert "... and " in shown


def newest(project: Project) -> list[tuple[int, int]]:
    """Bids by bidder: a later row replaces the earlier one."""
    found: dict[int, int] = {}
    for epoch in sorted((project.folder / "bidders").glob("epoch-*")):
        for file in epoch.glob("*.parquet"):
            rows = pq.read_table(file, partitioning=None).to_pylist()
            found |= {row["bidder"]: row["bids"] for row in rows}
    return list(found.items())
