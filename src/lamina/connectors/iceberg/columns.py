"""Columns of a stream and of an Iceberg table: do they fit, and what does the table lack?"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyiceberg.io.pyarrow import (
    UnsupportedPyArrowTypeException,
    _pyarrow_to_schema_without_ids,
    schema_to_pyarrow,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from lamina.errors import Refused

_Compare = Callable[[IcebergType, IcebergType], bool]
_WIDER = {(IntegerType, LongType), (FloatType, DoubleType)}


def table_schema(columns: pa.Schema, where: str) -> Schema:
    """The schema of a table for these columns. Refused if Iceberg has no such type."""
    fields = [_iceberg_field(column, where) for column in columns]
    return assign_fresh_schema_ids(Schema(*fields))


def partition_spec(schema: Schema, names: tuple[str, ...], where: str) -> PartitionSpec:
    """One partition for each value of these columns, which are in *schema*."""
    fields = []
    for number, name in enumerate(names):
        column = _find(schema, name)
        if column is None or not _can_partition(column.field_type):
            message = f"the table cannot be partitioned by {name!r}, which is "
            message += "not a column of the stream" if column is None else str(column.field_type)
            known = ", ".join(field.name for field in schema.fields)
            raise Refused(message, where=where, advice=f"Columns of the stream: {known}")
        fields.append(
            PartitionField(column.field_id, 1000 + number, IdentityTransform(), column.name)
        )
    return PartitionSpec(*fields)


def _can_partition(kind: IcebergType) -> bool:
    """Not floats: NaN is like nothing, not even itself."""
    return isinstance(kind, PrimitiveType) and not isinstance(kind, FloatType | DoubleType)


def check_partitions(table: Table, names: tuple[str, ...], where: str) -> None:
    """Refused if the table is partitioned in another way than the pipeline says, if it does."""
    identities = [
        table.schema().find_column_name(field.source_id)
        for field in table.spec().fields
        if isinstance(field.transform, IdentityTransform)
    ]
    sources = [table.schema().find_field(field.source_id) for field in table.spec().fields]
    for source in sources:
        if not _can_partition(source.field_type):
            message = f"the table is partitioned by {source.name!r}, which is {source.field_type}"
            raise Refused(message, where=where, advice="Partition it by another column")
    wanted = [name.lower() for name in names]
    if names and wanted != [str(name).lower() for name in identities]:
        message = f"the table has the partitions {table.spec()}, not {', '.join(names)}"
        advice = "Leave out partition_by: a table that exists is written as it is partitioned"
        raise Refused(" ".join(message.split()), where=where, advice=advice)


def check_keys(columns: pa.Schema, keys: tuple[str, ...], where: str) -> None:
    """Refused if rows cannot be told apart by a column of these."""
    for name in keys:
        kind = columns.field(name).type
        if pa.types.is_nested(kind):
            message = f"the key {name!r} is {kind}, by which rows cannot be found"
            raise Refused(message, where=where, advice="Use its parts as keys, or CAST it")


def check_upserts(table: Schema, where: str) -> None:
    """Refused if rows of the table cannot be read and written again without a change.

    pyiceberg reads a NULL list of structs as an empty one (0.12.0).
    """
    for field in table.fields:
        if _has_structs(field.field_type, in_list=False):
            message = f"the column {field.name!r} is {field.field_type}: rows with lists or maps "
            message += "of structs cannot be replaced by key"
            raise Refused(message, where=where, advice="Use mode 'append', or to_json(...) in SQL")


def _has_structs(kind: IcebergType, *, in_list: bool) -> bool:
    if isinstance(kind, ListType):
        return _has_structs(kind.element_type, in_list=True)
    if isinstance(kind, MapType):
        return any(_has_structs(t, in_list=True) for t in (kind.key_type, kind.value_type))
    if isinstance(kind, StructType):
        parts = (_has_structs(field.field_type, in_list=in_list) for field in kind.fields)
        return in_list or any(parts)
    return False


def missing_columns(columns: pa.Schema, table: Schema, where: str) -> list[NestedField]:
    """What the table lacks. Refused if a column cannot go where its name says."""
    missing = []
    for column in columns:
        given, found = _iceberg_field(column, where), _find(table, column.name)
        if found is None:
            missing.append(given)
        elif found.name != column.name:
            message = f"the stream has the column {column.name!r} and the table has {found.name!r}"
            raise Refused(message, where=where, advice=f"Call it {found.name!r} in the stream: AS")
        elif not _fits(given.field_type, found.field_type):
            message = f"the column {column.name!r} is {given.field_type} in the stream and "
            message += f"{found.field_type} in the table"
            raise Refused(message, where=where, advice="CAST it in the stream")
        elif found.required and column.nullable:
            _refuse_required(found, "may be NULL in the stream", where)
    names = {column.name for column in columns}
    for field in table.fields:
        if field.required and field.name not in names and field.write_default is None:
            _refuse_required(field, "is not in the stream", where)
    return missing


def check_none_missing(missing: list[NestedField], where: str) -> None:
    if missing:
        names = ", ".join(repr(field.name) for field in missing)
        message = f"the table has no column {names}"
        advice = "Write OPTIONS (merge_schema 'true') to add what is missing, or ALTER TABLE"
        raise Refused(message, where=where, advice=advice)


def add_columns(transaction: Transaction, missing: list[NestedField]) -> None:
    with transaction.update_schema() as update:
        for field in missing:
            update.add_column((field.name,), field.field_type)


def as_in_table(rows: pa.Table, table: Table) -> pa.Table:
    """The same rows with the types of the table's columns."""
    target = schema_to_pyarrow(table.schema(), include_field_ids=False)
    return rows.cast(pa.schema([target.field(name) for name in rows.column_names]))


def is_as_in_table(columns: pa.Schema, table: Table) -> bool:
    """Whether a Parquet file of these columns has the types that the table's own files have."""
    fields = {field.name: field for field in table.schema().fields}
    for column in columns:
        given, field = _iceberg_field(column, ""), fields[column.name]
        if field.required or _has_narrow(column.type):
            return False
        if not _same(given.field_type, field.field_type):
            return False
    return True


def _iceberg_field(column: pa.Field, where: str) -> NestedField:
    try:
        schema = _pyarrow_to_schema_without_ids(pa.schema([column.with_nullable(True)]))
    except (UnsupportedPyArrowTypeException, TypeError, ValueError) as error:
        message = f"the column {column.name!r} is {column.type}, which Iceberg cannot hold"
        raise Refused(message, where=where, advice="CAST it in the stream, to STRING") from error
    return schema.fields[0]


def _find(schema: Schema, name: str) -> NestedField | None:
    """A column by its name; if there is none, one whose name differs in case."""
    exact = [field for field in schema.fields if field.name == name]
    return next(iter(exact or [f for f in schema.fields if f.name.lower() == name.lower()]), None)


def _fits(given: IcebergType, wanted: IcebergType) -> bool:
    """Whether every value of *given* is one of *wanted*."""
    if isinstance(given, DecimalType) and isinstance(wanted, DecimalType):
        return given.scale == wanted.scale and given.precision <= wanted.precision
    if isinstance(given, PrimitiveType):
        return given == wanted or (type(given), type(wanted)) in _WIDER
    return _alike(given, wanted, _fits)


def _same(given: IcebergType, wanted: IcebergType) -> bool:
    """Whether they are one type, whatever the ids of their parts."""
    return given == wanted if isinstance(given, PrimitiveType) else _alike(given, wanted, _same)


def _alike(given: IcebergType, wanted: IcebergType, compare: _Compare) -> bool:
    if isinstance(given, ListType) and isinstance(wanted, ListType):
        return compare(given.element_type, wanted.element_type)
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return compare(given.key_type, wanted.key_type) and compare(
            given.value_type, wanted.value_type
        )
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        return [f.name for f in given.fields] == [f.name for f in wanted.fields] and all(
            compare(g.field_type, w.field_type)
            for g, w in zip(given.fields, wanted.fields, strict=True)
        )
    return False


def _has_narrow(kind: pa.DataType) -> bool:
    """Integers of 8 and 16 bits: other readers do not expect those in an Iceberg file."""
    if pa.types.is_nested(kind):
        return any(_has_narrow(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_integer(kind)) and kind.bit_width < 32


def _refuse_required(field: NestedField, why: str, where: str) -> None:
    raise Refused(
        f"the table's column {field.name!r} must not be NULL, and {why}",
        where=where,
        advice=f"ALTER TABLE ... ALTER COLUMN {field.name} DROP NOT NULL, or give the stream one",
    )
