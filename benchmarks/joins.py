"""Joins of two streams against Structured Streaming with RocksDB, and as what they keep grows;
change data capture against pg_recvlogical; joins with a table against a batch of plain Spark.

python benchmarks/joins.py            the numbers of docs/benchmarks.md
python benchmarks/joins.py --quick    the same shape with smaller sizes
python benchmarks/joins.py --json     the last line of stdout is one JSON object

Half of the rows are of the left side, each with a new id. Those of the right side have the id of a
left row from up to five epochs before, so nearly each is a pair. Both sides are kept for ten
epochs. PostgreSQL runs on loopback, as in the tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))  # the servers of the tests

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from connector_cdc import cdc_numbers
from engine_session import BOTH_CORES, configured, say, session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it
from report import Number, run
from sql_contenders import Native, Stream, in_turns, ratio, told
from table_joins import TableRows, table_joins

from tests.servers import postgres, postgres_missing

COLUMNS = "id BIGINT, v BIGINT, is_right BOOLEAN, ts TIMESTAMP"
MILLISECOND_US = 1_000
START_US = 1_700_000_000_000_000
KEPT, BACK = 10, 5
"""In epochs: how long rows are kept, and how far back the left row of a right one is at most."""


@dataclass(frozen=True, slots=True)
class Sizes:
    rows: int  # of an epoch, both sides together
    rounds: int
    warm: int
    many: int  # rows that are kept, to see how an epoch grows
    few: int
    probes: int  # rows of an epoch then
    changes: int  # of a table
    table_rows: TableRows


SCALES = {
    "full": Sizes(
        rows=200_000,
        rounds=7,
        warm=11,
        many=10_000_000,
        few=100_000,
        probes=50_000,
        changes=1_000_000,
        table_rows=TableRows(1_000_000, 10_000, small=500_000, large=4_000_000),
    ),
    "quick": Sizes(
        rows=50_000,
        rounds=5,
        warm=11,
        many=1_000_000,
        few=50_000,
        probes=20_000,
        changes=200_000,
        table_rows=TableRows(500_000, 10_000, small=200_000, large=2_000_000),
    ),
    "tiny": Sizes(
        rows=500,
        rounds=1,
        warm=1,
        many=2_000,
        few=500,
        probes=200,
        changes=2_000,
        table_rows=TableRows(500, 100, small=100, large=200),
    ),
}


def main() -> None:
    run(__doc__ or "", SCALES, measured)


def measured(sizes: Sizes, folder: Path) -> Iterator[Number]:
    if reason := postgres_missing():
        say(f"without the numbers of change data capture: {reason}")
    else:
        say("change data capture")
        with postgres() as database:
            rounds = sizes.rounds
            yield from cdc_numbers(folder / "cdc", database, changes=sizes.changes, rounds=rounds)
    say("joins")
    with session(folder / "spark", "4g") as spark, configured(spark, BOTH_CORES):
        for kind in ("inner", "left"):
            yield _against_native(spark, folder / kind, sizes, kind)
        yield _growth(spark, folder / "growth", sizes)
        yield from table_joins(spark, folder / "tables", sizes.table_rows, sizes.rounds)


def _query(kind: str, seconds: int) -> str:
    side = "(SELECT id, v, ts FROM src WHERE {}is_right)".format
    return (
        f"SELECT l.id, l.v, r.v AS w FROM {side('NOT ')} l {kind.upper()} JOIN {side('')} r "
        f"ON l.id = r.id AND r.ts BETWEEN l.ts AND l.ts + INTERVAL {seconds} SECONDS"
    )


def _against_native(spark: SparkSession, folder: Path, sizes: Sizes, kind: str) -> Number:
    """How many times faster an epoch is than a batch of the same rows."""
    files = list(_files(folder / "input", sizes.rows, sizes.warm + sizes.rounds))
    kept_s = KEPT * sizes.rows // 1000 + 1
    delay = "1 second"

    def joined(rows: DataFrame) -> DataFrame:
        marked = rows.withWatermark("ts", delay)
        left = marked.where(~F.col("is_right")).select("id", "v", "ts")
        right = marked.where("is_right").selectExpr("id AS rid", "v AS w", "ts AS rts")
        bound = F.expr(f"id = rid AND rts BETWEEN ts AND ts + INTERVAL {kept_s} SECONDS")
        return left.join(right, bound, kind).select("id", "v", "w")

    mark = "WATERMARK ts DELAY OF INTERVAL 1 SECOND"
    ours = Stream(spark, folder / "lamina", f"src ({COLUMNS})", _query(kind, kept_s), mark=mark)
    theirs = Native(spark, folder / "native", COLUMNS, joined, mode="append")
    try:
        contenders: dict[str, Stream | Native] = {"lamina": ours, "native": theirs}
        seconds = in_turns(contenders, files[: sizes.warm], files[sizes.warm :])
        rows = ours.rows(), theirs.rows()
    finally:
        ours.close()
        theirs.close()
    check_same_rows(kind, *rows)
    name = "interval" if kind == "inner" else kind
    kept = min(KEPT, sizes.warm) * sizes.rows // 2
    details = (
        f"{sizes.rows} rows, {kept} kept of the left side, {rows[0]} and {rows[1]} came out: "
        f"{told(seconds)}"
    )
    return Number(f"{name}_vs_native", ratio(seconds, "native", "lamina"), details, at_least=3)


def check_same_rows(kind: str, ours: int, theirs: int) -> None:
    """Both have read the same files: pairs come out in the epoch of the later row.

    A row without a partner comes when its time is up, and each has a watermark of its own: of a
    LEFT JOIN one may be some epochs ahead.
    """
    assert min(ours, theirs) > 0, f"{kind}: nothing has come out: {ours} and {theirs} rows"
    apart = abs(ours - theirs) / max(ours, theirs)
    allowed = 0 if kind == "inner" else 0.1
    assert apart <= allowed, f"{kind}: {ours} rows of ours, {theirs} of Structured Streaming"


def _growth(spark: SparkSession, folder: Path, sizes: Sizes) -> Number:
    """An epoch of the same rows with many rows kept, over one with few."""
    seconds: dict[str, list[float]] = {}
    streams: dict[str, Stream] = {}
    files: dict[str, list[Path]] = {}
    mark = "WATERMARK ts DELAY OF INTERVAL 1 SECOND"
    for name, kept in (("few", sizes.few), ("many", sizes.many)):
        query = _query("inner", 10 * (sizes.many + 20 * sizes.probes) // 1000)
        streams[name] = Stream(spark, folder / name, f"src ({COLUMNS})", query, mark=mark)
        files[name] = list(_growing(folder / f"{name} input", kept, sizes))
        seconds[name] = []
    try:
        for turn in range(len(files["many"])):
            for name, stream in streams.items():
                if turn >= len(files[name]):
                    continue
                spent = stream.epoch(files[name][turn])
                if turn >= len(files[name]) - sizes.rounds:
                    seconds[name].append(spent)
    finally:
        for stream in streams.values():
            stream.close()
    value = median(seconds["many"]) / median(seconds["few"])
    details = f"{sizes.probes} rows over {sizes.many} kept and {sizes.few}: {told(seconds)}"
    return Number("join_growth", value, details, at_most=1.5)


def _growing(folder: Path, kept: int, sizes: Sizes) -> Iterator[Path]:
    """Left rows that are kept, a million in an epoch; then epochs of both sides."""
    folder.mkdir(parents=True)
    random, at, number = np.random.default_rng(5), 0, 0
    for first in range(0, kept, 1_000_000):
        size = min(1_000_000, kept - first)
        ids = np.arange(first, first + size)
        yield _written(folder, number, _table(random, ids, np.zeros(size, bool), at))
        at, number = at + size, number + 1
    for _ in range(sizes.rounds + 2):
        is_right = np.arange(sizes.probes) % 2 == 1
        fresh = kept + number * sizes.probes + np.arange(sizes.probes)
        ids = np.where(is_right, random.integers(0, kept, sizes.probes), fresh)
        yield _written(folder, number, _table(random, ids, is_right, at))
        at, number = at + sizes.probes, number + 1


def _files(folder: Path, rows: int, count: int) -> Iterator[Path]:
    """A row each millisecond; every second one is of the right side."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(7)
    for number in range(count):
        places = number * rows + np.arange(rows)
        is_right = places % 2 == 1
        back = 2 * random.integers(0, max(1, BACK * rows // 2), rows) + 1
        ids = np.where(is_right, np.maximum(places - back, 0), places)
        yield _written(folder, number, _table(random, ids, is_right, number * rows))


def _table(
    random: np.random.Generator, ids: np.ndarray, is_right: np.ndarray, first: int
) -> pa.Table:
    times = START_US + (first + np.arange(len(ids))) * MILLISECOND_US
    return pa.table(
        {
            "id": ids,
            "v": random.integers(0, 1 << 40, len(ids)),
            "is_right": is_right,
            "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
        }
    )


def _written(folder: Path, number: int, table: pa.Table) -> Path:
    path = folder / f"{number:06d}.parquet"
    pq.write_table(table, path, row_group_size=max(1, (table.num_rows + 1) // 2))
    return path


if __name__ == "__main__":
    main()
