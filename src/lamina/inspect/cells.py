"""Rows as JSON without loss of what JSON can say, as text that is safe to print, and as cells.

Bytes are hex in JSON; in text they are quoted if they are printable ASCII, otherwise hex.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyarrow import types

CELL_MAX = 200


def schema_shape(schema: pa.Schema) -> list[dict[str, Any]]:
    return [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in schema]


def schema_text(schema: pa.Schema) -> str:
    """`key: binary not null, value: binary`."""
    return ", ".join(f"{f.name}: {f.type}{'' if f.nullable else ' not null'}" for f in schema)


def row_shapes(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """Each row as a list, in the order of the schema: two columns may have one name."""
    for index in range(batch.num_rows):
        yield [_json(column[index]) for column in batch.columns]


def row_texts(batch: pa.RecordBatch) -> Iterator[str]:
    """`key='a', value=null`, a row at a time."""
    names = batch.schema.names
    for index in range(batch.num_rows):
        cells = (_text(column[index]) for column in batch.columns)
        yield ", ".join(f"{name}={cell}" for name, cell in zip(names, cells, strict=True))


def cells_of(batch: pa.RecordBatch) -> Iterator[tuple[str, ...]]:
    """Each row as the cells of a table: long ones are cut, and say so."""
    kinds = batch.schema.types
    for row in row_shapes(batch):
        yield tuple(_cell(kind, value) for kind, value in zip(kinds, row, strict=True))


def is_bytes(kind: pa.DataType) -> bool:
    return _is(kind, _BYTES)


def is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _cell(kind: pa.DataType, value: Any) -> str:
    if value is None:
        return "null"
    if is_bytes(kind):
        data = bytes.fromhex(value)
        text = data.decode() if data.isascii() and data.decode().isprintable() else f"0x{value}"
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= CELL_MAX else f"{text[:CELL_MAX]}... ({len(text)} characters)"


def _json(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    return next(show for tests, show in _SHAPES if _is(value.type, tests))(value)


def _text(value: pa.Scalar) -> str:
    if value.is_valid and _is(value.type, _BYTES):
        data: bytes = value.as_py()
        return repr(data)[1:] if data.isascii() and data.decode().isprintable() else data.hex()
    return json.dumps(_json(value))


def _float(value: pa.Scalar) -> Any:
    number = value.as_py()
    return number if math.isfinite(number) else str(number)  # JSON has no NaN


def _struct(value: pa.Scalar) -> dict[str, Any]:
    return {field.name: _json(value[i]) for i, field in enumerate(value.type)}


def _other(value: pa.Scalar) -> str:
    """Times, decimals and the like, as Arrow writes them: Python has no nanoseconds."""
    try:
        return str(value.cast(pa.string()).as_py())
    except (pa.ArrowException, ValueError):
        return f"({value.type})"


def _is(kind: pa.DataType, tests: tuple[Any, ...]) -> bool:
    return any(test(kind) for test in tests)


_BYTES = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
_TEXT = (types.is_string, types.is_large_string, types.is_string_view)
_LISTS = (types.is_list, types.is_large_list, types.is_fixed_size_list)
_SHAPES: tuple[tuple[tuple[Any, ...], Callable[[pa.Scalar], Any]], ...] = (
    (_BYTES, lambda value: value.as_py().hex()),
    ((types.is_boolean, types.is_integer, *_TEXT), lambda value: value.as_py()),
    ((types.is_floating,), _float),
    (_LISTS, lambda value: [_json(each) for each in value.values]),
    ((types.is_struct,), _struct),
    ((types.is_dictionary,), lambda value: _json(value.value)),
    ((lambda _: True,), _other),
)
