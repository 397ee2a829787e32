"""Nexmark's queries: which are exact, and how fast those are that Structured Streaming has too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from engine_session import say
from pyspark.sql import DataFrame, SparkSession
from report import Number
from sql_contenders import Native, Query, Stream, in_turns, ratio, told

from tests.spark import test_nexmark_joins as joins
from tests.spark.test_nexmark import COLUMNS, SPARK, bids, results, run_queries

WATERMARK = "WATERMARK dateTime DELAY OF INTERVAL 4 SECONDS"
EVERY_US = 100
_SAME = ("q0", "q1", "q2", "q10", "q14", "q21", "q22", "q17")
"""Spark runs the words of the stream over its own streaming table."""
_OTHER_WORDS = {
    "q7": "SELECT window.end AS ends, max(struct(price, auction, bidder)) AS best FROM bid"
    " GROUP BY window(dateTime, '10 seconds')",
    "q18": "SELECT bidder, auction, max_by(struct(price, channel, url, dateTime), dateTime) AS last"
    " FROM bid GROUP BY bidder, auction",
    "q11": "SELECT bidder, count(*) AS bid_count, session_window.start AS starttime,"
    " session_window.end AS endtime FROM bid"
    " GROUP BY bidder, session_window(dateTime, '2 seconds')",
    "q13": "SELECT B.auction, B.bidder, B.price, B.dateTime, S.value FROM bid B JOIN side_input S"
    " ON B.auction % 100 = S.key",
}
"""The same result in other words: Spark has no row_number() over a stream, and no SESSION."""
SIDE = "side_input (key BIGINT, value STRING)"
UPDATES = ("q7", "q17", "q18")
NATIVE = (*_SAME, *_OTHER_WORDS)


@dataclass(frozen=True, slots=True)
class Sizes:
    events: int  # of an epoch
    rounds: int
    warm: int


def correct(spark: SparkSession, folder: Path) -> Number:
    """All queries over streams of events in epochs, against DuckDB over all events."""
    place = run_queries(spark, folder / "bids")
    ran = joins.run_joins(spark, folder / "joins")
    both = {query: results(place, query) for query in SPARK}
    both |= {f"{query}_join": joins.results(ran, query) for query in joins.QUERIES}
    queries = {query.partition("_")[0] for query in both}  # some are written in several ways
    wrong = {query for query, (found, wanted) in both.items() if found != wanted}
    right = queries - {query.partition("_")[0] for query in wrong}
    said = f"wrong: {', '.join(wrong)}" if wrong else f"all of {', '.join(both)}"
    return Number("nexmark_correct", len(right), said, at_least=21)


def speeds(spark: SparkSession, folder: Path, sizes: Sizes) -> Iterator[Number]:
    """Throughput by query, both on the same files in turns; then the geometric mean."""
    files = _files(spark, folder / "bids", sizes)
    ratios: dict[str, float] = {}
    for query in NATIVE:
        say(f"nexmark {query}")
        side = _side_input(folder / query)
        ours = Stream(
            spark,
            folder / query / "lamina",
            f"bid ({COLUMNS})",
            SPARK.get(query, _OTHER_WORDS.get(query, "")),
            mark=WATERMARK,
            tables=f"CREATE TABLE {SIDE} USING csv OPTIONS (path '{side}', header 'true');\n"
            if query == "q13"
            else "",
        )
        native = Native(
            spark,
            folder / query / "native",
            COLUMNS,
            _words(query, spark, side),
            mode="update" if query in UPDATES else "append",
        )
        contenders: dict[str, Stream | Native] = {"native": native, "lamina": ours}
        seconds = in_turns(contenders, files[: sizes.warm], files[sizes.warm :])
        for each in contenders.values():
            each.close()
        # Of a row that stays the first of its key ours says nothing, and a group comes again.
        if query in (*_SAME, "q13") and ours.rows() != native.rows():
            raise AssertionError(f"{query}: {ours.rows()} rows, native has {native.rows()}")
        ratios[query] = ratio(seconds, "native", "lamina")
        yield Number(f"nexmark_{query}_vs_native", ratios[query], told(seconds))
    mean = prod(ratios.values()) ** (1 / len(ratios))
    said = ", ".join(f"{query} {each:.1f}" for query, each in ratios.items())
    yield Number("nexmark_vs_native", mean, f"geometric mean of {said}", at_least=2)


def _side_input(folder: Path) -> Path:
    """Of q13."""
    folder.mkdir(parents=True)
    rows = "".join(f"{number},value {number}\n" for number in range(0, 100, 3))
    path = folder / "side.csv"
    path.write_text(f"key,value\n{rows}")
    return path


def _words(query: str, spark: SparkSession, side: Path) -> Query:
    text = _OTHER_WORDS.get(query) or SPARK[query].removesuffix("EMIT ON UPDATE")

    def over(bids: DataFrame) -> DataFrame:
        rows = bids.withWatermark("dateTime", "4 seconds") if query == "q11" else bids
        rows.createOrReplaceTempView("bid")
        kept = spark.read.schema(SIDE.partition("(")[2].rstrip(")")).option("header", "true")
        kept.csv(str(side)).createOrReplaceTempView("side_input")
        return spark.sql(text)

    return over


def _files(spark: SparkSession, folder: Path, sizes: Sizes) -> list[Path]:
    """A file for each epoch, of two row groups, one for each core."""
    folder.mkdir(parents=True)
    made: list[Path] = []
    for number in range(sizes.warm + sizes.rounds):
        first = number * sizes.events
        table: pa.Table = bids(spark, first, first + sizes.events, every_us=EVERY_US)
        made.append(folder / f"{number:06d}.parquet")
        pq.write_table(table, made[-1], row_group_size=max(1, (table.num_rows + 1) // 2))
    return made
