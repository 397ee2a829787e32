"""A pipeline file: CREATE SOURCE, CREATE STREAM, CREATE SINK, with Spark's own clause words.

CREATE SOURCE name (column type, ...) USING format [OPTIONS (key 'value', ...)]
    [WATERMARK column DELAY OF INTERVAL n unit]
CREATE STREAM name AS SELECT ... [EMIT ON WINDOW CLOSE | EMIT ON UPDATE]
CREATE SINK name FROM stream USING format [OPTIONS (key 'value', ...)]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lamina.pipeline.model import Column, Emit, Option, Pipeline, Sink, Source, Stream, Watermark
from lamina.pipeline.tokens import Cursor, Script, Word, read_script
from lamina.pipeline.variables import fill, used

UNITS_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}


@dataclass(slots=True)
class _Found:
    """What has been read so far; names are one space, and case does not tell them apart."""

    sources: dict[str, Source] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    sinks: dict[str, Sink] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


def parse_pipeline(
    text: str, environment: Mapping[str, str] | None = None, *, file: str = "pipeline"
) -> Pipeline:
    """The pipeline of a file; BadPipeline with line and column if it is none."""
    script = read_script(text, file)
    found = _Found()
    for words in _statements(script):
        _statement(Cursor(script, words), found, environment or {})
    if not found.names:
        raise script.bad("there is no statement", 0, "A pipeline begins with CREATE SOURCE")
    return Pipeline(found.sources, found.streams, found.sinks)


def _statements(script: Script) -> Iterator[tuple[Word, ...]]:
    words: list[Word] = []
    for word in script.words:
        if word.text == ";" and not word.is_string:
            if words:
                yield tuple(words)
            words = []
        else:
            words.append(word)
    if words:
        yield tuple(words)


def _statement(cursor: Cursor, found: _Found, environment: Mapping[str, str]) -> None:
    if not cursor.take("CREATE"):
        raise cursor.bad(
            f"a statement begins with CREATE, not {cursor.shown()}",
            "There are CREATE SOURCE, CREATE STREAM and CREATE SINK",
        )
    if cursor.take("OR", "REPLACE"):
        raise cursor.bad(
            "OR REPLACE: a file defines each name once, so there is nothing to replace"
        )
    if cursor.take("SOURCE"):
        source = _source(cursor, environment)
        _add(cursor, found, source.name, "source", source)
    elif cursor.take("STREAM"):
        stream = _stream(cursor, environment)
        _add(cursor, found, stream.name, "stream", stream)
    elif cursor.take("SINK"):
        sink = _sink(cursor, environment)
        _add(cursor, found, sink.name, "sink", sink)
    else:
        raise cursor.bad(f"CREATE SOURCE, STREAM or SINK, not CREATE {cursor.shown()}")


def _add(
    cursor: Cursor, found: _Found, name: str, kind: str, value: Source | Stream | Sink
) -> None:
    taken = found.names.get(name.lower())
    if taken is not None:
        raise cursor.script.bad(
            f"{name!r} is the name of a {taken} already",
            cursor.first,
            "Sources, streams and sinks share one space of names",
        )
    found.names[name.lower()] = kind
    match value:
        case Source():
            found.sources[name] = value
        case Stream():
            found.streams[name] = value
        case Sink():
            found.sinks[name] = value


def _source(cursor: Cursor, environment: Mapping[str, str]) -> Source:
    place = cursor.place()
    name = cursor.name("a source").text
    columns = _columns(cursor)
    cursor.expect("USING", after="the columns")
    kind = cursor.name("a format").text.lower()
    options = _options(cursor, environment)
    watermark = _watermark(cursor, columns)
    cursor.end("CREATE SOURCE")
    return Source(name, columns, kind, options, watermark, place)


def _stream(cursor: Cursor, environment: Mapping[str, str]) -> Stream:
    name = cursor.name("a stream").text
    cursor.expect("AS", after=f"CREATE STREAM {name}")
    if cursor.next is None or cursor.next.upper not in ("SELECT", "WITH", "("):
        raise cursor.bad(f"a SELECT is expected, not {cursor.shown()}")
    place = cursor.place()
    words, emit = _emit(cursor)
    variables = used(cursor.script, words, environment)
    return Stream(name, cursor.script.slice(words), emit, variables, place)


def _sink(cursor: Cursor, environment: Mapping[str, str]) -> Sink:
    place = cursor.place()
    name = cursor.name("a sink").text
    cursor.expect("FROM", after=f"CREATE SINK {name}")
    stream = cursor.name("a stream").text
    cursor.expect("USING", after="the name of the stream")
    kind = cursor.name("a format").text.lower()
    options = _options(cursor, environment)
    cursor.end("CREATE SINK")
    return Sink(name, stream, kind, options, place)


def _columns(cursor: Cursor) -> tuple[Column, ...]:
    """(name type, ...): the type is Spark's, taken as it stands."""
    if not cursor.take("("):
        raise cursor.bad(
            f"the columns in brackets are expected, not {cursor.shown()}",
            "Columns are always given: nothing is inferred from data",
        )
    columns: list[Column] = []
    while True:
        name = cursor.name("a column")
        if any(column.name.lower() == name.text.lower() for column in columns):
            raise cursor.script.bad(f"the column {name.text!r} is there twice", name)
        words = cursor.until_comma(name.depth)
        if not words:
            raise cursor.bad(f"the type of {name.text!r} is missing")
        columns.append(Column(name.text, cursor.script.slice(words)))
        if cursor.take(")"):
            return tuple(columns)
        cursor.expect(",", after=f"the column {name.text}")


def _options(cursor: Cursor, environment: Mapping[str, str]) -> dict[str, Option]:
    """OPTIONS (key 'value', `a.b` = 'value', ...); a key may have dots."""
    if not cursor.take("OPTIONS"):
        return {}
    cursor.expect("(", after="OPTIONS")
    options: dict[str, Option] = {}
    while True:
        first = cursor.next
        key = cursor.name("an option").text
        while cursor.take("."):
            key += f".{cursor.name('an option').text}"
        if key.lower() in map(str.lower, options):
            raise cursor.script.bad(f"the option {key!r} is there twice", first)
        cursor.take("=")
        value = cursor.any("a value")
        if not value.is_string and not (value.text.isdigit() or value.upper in ("TRUE", "FALSE")):
            raise cursor.script.bad(
                f"the value of {key!r} is a text in quotes, a number, true or false", value
            )
        options[key] = Option(value.text, fill(cursor.script, value, environment))
        if cursor.take(")"):
            return options
        cursor.expect(",", after=f"the option {key}")


def _watermark(cursor: Cursor, columns: tuple[Column, ...]) -> Watermark | None:
    if not cursor.take("WATERMARK"):
        return None
    at = cursor.next
    column = cursor.name("the column of event time").text
    known = [each.name for each in columns if each.name.lower() == column.lower()]
    if not known:
        raise cursor.script.bad(f"there is no column {column!r} to take event times from", at)
    cursor.expect("DELAY", "OF", after=f"WATERMARK {column}")
    return Watermark(known[0], _interval(cursor))


def _interval(cursor: Cursor) -> int:
    """INTERVAL 5 SECONDS, or INTERVAL '5' SECOND, in microseconds."""
    cursor.expect("INTERVAL", after="DELAY OF")
    number, unit = cursor.any("a number"), cursor.any("a unit")
    name = unit.upper.removesuffix("S")
    if not number.text.isdigit() or name not in UNITS_US:
        raise cursor.script.bad(
            f"INTERVAL {number.text} {unit.text} is none that is known here",
            number,
            f"A whole number and one of {', '.join(UNITS_US)}",
        )
    return int(number.text) * UNITS_US[name]


def _emit(cursor: Cursor) -> tuple[tuple[Word, ...], Emit | None]:
    """The SELECT without its EMIT clause, and what that says."""
    words = cursor.rest
    at = next(
        (i for i, w in enumerate(words) if w.upper == "EMIT" and w.depth == words[0].depth), None
    )
    if at is None or [w.upper for w in words[at + 1 : at + 2]] != ["ON"]:
        return words, None
    said = tuple(word.upper for word in words[at + 2 :])
    match said:
        case ("WINDOW", "CLOSE"):
            return words[:at], Emit.ON_WINDOW_CLOSE
        case ("UPDATE",):
            return words[:at], Emit.ON_UPDATE
        case _:
            raise cursor.script.bad(
                f"EMIT ON {' '.join(said)} is not known",
                words[at],
                "There are EMIT ON WINDOW CLOSE and EMIT ON UPDATE",
            )
