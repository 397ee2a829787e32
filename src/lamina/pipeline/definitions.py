"""Sources, tables, streams and sinks of a pipeline as they come, from a file or a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lamina.errors import BadName
from lamina.format.names import check_name
from lamina.ids import fold
from lamina.pipeline.blocks import unfold
from lamina.pipeline.lateness import late_rows_of
from lamina.pipeline.model import (
    NOWHERE,
    Column,
    DeclaredFunction,
    DeclaredSink,
    DeclaredSource,
    DeclaredTable,
    Pipeline,
    Place,
    Stream,
    memory_name,
)
from lamina.pipeline.tokens import bad_at
from lamina.pipeline.whole_windows import with_whole_windows

_MEMORY_BYTES = 16
"""What the name of a source grows by where its state has a name of its own (`files of ...`)."""


_KINDS = {
    DeclaredSource: "source",
    DeclaredTable: "table",
    Stream: "stream",
    DeclaredSink: "sink",
}


@dataclass(slots=True)
class Definitions:
    """What is defined so far; names are one space, and case does not tell them apart."""

    file: str
    sources: dict[str, DeclaredSource] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    sinks: dict[str, DeclaredSink] = field(default_factory=dict)
    functions: dict[str, DeclaredFunction] = field(default_factory=dict)
    tables: dict[str, DeclaredTable] = field(default_factory=dict)
    _kinds: dict[str, str] = field(default_factory=dict)

    def add(
        self,
        value: DeclaredSource | DeclaredTable | Stream | DeclaredSink | DeclaredFunction,
        at: Place = NOWHERE,
    ) -> None:
        """Define something; *at* is where its name stands."""
        name = value.name
        if isinstance(value, DeclaredFunction):
            self._add_function(value, at)
            return
        self._check(name, at, room=_MEMORY_BYTES if isinstance(value, DeclaredSource) else 0)
        self._kinds[name.lower()] = _KINDS[type(value)]
        match value:
            case DeclaredSource():
                self.sources[name] = value
            case DeclaredTable():
                self.tables[name] = value
            case Stream():
                self.streams[name] = value
            case DeclaredSink():
                self.sinks[name] = value

    def _add_function(self, function: DeclaredFunction, at: Place) -> None:
        """It is called, and never read: its name is in a space of its own."""
        if any(name.lower() == function.name.lower() for name in self.functions):
            raise bad_at(f"the function {function.name!r} is defined twice", self.file, at)
        self.functions[function.name] = function

    def pipeline(self) -> Pipeline:
        if not self._kinds:
            raise bad_at(
                "there is no statement", self.file, NOWHERE, "A pipeline begins with CREATE SOURCE"
            )
        self._check_memories()
        streams = with_whole_windows(self._unfolded(), self.sources, file=self.file)
        return Pipeline(self.sources, streams, self.sinks, self.functions, self.tables)

    def _unfolded(self) -> dict[str, Stream]:
        """Streams and their blocks; a block has a name in the same space."""
        streams: dict[str, Stream] = {}
        kinds = dict(self._kinds)
        own = tuple(each for each in self.functions.values() if each.is_aggregate)
        tables = tuple(name.lower() for name in self.tables)
        for stream in self.streams.values():
            given = replace(stream, aggregates=own, tables=tables)
            for block in unfold(given, file=self.file):
                if block.block_of:
                    self._check(block.name, block.place, room=0, kinds=kinds)
                    kinds[block.name.lower()] = "block"
                streams[block.name] = block
                if block.late.rows_to:
                    late = late_rows_of(block, file=self.file)
                    self._check(late.name, late.place, room=0, kinds=kinds)
                    kinds[late.name.lower()] = "stream of late rows"
                    streams[late.name] = late
        return streams

    def _check_memories(self) -> None:
        """What a source remembers is state, too, and in the one space of its names."""
        memories = {fold(memory_name(name)): name for name in self.sources}
        for stream in self.streams.values():
            if (source := memories.get(fold(stream.name))) is not None:
                message = f"{stream.name!r} is the state in which {source!r} remembers its files"
                raise bad_at(message, self.file, stream.place, "Give the stream another name")

    def _check(
        self, name: str, at: Place, *, room: int, kinds: Mapping[str, str] | None = None
    ) -> None:
        taken = (self._kinds if kinds is None else kinds).get(name.lower())
        if taken is not None:
            raise bad_at(
                f"{name!r} is already the name of a {taken}",
                self.file,
                at,
                "Sources, tables, streams and sinks must all have different names",
            )
        try:
            check_name(name, room=room)  # it becomes a part of paths
        except BadName as error:
            raise bad_at(error.message, self.file, at, error.advice) from error


def event_time(columns: tuple[Column, ...], column: str) -> str | None:
    """The column that a watermark names, as it was defined; None if there is none."""
    known = (each.name for each in columns if each.name.lower() == column.lower())
    return next(known, None)
