"""Pipelines run in this process on the tests' session, and what their sinks hold."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.engine.plans import EnginePlan, EngineSettings, EpochReport, FailPoint
from lamina.engine.ports import Limits
from lamina.pipeline import Pipeline, check_pipeline, order, parse_pipeline

PARTITIONS = 4
FILE = "p.sql"


@dataclass(frozen=True, slots=True)
class Place:
    """A pipeline's folder: `in` has a file for each epoch, `out` is what the sink has."""

    folder: Path

    def put_json(self, epochs: Iterable[Iterable[Mapping[str, Any]]]) -> None:
        """One file for each epoch, oldest first."""
        for number, rows in enumerate(epochs):
            text = "".join(json.dumps(row, default=str) + "\n" for row in rows)
            path = self._file(number, "json")
            path.write_text(text)
            os.utime(path, (1_000 + number, 1_000 + number))

    def put_moments(self, keys: Sequence[str | None], digits: int = 6) -> None:
        """Three epochs of `k`, `v` and `at`, a year from row to row, for sinks of every type."""
        rows = [
            {
                "k": keys[n % len(keys)],
                "v": n * 37 - 500,
                "at": f"{1900 + n}-03-01T00:00:00.{n:0{digits}d}Z",
            }
            for n in range(120)
        ]
        self.put_json([rows[:40], rows[40:80], rows[80:]])

    def put_tables(self, epochs: Iterable[pa.Table]) -> None:
        for number, table in enumerate(epochs):
            self.put_table(number, table)

    def put_table(self, number: int, table: pa.Table) -> None:
        path = self._file(number, "parquet")
        pq.write_table(table, path)
        os.utime(path, (1_000 + number, 1_000 + number))

    def _file(self, number: int, kind: str) -> Path:
        (self.folder / "in").mkdir(parents=True, exist_ok=True)
        return self.folder / "in" / f"{number:05d}.{kind}"

    @property
    def source(self) -> str:
        return str(self.folder / "in")

    def epochs(self, sink: str = "out") -> list[list[dict[str, Any]]]:
        """The rows of each epoch that has some, in order."""
        return [
            [
                row
                for file in sorted(each.glob("*.parquet"))
                for row in pq.read_table(file).to_pylist()
            ]
            for each in sorted((self.folder / sink).glob("epoch-*"))
        ]

    def rows(self, sink: str = "out") -> list[dict[str, Any]]:
        return [row for epoch in self.epochs(sink) for row in epoch]

    def latest(self, keys: int, sink: str = "out") -> list[dict[str, Any]]:
        """Of an updating stream: the last row of each key; the first *keys* columns are the key."""
        found = {repr(plain(list(row.values())[:keys])): row for row in self.rows(sink)}
        return list(found.values())


@dataclass(slots=True)
class Run:
    """How a pipeline is run; everything there is, one file an epoch."""

    spark: Any
    place: Place
    partitions: int = PARTITIONS
    files: int | None = 1
    rows: int | None = None
    max_ahead_us: int | None = None
    drain: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    fail_point: FailPoint = lambda _: None
    skip_lost: frozenset[str] = frozenset()
    reuse_state: frozenset[str] = frozenset()
    notes: list[str] = field(default_factory=list)  # that people saw
    reports: list[EpochReport] = field(default_factory=list)

    def __call__(self, text: str) -> int:
        """The last epoch."""
        return self.run(parse_pipeline(text, self.variables, file=FILE))

    def run(self, pipeline: Pipeline) -> int:
        from lamina.spark.running import RunSettings, Until, Watcher, run  # noqa: PLC0415  an extra

        folder = self.place.folder
        settings = RunSettings(
            home=folder / "home",
            store=str(folder / "store"),
            folder=folder,
            file=FILE,
            until=Until(available_now=True),
            skip_lost=self.skip_lost,
            engine=EngineSettings(
                partitions=self.partitions,
                limits=Limits(self.rows, self.files),
                checkpoint_epochs=0,
                max_ahead_us=self.max_ahead_us,
                reuse_state=self.reuse_state,
                drain=self.drain,
            ),
        )
        watcher = Watcher(note=self.notes.append, epoch=self.reports.append)
        return run(
            pipeline, settings, spark=self.spark, watcher=watcher, fail_point=self.fail_point
        )


def compiled(spark: Any, text: str, variables: Mapping[str, str] | None = None) -> EnginePlan:
    """What `lamina check` does with a live Spark; BadPipeline if it would not work."""
    from lamina.spark.compiling import compile_pipeline  # noqa: PLC0415
    from lamina.spark.frames import own_session  # noqa: PLC0415  an extra
    from lamina.spark.internals import active  # noqa: PLC0415  an extra
    from lamina.spark.runner import pinned  # noqa: PLC0415

    pipeline = parse_pipeline(text, variables or {}, file=FILE)
    check_pipeline(pipeline, file=FILE)
    own = own_session(spark, pinned(PARTITIONS))
    with active(own):
        plan, _ = compile_pipeline(own, pipeline, order(pipeline), name="p", file=FILE)
    return plan


def pipeline_text(columns: str, select: str, *, emit: str = "EMIT ON UPDATE", **more: str) -> str:
    """A source `t` over the folder `in`, a stream `s`, a sink into `out`."""
    kind, mark = more.get("kind", "json"), more.get("mark", "")
    return (
        f"CREATE SOURCE t ({columns}) USING {kind} OPTIONS (path 'in') {mark};\n"
        f"CREATE STREAM s AS {select} {emit};\n"
        "CREATE SINK o FROM s USING parquet OPTIONS (path 'out');"
    )


def comparable(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows as a set that may hold one twice."""
    return sorted(repr(plain(row)) for row in rows)


def batch(spark: Any, select: str) -> list[dict[str, Any]]:
    """What Spark makes of a SELECT over everything at once: the oracle."""
    rows: list[dict[str, Any]] = spark.sql(select).toArrow().to_pylist()
    return rows


def plain(value: Any) -> Any:
    """A value in one spelling: a row is its values, a NaN is itself, zero has no sign."""
    if isinstance(value, Mapping):
        return [plain(each) for each in value.values()]
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def job_count(spark: Any) -> int:
    """How many jobs this Spark has been given, in its whole life."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())
