"""The same SELECTs as one Spark batch over all files, and how they compare with what came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from lamina.cli.demo.trades import DELAY, MINUTE, PIPELINE
from lamina.pipeline.statements import parse_pipeline

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Row by row: every row of one side that the other has not, doubles counted."""

    what: str
    rows: int
    batch_rows: int
    missing: int
    extra: int

    @property
    def equal(self) -> bool:
        return self.missing == self.extra == 0


def compare(folder: Path, latest: datetime) -> list[Verdict]:
    """What the sinks of the project hold, beside an uninterrupted batch."""
    batch = _batch(folder)
    closed = [row for row in batch["vwap"] if row["minute"] + MINUTE <= latest - DELAY]
    vwap = [row for _, row in published(folder / "out" / "vwap")]
    totals: dict[str, Any] = {row["symbol"]: row for _, row in published(folder / "out" / "totals")}
    return [
        verdict_on("vwap: closed windows", vwap, closed),
        verdict_on("totals: last row per symbol", totals.values(), batch["totals"]),
    ]


def published(sink: Path) -> list[tuple[int, dict[str, Any]]]:
    """Every row of a Parquet sink with its epoch, in the order of the epochs."""
    return [
        (int(folder.name.removeprefix("epoch-")), row)
        for folder in sorted(sink.glob("epoch-*"))
        for file in sorted(folder.glob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]


def _batch(folder: Path) -> dict[str, list[dict[str, Any]]]:
    from lamina.connectors.file_frames import ddl  # noqa: PLC0415  an extra
    from lamina.spark.session import start_session  # noqa: PLC0415

    pipeline = parse_pipeline(PIPELINE)
    source = pipeline.sources["trades"]
    spark = start_session("demo", folder / "scratch", master="local[2]")
    try:
        frame = spark.read.schema(ddl(source.columns)).json(str(folder / "trades"))
        frame.createOrReplaceTempView("trades")
        return {
            name: spark.sql(stream.select).toArrow().to_pylist()
            for name, stream in pipeline.streams.items()
        }
    finally:
        spark.stop()


def verdict_on(
    what: str, ours: Iterable[dict[str, Any]], theirs: Iterable[dict[str, Any]]
) -> Verdict:
    mine, batch = _counted(ours), _counted(theirs)
    missing, extra = batch - mine, mine - batch
    return Verdict(what, mine.total(), batch.total(), missing.total(), extra.total())


def _counted(rows: Iterable[dict[str, Any]]) -> Counter[Row]:
    return Counter(tuple(row[name] for name in sorted(row)) for row in rows)
