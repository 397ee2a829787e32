"""The position of a sink that cannot remember it: a small file of the pipeline's home.

<home>/sinks/<name>.json    the last epoch it was given, and the generation that did
"""

from __future__ import annotations

from dataclasses import dataclass

from lamina.engine.spelling import stored_name
from lamina.format.home_names import SINKS, parse_sink_position, sink_position_path
from lamina.format.pipeline_record import NOBODY
from lamina.format.sink_log import SinkEntry
from lamina.format.sink_position import decode_position, encode_position
from lamina.protocol.sinks import SinkPosition
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
