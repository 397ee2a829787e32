"""What a source of Debezium's envelopes may say; nothing is connected yet.

A declared type must say what a value is without a guess: in JSON some of Debezium's encodings
cannot be told from each other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lamina.connectors.changes.checks import check_changes, check_types
from lamina.connectors.keyed_options import KEYS
from lamina.connectors.kinds import BAD_ROWS_PATH, Given, SourceContext
from lamina.connectors.options import bad_option

DEBEZIUM_JSON, DEBEZIUM_AVRO = "debezium-json", "debezium-avro"
DEBEZIUM = (DEBEZIUM_JSON, DEBEZIUM_AVRO)
_FORMAT, _STARTING = "format", "startingOffsets"
_REFUSED: Mapping[str, str] = {
    BAD_ROWS_PATH: "a change that is kept apart would be missing from the table for ever",
    "compacted": "compaction may take a delete away before it is read",
    "idle_after": "a source of changes has no watermark",
}
_WHOLE = re.compile(r"(?:decimal|numeric|dec)\s*(?:\(\s*\d+\s*(?:,\s*0\s*)?\))?")


def is_debezium(given: Given) -> bool:
    """Whether the values of its records are versions of rows."""
    return given.text(_FORMAT) in DEBEZIUM


def check_debezium(context: SourceContext) -> None:
    """BadPipeline at what would lose a change, or guess what a value is."""
    source, given = context.source, context.given
    if not is_debezium(given):
        if given.columns(KEYS.name):
            message = f"has keys, and the format {given.text(_FORMAT)}: its rows replace no others"
            advice = f"Leave them out, or write format '{DEBEZIUM_JSON}'"
            raise bad_option(source, message, given.file, advice)
        return
    format_ = given.text(_FORMAT)
    if not given.columns(KEYS.name):
        message = f"has the format {format_}, and no keys"
        advice = "Write keys 'id': the primary key of the table"
        raise bad_option(source, message, given.file, advice)
    for name, why in _REFUSED.items():
        if given.declared.get(name):
            message = f"has {name}, and the format {format_}: {why}"
            raise bad_option(source, message, given.file, "Leave it out")
    if given.text(_STARTING).strip().lower() == "latest":
        message = f"begins at the latest offsets, and has the format {format_}: the rows that are "
        message += "there already would be missing"
        advice = "Begin at the earliest ones, with the snapshot that Debezium has taken"
        raise bad_option(source, message, given.file, advice)
    if found := next((column for column in source.columns if column.metadata), None):
        message = f"has the column {found.name!r} METADATA FROM, and the format {format_}"
        raise bad_option(source, message, given.file, "Columns are those of the table")
    check_changes(context)
    check_types(context, "Debezium")
    if format_ == DEBEZIUM_JSON:
        _check_json(context)


def _check_json(context: SourceContext) -> None:
    for column in context.source.columns:
        type_ = column.type.lower().removesuffix("not null").strip()
        advice = ""
        if type_ == "timestamp_ntz":
            message = "in JSON it is a number, and nobody knows whether of milliseconds or less"
            advice = "Declare it BIGINT, and write timestamp_micros(x) or timestamp_millis(x)"
        elif _WHOLE.fullmatch(type_):
            message = "in JSON its digits may be those of base64 (decimal.handling.mode precise)"
            advice = "Declare it STRING, and CAST it in a stream"
        if advice:
            said = f"has the column {column.name!r} of type {column.type}: {message}"
            raise bad_option(context.source, said, context.given.file, advice)
