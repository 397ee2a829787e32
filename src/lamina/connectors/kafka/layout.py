"""Which columns of a stream go where: from the options of a sink, and checked against its types."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pt

from lamina.connectors.kafka.messages import Layout
from lamina.connectors.kinds import SinkContext
from lamina.connectors.options import bad_option
from lamina.engine.ports import Change, Output
from lamina.errors import BadPipeline

VALUE, KEY = "value", "key"


def layout_of(context: SinkContext, output: Output) -> Layout:
    """BadPipeline for columns that are not there, or whose types have no form in a message."""
    given = context.given
    headers = tuple(_column(context, output, "headers", name) for name in given.columns("headers"))
    partition = _named(context, output, "partition")
    timestamp = _named(context, output, "timestamp")
    apart = {*headers, *filter(None, (partition, timestamp))}
    rest = [name for name in output.schema.names if name not in apart]
    is_raw = given.text("format") == "raw"
    keys = _keys(context, output, [KEY] if is_raw and KEY in rest else [])
    values = _raw_value(context, output, rest, keys) if is_raw else tuple(rest)
    _check_types(context, output, partition, timestamp)
    replaces = output.change is not Change.APPEND
    return Layout(values, keys, headers, partition, timestamp, replaces, is_raw)


def _keys(context: SinkContext, output: Output, default: Sequence[str]) -> tuple[str, ...]:
    """By default those of a stream that replaces rows: what a compacted topic goes by."""
    by_key = output.change is not Change.APPEND
    wanted = context.given.columns("keys") or default or (output.keys if by_key else ()) or ()
    if by_key and not wanted:
        message = "gets rows that replace others, and the stream has no key columns"
        advice = "Write OPTIONS (keys 'a, b') with columns of the stream: they are the message key"
        raise _bad(context, message, advice)
    return tuple(_column(context, output, "keys", name) for name in wanted)


def _raw_value(
    context: SinkContext, output: Output, rest: Sequence[str], keys: Sequence[str]
) -> tuple[str, ...]:
    """The one column of a raw message; the only others are keys."""
    names = [name for name in rest if name not in keys or name == VALUE]
    kind = output.schema.field(VALUE).type if VALUE in names else None
    is_bytes = kind is not None and (_is_text(kind) or _is_binary(kind))
    if names != [VALUE] or not is_bytes:
        found = ", ".join(f"{name} {output.schema.field(name).type}" for name in names) or "none"
        message = f"has the format raw, and its stream the columns: {found}"
        advice = "SELECT one column `value`, STRING or BINARY, and columns for keys and headers"
        raise _bad(context, message, advice)
    return (VALUE,)


def _named(context: SinkContext, output: Output, option: str) -> str | None:
    name = context.given.text(option)
    return _column(context, output, option, name) if name else None


def _column(context: SinkContext, output: Output, option: str, name: str) -> str:
    known: dict[str, str] = {each.lower(): each for each in output.schema.names}
    if name.lower() not in known:
        message = f"has the {option} {name!r}, which is not a column of its stream"
        raise _bad(context, message, f"Its columns: {', '.join(known.values())}")
    return known[name.lower()]


def _check_types(
    context: SinkContext, output: Output, partition: str | None, timestamp: str | None
) -> None:
    schema = output.schema
    for field in schema:
        if (wrong := unsupported(field)) is not None:
            advice = f"Use CAST({field.name} AS STRING) in the stream"
            raise _bad(context, f"has the column {field.name!r} of the type {wrong}", advice)
    if partition is not None and not pt.is_integer(schema.field(partition).type):
        message = f"has the partition {partition!r}, which is not a whole number"
        raise _bad(context, message, "Use an INT column: the number of a partition, or null")
    if timestamp is not None and not pt.is_timestamp(schema.field(timestamp).type):
        message = f"has the timestamp {timestamp!r}, which is not a timestamp"
        raise _bad(context, message, "Use a TIMESTAMP column")


def unsupported(field: pa.Field) -> str | None:
    """A type in *field* that has no form in a message; None if all have one."""
    kind = field.type
    if (field.metadata or {}).get(b"variant") == b"true":
        return "VARIANT"
    if pt.is_map(kind) and not (_is_text(kind.key_type) or pt.is_integer(kind.key_type)):
        return f"MAP with keys of {kind.key_type}"
    if pt.is_nested(kind):
        return next((wrong for each in _inner(kind) if (wrong := unsupported(each))), None)
    if _is_text(kind) or _is_binary(kind) or pt.is_timestamp(kind) or pt.is_date(kind):
        return None
    is_number = pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)
    return None if is_number or pt.is_boolean(kind) or pt.is_null(kind) else str(kind)


def _inner(kind: pa.DataType) -> list[pa.Field]:
    if pt.is_struct(kind):
        return list(kind)
    return [kind.item_field if pt.is_map(kind) else kind.value_field]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind))


def _bad(context: SinkContext, message: str, advice: str) -> BadPipeline:
    return bad_option(context.sink, message, context.given.file, advice)
