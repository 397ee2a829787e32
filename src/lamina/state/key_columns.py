"""Key columns taken apart: what Spark hashes of an Arrow array, as numpy arrays.

A value becomes a word of 4 or 8 bytes, or a string of bytes; structs and lists keep their shape.
The same parts feed the hashes (hashing.py) and the canonical bytes (keys.py).

Arrow type                                  part
bool, int8..int32, uint8, uint16, date32    Words, uint32: the value as a signed int
int64, uint32, uint64                       Words, uint64: the value as a long; uint64 by its bits
float32, float64                            Words, uint32 / uint64: IEEE bits, 0.0 for -0.0, one NaN
decimal up to 18 digits                     Words, uint64: the unscaled value
decimal128 of 19 to 38 digits               Bytes: unscaled, big-endian two's complement, shortest
timestamp, duration (s, ms, us)             Words, uint64: microseconds
time32, time64                              Words, uint64: nanoseconds, as Spark's TIME
string, binary (large, view, fixed size)    Bytes
struct                                      Struct
list, large_list, fixed_size_list           List
dictionary                                  as its values

Spark has no unsigned types: they are hashed like the next wider signed one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types as at

from lamina.errors import UsageError

LONG_DIGITS_MAX: Final = 18
"""Decimals of up to this many digits are longs to Spark."""

FLOAT_NAN_BITS: Final = np.uint32(0x7FC0_0000)
DOUBLE_NAN_BITS: Final = np.uint64(0x7FF8_0000_0000_0000)

_MICROS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NANOS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}

Flags: TypeAlias = NDArray[np.bool_]
Sizes: TypeAlias = NDArray[np.int64]
Octets: TypeAlias = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Words:
    """One word a row, uint32 or uint64; *nulls* is None when no row is null."""

    nulls: Flags | None
    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: NDArray[Any]) -> Words:
        """The same for some rows."""
        return Words(_pick(self.nulls, rows), self.values[rows])


@dataclass(frozen=True, slots=True)
class Bytes:
    """Row i is data[starts[i] : starts[i] + lengths[i]]; null rows have length zero."""

    nulls: Flags | None
    data: Octets
    starts: Sizes
    lengths: Sizes

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: NDArray[Any]) -> Bytes:
        """The same for some rows."""
        return Bytes(_pick(self.nulls, rows), self.data, self.starts[rows], self.lengths[rows])


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in order; what they hold where the struct is null means nothing."""

    nulls: Flags | None
    fields: tuple[Part, ...]
    rows: int

    def __len__(self) -> int:
        return self.rows

    def take(self, rows: NDArray[Any]) -> Struct:
        """The same for some rows."""
        count = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
        return Struct(_pick(self.nulls, rows), tuple(f.take(rows) for f in self.fields), count)


@dataclass(frozen=True, slots=True)
class List:
    """Row i is items starts[i] to starts[i] + lengths[i]; null rows have length zero."""

    nulls: Flags | None
    items: Part
    starts: Sizes
    lengths: Sizes

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: NDArray[Any]) -> List:
        """The same for some rows."""
        return List(_pick(self.nulls, rows), self.items, self.starts[rows], self.lengths[rows])


Part: TypeAlias = Words | Bytes | Struct | List


def check_key_type(type: pa.DataType, column: str) -> None:  # noqa: A002
    """Raise UsageError, naming *column*, unless values of *type* can be part of a key."""
    if at.is_dictionary(type) and _is_decodable(type.value_type):
        check_key_type(type.value_type, column)
    elif at.is_struct(type):
        for field in type:
            check_key_type(field.type, f"{column}.{field.name}")
    elif _is_list(type):
        check_key_type(type.value_type, f"{column}[]")
    elif _is_nanos(type):
        raise UsageError(
            f"key column {column!r} is {type}: Spark keeps microseconds",
            advice="Cast it to microseconds first",
        )
    elif not _is_scalar_key(type):
        raise UsageError(
            f"key column {column!r} is {type}, which cannot be part of a key",
            advice="Use a number, string, binary, date, time, or a struct or list of them",
        )


def take_apart(column: pa.Array) -> Part:
    """The parts of *column*, whose type check_key_type has let pass."""
    kind = column.type
    if at.is_dictionary(kind):
        return take_apart(column.dictionary_decode())
    nulls = null_flags(column)
    if at.is_struct(kind):
        fields = tuple(take_apart(column.field(i)) for i in range(kind.num_fields))
        return Struct(nulls, fields, len(column))
    if _is_list(kind):
        return _list_part(column, nulls)
    if _is_byte_string(kind):
        return _bytes_part(column, nulls)
    if at.is_decimal128(kind) and kind.precision > LONG_DIGITS_MAX:
        return _wide_decimals(column, nulls)
    return Words(nulls, _words(column, nulls))


def null_flags(column: pa.Array) -> Flags | None:
    """True where *column* is null, or None if it is so nowhere."""
    if column.null_count == 0:
        return None
    return ~_bits(column.buffers()[0], column.offset, len(column))


def fixed_values(column: pa.Array, dtype: Any) -> NDArray[Any]:
    """The values of a fixed-width column as a view; where it is null they mean nothing."""
    buffer = column.buffers()[1]
    if len(column) == 0 or buffer is None:
        return np.zeros(len(column), dtype)
    size = np.dtype(dtype).itemsize
    return np.frombuffer(buffer, dtype, len(column), column.offset * size)


def list_bounds(column: pa.Array) -> tuple[pa.Array, Sizes, Sizes]:
    """The items of a list column, and where in them each row starts and how long it is."""
    rows = len(column)
    if at.is_fixed_size_list(column.type):
        size = column.type.list_size
        items = column.values.slice(column.offset * size, rows * size)
        return items, np.arange(rows, dtype=np.int64) * size, np.full(rows, size, np.int64)
    # Not column.offsets: an empty array may have no offsets at all.
    bounds = _offsets(column, large=at.is_large_list(column.type))
    items = column.values.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
    return items, bounds[:-1] - bounds[0], np.diff(bounds)


def _pick(nulls: Flags | None, rows: NDArray[Any]) -> Flags | None:
    return None if nulls is None else nulls[rows]


def _is_list(kind: pa.DataType) -> bool:
    return bool(at.is_list(kind) or at.is_large_list(kind) or at.is_fixed_size_list(kind))


def _is_byte_string(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (
            at.is_string,
            at.is_large_string,
            at.is_string_view,
            at.is_binary,
            at.is_large_binary,
            at.is_binary_view,
            at.is_fixed_size_binary,
        )
    )


def _is_decodable(values: pa.DataType) -> bool:
    """Arrow has no kernel to decode dictionaries of views."""
    is_view = at.is_string_view(values) or at.is_binary_view(values)
    return not (is_view or at.is_nested(values))


def _is_nanos(kind: pa.DataType) -> bool:
    return bool((at.is_timestamp(kind) or at.is_duration(kind)) and kind.unit == "ns")


def _is_scalar_key(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return False
    return _is_byte_string(kind) or any(
        is_kind(kind)
        for is_kind in (
            at.is_boolean,
            at.is_integer,
            at.is_float32,
            at.is_float64,
            _is_decimal_key,
            at.is_date32,
            at.is_time,
            at.is_timestamp,
            at.is_duration,
        )
    )


def _is_decimal_key(kind: pa.DataType) -> bool:
    return bool(at.is_decimal(kind) and kind.bit_width <= 128)


def _words(column: pa.Array, nulls: Flags | None) -> NDArray[Any]:
    kind = column.type
    if at.is_boolean(kind):
        return _bits(column.buffers()[1], column.offset, len(column)).astype(np.uint32)
    if at.is_floating(kind):
        return _float_words(column)
    if at.is_decimal(kind):
        return _narrow_decimals(column)
    if at.is_temporal(kind):
        return _temporal_words(column, nulls)
    return _integer_words(column)


def _temporal_words(column: pa.Array, nulls: Flags | None) -> NDArray[Any]:
    if at.is_date32(column.type):
        return fixed_values(column, np.uint32)
    units = _NANOS if at.is_time(column.type) else _MICROS
    return _scaled(column, nulls, factor=units[column.type.unit])


def _integer_words(column: pa.Array) -> NDArray[Any]:
    bits = column.type.bit_width
    values = fixed_values(column, column.type.to_pandas_dtype())
    if bits == 64 or (bits == 32 and at.is_unsigned_integer(column.type)):
        return values.astype(np.uint64, copy=False) if bits < 64 else values.view(np.uint64)
    return values.view(np.uint32) if bits == 32 else values.astype(np.int32).view(np.uint32)


def _float_words(column: pa.Array) -> NDArray[Any]:
    single = at.is_float32(column.type)
    values = fixed_values(column, np.float32 if single else np.float64)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        bits: NDArray[Any] = (values + values.dtype.type(0)).view(
            np.uint32 if single else np.uint64
        )
    np.copyto(bits, FLOAT_NAN_BITS if single else DOUBLE_NAN_BITS, where=np.isnan(values))
    return bits


def _narrow_decimals(column: pa.Array) -> NDArray[Any]:
    width = column.type.bit_width
    if width == 128:
        pairs = fixed_values(column, np.dtype([("low", "<u8"), ("high", "<i8")]))
        return pairs["low"].astype(np.uint64)
    signed = fixed_values(column, np.int32 if width == 32 else np.int64)
    return signed.astype(np.int64, copy=False).view(np.uint64)


def _scaled(column: pa.Array, nulls: Flags | None, *, factor: int) -> NDArray[Any]:
    values = fixed_values(column, np.int32 if column.type.bit_width == 32 else np.int64)
    values = values.astype(np.int64, copy=False)
    if factor == 1:
        return values.view(np.uint64)
    present = values if nulls is None else np.where(nulls, 0, values)
    limit = np.iinfo(np.int64).max // factor
    if len(present) and (present.max() > limit or present.min() < -limit):
        raise UsageError(f"a key of type {column.type} does not fit into Spark's 64 bits")
    return (present * np.int64(factor)).view(np.uint64)


def _wide_decimals(column: pa.Array, nulls: Flags | None) -> Bytes:
    """What BigInteger.toByteArray gives: no byte more than the sign needs."""
    rows = len(column)
    little = fixed_values(column, np.dtype((np.void, 16))).view(np.uint8).reshape(rows, 16)
    big = np.ascontiguousarray(little[:, ::-1])
    magnitude = big ^ np.where(big[:, :1] >= 0x80, 0xFF, 0).astype(np.uint8)
    leading = np.where(magnitude.any(axis=1), (magnitude != 0).argmax(axis=1), 15)
    needs_sign = magnitude[np.arange(rows), leading] >= 0x80
    lengths = (16 - leading + needs_sign).astype(np.int64)
    starts = np.arange(1, rows + 1, dtype=np.int64) * 16 - lengths
    return Bytes(nulls, big.reshape(-1), starts, _zero(lengths, nulls))


def _bytes_part(column: pa.Array, nulls: Flags | None) -> Bytes:
    if at.is_string_view(column.type):
        column = column.cast(pa.large_string())
    elif at.is_binary_view(column.type):
        column = column.cast(pa.large_binary())
    buffers, rows = column.buffers(), len(column)
    data = np.frombuffer(buffers[-1] or b"", np.uint8)
    if at.is_fixed_size_binary(column.type):
        width = column.type.byte_width
        starts = np.arange(column.offset, column.offset + rows, dtype=np.int64) * width
        return Bytes(nulls, data, starts, _zero(np.full(rows, width, np.int64), nulls))
    large = at.is_large_string(column.type) or at.is_large_binary(column.type)
    bounds = _offsets(column, large=large)
    return Bytes(nulls, data, bounds[:-1], _zero(np.diff(bounds), nulls))


def _list_part(column: pa.Array, nulls: Flags | None) -> List:
    items, starts, lengths = list_bounds(column)
    return List(nulls, take_apart(items), starts, _zero(lengths, nulls))


def _offsets(column: pa.Array, *, large: bool) -> Sizes:
    buffer = column.buffers()[1]
    if len(column) == 0 or buffer is None:
        return np.zeros(len(column) + 1, np.int64)
    dtype = np.dtype(np.int64 if large else np.int32)
    start = column.offset * dtype.itemsize
    return np.frombuffer(buffer, dtype, len(column) + 1, start).astype(np.int64)


def _zero(lengths: Sizes, nulls: Flags | None) -> Sizes:
    return lengths if nulls is None else np.where(nulls, 0, lengths)


def _bits(bitmap: pa.Buffer | None, offset: int, count: int) -> Flags:
    if bitmap is None or count == 0:
        return np.zeros(count, np.bool_)
    first, shift = divmod(offset, 8)
    octets = np.frombuffer(bitmap, np.uint8, (shift + count + 7) // 8, first)
    return np.unpackbits(octets, count=shift + count, bitorder="little")[shift:].view(np.bool_)
