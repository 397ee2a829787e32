"""DISTINCT ON against dropDuplicatesWithinWatermark with RocksDB, on the same rows.

python benchmarks/sql_distinct.py            the number of docs/benchmarks.md
python benchmarks/sql_distinct.py --quick    the same shape with smaller sizes
python benchmarks/sql_distinct.py --json     the last line of stdout is one JSON object

A third of the rows are sent again, up to an epoch later. Keys are remembered for 20 epochs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from engine_session import BOTH_CORES, configured, session
from pyspark.sql import DataFrame, SparkSession
from report import Number, run
from sql_contenders import Native, Stream, in_turns, ratio, told

COLUMNS = "id BIGINT, v BIGINT, ts TIMESTAMP"
QUERY = "SELECT DISTINCT ON (id) id, v, ts FROM src"
MILLISECOND_US = 1_000
START_US = 1_700_000_000_000_000  # Spark's first watermark is 1970: a row of that time is late
REMEMBERED = 20
"""Epochs: the delay of the watermark is half of it."""


@dataclass(frozen=True, slots=True)
class Sizes:
    rows: int  # of an epoch
    rounds: int
    warm: int


SCALES = {
    "full": Sizes(rows=300_000, rounds=9, warm=4),
    "quick": Sizes(rows=100_000, rounds=5, warm=3),
    "tiny": Sizes(rows=500, rounds=1, warm=1),
}


def main() -> None:
    run(__doc__ or "", SCALES, measured)


def measured(sizes: Sizes, folder: Path) -> Iterator[Number]:
    with session(folder / "spark", "4g") as spark, configured(spark, BOTH_CORES):
        yield from distinct_vs_native(spark, folder / "distinct", sizes)


def distinct_vs_native(spark: SparkSession, folder: Path, sizes: Sizes) -> Iterator[Number]:
    """How many times faster an epoch is than a batch of the same rows."""
    files = list(_files(folder / "input", sizes))
    seconds_of_delay = sizes.rows * REMEMBERED // 2 // 1000 + 1

    def without(rows: DataFrame) -> DataFrame:
        marked = rows.withWatermark("ts", f"{seconds_of_delay} seconds")
        return marked.dropDuplicatesWithinWatermark(["id"])

    mark = f"WATERMARK ts DELAY OF INTERVAL {seconds_of_delay} SECONDS"
    ours = Stream(spark, folder / "lamina", f"src ({COLUMNS})", QUERY, mark=mark)
    theirs = Native(spark, folder / "native", COLUMNS, without, mode="append")
    try:
        contenders: dict[str, Stream | Native] = {"lamina": ours, "native": theirs}
        seconds = in_turns(contenders, files[: sizes.warm], files[sizes.warm :])
        assert ours.rows() == theirs.rows(), "both put out each id once"
    finally:
        ours.close()
        theirs.close()
    value = ratio(seconds, "native", "lamina")
    details = f"{sizes.rows} rows, a third of them known: {told(seconds)}"
    yield Number("distinct_vs_native", value, details, at_least=2)


def _files(folder: Path, sizes: Sizes) -> Iterator[Path]:
    """A row each millisecond; two row groups, one for each core."""
    folder.mkdir(parents=True)
    random, fresh = np.random.default_rng(7), 0
    for number in range(sizes.warm + sizes.rounds):
        is_new = random.random(sizes.rows) >= 1 / 3
        ids = fresh + np.cumsum(is_new)
        sent_again = np.maximum(ids - random.integers(0, sizes.rows, sizes.rows), 0)
        times = START_US + np.arange(sizes.rows) * MILLISECOND_US
        times += number * sizes.rows * MILLISECOND_US
        table = pa.table(
            {
                "id": np.where(is_new, ids, sent_again),
                "v": random.integers(0, 1 << 40, sizes.rows),
                "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
            }
        )
        fresh = int(ids[-1])
        path = folder / f"{number:06d}.parquet"
        pq.write_table(table, path, row_group_size=max(1, (sizes.rows + 1) // 2))
        yield path


if __name__ == "__main__":
    main()
