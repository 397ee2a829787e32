"""A sink that somebody might write: rows and position in one value that is replaced at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow.parquet as pq

from lamina.connectors.staged import open_proven
from lamina.engine.ports import Change, Publication
from lamina.format.pipeline_record import NOBODY, Owner
from lamina.protocol.sinks import Publish, SinkPosition, check_fence, check_owner, judge_publish


@dataclass
class ToyFile:
    """The outside system: it survives the sink."""

    position: SinkPosition = field(default_factory=lambda: SinkPosition(NOBODY, 0, None))
    epochs: dict[int, list[int]] = field(default_factory=dict)


class ToySink:
    """All that a sink has to be."""

    delivery = "exactly once"
    takes = frozenset({Change.APPEND})

    def __init__(self, name: str, file: ToyFile, hook: Callable[[str], None]) -> None:
        self.name = name
        self._file = file
        self._hook = hook

    def position(self) -> SinkPosition:
        return self._file.position

    def fence(self, generation: int, pipeline: Owner) -> SinkPosition:
        before = self._file.position
        check_owner(before, pipeline)
        check_fence(before, generation)
        self._hook("fence")
        self._file.position = SinkPosition(pipeline, generation, before.point)
        return self._file.position

    def publish(self, publication: Publication) -> None:
        pipeline, generation = publication.pipeline, publication.generation
        rows: list[int] = []
        for file in publication.files:
            with open_proven(publication, file) as opened:
                rows += pq.read_table(opened)["v"].to_pylist()
        self._hook("commit")
        verdict = judge_publish(
            self.position(), publication.point, pipeline=pipeline, generation=generation
        )
        if verdict is Publish.DONE:
            return
        self._file.epochs[publication.point.epoch] = rows
        self._file.position = SinkPosition(pipeline, generation, publication.point)
        self._hook("committed")

    def close(self) -> None:
        """Nothing is held open."""
