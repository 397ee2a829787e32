"""The same pipeline, written in Python: `build` gives what `parse_pipeline` gives of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from lamina.pipeline.cursor import Cursor
from lamina.pipeline.definitions import Definitions, event_time
from lamina.pipeline.intervals import UNITS_US, delay_us
from lamina.pipeline.model import (
    NOWHERE,
    Code,
    Column,
    DeclaredFunction,
    DeclaredSink,
    DeclaredSource,
    DeclaredTable,
    Emit,
    FrameFunction,
    KeyedFunction,
    Lateness,
    Option,
    Pipeline,
    Stream,
    Watermark,
)
from lamina.pipeline.statements import VERSION, read_columns
from lamina.pipeline.tokens import bad_at, read_script
from lamina.pipeline.variables import Bad, check_outside, fill, used

Options: TypeAlias = "Mapping[str, str | int | bool | Callable[..., Any]]"


class PipelineBuilder:
    """Collects sources, tables, streams and sinks; each call gives the builder back.

    `${VAR}` in options and in the literals of a SELECT is filled from *environment*.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, *, name: str = "pipeline"
    ) -> None:
        self._environment = environment or {}
        self._found = Definitions(name)

    def source(
        self,
        name: str,
        columns: str | Mapping[str, str],
        format: str,  # noqa: A002  the word of the file
        options: Options | None = None,
        *,
        watermark: tuple[str, str] | None = None,
    ) -> PipelineBuilder:
        """Rows from outside; *columns* as `"a INT, b STRING"` or by name, *watermark* as
        `("ts", "5 seconds")`."""
        read = self._columns(name, columns)
        kind = format.lower()
        marked = None if watermark is None else self._watermark(name, read, *watermark)
        self._found.add(DeclaredSource(name, read, kind, self._options(name, options), marked))
        return self

    def table(
        self,
        name: str,
        columns: str | Mapping[str, str],
        format: str,  # noqa: A002  the word of the file
        options: Options | None = None,
    ) -> PipelineBuilder:
        """Reference data that streams can be joined with; *columns* as those of a source."""
        read = self._columns(name, columns, "table")
        self._found.add(DeclaredTable(name, read, format.lower(), self._options(name, options)))
        return self

    def stream(
        self,
        name: str,
        select: str | Callable[..., Any],
        *,
        emit: Emit | None = None,
        inputs: Sequence[str] = (),
        version: str = VERSION,
        allow_lateness: str = "",
        late_rows_to: str = "",
        emit_every: str = "",
    ) -> PipelineBuilder:
        """One SELECT over a source or a stream, without its EMIT.

        Its windows stay open for *allow_lateness*, as `"1 hour"`, longer than the watermark says;
        what is later still becomes the stream *late_rows_to*. With *emit_every*, as `"1 minute"`,
        rows that have changed come out once in so much event time.

        Or a function of DataFrames, one for each of *inputs*, that gives a DataFrame: row by row,
        because an epoch is cut anywhere. A new *version* says that it computes something else.
        """
        if callable(select) and (allow_lateness or late_rows_to or emit_every):
            message = "a function of DataFrames has no windows and no groups: nothing is late for "
            raise bad_at(f"{message}it, and nothing waits", f"stream {name}", NOWHERE)
        if callable(select):
            self._function_stream(name, select, emit, inputs, version)
            return self
        if inputs or version != VERSION:
            message = "inputs and version are for a stream that is a function"
            raise bad_at(message, f"stream {name}", NOWHERE, "A SELECT says itself what it reads")
        script = read_script(select, f"stream {name}")
        check_outside(script, script.words)
        for word in script.words:
            if word.upper == ";":
                raise script.bad("a stream is one SELECT, without a semicolon", word)
        text = script.slice(script.words)
        if not text.upper().startswith(("SELECT", "WITH", "(")):
            raise script.bad("a SELECT is expected", 0)
        variables = used(script, script.words, self._environment)
        wait = self._length(f"stream {name}", allow_lateness) if allow_lateness else 0
        late = Lateness(wait, late_rows_to)
        every_us = self._length(f"stream {name}", emit_every) if emit_every else None
        emit = emit or (Emit.ON_UPDATE if emit_every else None)
        self._found.add(Stream(name, text, emit, variables, late=late, every_us=every_us))
        return self

    def keyed(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        inputs: Sequence[str],
        keys: Sequence[str],
        state: str | Mapping[str, str],
        output: str | Mapping[str, str],
        version: str = VERSION,
        timers: bool = False,
        ttl: str | None = None,
        initial: Mapping[str, Any] | None = None,
    ) -> PipelineBuilder:
        """A stream that keeps state by key: `function(keys, rows, state)` gives state and output.

        It is called for all keys of a partition that have rows or, with *timers*, are due. With a
        *ttl* (`"1 hour"`) the state of a key is forgotten so long after its latest row. *initial*
        is the state of a key that has none; otherwise that is null.
        """
        called = f"stream {name}"
        self._check_inputs(called, inputs)
        read = self._columns(name, state, "the state of")
        names = [each.name.lower() for each in read]
        python = KeyedFunction(
            _code(function, version),
            tuple(inputs),
            tuple([keys] if isinstance(keys, str) else keys),
            read,
            self._columns(name, output, "the output of"),
            timers,
            None if ttl is None else self._length(called, ttl),
            tuple((initial or {}).items()),
        )
        if not python.keys:
            raise bad_at("it has no keys", called, NOWHERE, "A constant column is one, too")
        for each in read:
            if each.name.startswith("_"):
                message = f"the column {each.name!r} of the state is reserved for Lamina"
                raise bad_at(message, called, NOWHERE, "Give it another name")
        for key in python.keys:
            if key.lower() in names:
                message = f"{key!r} is a key, and a column of the state"
                raise bad_at(message, called, NOWHERE, "Leave it out of the state")
        for column, _ in python.initial:
            if column.lower() not in names:
                raise bad_at(f"initial has {column!r}, the state has not", called, NOWHERE)
        if timers and ttl is not None:
            advice = "A function with timers says itself which keys are gone"
            raise bad_at("timers and a ttl exclude each other", called, NOWHERE, advice)
        self._found.add(Stream(name, "", python=python))
        return self

    def function(
        self,
        name: str,
        function: Callable[..., Any],
        parameters: str | Mapping[str, str],
        returns: str,
        *,
        arrow: bool = False,
        version: str = VERSION,
    ) -> PipelineBuilder:
        """A function that SELECTs can call, with *parameters* as `"a BIGINT, b STRING"`.

        It gets the values of one row; with *arrow*, `pyarrow` arrays of many. It must always give
        the same for the same: a new *version* says that it gives something else.
        """
        read = self._columns(name, parameters, "function")
        code = _code(function, version)
        self._found.add(DeclaredFunction(name, read, returns, code, arrow))
        return self

    def aggregate(
        self,
        name: str,
        aggregate: Any,
        parameters: str | Mapping[str, str],
        returns: str,
        *,
        version: str = VERSION,
    ) -> PipelineBuilder:
        """An aggregate that SELECTs can call: a class, or an object, with `state` and the methods
        `partial(rows)`, `merge(old, new)` and `finish(state)` over Arrow columns of many groups.

        A new *version* says that it computes something else.
        """
        read = self._columns(name, parameters, "aggregate")
        code = _code(aggregate, version)
        self._found.add(DeclaredFunction(name, read, returns, code, is_aggregate=True))
        return self

    def sink(
        self,
        name: str,
        stream: str,
        format: str,  # noqa: A002  the word of the file
        options: Options | None = None,
    ) -> PipelineBuilder:
        """Where the rows of a stream go."""
        self._found.add(DeclaredSink(name, stream, format.lower(), self._options(name, options)))
        return self

    def build(self) -> Pipeline:
        return self._found.pipeline()

    def _function_stream(
        self,
        name: str,
        function: Callable[..., Any],
        emit: Emit | None,
        inputs: Sequence[str],
        version: str,
    ) -> None:
        called = f"stream {name}"
        self._check_inputs(called, inputs)
        if emit is not None:
            message = "a function of rows has nothing to wait for: leave out emit"
            raise bad_at(message, called, NOWHERE)
        python = FrameFunction(_code(function, version), tuple(inputs))
        self._found.add(Stream(name, "", python=python))

    def _check_inputs(self, called: str, inputs: Sequence[str]) -> None:
        if isinstance(inputs, str) or not inputs:
            message = "a stream that is a function has a list of inputs"
            raise bad_at(message, called, NOWHERE, 'Write inputs=["trades"]')
        if len({each.lower() for each in inputs}) < len(inputs):
            raise bad_at("an input is given twice", called, NOWHERE)

    def _columns(
        self, name: str, columns: str | Mapping[str, str], what: str = "source"
    ) -> tuple[Column, ...]:
        if not isinstance(columns, str):
            columns = ", ".join(f"{_quoted(column)} {kind}" for column, kind in columns.items())
        script = read_script(f"({columns})", f"{what} {name}")
        cursor = Cursor(script, script.words)
        read = read_columns(cursor)
        cursor.end("the columns")
        return read

    def _watermark(
        self, name: str, columns: tuple[Column, ...], column: str, delay: str
    ) -> Watermark:
        known = event_time(columns, column)
        file = f"source {name}"
        if known is None:
            raise bad_at(f"there is no column {column!r} to take event times from", file, NOWHERE)
        return Watermark(known, self._length(file, delay))

    def _length(self, file: str, text: str) -> int:
        """A length of time, in microseconds."""
        number, _, unit = text.strip().partition(" ")
        microseconds = delay_us(number, unit)
        if microseconds is None:
            advice = f"A whole number and one of {', '.join(UNITS_US)}"
            raise bad_at(f"{text!r} is not a length of time", file, NOWHERE, advice)
        return microseconds

    def _options(self, name: str, options: Options | None) -> dict[str, Option]:
        found: dict[str, Option] = {}
        for key, value in (options or {}).items():
            if key.lower() in map(str.lower, found):
                raise bad_at(f"the option {key!r} is given twice", name, NOWHERE)
            found[key] = self._option(name, value)
        return found

    def _option(self, name: str, value: str | int | bool | Callable[..., Any]) -> Option:
        if callable(value):
            text = _named(value)
            return Option(text, text, value)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return Option(text, fill(text, self._environment, _error_of(name)))


def _code(function: Callable[..., Any], version: str) -> Code:
    return Code(_named(function), version, function)


def _named(function: Callable[..., Any]) -> str:
    called = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{function.__module__}:{called}"


def _error_of(name: str) -> Bad:
    return lambda message, advice: bad_at(message, name, NOWHERE, advice)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
