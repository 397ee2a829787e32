"""Hashes of keys equal Spark's, for every type, length, offset and null."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lamina.errors import UsageError
from lamina.state import hashing
from lamina.state.hashing import check_key_type, spark_hash, spark_xxhash64, vnodes_of
from tests.golden.state.make_hash_vectors import SEVERAL, SINGLE, VECTORS, column

CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]


def _columns(case: dict[str, Any]) -> list[pa.Array]:
    return [column(name, values) for name, values in case["columns"]]


def _name(case: dict[str, Any]) -> str:
    return "+".join(name for name, _ in case["columns"])


def test_the_vectors_are_those_the_script_makes() -> None:
    expected = [[[k, v]] for k, v in SINGLE.items()]
    expected += [[[k, v] for k, v in case.items()] for case in SEVERAL]
    assert [case["columns"] for case in CASES] == json.loads(json.dumps(expected))


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_hashes_are_the_ones_spark_gave(case: dict[str, Any]) -> None:
    columns = _columns(case)
    assert spark_hash(columns).tolist() == case["hash"]
    assert spark_xxhash64(columns).tolist() == case["xxhash64"]
    assert vnodes_of(columns).tolist() == [h % 256 for h in case["hash"]]
    assert spark_hash(columns).dtype == np.int32
    assert spark_xxhash64(columns).dtype == np.int64
    assert vnodes_of(columns).dtype == np.uint8


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_a_slice_of_many_rows_hashes_like_its_rows(case: dict[str, Any]) -> None:
    """Offsets, and the way for many rows of a length instead of the one for few."""
    columns = [pa.concat_arrays([c] * 120).slice(5) for c in _columns(case)]
    assert spark_hash(columns).tolist() == (case["hash"] * 120)[5:]
    assert spark_xxhash64(columns).tolist() == (case["xxhash64"] * 120)[5:]


@pytest.mark.parametrize("rows", [hashing.BLOCK_ROWS - 1, hashing.BLOCK_ROWS, 40_000])
def test_blocks_meet_without_a_seam(rows: int) -> None:
    numbers = pa.array(range(rows), pa.int64())
    names = pa.array([f"{'n' * (i % 37)}{i}" for i in range(rows)])
    lists = pa.array([list(range(i % 4)) for i in range(rows)], pa.list_(pa.int32()))
    key = [numbers, names, lists]
    for function in (spark_hash, spark_xxhash64):
        whole = function(key)
        places = [0, 1, 777, hashing.BLOCK_ROWS - 2, rows - 1]
        alone = [function([c.slice(place, 1) for c in key])[0] for place in places]
        assert whole[places].tolist() == alone


def _same(left: pa.Array, right: pa.Array) -> None:
    for function in (spark_hash, spark_xxhash64):
        assert function([left]).tolist() == function([right]).tolist()
        assert function([left.slice(1)]).tolist() == function([right]).tolist()[1:]


TEXTS = ["", None, "a", "abcd" * 20, "x" * 13]
ITEMS = [[1, 2], None, [3, None], [5, 6]]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.binary()])
def test_every_layout_of_strings_hashes_alike(kind: pa.DataType) -> None:
    _same(pa.array(TEXTS).cast(kind), pa.array(TEXTS))


def test_a_dictionary_hashes_as_its_values() -> None:
    _same(pa.array([*TEXTS, *TEXTS]).dictionary_encode(), pa.array([*TEXTS, *TEXTS]))


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.binary_view(), pa.binary(3)])
def test_every_layout_of_binary_hashes_alike(kind: pa.DataType) -> None:
    octets = [b"abc", None, b"\xff\x80\x7f"]
    _same(pa.array(octets, kind), pa.array(octets, pa.binary()))


@pytest.mark.parametrize("kind", [pa.large_list(pa.int64()), pa.list_(pa.int64(), 2)])
def test_every_layout_of_lists_hashes_alike(kind: pa.DataType) -> None:
    _same(pa.array(ITEMS, kind), pa.array(ITEMS, pa.list_(pa.int64())))


@pytest.mark.parametrize("kind", [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(18, 2)])
def test_short_decimals_hash_as_longs(kind: pa.DataType) -> None:
    values = [Decimal("1.50"), None, Decimal("-99999.99")]
    _same(pa.array(values, kind), pa.array([150, None, -9999999], pa.int64()))


@pytest.mark.parametrize(
    ("unsigned", "signed"),
    [(pa.uint8(), pa.int16()), (pa.uint16(), pa.int32()), (pa.uint32(), pa.int64())],
)
def test_unsigned_hash_like_the_next_wider_signed(
    unsigned: pa.DataType, signed: pa.DataType
) -> None:
    top = 2**unsigned.bit_width - 1
    _same(pa.array([0, None, top], unsigned), pa.array([0, None, top], signed))


def test_uint64_hashes_by_its_bits() -> None:
    _same(pa.array([1, 2**64 - 1], pa.uint64()), pa.array([1, -1], pa.int64()))


@pytest.mark.parametrize("kind", ["timestamp", "duration"])
def test_moments_hash_as_microseconds(kind: str) -> None:
    make = getattr(pa, kind)
    micros = pa.array([-3_000_000, None, 5_000_000], make("us"))
    for unit, factor in (("ms", 1000), ("s", 1)):
        _same(pa.array([-3 * factor, None, 5 * factor], make(unit)), micros)


def test_times_hash_as_nanoseconds_in_every_unit() -> None:
    nanos = pa.array([3_000_000_000, None], pa.time64("ns"))
    _same(pa.array([3_000_000, None], pa.time64("us")), nanos)
    _same(pa.array([3_000, None], pa.time32("ms")), nanos)
    _same(pa.array([3, None], pa.time32("s")), nanos)


def test_a_moment_outside_of_64_bits_is_refused() -> None:
    with pytest.raises(UsageError, match="does not fit"):
        spark_hash([pa.array([2**60], pa.timestamp("s"))])


@pytest.mark.parametrize(
    "kind",
    [
        pa.null(),
        pa.map_(pa.string(), pa.int32()),
        pa.sparse_union([pa.field("a", pa.int32())]),
        pa.dense_union([pa.field("a", pa.int32())]),
        pa.dictionary(pa.int32(), pa.list_(pa.int32())),
        pa.dictionary(pa.int32(), pa.string_view()),
        pa.month_day_nano_interval(),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.float16(),
        pa.decimal256(50, 2),
        pa.date64(),
        pa.timestamp("ns"),
        pa.duration("ns"),
        pa.list_view(pa.int32()),
        pa.uuid(),
    ],
    ids=str,
)
def test_types_that_cannot_be_keys_are_refused_by_column(kind: pa.DataType) -> None:
    for type_, named in (
        (kind, "'k'"),
        (pa.struct([("f", kind)]), "'k.f'"),
        (pa.list_(kind), r"'k\[\]'"),
    ):
        with pytest.raises(UsageError, match=f"key column {named}"):
            check_key_type(type_, "k")


def test_hashing_refuses_what_is_no_key() -> None:
    with pytest.raises(UsageError, match="#1"):
        spark_hash([pa.array([1]), pa.array([None])])
    with pytest.raises(UsageError, match="different lengths"):
        spark_xxhash64([pa.array([1]), pa.array([1, 2])])
    with pytest.raises(UsageError, match="at least one"):
        vnodes_of([])


@pytest.mark.parametrize("name", SINGLE)
def test_no_rows_give_no_hashes(name: str) -> None:
    for empty in (column(name, []), column(name, SINGLE[name]).slice(2, 0)):
        assert spark_hash([empty]).tolist() == []
        assert spark_xxhash64([empty]).tolist() == []


def test_keys_of_a_mebibyte_take_less_than_a_second() -> None:
    texts = pa.array([b"q" * (1 << 20), b"short", None])
    numbers = pa.array([list(range(1 << 17)), [1]], pa.list_(pa.int64()))
    for key in (texts, numbers):
        for function in (spark_hash, spark_xxhash64):
            started = time.process_time()
            function([key])
            assert time.process_time() - started < 1
