"""A keyed step in Python against transformWithState, on the same function.

python benchmarks/sql_python.py            the number of docs/benchmarks.md
python benchmarks/sql_python.py --quick    the same shape with smaller sizes
python benchmarks/sql_python.py --json     the last line of stdout is one JSON object

The function keeps how many rows a key had and the sum of their values, and puts both out. Spark's
needs the packages protobuf and pandas; without them there is no number.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from engine_session import BOTH_CORES, PARTITIONS, configured, session
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor
from report import Number, run
from sql_contenders import Native, Stream, in_turns, ratio, told

import lamina
from lamina.clock import SystemClock
from lamina.engine.plans import EngineSettings
from lamina.spark.running import RunSettings, open_pipeline

COLUMNS = "k BIGINT, v BIGINT"
OUTPUT = "k BIGINT, n BIGINT, total BIGINT"
STATE = "n BIGINT, total BIGINT"


@dataclass(frozen=True, slots=True)
class Sizes:
    rows: int  # of an epoch
    keys: int
    rounds: int
    warm: int


SCALES = {
    "full": Sizes(rows=100_000, keys=50_000, rounds=5, warm=2),
    "quick": Sizes(rows=20_000, keys=10_000, rounds=3, warm=2),
    "tiny": Sizes(rows=500, keys=100, rounds=1, warm=1),
}


def main() -> None:
    run(__doc__ or "", SCALES, measured)


def measured(sizes: Sizes, folder: Path) -> Iterator[Number]:
    with session(folder / "spark", "4g") as spark, configured(spark, BOTH_CORES):
        yield from python_step_vs_tws(spark, folder / "python", sizes)


def python_step_vs_tws(spark: SparkSession, folder: Path, sizes: Sizes) -> Iterator[Number]:
    """How many times faster an epoch is than a batch of the same rows."""
    if any(find_spec(each) is None for each in ("google", "pandas")):
        print("transformWithState needs protobuf and pandas: pip install them", file=sys.stderr)
        return
    files = list(_files(folder / "input", sizes))
    ours = _Keyed(spark, folder / "lamina")
    theirs = Native(spark, folder / "tws", COLUMNS, _with_state, mode="update")
    try:
        contenders: dict[str, Stream | Native] = {"lamina": ours, "transformWithState": theirs}
        seconds = in_turns(contenders, files[: sizes.warm], files[sizes.warm :])
        assert ours.rows() == theirs.rows(), "both put out each key that has rows"
    finally:
        ours.close()
        theirs.close()
    value = ratio(seconds, "transformWithState", "lamina")
    details = f"{sizes.rows} rows, {sizes.keys} keys: {told(seconds)}"
    yield Number("python_step_vs_tws", value, details, at_least=10)


def running(keys: lamina.Keys, rows: lamina.Rows, state: lamina.Columns) -> Any:
    n, total = state.numpy("n", 0) + rows.counts, state.numpy("total", 0)
    np.add.at(total, rows.key_of, rows.numpy("v"))
    made = {"n": n, "total": total}
    return made, {"k": keys["k"], **made}


class Running(StatefulProcessor):
    """The same, key by key."""

    def init(self, handle: Any) -> None:
        self._state = handle.getValueState("state", STATE)

    def handleInputRows(  # noqa: N802  Spark's name
        self,
        key: Any,
        rows: Any,
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        n, total = self._state.get() if self._state.exists() else (0, 0)
        for row in rows:
            n += 1
            total += row.v
        self._state.update((n, total))
        yield Row(k=key[0], n=n, total=total)

    def close(self) -> None:
        pass


def _with_state(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").transformWithState(Running(), OUTPUT, "Update", "None")


class _Keyed(Stream):
    """A pipeline with one keyed step."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.out = folder / "out"
        self._in = folder / "in"
        for each in (self._in, folder / "store"):
            each.mkdir(parents=True)
        pipeline = (
            lamina.Pipeline()
            .source("src", COLUMNS, "parquet", {"path": "in"})
            .keyed("s", running, inputs=["src"], keys=["k"], state=STATE, output=OUTPUT)
            .sink("o", "s", "parquet", {"path": "out"})
        )
        wanted = RunSettings(
            home=folder / "home",
            store=str(folder / "store"),
            folder=folder,
            engine=EngineSettings(partitions=PARTITIONS),
        )
        self.engine = open_pipeline(pipeline.build(), wanted, spark=spark, clock=SystemClock())


def _files(folder: Path, sizes: Sizes) -> Iterator[Path]:
    """Two row groups each, one for each core."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(7)
    for number in range(sizes.warm + sizes.rounds):
        path = folder / f"{number:06d}.parquet"
        keys = rng.integers(0, sizes.keys, sizes.rows, dtype=np.int64)
        table = pa.table({"k": keys, "v": rng.integers(0, 100, sizes.rows, dtype=np.int64)})
        pq.write_table(table, path, row_group_size=sizes.rows // 2)
        yield path


if __name__ == "__main__":
    main()
