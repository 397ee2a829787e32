"""Many queries over the same rows in one pipeline: one start, and the same epochs for all of them.

A Spark job of a few rows takes a third of a second, a start of a pipeline a second or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lamina.pipeline import Pipeline, parse_pipeline
from lamina.pipeline.model import DeclaredSink, Option
from lamina.testing.faulty import Killed
from tests.engine.pipelines import Bomb
from tests.spark.changes import Epochs
from tests.spark.running import FILE, Run, plain

Rows = list[dict[str, Any]]


class Together:
    """Queries as the streams `q0`, `q1`, ..., and what has come out of each.

    *head* declares what they read; each query comes with its EMIT.
    """

    def __init__(self, head: str, queries: Sequence[tuple[str, str]]) -> None:
        self._text = head + "".join(
            f"CREATE STREAM q{n} AS {query} {emit};\n" for n, (query, emit) in enumerate(queries)
        )
        self._published: list[dict[int, pa.Table]] = [{} for _ in queries]

    def run(self, run: Run) -> None:
        run.run(self._pipeline(run))

    def run_with_a_kill(self, run: Run, *, then: int) -> None:
        """Killed in its second epoch, and gone on with by *then* partitions."""
        with pytest.raises(Killed):
            self.run(replace(run, fail_point=Bomb("before COMMIT", 2)))
        self.run(replace(run, partitions=then))

    def _pipeline(self, run: Run) -> Pipeline:
        pipeline = parse_pipeline(self._text, run.variables, file=FILE)
        sinks = {f"o{n}": self._sink(n) for n in range(len(self._published))}
        return replace(pipeline, sinks=sinks)

    def _sink(self, number: int) -> DeclaredSink:
        def keep(table: pa.Table, epoch: int) -> None:
            self._published[number][epoch] = table  # after a kill it may come once more

        options = {"function": Option("keep", "keep", made=keep)}
        return DeclaredSink(f"o{number}", f"q{number}", "function", options)

    def published(self, number: int) -> dict[int, pa.Table]:
        """By epoch."""
        return self._published[number]

    def epochs(self, number: int) -> Epochs:
        """The rows of each epoch that has some, in order."""
        return [table.to_pylist() for _, table in sorted(self._published[number].items())]

    def rows(self, number: int) -> Rows:
        return [row for epoch in self.epochs(number) for row in epoch]

    def latest(self, number: int, keys: int) -> Rows:
        """Of an updating stream: the last row of each key; the first *keys* columns are the key."""
        found = {repr(plain(list(row.values())[:keys])): row for row in self.rows(number)}
        return list(found.values())
