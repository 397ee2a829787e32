"""A sink in memory: rows and position change in one step."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.connectors.staged import open_proven
from lamina.engine.ports import Change, Publication
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
        self.table.epochs[publication.point.epoch] = tables
        self.table.point = publication.point

    def close(self) -> None:
        """Nothing is held open."""
