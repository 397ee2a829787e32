"""Keys: what is stored, what is equal, and the bytes that order them."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.errors import UsageError
from lamina.state import keys
from lamina.state.hashing import spark_xxhash64
from lamina.state.keys import canonical, equal, normalise
from tests.golden.state.make_hash_vectors import SINGLE, column
from tests.support.examples import examples

POINT = pa.struct([("x", pa.int32()), ("y", pa.string())])


def _hex(*columns: pa.Array) -> list[str]:
    return [key.hex(" ") for key in canonical(columns).to_pylist()]


# --- golden bytes: part of the file format


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([True, None]), ["01 01 00 00 00", "00"]),
        (pa.array([-2], pa.int8()), ["01 fe ff ff ff"]),
        (pa.array([-2], pa.int32()), ["01 fe ff ff ff"]),
        (pa.array([258], pa.int64()), ["01 02 01 00 00 00 00 00 00"]),
        (pa.array([255], pa.uint8()), ["01 ff 00 00 00"]),
        (pa.array([1], pa.uint32()), ["01 01 00 00 00 00 00 00 00"]),
        (pa.array([-0.0, math.nan], pa.float32()), ["01 00 00 00 00", "01 00 00 c0 7f"]),
        (pa.array([1.5]), ["01 00 00 00 00 00 00 f8 3f"]),
        (pa.array([Decimal("1.50")], pa.decimal128(5, 2)), ["01 96 00 00 00 00 00 00 00"]),
        (pa.array([-129], pa.decimal128(38, 0)), ["01 02 00 00 00 00 00 00 00 ff 7f"]),
        (pa.array([0], pa.decimal128(19, 0)), ["01 01 00 00 00 00 00 00 00 00"]),
        (pa.array([1], pa.date32()), ["01 01 00 00 00"]),
        (pa.array([1], pa.timestamp("ms")), ["01 e8 03 00 00 00 00 00 00"]),
        (pa.array([1], pa.time64("us")), ["01 e8 03 00 00 00 00 00 00"]),
        (pa.array([-1], pa.duration("us")), ["01 ff ff ff ff ff ff ff ff"]),
        (pa.array(["", "é"]), ["01" + " 00" * 8, "01 02 00 00 00 00 00 00 00 c3 a9"]),
        (pa.array([b"\x00"]), ["01 01 00 00 00 00 00 00 00 00"]),
        (pa.array([[], [7, None]], pa.list_(pa.int32())), [
            "01" + " 00" * 8,
            "01 02 00 00 00 00 00 00 00 01 07 00 00 00 00",
        ]),
        (pa.array([{"x": 1, "y": "a"}, {"x": None, "y": None}, None], POINT), [
            "01 01 01 00 00 00 01 01 00 00 00 00 00 00 00 61",
            "01 00 00",
            "00",
        ]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)  # fmt: skip
def test_canonical_bytes_are_for_ever(array: pa.Array, expected: list[str]) -> None:
    assert _hex(array) == expected


def test_columns_follow_each_other() -> None:
    key = [pa.array([1], pa.int32()), pa.array(["a"]), pa.array([None], pa.int64())]
    assert _hex(*key) == ["01 01 00 00 00 01 01 00 00 00 00 00 00 00 61 00"]
    assert canonical(key).type == pa.large_binary()


def test_bytes_do_not_depend_on_the_layout() -> None:
    texts = pa.array(["a", None, "bcd"])
    for kind in (pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()):
        assert _hex(texts.cast(kind)) == _hex(texts)
    assert _hex(texts.dictionary_encode()) == _hex(texts)
    pairs = [[1, 2], None, [3, 4]]
    for kind in (pa.large_list(pa.int64()), pa.list_(pa.int64(), 2)):
        assert _hex(pa.array(pairs, kind)) == _hex(pa.array(pairs, pa.list_(pa.int64())))


def test_borders_between_columns_count() -> None:
    one = canonical([pa.array(["a", "ab", "", None]), pa.array(["bc", "c", None, ""])])
    assert len(set(one.to_pylist())) == 4


def test_blocks_meet_without_a_seam() -> None:
    rows = 2 * keys.BLOCK_ROWS + 3
    key = [pa.array([f"{i}" for i in range(rows)]), pa.array(range(rows))]
    whole = canonical(key)
    for row in (0, keys.BLOCK_ROWS - 1, keys.BLOCK_ROWS, rows - 1):
        assert whole[row] == canonical([c.slice(row, 1) for c in key])[0]


# --- normalise


@pytest.mark.parametrize("name", [n for n in SINGLE if "float" not in n and "double" not in n])
def test_columns_without_floats_are_stored_as_they_are(name: str) -> None:
    array = column(name, SINGLE[name])
    assert normalise(array) is array


NANS = np.array([0x7FF8000000000000, 0xFFF8000000000123, 1 << 63, 0], np.uint64).view(np.float64)
NORMAL = ["7ff8000000000000", "7ff8000000000000", "0000000000000000", "0000000000000000"]


def _bits(array: pa.Array) -> list[str]:
    return [f"{bits:016x}" for bits in array.to_numpy(zero_copy_only=False).view(np.uint64)]


def test_floats_are_stored_with_one_zero_and_one_nan() -> None:
    stored = normalise(pa.array(NANS, from_pandas=False))
    assert stored.null_count == 0
    assert _bits(stored) == NORMAL
    assert normalise(stored) is stored
    single = normalise(pa.array([-0.0, None, 1.5], pa.float32()))
    assert [struct.pack(">f", v).hex() if v is not None else None for v in single.to_pylist()] == [
        "00000000",
        None,
        "3fc00000",
    ]


def test_a_signalling_nan_is_a_nan_and_warns_nobody() -> None:
    bits = np.array([0x7FF0000000000001, 0xFFF0000000000001], np.uint64)
    loud, quiet = (pa.array(b.view(np.float64), from_pandas=False) for b in (bits, NANS.view("u8")))
    assert _bits(normalise(loud)) == NORMAL[:2]
    assert canonical([loud]).equals(canonical([quiet.slice(0, 2)]))
    assert spark_xxhash64([loud]).tolist() == spark_xxhash64([quiet]).tolist()[:2]


def test_what_lies_under_a_null_is_no_reason_to_copy() -> None:
    array = pa.array(np.array([-0.0, 1.0]), mask=np.array([True, False]))
    assert normalise(array) is array


@pytest.mark.parametrize(
    "nest",
    [
        lambda floats: pa.StructArray.from_arrays([floats], ["f"]),
        lambda floats: pa.ListArray.from_arrays([0, 1, 4], floats),
        lambda floats: pa.LargeListArray.from_arrays([0, 1, 4], floats),
        lambda floats: pa.FixedSizeListArray.from_arrays(floats, 2),
    ],
    ids=["struct", "list", "large_list", "fixed_size_list"],
)
def test_nested_floats_are_normalised_too(nest: Any) -> None:
    array = nest(pa.array(NANS, from_pandas=False))
    stored = normalise(array)
    assert stored.type == array.type
    leaves = stored.field(0) if pa.types.is_struct(stored.type) else stored.flatten()
    assert _bits(leaves) == NORMAL
    assert normalise(stored) is stored
    assert normalise(array.slice(1)).to_pylist()[1:] == stored.slice(1).to_pylist()[1:]


def test_normalised_lists_keep_their_nulls_and_lengths() -> None:
    for kind in (pa.list_(pa.float64()), pa.large_list(pa.float64())):
        array = pa.array([[9.0], None, [], [-0.0, None], [2.0]], kind).slice(1, 3)
        stored = normalise(array)
        assert stored.to_pylist() == [None, [], [0.0, None]]
        assert math.copysign(1, stored[2][0].as_py()) == 1


def test_dictionaries_are_decoded_at_any_depth() -> None:
    codes = pa.array(["a", None, "a"]).dictionary_encode()
    assert normalise(codes).equals(pa.array(["a", None, "a"]))
    nested = normalise(pa.StructArray.from_arrays([codes], ["c"]))
    assert nested.type == pa.struct([("c", pa.string())])
    lists = pa.ListArray.from_arrays([0, 2, 3], codes)
    assert normalise(lists).to_pylist() == [["a", None], ["a"]]
    assert normalise(lists.slice(0, 0)).type == pa.list_(pa.string())


# --- equal


def test_null_equals_null_and_nan_equals_nan() -> None:
    left = pa.array([None, None, math.nan, 0.0, 1.0])
    right = pa.array([None, 0.0, math.nan, -0.0, 2.0])
    assert equal([left], [right]).tolist() == [True, False, True, True, False]
    dense = [pa.array([math.nan, 1.0]), pa.array([math.nan, math.nan])]
    assert equal(dense[:1], dense[1:]).tolist() == [True, False]


def test_every_column_must_be_equal() -> None:
    left = [pa.array([1, 1, 2]), pa.array(["a", "b", "a"])]
    right = [pa.array([1, 1, 1]), pa.array(["a", "a", "a"])]
    assert equal(left, right).tolist() == [True, False, False]


def test_keys_of_other_types_or_lengths_are_not_compared() -> None:
    for other in (pa.array([1], pa.int32()), pa.array([1, 2])):
        with pytest.raises(UsageError, match="same column types"):
            equal([pa.array([1])], [other])


# --- properties over generated columns

SCALARS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int32(), st.integers(-3, 3)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint16(), st.integers(0, 2**16 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.sampled_from([0.0, -0.0, math.nan, -math.nan, 1.5, math.inf])),
    (pa.decimal32(9, 2), st.decimals(-99, 99, places=2)),
    (pa.decimal128(20, 3), st.decimals(-(10**16), 10**16, places=3)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.integers(-(10**15), 10**15)),
    (pa.timestamp("s"), st.integers(-(10**9), 10**9)),
    (pa.time32("ms"), st.integers(0, 86_399_999)),
    (pa.duration("ms"), st.integers(-3, 3)),
    (pa.string(), st.text(max_size=9)),
    (pa.large_string(), st.text("ab", max_size=2)),
    (pa.string_view(), st.text("ab\0", max_size=20)),
    (pa.binary(), st.binary(max_size=3)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
]


def _nested(
    inner: tuple[pa.DataType, st.SearchStrategy[Any]],
) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    kind, values = inner
    items = st.none() | values
    fields = st.fixed_dictionaries({"f": items, "g": st.none() | st.text("ab", max_size=2)})
    choices = [
        (pa.list_(kind), st.lists(items, max_size=3)),
        (pa.large_list(kind), st.lists(items, max_size=3)),
        (pa.list_(kind, 2), st.lists(items, min_size=2, max_size=2)),
        (pa.struct([("f", kind), ("g", pa.string())]), fields),
    ]
    if not pa.types.is_nested(kind):
        return st.sampled_from(choices)
    return st.sampled_from([c for c in choices if not pa.types.is_fixed_size_list(c[0])])


KINDS = st.sampled_from(SCALARS)
KINDS = KINDS | KINDS.flatmap(_nested) | KINDS.flatmap(_nested).flatmap(_nested)


@st.composite
def _keys(draw: st.DrawFn) -> tuple[list[pa.Array], list[pa.Array]]:
    """Two keys of the same types, cut out of longer columns, that often agree in a row."""
    rows, before, after = draw(st.integers(0, 7)), draw(st.integers(0, 9)), draw(st.integers(0, 2))
    left, right = [], []
    for kind, values in draw(st.lists(KINDS, min_size=1, max_size=3)):
        present = draw(st.booleans())
        cells = values if present else st.none() | values
        size = before + rows + after
        mine = draw(st.lists(cells, min_size=size, max_size=size))
        changed = draw(st.lists(st.none() | cells, min_size=size, max_size=size))
        theirs = [m if c is None else c for m, c in zip(mine, changed, strict=True)]
        left.append(pa.array(mine, kind).slice(before, rows))
        right.append(pa.array(theirs, kind).slice(before, rows))
    return left, right


def _plain(value: Any) -> Any:
    """A value that Python compares as keys are compared."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple(_plain(v) for v in value.values())
    return [_plain(v) for v in value] if isinstance(value, list) else value


def _rows(columns: list[pa.Array]) -> list[tuple[Any, ...]]:
    return [tuple(map(_plain, row)) for row in zip(*(c.to_pylist() for c in columns), strict=True)]


@settings(max_examples=examples(120), deadline=None)
@given(_keys())
def test_keys_are_equal_exactly_if_their_bytes_and_their_values_are(
    pair: tuple[list[pa.Array], list[pa.Array]],
) -> None:
    left, right = ([normalise(c) for c in columns] for columns in pair)
    expected = [mine == theirs for mine, theirs in zip(_rows(left), _rows(right), strict=True)]
    mine, theirs = canonical(left).to_pylist(), canonical(right).to_pylist()
    assert [m == t for m, t in zip(mine, theirs, strict=True)] == expected
    assert equal(left, right).tolist() == expected


@settings(max_examples=examples(80), deadline=None)
@given(_keys())
def test_different_rows_of_one_key_have_different_bytes(
    pair: tuple[list[pa.Array], list[pa.Array]],
) -> None:
    columns = pair[0]
    rows, found = _rows(columns), canonical(columns).to_pylist()
    for i in range(len(rows)):
        assert [f == found[i] for f in found] == [r == rows[i] for r in rows]


@settings(max_examples=examples(80), deadline=None)
@given(_keys())
def test_normalising_changes_neither_bytes_nor_hash(
    pair: tuple[list[pa.Array], list[pa.Array]],
) -> None:
    columns = pair[0]
    stored = [normalise(c) for c in columns]
    for column_ in stored:
        column_.validate(full=True)
        assert normalise(column_) is column_
    assert _rows(stored) == _rows(columns)
    assert canonical(stored).equals(canonical(columns))
    assert spark_xxhash64(stored).tolist() == spark_xxhash64(columns).tolist()
