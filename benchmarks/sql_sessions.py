"""Session windows against those of Structured Streaming with RocksDB, on the same rows.

python benchmarks/sql_sessions.py            the number of docs/benchmarks.md
python benchmarks/sql_sessions.py --quick    the same shape with smaller sizes
python benchmarks/sql_sessions.py --json     the last line of stdout is one JSON object

Users come for two epochs, with about ten rows in each, and never again. The gap is half an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from engine_session import BOTH_CORES, configured, session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it
from report import Number, run
from sql_contenders import Native, Stream, in_turns, ratio, told
from sql_distinct import SCALES, START_US, Sizes

NAMES = ("id", "starts", "ends", "n", "total")
COLUMNS = "id BIGINT, v BIGINT, ts TIMESTAMP"
ROWS_OF_A_USER, EPOCHS_OF_A_USER = 10, 2


def main() -> None:
    run(__doc__ or "", SCALES, measured)


def measured(sizes: Sizes, folder: Path) -> Iterator[Number]:
    with session(folder / "spark", "4g") as spark, configured(spark, BOTH_CORES):
        yield from session_vs_native(spark, folder / "sessions", sizes)


def session_vs_native(spark: SparkSession, folder: Path, sizes: Sizes) -> Iterator[Number]:
    """How many times faster an epoch is than a batch of the same rows."""
    files = list(_files(folder / "input", sizes))
    gap = f"{max(1, sizes.rows // 2000)} seconds"

    def sessions(rows: DataFrame) -> DataFrame:
        marked = rows.withWatermark("ts", "1 second")
        grouped = marked.groupBy("id", F.session_window("ts", gap))
        counted = grouped.agg(F.count("*").alias("n"), F.sum("v").alias("total"))
        bounds = ("session_window.start AS starts", "session_window.end AS ends")
        return counted.selectExpr("id", *bounds, "n", "total")

    query = (
        "SELECT id, session_window.start AS starts, session_window.end AS ends, count(*) AS n, "
        f"sum(v) AS total FROM src GROUP BY id, session_window(ts, '{gap}') EMIT ON WINDOW CLOSE"
    )
    mark = "WATERMARK ts DELAY OF INTERVAL 1 SECOND"
    ours = Stream(spark, folder / "lamina", f"src ({COLUMNS})", query, mark=mark)
    theirs = Native(spark, folder / "native", COLUMNS, sessions, mode="append")
    try:
        contenders: dict[str, Stream | Native] = {"lamina": ours, "native": theirs}
        seconds = in_turns(contenders, files[: sizes.warm], files[sizes.warm :])
    finally:
        ours.close()
        theirs.close()
    sessions_of_both = _same(ours.table(), theirs.table())
    value = ratio(seconds, "native", "lamina")
    users = sizes.rows // ROWS_OF_A_USER
    details = f"{sizes.rows} rows of {users} users: {told(seconds)}"
    details += f"; {sessions_of_both} sessions are the same on both sides"
    yield Number("session_vs_native", value, details, at_least=2)


def _same(ours: pa.Table, theirs: pa.Table) -> int:
    """How many sessions both have; AssertionError if they differ.

    Both sides give all that end before their watermark, and one may be an epoch ahead: those that
    end before the last of both are compared.
    """
    if not ours.num_rows and not theirs.num_rows:
        return 0  # so few rows that no session has ended
    both = [pa.table({name: _plain(each[name]) for name in NAMES}) for each in (ours, theirs)]
    last = min(pc.max(each["ends"]).as_py() for each in both)
    kept = [each.filter(pc.less(each["ends"], last)) for each in both]
    rows = [sorted(zip(*(each[name].to_pylist() for name in NAMES), strict=True)) for each in kept]
    if rows[0] != rows[1] or not rows[0]:
        raise AssertionError(f"{len(rows[0])} sessions, native has {len(rows[1])}, or others")
    return len(rows[0])


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as numbers: Spark writes them without a time zone."""
    is_time = pa.types.is_timestamp(column.type)
    return column.cast(pa.timestamp("us")).cast(pa.int64()) if is_time else column


def _files(folder: Path, sizes: Sizes) -> Iterator[Path]:
    """A row each millisecond; two row groups, one for each core."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(3)
    users = max(1, sizes.rows // ROWS_OF_A_USER)
    for number in range(sizes.warm + sizes.rounds):
        first = number // EPOCHS_OF_A_USER * users
        times = START_US + (number * sizes.rows + np.arange(sizes.rows)) * 1_000
        table = pa.table(
            {
                "id": first + random.integers(0, users, sizes.rows),
                "v": random.integers(0, 1 << 40, sizes.rows),
                "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
            }
        )
        path = folder / f"{number:06d}.parquet"
        pq.write_table(table, path, row_group_size=max(1, (sizes.rows + 1) // 2))
        yield path


if __name__ == "__main__":
    main()
