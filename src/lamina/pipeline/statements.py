"""A pipeline file: CREATE SOURCE, TABLE, STREAM, SINK, FUNCTION, with Spark's own clause words.

CREATE SOURCE name (column type [METADATA FROM 'what'], ...) USING format
    [OPTIONS (key 'value', ...)]
    [WATERMARK column DELAY OF INTERVAL n unit]
CREATE TABLE name (column type, ...) USING format [OPTIONS (key 'value', ...)]
CREATE STREAM name AS SELECT ... [EMIT ON WINDOW CLOSE | EMIT ON UPDATE | EMIT CHANGES]
    [EVERY INTERVAL n unit]
    [ALLOW LATENESS INTERVAL n unit] [LATE ROWS TO stream]
CREATE SINK name FROM stream USING format [OPTIONS (key 'value', ...)]
CREATE FUNCTION name (parameter type, ...) RETURNS type LANGUAGE PYTHON [PARAMETER STYLE ARROW]
    AS 'module:function' [VERSION '1']
CREATE AGGREGATE FUNCTION name (parameter type, ...) RETURNS type LANGUAGE PYTHON
    AS 'module:Class' [VERSION '1']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from lamina.pipeline.cursor import Cursor
from lamina.pipeline.definitions import Definitions, event_time
from lamina.pipeline.emits import split_emit
from lamina.pipeline.intervals import read_interval
from lamina.pipeline.lateness import split_lateness
from lamina.pipeline.model import (
    Code,
    Column,
    DeclaredFunction,
    DeclaredSink,
    DeclaredSource,
    DeclaredTable,
    Option,
    Pipeline,
    Stream,
    Watermark,
)
from lamina.pipeline.tokens import Script, Word, read_script, whole_number
from lamina.pipeline.variables import check_outside, error_at, fill, used

_BOM = "\ufeff"
VERSION = "1"
"""Of Python code that does not say which."""


def parse_pipeline(
    text: str, environment: Mapping[str, str] | None = None, *, file: str = "pipeline"
) -> Pipeline:
    """The pipeline of a file; BadPipeline with line and column if it is none."""
    script = read_script(text.removeprefix(_BOM), file)
    found = Definitions(file)
    for words in _statements(script):
        check_outside(script, words)
        _statement(Cursor(script, words), found, environment or {})
    return found.pipeline()


def _statements(script: Script) -> Iterator[tuple[Word, ...]]:
    words: list[Word] = []
    for word in script.words:
        if word.upper == ";":
            if words:
                yield tuple(words)
            words = []
        else:
            words.append(word)
    if words:
        yield tuple(words)


def _statement(cursor: Cursor, found: Definitions, environment: Mapping[str, str]) -> None:
    if not cursor.take("CREATE"):
        raise cursor.bad(
            f"a statement begins with CREATE, not {cursor.shown()}",
            "There are CREATE SOURCE, CREATE TABLE, CREATE STREAM, CREATE SINK, CREATE FUNCTION "
            "and CREATE AGGREGATE FUNCTION",
        )
    if cursor.comes("OR", "REPLACE") or cursor.comes("IF", "NOT", "EXISTS"):
        raise cursor.bad(
            f"{cursor.shown()}: a file defines each name once, so there is nothing to replace"
        )
    for kind, read in _READERS.items():
        if cursor.take(*kind.split()):
            at = cursor.place()
            found.add(read(cursor, environment), at)
            return
    raise cursor.bad(
        "CREATE SOURCE, TABLE, STREAM, SINK, FUNCTION or AGGREGATE FUNCTION is expected, not "
        f"CREATE {cursor.shown()}",
    )


def _source(cursor: Cursor, environment: Mapping[str, str]) -> DeclaredSource:
    place = cursor.place()
    name = cursor.name("a source").text
    columns = read_columns(cursor)
    cursor.expect("USING", after="the columns")
    kind = cursor.name("a format").text.lower()
    options = _options(cursor, environment)
    watermark = _watermark(cursor, columns)
    cursor.end("CREATE SOURCE")
    return DeclaredSource(name, columns, kind, options, watermark, place)


def _table(cursor: Cursor, environment: Mapping[str, str]) -> DeclaredTable:
    place = cursor.place()
    name = cursor.name("a table").text
    columns = read_columns(cursor)
    cursor.expect("USING", after="the columns")
    kind = cursor.name("a format").text.lower()
    options = _options(cursor, environment)
    if cursor.comes("WATERMARK"):
        raise cursor.bad("a table has no watermark: an epoch reads all of it", "Leave it out")
    cursor.end("CREATE TABLE")
    return DeclaredTable(name, columns, kind, options, place)


def _stream(cursor: Cursor, environment: Mapping[str, str]) -> Stream:
    name = cursor.name("a stream").text
    cursor.expect("AS", after=f"CREATE STREAM {name}")
    if cursor.next is None or cursor.next.upper not in ("SELECT", "WITH", "("):
        advice = "Write SELECT ... FROM name, or WITH ... SELECT"
        raise cursor.bad(f"a SELECT is expected, not {cursor.shown()}", advice)
    place = cursor.place()
    words, late = split_lateness(cursor.script, cursor.rest)
    words, clause = split_emit(cursor.script, words)
    variables = used(cursor.script, words, environment)
    text, emit, every_us = cursor.script.slice(words), clause.emit, clause.every_us
    return Stream(name, text, emit, variables, place, late=late, every_us=every_us)


def _sink(cursor: Cursor, environment: Mapping[str, str]) -> DeclaredSink:
    place = cursor.place()
    name = cursor.name("a sink").text
    cursor.expect("FROM", after=f"CREATE SINK {name}")
    stream = cursor.name("a stream").text
    cursor.expect("USING", after="the name of the stream")
    kind = cursor.name("a format").text.lower()
    options = _options(cursor, environment)
    cursor.end("CREATE SINK")
    return DeclaredSink(name, stream, kind, options, place)


def _function(cursor: Cursor, environment: Mapping[str, str]) -> DeclaredFunction:
    del environment  # nothing of it is a text that a variable may stand in
    return _declared(cursor, "CREATE FUNCTION")


def _aggregate(cursor: Cursor, environment: Mapping[str, str]) -> DeclaredFunction:
    del environment
    return _declared(cursor, "CREATE AGGREGATE FUNCTION")


def _declared(cursor: Cursor, statement: str) -> DeclaredFunction:
    place = cursor.place()
    name = cursor.name("a function").text
    parameters = read_columns(cursor, "the parameters")
    cursor.expect("RETURNS", after="the parameters")
    returns = _up_to(cursor, "LANGUAGE", f"the type that {name} returns")
    cursor.expect("LANGUAGE", "PYTHON", after="the type")
    is_aggregate = statement != "CREATE FUNCTION"
    if is_aggregate and cursor.comes("PARAMETER"):
        advice = "Leave out PARAMETER STYLE"
        raise cursor.bad("an aggregate is always called with Arrow columns", advice)
    of_arrays = cursor.take("PARAMETER")
    if of_arrays:
        cursor.expect("STYLE", "ARROW", after="PARAMETER")
    cursor.expect("AS", after="LANGUAGE PYTHON")
    code = _text(cursor, "AS", "'module:Class'" if is_aggregate else "'module:function'")
    version = _text(cursor, "VERSION", "'1'") if cursor.take("VERSION") else VERSION
    cursor.end(statement)
    return DeclaredFunction(
        name, parameters, returns, Code(code, version), of_arrays, place, is_aggregate
    )


def _up_to(cursor: Cursor, keyword: str, what: str) -> str:
    """The text up to a keyword, which there must be."""
    words: list[Word] = []
    while cursor.next is not None and not cursor.comes(keyword):
        words.append(cursor.any(what))
    if not words:
        raise cursor.bad(f"{what} is missing")
    return cursor.script.slice(tuple(words))


def _text(cursor: Cursor, after: str, example: str) -> str:
    word = cursor.any("a text in quotes")
    if not word.is_string or not word.text:
        raise cursor.script.bad(f"a text in quotes follows {after}, as {example}", word)
    return word.text


def read_columns(cursor: Cursor, what: str = "the columns") -> tuple[Column, ...]:
    """(name type, ...): the type is Spark's, taken as it stands."""
    if not cursor.take("("):
        raise cursor.bad(
            f"{what} in brackets are expected, not {cursor.shown()}",
            f"{what.removeprefix('the ').capitalize()} are always given: nothing is inferred",
        )
    columns: list[Column] = []
    while True:
        name = cursor.name("a column")
        if any(column.name.lower() == name.text.lower() for column in columns):
            raise cursor.script.bad(f"the column {name.text!r} is defined twice", name)
        words = cursor.type_words(name.depth)
        if not words:
            raise cursor.bad(f"the type of {name.text!r} is missing")
        columns.append(_column(cursor.script, name, words))
        if cursor.take(")"):
            return tuple(columns)
        cursor.expect(",", after=f"the column {name.text}")


def _column(script: Script, name: Word, words: tuple[Word, ...]) -> Column:
    """A type and, behind it, where the values come from: METADATA FROM 'timestamp'."""
    said = [word.upper for word in words]
    at = next((i for i in range(len(said) - 1) if said[i : i + 2] == ["METADATA", "FROM"]), None)
    if at is None:
        return Column(name.text, script.slice(words))
    if at == 0:
        raise script.bad(f"the type of {name.text!r} is missing", words[0])
    if len(words) != at + 3 or not words[-1].is_string or not words[-1].text:
        raise script.bad(
            f"METADATA FROM of {name.text!r} is followed by one text in quotes",
            words[at],
            "Write it last: ts TIMESTAMP METADATA FROM 'timestamp'",
        )
    return Column(name.text, script.slice(words[:at]), words[-1].text)


def _options(cursor: Cursor, environment: Mapping[str, str]) -> dict[str, Option]:
    """OPTIONS (key 'value', `a.b` = 'value', ...); a key may have dots."""
    if not cursor.take("OPTIONS"):
        return {}
    cursor.expect("(", after="OPTIONS")
    options: dict[str, Option] = {}
    while True:
        first = cursor.next
        key = _option_name(cursor)
        if key.lower() in map(str.lower, options):
            raise cursor.script.bad(f"the option {key!r} is given twice", first)
        cursor.take("=")
        value = cursor.any("a value")
        is_number = value.is_number and whole_number(value.text) is not None
        if not value.is_string and not is_number and value.upper not in ("TRUE", "FALSE"):
            raise cursor.script.bad(
                f"the value of {key!r} is a text in quotes, a whole number, true or false", value
            )
        filled = fill(value.text, environment, error_at(cursor.script, value))
        options[key] = Option(value.text, filled)
        if cursor.take(")"):
            return options
        cursor.expect(",", after=f"the option {key}")


def _option_name(cursor: Cursor) -> str:
    if cursor.next is not None and cursor.next.is_string:
        return cursor.any("an option").text
    key = cursor.name("an option").text
    while cursor.take("."):
        key += f".{cursor.name('an option').text}"
    return key


def _watermark(cursor: Cursor, columns: tuple[Column, ...]) -> Watermark | None:
    if not cursor.take("WATERMARK"):
        return None
    at = cursor.next
    column = cursor.name("the column of event time").text
    known = event_time(columns, column)
    if known is None:
        raise cursor.script.bad(f"there is no column {column!r} to take event times from", at)
    cursor.expect("DELAY", "OF", after=f"WATERMARK {column}")
    return Watermark(known, read_interval(cursor, after="DELAY OF"))


_Statement: TypeAlias = "DeclaredSource | DeclaredTable | Stream | DeclaredSink | DeclaredFunction"
_Reader: TypeAlias = "Callable[[Cursor, Mapping[str, str]], _Statement]"
_READERS: Mapping[str, _Reader] = {
    "SOURCE": _source,
    "TABLE": _table,
    "STREAM": _stream,
    "SINK": _sink,
    "FUNCTION": _function,
    "AGGREGATE FUNCTION": _aggregate,
}
