"""A sink in memory: rows and position change in one step."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.connectors.staged import open_proven
from lamina.engine.ports import Beyond, Change, Publication
from lamina.format.commit import Point
from lamina.format.pipeline_record import NOBODY, Owner
from lamina.protocol.sinks import Publish, SinkPosition, check_fence, check_owner, judge_publish


@dataclass(slots=True)
class MemoryTable:
    """What outlives a process: a table of an outside system."""

    pipeline: Owner = NOBODY
    generation: int = 0
    point: Point | None = None
    epochs: dict[int, list[pa.Table]] = field(default_factory=dict)
    history: dict[int, dict[int, list[pa.Table]]] = field(default_factory=dict)  # by epoch

    def rows(self) -> list[dict[str, object]]:
        """Every row, in the order of the epochs."""
        tables = [table for epoch in sorted(self.epochs) for table in self.epochs[epoch]]
        return [row for table in tables for row in table.to_pylist()]


ONE_AT_A_TIME = Lock()
"""As in a database: nobody comes between a look at the position and what follows from it."""


class MemorySink:
    """Publishes into a `MemoryTable`."""

    delivery = "exactly once"
    takes = frozenset(Change)

    def __init__(self, name: str, table: MemoryTable) -> None:
        self.name = name
        self.table = table

    def position(self) -> SinkPosition:
        return SinkPosition(self.table.pipeline, self.table.generation, self.table.point)

    def fence(self, generation: int, pipeline: Owner) -> SinkPosition:
        with ONE_AT_A_TIME:
            check_owner(self.position(), pipeline)
            check_fence(self.position(), generation)
            self.table.pipeline = pipeline or self.table.pipeline
            self.table.generation = generation
            return self.position()

    def publish(self, publication: Publication) -> None:
        with ONE_AT_A_TIME:
            self._publish(publication)

    def _publish(self, publication: Publication) -> None:
        pipeline, generation = publication.pipeline, publication.generation
        verdict = judge_publish(
            self.position(), publication.point, pipeline=pipeline, generation=generation
        )
        if verdict is Publish.DONE:
            return
        tables = []
        for file in publication.files:
            with open_proven(publication, file) as opened:
                tables.append(pq.read_table(opened))
        self.table.pipeline, self.table.generation = pipeline, generation
        self.table.epochs = {**self.table.epochs, publication.point.epoch: tables}
        self._note(publication)

    def _note(self, publication: Publication) -> None:
        self.table.point = publication.point
        self.table.history[publication.point.epoch] = self.table.epochs

    def beyond(self, to: Point) -> Beyond:
        now, then = self.table.epochs, self._at(to)
        gone = [tables for epoch, tables in now.items() if tables and epoch not in then]
        rows = sum(table.num_rows for tables in gone for table in tables)
        missing = [epoch for epoch, tables in then.items() if tables and epoch not in now]
        return Beyond(len(gone), rows, 0, len(missing))

    def truncate(self, publication: Publication, to: Point) -> None:
        with ONE_AT_A_TIME:
            if publication.judge(self.position()) is Publish.NOW:
                self.table.pipeline = publication.pipeline
                self.table.generation = publication.generation
                self.table.epochs = self._at(to)
                self._note(publication)

    def _at(self, to: Point) -> dict[int, list[pa.Table]]:
        """As it was with the last epoch up to *to*."""
        known = [epoch for epoch in self.table.history if epoch <= to.epoch]
        return self.table.history[max(known)] if known else {}

    def close(self) -> None:
        """Nothing is held open."""
