"""A pipeline in a folder of its own, run on the tests' session as a person would run it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from lamina.engine.plans import EngineSettings, EpochReport, FailPoint
from lamina.engine.ports import Limits
from lamina.pipeline import parse_pipeline
from lamina.running.control import Status

Rows = list[tuple[Any, ...]]


@dataclass
class Project:
    folder: Path
    spark: Any
    sql: str
    engine: EngineSettings = field(default_factory=lambda: EngineSettings(limits=Limits(files=1)))
    home: Path | None = None
    out: StringIO = field(default_factory=StringIO)
    environment: Mapping[str, str] = field(default_factory=dict)

    def put(self, name: str, data: str | bytes, *, at: int = 1_000) -> Path:
        """A file of input; *at* says which comes first."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        os.utime(path, (at, at))
        return path

    def run(
        self,
        fail_point: FailPoint = lambda _: None,
        status: Callable[[Status], None] = lambda _: None,
    ) -> list[EpochReport]:
        """To the end of what there is."""
        from lamina.spark.running import RunSettings, Until, Watcher, run  # noqa: PLC0415  an extra

        reports: list[EpochReport] = []
        settings = RunSettings(
            home=self.home or self.folder / "home",
            store=str(self.folder / "store"),
            folder=self.folder,
            until=Until(available_now=True),
            engine=self.engine,
            out=self.out,
        )
        pipeline = parse_pipeline(self.sql, self.environment)
        watcher = Watcher(epoch=reports.append, status=status)
        run(pipeline, settings, spark=self.spark, watcher=watcher, fail_point=fail_point)
        return reports

    def rows(self, sink: str = "out") -> Rows:
        """All that a reader of the folder sees, sorted."""
        files = (self.folder / sink).glob("*/*.parquet")
        tables = [pq.read_table(file, partitioning=None) for file in files]
        rows = [tuple(row.values()) for table in tables for row in table.to_pylist()]
        return sorted(rows, key=repr)
