"""The position of a sink that cannot remember it: a small file of the pipeline's home.

<home>/sinks/<name>.json    the last epoch it was given, and the generation that did

It is written when the rows are out: killed in between, they go out again. At least once.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from lamina.engine.ports import Positions, Publication
from lamina.engine.spelling import stored_name
from lamina.format.home_names import SINKS, parse_sink_position, sink_position_path
from lamina.format.pipeline_record import NOBODY, Owner
from lamina.format.sink_log import SinkEntry
from lamina.format.sink_position import decode_position, encode_position
from lamina.protocol.sinks import Publish, SinkPosition, check_fence, check_owner
from lamina.workspace.base import Notes


@dataclass(frozen=True, slots=True)
class NotedPosition:
    """Of the sink *name* of a pipeline, among the notes of its workspace."""

    notes: Notes
    name: str

    @property
    def _note(self) -> str:
        """Case does not tell sinks apart: a note that is there keeps its name."""
        there = (parse_sink_position(name) for name in self.notes.names(SINKS))
        names = [name for name in there if name is not None]
        return sink_position_path(stored_name(self.name, names, "the position of"))

    def load(self) -> SinkPosition:
        note = self._note
        data = self.notes.read(note)
        if data is None:
            return SinkPosition(NOBODY, 0, None)
        found = decode_position(data, self.notes.where(note))
        return SinkPosition(found.pipeline, found.generation, found.point)

    def save(self, position: SinkPosition) -> None:
        at = SinkEntry(position.pipeline, position.generation, position.point)
        self.notes.write(self._note, encode_position(at))


@dataclass(frozen=True, slots=True)
class NotedSink:
    """What the sinks have in common whose position is noted beside the pipeline."""

    name: str
    positions: Positions

    @abstractmethod
    def deliver(self, publication: Publication) -> None:
        """Let the rows of an epoch out; there are some."""

    def position(self) -> SinkPosition:
        return self.positions.load()

    def fence(self, generation: int, pipeline: Owner) -> SinkPosition:
        before = self.position()
        check_owner(before, pipeline)
        check_fence(before, generation)
        after = SinkPosition(pipeline or before.pipeline, generation, before.point)
        self.positions.save(after)
        return after

    def publish(self, publication: Publication) -> None:
        if publication.judge(self.position()) is Publish.DONE:
            return
        if publication.rows:
            self.deliver(publication)
        self.positions.save(publication.position)

    def close(self) -> None:
        """Nothing is held open."""
