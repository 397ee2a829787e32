"""Columns: which a Delta table can hold, and whether those of a stream fit an existing table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable

from lamina.connectors.keyed import WriteMode, Writing
from lamina.connectors.kinds import SinkContext
from lamina.connectors.options import bad_option
from lamina.engine.ports import Output
from lamina.errors import Refused, Unsupported

_NOT_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")
_SIMPLE = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_date32,
    pa.types.is_decimal128,
)
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_PARTITION = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_date32,
    pa.types.is_string,
)
_FEATURES = frozenset(  # what they ask for is either done here, or looked for in the table below
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "generatedColumns",
        "invariants",
        "timestampNtz",
    }
)
_RULES = ("delta.generationExpression", "delta.identity", "delta.invariants")
RETENTION = "delta.setTransactionRetentionDuration"


# the stream's side


def table_schema(context: SinkContext, output: Output) -> pa.Schema:
    """The columns of a stream as a Delta table has them. BadPipeline if it cannot."""
    given, sink = context.given, context.sink
    fields = []
    for field in output.schema:
        if _NOT_IN_NAMES.search(field.name) or not field.name:
            message = (
                f"has a column {field.name!r}: Delta does not allow spaces and ,;{{}}()= there"
            )
            raise bad_option(sink, message, given.file, "Rename it in the SELECT: ... AS a_name")
        try:
            fields.append(pa.field(field.name, plain(field.type)))
        except _NoDeltaTypeError as error:
            message = f"has a column {field.name!r} of the type {error}, which Delta does not have"
            raise bad_option(sink, message, given.file, "CAST it in the SELECT") from None
    return pa.schema(fields)


class _NoDeltaTypeError(Exception):
    """A type that no Delta table has."""


def plain(kind: pa.DataType) -> pa.DataType:
    """The one Arrow type that stands for a type of Delta."""
    if any(is_kind(kind) for is_kind in _SIMPLE):
        return kind
    if any(is_kind(kind) for is_kind in _TEXTS):
        return pa.string()
    if any(is_kind(kind) for is_kind in _BYTES):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    return _nested(kind)


def _nested(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, plain(each.type)) for each in kind])
    raise _NoDeltaTypeError(str(kind))


def _has_required(kind: pa.DataType) -> bool:
    """Whether something inside of a nested type must not be null; keys of maps never are."""
    if pa.types.is_map(kind):
        inside = [kind.item_field]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inside = [kind.value_field]
    else:
        inside = list(kind) if pa.types.is_struct(kind) else []
    return any(not each.nullable or _has_required(each.type) for each in inside)


def partition_columns(context: SinkContext, schema: pa.Schema) -> tuple[str, ...]:
    """Those of the option, as the stream spells them. BadPipeline if they cannot be used."""
    given, sink = context.given, context.sink
    known = {name.lower(): name for name in schema.names}
    wanted = given.columns("partition_by")
    for name in wanted:
        if name.lower() not in known:
            message = f"is partitioned by {name!r}, which is not a column of its stream"
            raise bad_option(sink, message, given.file, f"Its columns: {', '.join(schema.names)}")
    found = tuple(known[name.lower()] for name in wanted)
    for name in found:
        if not can_partition(schema.field(name).type):
            message = f"is partitioned by {name!r}, which is {schema.field(name).type}"
            advice = "Use text, whole numbers, booleans or dates: CAST it in the SELECT"
            raise bad_option(sink, message, given.file, advice)
    if found and len(found) == len(schema.names):
        message = "is partitioned by all of its columns: nothing would be left for the files"
        raise bad_option(sink, message, given.file, "Leave one of them out")
    return found


def can_partition(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in _PARTITION)


# the table's side


@dataclass(frozen=True, slots=True)
class TableColumns:
    """What of a table matters to a writer."""

    schema: pa.Schema
    partition_by: tuple[str, ...]


def columns_of(table: DeltaTable, where: str) -> TableColumns:
    schema = pa.schema(table.schema().to_arrow())
    for each in schema:
        if _has_required(each.type):
            message = f"the table's column {each.name!r} has a part that is NOT NULL"
            raise Unsupported(message, where=where, advice="Use a table without it")
    fields = [pa.field(each.name, plain(each.type), each.nullable) for each in schema]
    return TableColumns(pa.schema(fields), tuple(table.metadata().partition_columns))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a sink writes, and how."""

    schema: pa.Schema
    partition_by: tuple[str, ...]
    writing: Writing
    merge_schema: bool = False
    compact_every: int = 0  # epochs; 0 is never

    def check(self, table: DeltaTable, where: str) -> TableColumns:
        """Refused or Unsupported if this stream cannot be written into *table*."""
        self._check_features(table, where)
        columns = columns_of(table, where)
        for problem, advice in self._misfits(columns):
            raise Refused(problem, where=where, advice=advice)
        return columns

    def missing(self, columns: TableColumns) -> list[str]:
        """What the table lacks of the stream's columns."""
        return [name for name in self.schema.names if name not in columns.schema.names]

    def check_none_missing(self, columns: TableColumns, where: str) -> None:
        """Also with merge_schema: a column that is missing in the middle of a run was dropped."""
        if missing := self.missing(columns):
            names = ", ".join(map(repr, missing))
            message = f"the table has lost the column {names}, which the stream writes"
            advice = "Restore it; or start again with merge_schema 'true', which adds it again"
            raise Refused(message, where=where, advice=advice)

    def _misfits(self, columns: TableColumns) -> Iterator[tuple[str, str]]:
        there = {name.lower(): name for name in columns.schema.names}
        for field in self.schema:
            name = there.get(field.name.lower())
            if name is None:
                if not self.merge_schema:
                    advice = "Write merge_schema 'true' to add it, or leave it out of the SELECT"
                    yield f"the table has no column {field.name!r}", advice
            elif name != field.name:
                advice = f"Write it as the table does: ... AS `{name}`"
                yield f"the table has {name!r}, and the stream {field.name!r}", advice
            elif columns.schema.field(name).type != field.type:
                has, gets = columns.schema.field(name).type, field.type
                advice = "CAST it in the SELECT to the type of the table"
                yield f"the column {name!r} is {has} in the table, and {gets} in the stream", advice
        for field in columns.schema:
            if field.name not in self.schema.names and not field.nullable:
                advice = "Add it to the SELECT, or let the table have nulls there"
                yield (
                    f"the table's column {field.name!r} is NOT NULL, and not in the stream",
                    advice,
                )
        if self.partition_by and self.partition_by != columns.partition_by:
            has = ", ".join(columns.partition_by) or "nothing"
            yield f"the table is partitioned by {has}", "Leave out partition_by: the table decides"
        for name in columns.partition_by:
            if not can_partition(columns.schema.field(name).type):
                kind = columns.schema.field(name).type
                advice = "Use a table that is partitioned by text, whole numbers or dates"
                yield f"the table is partitioned by {name!r}, which is {kind}", advice

    def _check_features(self, table: DeltaTable, where: str) -> None:
        protocol, settings = table.protocol(), table.metadata().configuration
        features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
        unknown = sorted(features - _FEATURES)
        unknown += [name for name in settings if name.startswith("delta.constraints.")]
        unknown += [RETENTION] if RETENTION in settings else []
        if settings.get("delta.columnMapping.mode", "none") != "none":
            unknown.append("columnMapping")
        schema = table.schema().to_json()
        unknown += [rule for rule in _RULES if f'"{rule}' in schema]
        if unknown:
            what = ", ".join(unknown)
            raise Unsupported(
                f"the table uses what this sink does not do: {what}",
                where=where,
                advice="Use a table without it"
                if RETENTION not in settings
                else f"Without {RETENTION} the mark of the sink never expires: unset it",
            )
        if self.writing.mode is WriteMode.UPSERT:
            for name in ("delta.appendOnly", "delta.enableChangeDataFeed"):
                if settings.get(name, "false").lower() == "true":
                    message = f"rows cannot be replaced by key in a table with {name} = true"
                    advice = "Unset it, or use another table"
                    raise Refused(message, where=where, advice=advice)
