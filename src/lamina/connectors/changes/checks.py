"""What every source of changes asks of its declaration; nothing is connected yet."""

from __future__ import annotations

from lamina.connectors.keyed_options import KEYS
from lamina.connectors.kinds import SourceContext
from lamina.connectors.options import bad_option

_FLOATS = ("float", "real", "double")


def check_changes(context: SourceContext) -> None:
    """BadPipeline if it has a watermark, or keys that cannot tell rows apart."""
    source, given = context.source, context.given
    if source.watermark is not None:
        message = "has a WATERMARK: a row of a table can change at any time, so none is complete"
        advice = "Leave it out. GROUP BY date_trunc('hour', ts) needs none, with EMIT CHANGES"
        raise bad_option(source, message, given.file, advice)
    declared = {column.name.lower(): column for column in source.columns}
    for key in given.columns(KEYS.name):
        if key.lower() not in declared:
            message = f"has the key {key!r}, which is not one of its columns"
            advice = f"Its columns: {', '.join(column.name for column in source.columns)}"
            raise bad_option(source, message, given.file, advice)
        if declared[key.lower()].type.lower().startswith(_FLOATS):
            message = f"has the key {key!r}, a floating-point number: 0 and -0 would be one key"
            raise bad_option(source, message, given.file, "Declare it STRING")


def check_types(context: SourceContext, printed_by: str) -> None:
    """BadPipeline if no column of a table can be read as a declared type."""
    from lamina.connectors.changes.types import arrow_type  # noqa: PLC0415  pyarrow is slow

    for column in context.source.columns:
        if arrow_type(column.type) is None:
            message = f"has the column {column.name!r} of type {column.type}"
            advice = f"Declare it STRING: then it is the text that {printed_by} prints"
            raise bad_option(context.source, message, context.given.file, advice)
