"""What a pipeline is, as digests: to notice that it has changed, and to say what has.

Spaces, comments and case do not count, nor does where the environment puts a variable's value into
an option. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from lamina.format.canonical import Json, digest_of, sha256_hex
from lamina.format.pipeline_record import Owner, PipelineRecord
from lamina.ids import fold
from lamina.pipeline.expressions import calls
from lamina.pipeline.model import DeclaredFunction, Lateness, Pipeline, Stream
from lamina.pipeline.select import Select, read_select
from lamina.pipeline.tokens import read_script


def digests_of(pipeline: Pipeline, selects: Mapping[str, Json]) -> dict[str, str]:
    """A digest of every source, table, stream and sink, by name: they share one space of names.

    *selects* has the `words_of` each stream's SELECT.
    """
    definitions = {name: source.definition() for name, source in pipeline.sources.items()}
    definitions |= {name: table.definition() for name, table in pipeline.tables.items()}
    definitions |= {name: sink.definition() for name, sink in pipeline.sinks.items()}
    for stream in pipeline.streams.values():
        emit = None if stream.emit is None else stream.emit.value
        if stream.every_us is not None:
            emit = f"{emit} every {stream.every_us}"
        definitions[stream.name] = [selects[stream.name], emit]
        if stream.late != Lateness() or stream.late_of:
            late: Json = [stream.late.definition(), stream.late_of.lower()]
            definitions[stream.name] = [selects[stream.name], emit, late]
    return {name: digest_of(definition) for name, definition in definitions.items()}


def words_of(
    select: Select, stream: Stream, functions: Mapping[str, DeclaredFunction] | None = None
) -> Json:
    """A SELECT without its spaces, comments and upper case; and digests of its variables.

    What is Python is known by its version: that of the stream, or of the *functions* it calls.
    """
    if stream.python is not None:
        return stream.python.definition()
    words = select.script.words
    if stream.join is not None:  # the text of FROM; a WHERE may say what is kept, too
        words = tuple(
            word
            for text in (stream.select, stream.join.where)
            for word in read_script(text, stream.name).words
        )
    if stream.values is not None:
        words = tuple(
            word
            for _, text in stream.values.columns
            for word in read_script(text, stream.name).words
        )
    texts: list[Json] = [
        f"'{word.text}'" if word.is_string else word.text if word.is_quoted else word.text.lower()
        for word in words
    ]
    if stream.join is not None:
        texts.append(stream.join.ttl_us)
    values = {name: sha256_hex(value.encode()) for name, value in stream.variables.items()}
    names = {words[index].text.lower() for index, _ in calls(words)}
    called: dict[str, Json] = {
        name.lower(): each.definition()
        for name, each in (functions or {}).items()
        if name.lower() in names
    }
    return [texts, values, called] if called else [texts, values]


def hash_of(pipeline: Pipeline, digests: Mapping[str, str]) -> str:
    """One digest of all of it: the same in every process and release."""
    parts = {"sources": pipeline.sources, "streams": pipeline.streams, "sinks": pipeline.sinks}
    if pipeline.tables:  # without one, it is what it was before there were tables
        parts["tables"] = pipeline.tables
    return digest_of(
        {part: {fold(name): digests[name] for name in names} for part, names in parts.items()}
    )


def record_of_text(pipeline: Pipeline, name: str, *, file: str = "pipeline") -> PipelineRecord:
    """What a start would write down of a pipeline, as far as its text alone says it.

    Streams that a start adds for itself, as those of bad rows, are not in it.
    """
    selects = {
        stream.name: words_of(read_select(stream, file), stream, pipeline.functions)
        for stream in pipeline.streams.values()
    }
    digests = digests_of(pipeline, selects)
    return PipelineRecord(
        Owner(name=name),
        hash_of(pipeline, digests),
        *(
            {each: digests[each] for each in part}
            for part in (pipeline.sources, pipeline.streams, pipeline.sinks)
        ),
    )
