"""Checks of a whole pipeline that need no Spark: refused here is what would not work later.

Nothing is accepted that then silently produces no rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from posixpath import normpath

from lamina.errors import BadPipeline
from lamina.pipeline.aggregates import AGGREGATES
from lamina.pipeline.expressions import Words, calls
from lamina.pipeline.key_types import refused_key
from lamina.pipeline.keys import Key, Names, read_keys
from lamina.pipeline.model import DeclaredSink, DeclaredSource, Emit, Pipeline, Stream
from lamina.pipeline.nesting import column_behind, column_of, nests, window_time
from lamina.pipeline.select import Select, read_select
from lamina.pipeline.tokens import bad_at, did_you_mean
from lamina.pipeline.updates import ADVICE, is_over, kept_columns
from lamina.pipeline.windows import arguments

_NO_WATERMARK = "Give the source a WATERMARK column DELAY OF INTERVAL n unit"
_PADDED = re.compile(r"(?i)\b(var)?char\s*\(")
RESERVED = "_lamina"
"""How names of columns that are not the user's begin."""
_EVENT_TIMES = ("TIMESTAMP", "TIMESTAMP_LTZ")


@dataclass(frozen=True, slots=True)
class Shape:
    """What can be said of a stream without Spark."""

    stream: Stream
    select: Select
    names: Names
    keys: tuple[Key, ...]
    is_aggregate: bool

    @property
    def has_window(self) -> bool:
        return any(key.is_window for key in self.keys)

    @property
    def is_updating(self) -> bool:
        """Whether its rows replace earlier ones."""
        return self.is_aggregate and self.stream.emit is not Emit.ON_WINDOW_CLOSE


def check_pipeline(pipeline: Pipeline, *, file: str = "pipeline") -> None:
    """BadPipeline, with place and advice, at the first thing that would not work."""
    checks = _Checks(pipeline, file)
    for source in pipeline.sources.values():
        checks.columns(source)
        checks.source(source)
    for sink in pipeline.sinks.values():
        checks.sink(sink)
    checks.paths()
    for name in order(pipeline, file=file):
        checks.stream(pipeline.streams[name])
    checks.everything_is_read()


def order(pipeline: Pipeline, *, file: str = "pipeline") -> tuple[str, ...]:
    """The names of the streams, each after those that it reads; otherwise as they were written."""
    checks, written = _Checks(pipeline, file), list(pipeline.streams)
    graph = TopologicalSorter({name: checks.input_streams(name) for name in written})
    try:
        graph.prepare()
    except CycleError as error:
        circle = [str(name) for name in error.args[1][:0:-1]]  # each reads the next
        first = circle.index(min(circle, key=written.index))
        raise checks.circle(circle[first:] + circle[:first]) from None
    done, ready = list[str](), list[str]()
    while graph.is_active():
        ready += graph.get_ready()
        done.append(min(ready, key=written.index))
        ready.remove(done[-1])
        graph.done(done[-1])
    return tuple(done)


class _Checks:
    def __init__(self, pipeline: Pipeline, file: str) -> None:
        self._pipeline = pipeline
        self._file = file
        self._inputs = {n.lower(): n for n in chain(pipeline.sources, pipeline.streams)}
        self._shapes = {name: self._shape(each) for name, each in pipeline.streams.items()}

    def _shape(self, stream: Stream) -> Shape:
        select = read_select(stream, self._file)
        name = self._inputs.get(select.table.text.lower())
        source = self._pipeline.sources.get(name or "")
        columns = {column.name.lower() for column in source.columns} if source else set[str]()
        texts = [*(item.words for item in select.items), select.having]
        called = (words[i].text.lower() for words in texts for i, _ in calls(words))
        is_aggregate = bool(select.keys) or any(each in AGGREGATES for each in called)
        names = Names((select.alias or select.table).text.lower(), columns)
        return Shape(stream, select, names, read_keys(select, columns), is_aggregate)

    # sources and sinks

    def columns(self, source: DeclaredSource) -> None:
        for column in source.columns:
            if _PADDED.search(column.type):
                message = f"{column.name!r} of {source.name!r} is {column.type}"
                advice = "Spark has CHAR and VARCHAR in tables only; write STRING"
                raise self._bad(message, source, advice)

    def source(self, source: DeclaredSource) -> None:
        for column in source.columns:
            if column.name.lower().startswith(RESERVED):
                message = f"the column {column.name!r} of {source.name!r} is reserved for Lamina"
                raise self._bad(message, source, "Give it another one")
        if source.watermark is None:
            return
        name = source.watermark.column
        kind = next(column.type for column in source.columns if column.name == name)
        if kind.split()[0].upper() not in _EVENT_TIMES:
            raise self._bad(
                f"the watermark column {name!r} of {source.name!r} is {kind}",
                source,
                "Event times are of type TIMESTAMP",
            )

    def sink(self, sink: DeclaredSink) -> None:
        name = self._inputs.get(sink.stream.lower())
        if name in self._pipeline.streams:
            return
        if name is not None:
            raise self._bad(
                f"the sink {sink.name!r} reads the source {name!r}",
                sink,
                f"Put a stream between them that takes all columns of {name}",
            )
        advice = did_you_mean(sink.stream, self._pipeline.streams)
        raise self._bad(f"there is no stream {sink.stream!r} to write", sink, advice)

    def paths(self) -> None:
        taken: dict[str, DeclaredSink] = {}
        for sink in self._pipeline.sinks.values():
            for key, option in sink.options.items():
                if key.lower() != "path":
                    continue
                other = taken.setdefault(normpath(option.value), sink)
                if other is not sink:
                    message = f"the sinks {other.name!r} and {sink.name!r} have the same path"
                    raise self._bad(message, sink, "Give each sink a path of its own")

    # streams

    def input_streams(self, name: str) -> tuple[str, ...]:
        """The streams that a stream reads."""
        reads = self.input_stream(name)
        return () if reads is None else (reads,)

    def input_stream(self, name: str) -> str | None:
        """The stream that a stream reads; None if it reads a source. A SELECT has one input."""
        table = self._shapes[name].select.table
        known = self._inputs.get(table.text.lower())
        if known is None:
            advice = did_you_mean(table.text, self._inputs.values())
            script = self._shapes[name].select.script
            raise script.bad(f"there is no source or stream {table.text!r}", table, advice)
        return known if known in self._pipeline.streams else None

    def circle(self, names: list[str]) -> BadPipeline:
        shape = self._shapes[names[0]]
        if len(names) == 1:
            message = f"the stream {names[0]!r} reads itself"
        else:
            message = f"the streams {' -> '.join([*names, names[0]])} read each other in a circle"
        advice = "Every stream begins, in the end, with a source"
        return shape.select.script.bad(message, shape.select.table, advice)

    def stream(self, stream: Stream) -> None:
        shape = self._shapes[stream.name]
        script, table = shape.select.script, shape.select.table
        if not shape.is_aggregate:
            if stream.emit is not None:
                said = f"EMIT {stream.emit.value.upper()}"
                raise script.bad(f"{said} in a stream without aggregates", 0, "Leave it out")
            self._check_where(shape)
            return
        updating = self._updating_input(stream.name)
        if updating is not None:
            raise script.bad(
                f"an aggregate over the updating stream {updating!r}: it would count the old and "
                "the new value of a row",
                table,
                f"Let {updating!r} EMIT ON WINDOW CLOSE, or read what it reads",
            )
        self._check_emit(shape)
        if shape.is_updating and shape.select.having:
            message = "HAVING with EMIT ON UPDATE: the last row of a group that no longer meets it"
            at = shape.select.having[0]
            raise script.bad(f"{message} would stay the newest", at, ADVICE)
        self._check_key_types(shape)

    def _check_where(self, shape: Shape) -> None:
        """Rows of an updating stream are all passed on, or none of a key."""
        select, updating = shape.select, self._updating_input(shape.stream.name)
        if updating is None or not select.where:
            return
        kept = kept_columns(
            self._inputs[select.table.text.lower()], self._select, self.input_stream
        )
        if kept is None or not is_over(select.where, kept, shape.names.qualifier):
            message = f"WHERE over the updating stream {updating!r}: the last version of a row that"
            raise select.script.bad(
                f"{message} no longer meets it would stay the newest", select.where[0], ADVICE
            )

    def _select(self, name: str) -> Select:
        return self._shapes[name].select

    def _check_emit(self, shape: Shape) -> None:
        script, emit = shape.select.script, shape.stream.emit
        source = self._source_of(shape.stream.name)
        if not shape.has_window:
            if emit is Emit.ON_WINDOW_CLOSE:
                raise script.bad(
                    "EMIT ON WINDOW CLOSE without a window: no row would ever come out",
                    0,
                    "GROUP BY window(time, '1 minute') too, or EMIT ON UPDATE",
                )
            if emit is None:
                raise script.bad(
                    "an aggregate without a window is never complete", 0, "Write EMIT ON UPDATE"
                )
            return
        at = shape.select.keys[[key.is_window for key in shape.keys].index(True)][0]
        if source.watermark is None:
            raise script.bad(
                f"a window over {source.name!r}, which has no watermark: it would never close",
                at,
                _NO_WATERMARK,
            )
        time = self._window_column(shape)
        if time is not None and time.lower() != source.watermark.column.lower():
            raise script.bad(
                f"a window over {time!r}, but the watermark of {source.name!r} is on "
                f"{source.watermark.column!r}: rows would be late that are not",
                at,
                "Take both from one column",
            )
        self._check_nesting(shape)
        if emit is None:
            raise script.bad(
                "a stream with a window says when its rows come out",
                0,
                "Write EMIT ON WINDOW CLOSE or EMIT ON UPDATE",
            )

    def _check_nesting(self, shape: Shape) -> None:
        """Windows over windows close in one epoch with them: none may close before."""
        window = _window_of(shape)
        reads = self.input_stream(shape.stream.name)
        if reads is None:
            return
        time = arguments(window)[0]
        found = window_time(reads, time, self._resolve, self.input_stream)
        if found is None:
            return
        owner, what = found
        if what is None or not nests(_window_of(self._shapes[owner]), window, what):
            raise shape.select.script.bad(
                f"a window over the windows of {owner!r}: some would close before their last row "
                "comes",
                time[0],
                "Use `window.end - INTERVAL 1 MICROSECOND`, or `window.start` if the inner windows "
                "do not overlap and fill the outer ones; give it a name and leave it unchanged",
            )

    def _resolve(self, name: str) -> tuple[Select, bool] | None:
        shape = self._shapes.get(name)
        return None if shape is None else (shape.select, shape.has_window)

    def _window_column(self, shape: Shape) -> str | None:
        """The column of a source that a window is over; None if it is anything else."""
        time = arguments(_window_of(shape))[0]
        if not time:
            return None
        reads = self.input_stream(shape.stream.name)
        if reads is not None:
            behind = column_behind(column_of(time), reads, self._select, self.input_stream)
            columns = self._source_of(shape.stream.name).columns
            return next((c.name for c in columns if c.name.lower() == behind), None)
        elements = shape.names.elements(time)
        name = time[-1].text.lower()
        is_column = len(elements) == 1 and name in shape.names.columns
        return time[-1].text if is_column else None

    def _check_key_types(self, shape: Shape) -> None:
        """R9: keys of some types cannot be placed or compared."""
        source = self._source_read(shape)
        if source is None:
            return
        types = {column.name.lower(): column.type for column in source.columns}
        for key, written in zip(shape.keys, shape.select.keys, strict=True):
            is_column = len(shape.names.elements(key.words)) == 1
            kind = types.get(key.words[-1].text.lower()) if is_column else None
            reason = refused_key(kind) if kind is not None else None
            if reason is not None:
                raise shape.select.script.bad(
                    f"{key.words[-1].text!r} of type {kind} cannot be a key: {reason}", written[0]
                )

    def _source_read(self, shape: Shape) -> DeclaredSource | None:
        """The source that a stream reads; None if it reads a stream."""
        return self._pipeline.sources.get(self._inputs[shape.select.table.text.lower()])

    def _updating_input(self, name: str) -> str | None:
        at = self.input_stream(name)
        while at is not None:
            if self._shapes[at].is_updating:
                return at
            at = self.input_stream(at)
        return None

    def _source_of(self, name: str) -> DeclaredSource:
        """The source that a stream begins with."""
        at = name
        while (before := self.input_stream(at)) is not None:
            at = before
        table = self._shapes[at].select.table.text
        return self._pipeline.sources[self._inputs[table.lower()]]

    def everything_is_read(self) -> None:
        """What nothing reads would run and produce nothing that anybody sees."""
        read = {self._inputs[sink.stream.lower()] for sink in self._pipeline.sinks.values()}
        for shape in self._shapes.values():
            read.add(self._inputs[shape.select.table.text.lower()])
        for stream in self._pipeline.streams.values():
            if stream.name not in read:
                raise self._bad(
                    f"nothing reads the stream {stream.name!r}",
                    stream,
                    f"Write CREATE SINK ... FROM {stream.name}, or leave it out",
                )
        for source in self._pipeline.sources.values():
            if source.name not in read:
                message = f"nothing reads the source {source.name!r}"
                raise self._bad(message, source, "Leave it out, or read it in a stream")

    def _bad(
        self, message: str, at: DeclaredSource | Stream | DeclaredSink, advice: str
    ) -> BadPipeline:
        return bad_at(message, self._file, at.place, advice)


def _window_of(shape: Shape) -> Words:
    return next(key for key in shape.keys if key.is_window).words
