"""How rows flow through a pipeline file: its parts, and who reads whom. Nothing is opened or run.

A file that does not parse any more (a variable is missing, say) has no flow; what was recorded at
its last start still has its names (`of_names`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lamina.front.check import stream_shape
from lamina.ids import fold
from lamina.pipeline.model import Pipeline, Stream, memory_name

SOURCE, TABLE, STREAM, BLOCK, SINK = "source", "table", "stream", "block", "sink"


@dataclass(frozen=True, slots=True)
class Part:
    """A source, table, stream, block or sink; *inputs* are ids of others."""

    id: str
    name: str
    kind: str
    said: str = ""  # what it is or does, in a few words
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Flow:
    parts: tuple[Part, ...]
    is_guessed: bool = False  # who reads whom is not known

    def owner_of(self, operator: str) -> Part | None:
        """The part that an operator's state belongs to, by its name."""
        folded = fold(operator)
        named = {fold(part.name): part for part in self.parts if part.kind != SINK}
        for name, part in named.items():
            if part.kind == SOURCE and folded == fold(memory_name(name)):
                return part
        fitting = (name for name in named if _belongs(folded, name))
        best = max(fitting, key=len, default=None)
        return None if best is None else named[best]


def flow_of(pipeline: Pipeline, *, file: str) -> Flow:
    """Sources, tables, streams and their blocks, sinks."""
    ids = {fold(name): f"{SOURCE}:{name}" for name in pipeline.sources}
    ids |= {fold(name): f"{TABLE}:{name}" for name in pipeline.tables}
    ids |= {fold(name): f"{STREAM}:{name}" for name in pipeline.streams}
    parts = [
        Part(f"{SOURCE}:{s.name}", s.name, SOURCE, s.format) for s in pipeline.sources.values()
    ]
    parts += [Part(f"{TABLE}:{t.name}", t.name, TABLE, t.format) for t in pipeline.tables.values()]
    parts += [_stream(pipeline, each, ids, file) for each in pipeline.streams.values()]
    for sink in pipeline.sinks.values():
        inputs = _known([sink.stream], ids)
        parts.append(Part(f"{SINK}:{sink.name}", sink.name, SINK, sink.format, inputs))
    return Flow(tuple(parts))


def of_names(sources: Iterable[str], streams: Iterable[str], sinks: Iterable[str]) -> Flow:
    """What can be drawn of names alone: every stream between all sources and all sinks."""
    first = tuple(f"{SOURCE}:{name}" for name in sorted(sources))
    middle = tuple(f"{STREAM}:{name}" for name in sorted(streams))
    parts = [Part(id, id.partition(":")[2], SOURCE) for id in first]
    parts += [Part(id, id.partition(":")[2], STREAM, inputs=first) for id in middle]
    last = middle or first
    parts += [Part(f"{SINK}:{name}", name, SINK, inputs=last) for name in sorted(sinks)]
    return Flow(tuple(parts), is_guessed=len(first) > 1 or len(middle) > 1 or len(parts) > 3)


def _stream(pipeline: Pipeline, stream: Stream, ids: Mapping[str, str], file: str) -> Part:
    shape = stream_shape(pipeline, stream.name, file)
    reads = [*shape["inputs"], *_tables(stream)]
    if stream.late_of:
        reads = [stream.late_of]
    kind = BLOCK if stream.block_of else STREAM
    return Part(f"{STREAM}:{stream.name}", stream.name, kind, _said(shape), _known(reads, ids))


def _tables(stream: Stream) -> Iterator[str]:
    if stream.join is not None and stream.join.is_table:
        yield stream.join.right
    if stream.values is not None:
        yield from stream.values.tables


def _said(shape: Mapping[str, object]) -> str:
    """`aggregate by symbol`, `left join`."""
    keys = shape["keys"]
    kind = str(shape["kind"])
    if kind == "aggregate" and isinstance(keys, list) and keys:
        return f"{kind} by {' '.join(', '.join(keys).split())}"
    return kind


def _known(names: Sequence[str], ids: Mapping[str, str]) -> tuple[str, ...]:
    found = (ids.get(fold(name)) for name in names)
    return tuple(dict.fromkeys(id for id in found if id is not None))


def _belongs(operator: str, name: str) -> bool:
    return operator == name or (operator.startswith(name) and operator[len(name)] in ". :/ ")
