"""What SQL costs on Spark: Nexmark and DISTINCT ON against Structured Streaming, top n as it grows.

Beside it a keyed step in Python, and compiling.

python benchmarks/sql.py            the numbers of docs/benchmarks.md
python benchmarks/sql.py --quick    the same shape with smaller sizes
python benchmarks/sql.py --json     the last line of stdout is one JSON object
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))  # the queries of the tests

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from engine_session import BOTH_CORES, PARTITIONS, configured, say, session
from pyspark.sql import SparkSession
from report import Number, run
from sql_contenders import Stream, in_turns, ratio, told
from sql_distinct import SCALES as DISTINCT_SCALES
from sql_distinct import Sizes as DistinctSizes
from sql_distinct import distinct_vs_native
from sql_nexmark import Sizes, correct, speeds
from sql_python import SCALES as PYTHON_SCALES
from sql_python import Sizes as PythonSizes
from sql_python import python_step_vs_tws
from sql_sessions import session_vs_native

from lamina.pipeline import order, parse_pipeline
from lamina.spark.compiling import compile_pipeline
from lamina.spark.frames import own_session
from lamina.spark.internals import active
from lamina.spark.runner import pinned


@dataclass(frozen=True, slots=True)
class Scale:
    nexmark: Sizes
    python: PythonSizes
    distinct: DistinctSizes
    many_keys: int  # of top n
    few_keys: int
    fill: int  # keys that one epoch fills in
    rows: int  # of an epoch
    rounds: int
    warm: int
    compilations: int
    memory: str  # of the JVM


SCALES = {
    "full": Scale(
        Sizes(events=500_000, rounds=9, warm=4),
        PYTHON_SCALES["full"],
        DISTINCT_SCALES["full"],
        many_keys=10_000_000,
        few_keys=100_000,
        fill=1_000_000,
        rows=200_000,
        rounds=12,
        warm=4,
        compilations=5,
        memory="6g",
    ),
    "quick": Scale(
        Sizes(events=100_000, rounds=5, warm=2),
        PYTHON_SCALES["quick"],
        DISTINCT_SCALES["quick"],
        many_keys=1_000_000,
        few_keys=50_000,
        fill=500_000,
        rows=100_000,
        rounds=6,
        warm=3,
        compilations=3,
        memory="4g",
    ),
    "tiny": Scale(
        Sizes(events=2_000, rounds=1, warm=1),
        PYTHON_SCALES["tiny"],
        DISTINCT_SCALES["tiny"],
        many_keys=2_000,
        few_keys=200,
        fill=2_000,
        rows=500,
        rounds=1,
        warm=1,
        compilations=1,
        memory="1g",
    ),
}


def main() -> None:
    run(__doc__ or "", SCALES, measured)


def measured(scale: Scale, folder: Path) -> Iterator[Number]:
    with session(folder / "spark", scale.memory) as spark:
        yield correct(spark, folder / "correct")
        yield _compile_ms(spark, scale)
        with configured(spark, BOTH_CORES):
            yield from speeds(spark, folder / "nexmark", scale.nexmark)
            yield from _growth(spark, scale, folder / "top")
            yield from distinct_vs_native(spark, folder / "distinct", scale.distinct)
            yield from session_vs_native(spark, folder / "sessions", scale.distinct)
            yield from python_step_vs_tws(spark, folder / "python", scale.python)


# top n

TOP = "SELECT k, v FROM src QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC) = 1"


def _growth(spark: SparkSession, scale: Scale, folder: Path) -> Iterator[Number]:
    """The last row of each key: the same rows into a large state and into a small one."""
    files = _Files(folder / "input")
    contenders: dict[str, Stream] = {}
    for name, keys in (("many", scale.many_keys), ("few", scale.few_keys)):
        say(f"top n: {keys} keys")
        stream = Stream(spark, folder / name, "src (k BIGINT, v BIGINT)", f"{TOP} EMIT ON UPDATE")
        for first in range(0, keys, scale.fill):
            stream.epoch(files.write(np.arange(first, min(first + scale.fill, keys))))
        stream.engine.checkpoint()
        contenders[name] = stream
    made = [files.uniform(scale.rows, scale.few_keys) for _ in range(scale.warm + scale.rounds)]
    seconds = in_turns(contenders, made[: scale.warm], made[scale.warm :])
    for each in contenders.values():
        each.close()
    yield Number("topn_growth", ratio(seconds, "many", "few"), told(seconds), at_most=1.5)


class _Files:
    """Rows of which each is later than all before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._random = np.random.default_rng(7)
        self._made = 0
        self._at = 0
        folder.mkdir(parents=True)

    def uniform(self, rows: int, keys: int) -> Path:
        return self.write(self._random.integers(0, keys, rows, dtype=np.int64))

    def write(self, keys: np.typing.NDArray[np.int64]) -> Path:
        """Two row groups, one for each core."""
        times = np.arange(self._at, self._at + len(keys))
        path = self._folder / f"{self._made:06d}.parquet"
        self._made += 1
        self._at += len(keys)
        pq.write_table(
            pa.table({"k": keys, "v": times}), path, row_group_size=max(1, (len(keys) + 1) // 2)
        )
        return path


# compiling

_STREAMS = (
    "SELECT symbol, price * volume AS value, ts FROM trades WHERE volume > {n}",
    "SELECT symbol, sum(volume) + {n} AS volume, avg(price) AS price, count(*) AS n FROM trades"
    " GROUP BY symbol EMIT ON UPDATE",
    "SELECT symbol, window.start AS at, max(price) - min(price) AS spread, count(*) + {n} AS n"
    " FROM trades GROUP BY symbol, window(ts, '1 minute') EMIT ON WINDOW CLOSE",
    "SELECT symbol, count(DISTINCT side) + {n} AS sides FROM trades GROUP BY symbol EMIT ON UPDATE",
    "WITH dear AS (SELECT * FROM trades WHERE price > {n}) SELECT symbol, price, ts FROM dear"
    " QUALIFY row_number() OVER (PARTITION BY symbol ORDER BY ts DESC) = 1 EMIT ON UPDATE",
)


def _compile_ms(spark: SparkSession, scale: Scale) -> Number:
    """A file of 20 streams, from its text to plans; Spark is up, and has compiled it before."""
    text = (
        "CREATE SOURCE trades (symbol STRING, side STRING, price DECIMAL(12,2), volume BIGINT,"
        " ts TIMESTAMP) USING json OPTIONS (path 'in') WATERMARK ts DELAY OF INTERVAL 5 SECONDS;\n"
    ) + "".join(
        f"CREATE STREAM s{n} AS {_STREAMS[n % len(_STREAMS)].format(n=n)};\n"
        f"CREATE SINK o{n} FROM s{n} USING parquet OPTIONS (path 'out{n}');\n"
        for n in range(20)
    )
    own = own_session(spark, pinned(PARTITIONS))
    spent: list[float] = []
    for _ in range(scale.compilations + 1):
        start = time.perf_counter()
        pipeline = parse_pipeline(text, file="benchmark")
        with active(own):
            compile_pipeline(own, pipeline, order(pipeline), name="twenty", file="benchmark")
        spent.append((time.perf_counter() - start) * 1000)
    return Number("compile_ms", median(spent[1:]), f"20 streams; the first time {spent[0]:.0f}")


if __name__ == "__main__":
    main()
