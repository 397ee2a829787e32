"""Checks of a whole pipeline that need no Spark: refused here is what would not work later.

Nothing is accepted that then silently produces no rows.
"""

from __future__ import annotations

from collections.abc import Collection
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from itertools import chain

from lamina.errors import BadPipeline
from lamina.pipeline.aggregate_python import check_own_calls
from lamina.pipeline.blocks import keeps_state
from lamina.pipeline.distinct_checks import check_distinct
from lamina.pipeline.expressions import Words
from lamina.pipeline.join_checks import Inputs, check_join, check_window_over_asof
from lamina.pipeline.keys import Names, read_keys
from lamina.pipeline.lateness import check_lateness
from lamina.pipeline.model import (
    DeclaredSink,
    DeclaredSource,
    DeclaredTable,
    Emit,
    Pipeline,
    Stream,
)
from lamina.pipeline.nesting import (
    CLOCK,
    CLOCK_ADVICE,
    Origin,
    column_of,
    is_of_clock,
    item_of,
    nests,
    origins,
    reads_clock,
    time_of,
)
from lamina.pipeline.python_checks import NO_WATERMARK, check_python
from lamina.pipeline.rank_checks import check_overs, check_ranked
from lamina.pipeline.select import Select, read_select
from lamina.pipeline.shapes import Shape, check_key_types
from lamina.pipeline.sink_checks import check_paths
from lamina.pipeline.source_checks import check_source
from lamina.pipeline.table_joins import check_tables, check_tables_are_read, unknown_input
from lamina.pipeline.table_values import check_values
from lamina.pipeline.tokens import bad_at, did_you_mean
from lamina.pipeline.updates import (
    ADVICE,
    check_every,
    check_over_changes,
    check_window_over_changes,
    is_over,
    kept_columns,
)
from lamina.pipeline.windows import arguments, check_emit


def check_pipeline(
    pipeline: Pipeline, *, file: str = "pipeline", changing: Collection[str] = ()
) -> None:
    """BadPipeline, with place and advice, at the first thing that would not work.

    *changing* names the sources whose rows are changes.
    """
    checks = _Checks(pipeline, file, changing)
    for source in pipeline.sources.values():
        check_source(source, checks.bad)
    check_tables(pipeline, checks.bad)
    for sink in pipeline.sinks.values():
        checks.sink(sink)
    check_paths(pipeline.sinks.values(), checks.bad)
    for name in order(pipeline, file=file):
        checks.stream(pipeline.streams[name])
    checks.everything_is_read()
    check_tables_are_read(pipeline, checks.bad)


def order(pipeline: Pipeline, *, file: str = "pipeline") -> tuple[str, ...]:
    """The names of the streams, each after those that it reads; otherwise as they were written."""
    checks, written = _Checks(pipeline, file), list(pipeline.streams)
    graph = TopologicalSorter({name: checks.needed(name) for name in written})
    try:
        graph.prepare()
    except CycleError as error:
        circle = [str(name) for name in error.args[1][:0:-1]]  # each reads the next
        first = circle.index(min(circle, key=written.index))
        raise checks.circle(circle[first:] + circle[:first]) from None
    place = {name: number for number, name in enumerate(written)}
    done, ready = list[str](), list[int]()
    while graph.is_active():
        for name in graph.get_ready():
            heappush(ready, place[name])
        done.append(written[heappop(ready)])
        graph.done(done[-1])
    return tuple(done)


class _Checks:
    def __init__(self, pipeline: Pipeline, file: str, changing: Collection[str] = ()) -> None:
        self._pipeline = pipeline
        self._changing = changing  # sources
        self._file = file
        self._looking_up: set[str] = set()  # temporal joins over changes, as far as checked
        self._inputs = {n.lower(): n for n in chain(pipeline.sources, pipeline.streams)}
        self._shapes = {name: self._shape(each) for name, each in pipeline.streams.items()}

    def _shape(self, stream: Stream) -> Shape:
        select = read_select(stream, self._file)
        names = (self._inputs.get(each.lower(), "") for each in select.reads)
        sources = [self._pipeline.sources.get(name) for name in names]
        columns = {column.name.lower() for source in sources if source for column in source.columns}
        columns |= select.laterals.columns
        keys = read_keys(select, columns)
        known = Names(select.qualifier, columns)
        return Shape(stream, select, known, keys, keeps_state(select))

    # sources and sinks

    def sink(self, sink: DeclaredSink) -> None:
        name = self._inputs.get(sink.stream.lower())
        if name in self._pipeline.streams:
            return
        if name is not None:
            raise self.bad(
                f"the sink {sink.name!r} reads the source {name!r}",
                sink,
                f"Put a stream between them that takes all columns of {name}",
            )
        advice = did_you_mean(sink.stream, self._pipeline.streams)
        raise self.bad(f"there is no stream {sink.stream!r} to write", sink, advice)

    # streams, as a graph

    def select(self, name: str) -> Select | None:
        shape = self._shapes.get(name)
        return None if shape is None else shape.select

    def inputs(self, name: str) -> tuple[str, ...]:
        """The sources and streams that its rows come of; not those in which they are looked up."""
        return self.reads(name)[:1] if name in self._looking_up else self.reads(name)

    def reads(self, name: str) -> tuple[str, ...]:
        """The sources and streams that a stream reads."""
        select = self._shapes[name].select
        found: list[str] = []
        for each in select.reads:
            known = self._inputs.get(each.lower())
            if known is None:
                raise unknown_input(each, select, self._inputs.values(), self._pipeline.tables)
            found.append(known)
        return tuple(found)

    def columns(self, name: str) -> tuple[str, ...]:
        return tuple(column.name.lower() for column in self._pipeline.sources[name].columns)

    def needed(self, name: str) -> tuple[str, ...]:
        """What runs before it: the streams that it reads, and the one whose late rows it has."""
        late_of = self._pipeline.streams[name].late_of
        read = (each for each in self.reads(name) if each in self._pipeline.streams)
        return (*read, *((late_of,) if late_of else ()))

    def input_streams(self, name: str) -> tuple[str, ...]:
        """The streams that its rows come of."""
        return tuple(each for each in self.inputs(name) if each in self._pipeline.streams)

    def _sources_named(self, name: str) -> list[DeclaredSource]:
        return self._sources_of(self._inputs[name.lower()])

    def _sources_of(self, name: str) -> list[DeclaredSource]:
        """The sources that a stream begins with."""
        if name in self._pipeline.sources:
            return [self._pipeline.sources[name]]
        found = {s.name: s for each in self.inputs(name) for s in self._sources_of(each)}
        return list(found.values())

    def _updating_input(self, name: str) -> str | None:
        for each in self.input_streams(name):
            found = each if self._shapes[each].is_updating else self._updating_input(each)
            if found is not None:
                return found
        return None

    def circle(self, names: list[str]) -> BadPipeline:
        shape = self._shapes[names[0]]
        if len(names) == 1:
            message = f"the stream {names[0]!r} reads itself"
        else:
            message = f"the streams {' -> '.join([*names, names[0]])} read each other in a circle"
        advice = "Every stream begins, in the end, with a source"
        return shape.select.script.bad(message, shape.select.table, advice)

    def _changing_input(self, name: str) -> str | None:
        """What it reads, through others or not, whose rows are taken back."""
        found = (self._changing_part(each) for each in self.inputs(name))
        return next((each for each in found if each is not None), None)

    def _changing_part(self, name: str) -> str | None:
        """The source or stream itself, or what it reads, whose rows are taken back."""
        if name in self._changing:
            return name
        if name in self._pipeline.sources:
            return None
        shape = self._shapes[name]
        if shape.stream.emit is Emit.CHANGES:
            return name
        passes_on = not shape.is_aggregate or shape.select.distinct is not None
        return self._changing_input(name) if passes_on else None

    def stream(self, stream: Stream) -> None:
        shape = self._shapes[stream.name]
        script, table = shape.select.script, shape.select.table
        check_own_calls(shape.select)
        check_overs(shape.select)
        check_lateness(shape.select, stream, has_window=shape.has_window)
        changing, updating = self._changing_input(stream.name), self._updating_input(stream.name)
        if stream.join is not None:
            self._check_join(stream, updating)
            return
        if stream.values is not None:
            check_values(stream.values, changing or updating, self._file)
            return
        if stream.python is not None:
            check_python(stream, updating, changing, self._sources_of(stream.name), self.bad)
        if changing is not None and shape.is_aggregate:
            check_over_changes(shape, changing)
        if not shape.is_aggregate:
            if stream.emit is not None:
                said = f"EMIT {stream.emit.value.upper()}"
                raise script.bad(f"{said} in a stream without aggregates", 0, "Leave it out")
            self._check_where(shape)
            return
        if updating is not None:
            raise script.bad(
                f"an aggregate over the updating stream {updating!r}: it would count the old and "
                "the new value of a row",
                table,
                f"Let {updating!r} EMIT CHANGES or EMIT ON WINDOW CLOSE",
            )
        if shape.select.distinct is not None:
            check_distinct(shape, changing, self._sources_of(stream.name))
            return
        if shape.select.ranked is not None:
            check_ranked(shape.select, shape.select.ranked, stream.top)
        self._check_emit(shape)
        check_every(shape, self._sources_of(stream.name))
        if shape.is_updating and shape.select.having:
            message = "HAVING with EMIT ON UPDATE: the last row of a group that no longer meets it"
            at = shape.select.having[0]
            raise script.bad(f"{message} would stay the newest", at, ADVICE)
        self._check_key_types(shape)

    def _check_join(self, stream: Stream, updating: str | None) -> None:
        changing = [self._changing_part(name) for name in self.reads(stream.name)]
        if check_join(
            stream, Inputs(updating, changing, self._sources_named, self._changing), self._file
        ):
            self._looking_up.add(stream.name)

    def _check_where(self, shape: Shape) -> None:
        """Rows of an updating stream are all passed on, or none of a key."""
        select, updating = shape.select, self._updating_input(shape.stream.name)
        if updating is not None and len(select.reads) > 1:
            raise select.script.bad(
                f"UNION ALL over the updating stream {updating!r}: rows of one part could replace "
                "those of another",
                0,
                f"Let {updating!r} EMIT CHANGES or EMIT ON WINDOW CLOSE",
            )
        if updating is None or not select.where:
            return
        kept = kept_columns(self.inputs(shape.stream.name)[0], self)
        if kept is None or not is_over(select.where, kept, shape.names.qualifier):
            message = f"WHERE over the updating stream {updating!r}: the last version of a row that"
            raise select.script.bad(
                f"{message} no longer meets it would stay the newest", select.where[0], ADVICE
            )

    def _check_emit(self, shape: Shape) -> None:
        script, emit = shape.select.script, shape.stream.emit
        if not shape.has_window:
            if emit is Emit.ON_WINDOW_CLOSE:
                raise script.bad(
                    "EMIT ON WINDOW CLOSE without a window: no row would ever come out",
                    0,
                    "GROUP BY window(time, '1 minute') too, or EMIT ON UPDATE",
                )
            if emit is None:
                raise script.bad(
                    "an aggregate without a window is never complete",
                    0,
                    "Write EMIT ON UPDATE or EMIT CHANGES",
                )
            return
        at = shape.select.keys[[key.is_window for key in shape.keys].index(True)][0]
        for source in self._sources_of(shape.stream.name):
            if source.watermark is None:
                raise script.bad(
                    f"a window over {source.name!r}, which has no watermark: it would never close",
                    at,
                    NO_WATERMARK,
                )
        self._check_time(shape)
        if self._is_late(shape.stream.name) and not shape.stream.late.allowed_us:
            message = "a window over late rows: it has closed before any of them comes"
            raise script.bad(message, at, "Write ALLOW LATENESS INTERVAL ..., or use no window")
        check_emit(script, _window_of(shape), emit)
        if emit is None:
            raise script.bad(
                "a stream with a window says when its rows come out",
                0,
                "Write EMIT ON WINDOW CLOSE, EMIT ON UPDATE or EMIT CHANGES",
            )

    def _is_late(self, name: str) -> bool:
        """Whether rows come by way of a stream of late rows."""
        inputs = self.input_streams(name)
        return any(self._pipeline.streams[each].late_of or self._is_late(each) for each in inputs)

    def _check_time(self, shape: Shape) -> None:
        """What a window is over: the event time of its source, or the time of closed windows.

        Windows over windows close in one epoch with them: none may close before.
        """
        window = _window_of(shape)
        time = arguments(window)[0]
        if not time:
            return
        plain = column_of(time) if len(shape.names.elements(time)) == 1 else None
        for name in self.inputs(shape.stream.name):
            check_window_over_asof(shape.select.script, time, self._pipeline.streams, name)
            if reads_clock(time) or is_of_clock(self, name, plain):
                raise shape.select.script.bad(CLOCK, time[0], CLOCK_ADVICE)
            for origin in origins(self, name, plain):
                self._check_origin(shape, window, time, origin)

    def _check_origin(self, shape: Shape, window: Words, time: Words, origin: Origin) -> None:
        script, column = shape.select.script, origin.column
        source = self._pipeline.sources.get(origin.name)
        if source is not None:
            assert source.watermark is not None  # it was checked before
            named = {each.name.lower(): each.name for each in source.columns}
            if column in named and column != source.watermark.column.lower():
                raise script.bad(
                    f"a window over {named[column]!r}, but the watermark of {source.name!r} is on "
                    f"{source.watermark.column!r}: rows would be late that are not",
                    window[0],
                    "Take both from one column",
                )
            return
        inner = self._shapes[origin.name]
        check_window_over_changes(shape, inner, time[0])
        words = item_of(inner.select, column) if column else None
        what = time_of(words) if words else None
        if inner.has_window and (what is None or not nests(_window_of(inner), window, what)):
            raise script.bad(
                f"a window over the windows of {origin.name!r}: some would close before their "
                "last row comes",
                time[0],
                "Use `window.end - INTERVAL 1 MICROSECOND`, or `window.start` if the inner windows "
                "do not overlap and fill the outer ones; give it a name and leave it unchanged",
            )

    def _check_key_types(self, shape: Shape) -> None:
        """R9: keys of some types cannot be placed or compared."""
        read = (self._pipeline.sources.get(name) for name in self.inputs(shape.stream.name))
        types = {c.name.lower(): c.type for source in read if source for c in source.columns}
        check_key_types(shape, types)

    def everything_is_read(self) -> None:
        """What nothing reads would run and produce nothing that anybody sees."""
        read = {self._inputs[sink.stream.lower()] for sink in self._pipeline.sinks.values()}
        for name in self._shapes:
            read.update(self.reads(name))
        for stream in self._pipeline.streams.values():
            if stream.name not in read:
                raise self.bad(
                    f"nothing reads the stream {stream.name!r}",
                    stream,
                    f"Write CREATE SINK ... FROM {stream.name}, or leave it out",
                )
        for source in self._pipeline.sources.values():
            if source.name not in read:
                message = f"nothing reads the source {source.name!r}"
                raise self.bad(message, source, "Leave it out, or read it in a stream")

    def bad(
        self, message: str, at: DeclaredSource | DeclaredTable | Stream | DeclaredSink, advice: str
    ) -> BadPipeline:
        return bad_at(message, self._file, at.place, advice)


def _window_of(shape: Shape) -> Words:
    return next(key for key in shape.keys if key.is_window).words
