"""Merge functions: each by its rules, the errors by what they name, and Arrow's odd corners."""

from __future__ import annotations

import datetime as dt
import json
import math
import pickle
import random
import sys
from decimal import Context, Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from lamina.errors import Corrupt, Overflow, Unsupported, UsageError
from lamina.state.merge import FUNCTIONS, Merge, check_merges, merge_rows

LONG_MAX, LONG_MIN = (1 << 63) - 1, -(1 << 63)
EXACT = Context(prec=40)  # the default has 28 digits
NAN, INF = math.nan, math.inf
SUM_TYPE = pa.decimal128(22, 2)
UTC = ZoneInfo("UTC")


def batch(kinds: list[pa.DataType], columns: list[list[Any]]) -> pa.RecordBatch:
    schema = pa.schema([(f"c{index}", kind) for index, kind in enumerate(kinds)])
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def merged(
    function: str,
    kinds: list[pa.DataType],
    old: list[list[Any]],
    new: list[list[Any]],
    found: list[bool] | None = None,
    **options: Any,
) -> list[list[Any]]:
    """The merged columns; one Merge over all of them."""
    left, right = batch(kinds, old), batch(kinds, new)
    merges = [Merge(function, tuple(left.schema.names), options)]
    check_merges(merges, left.schema)
    rows = np.array(found if found is not None else [True] * left.num_rows, dtype=bool)
    result = merge_rows(merges, left, right, rows)
    assert result.schema.equals(left.schema, check_metadata=True)
    result.validate(full=True)
    return [column.to_pylist() for column in result.columns]


def one(function: str, kind: pa.DataType, old: Any, new: Any, **options: Any) -> Any:
    """The merge of one value with one value."""
    return merged(function, [kind], [[old]], [[new]], **options)[0][0]


def same(left: Any, right: Any) -> bool:
    """Equal, where NaN is itself and -0.0 is not 0.0."""
    return repr(left) == repr(right)


# sum and count


@pytest.mark.parametrize(
    ("kind", "old", "new", "total"),
    [
        (pa.int64(), 1, 2, 3),
        (pa.int64(), None, 2, 2),
        (pa.int64(), 1, None, 1),
        (pa.int64(), None, None, None),
        (pa.int64(), LONG_MAX, -1, LONG_MAX - 1),
        (pa.int64(), LONG_MIN, LONG_MAX, -1),
        (pa.float64(), 0.1, 0.2, 0.1 + 0.2),
        (pa.float64(), NAN, 1.0, NAN),
        (pa.float64(), INF, -INF, NAN),
        (pa.float64(), INF, 1.0, INF),
        (pa.float64(), None, -0.0, -0.0),
        (pa.float64(), 1e308, 1e308, INF),
        (SUM_TYPE, Decimal("0.10"), Decimal("-0.25"), Decimal("-0.15")),
        (SUM_TYPE, None, Decimal("1.00"), Decimal("1.00")),
        (SUM_TYPE, None, None, None),
        (pa.decimal128(38, 0), Decimal(10**38 - 2), Decimal(1), Decimal(10**38 - 1)),
    ],
)
def test_sum(kind: pa.DataType, old: Any, new: Any, total: Any) -> None:
    assert same(one("sum", kind, old, new), total)


def test_sum_of_intervals() -> None:
    day = dt.timedelta(days=1)
    assert one("sum", pa.duration("us"), day, day) == 2 * day
    with pytest.raises(Overflow):
        merged("sum", [pa.duration("us")], [[LONG_MAX]], [[1]], ansi=False)


def test_an_overflow_says_which_function_column_and_how_many_rows() -> None:
    old, new = [[LONG_MAX, LONG_MIN, 5, None]], [[1, -1, 5, LONG_MAX]]
    with pytest.raises(Overflow, match=r"sum of column 'c0' .* int64 .* 2 of 4 rows"):
        merged("sum", [pa.int64()], old, new)


def test_without_ansi_integers_wrap() -> None:
    assert one("sum", pa.int64(), LONG_MAX, 1, ansi=False) == LONG_MIN
    assert one("sum", pa.int64(), LONG_MIN, -1, ansi=False) == LONG_MAX


@pytest.mark.parametrize("kind", [pa.decimal128(38, 0), pa.decimal128(5, 2), pa.decimal128(38, 38)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_decimal_sum_beyond_its_precision_is_an_error(kind: pa.DataType, sign: int) -> None:
    most = Decimal((int(sign < 0), (9,) * kind.precision, -kind.scale))
    least = Decimal((int(sign < 0), (1,), -kind.scale))
    with pytest.raises(Overflow, match=r"sum of column 'c0' .*decimal128.* 1 of 2 rows"):
        merged("sum", [kind], [[most, None]], [[least, most]])
    assert one("sum", kind, most, least.copy_negate()) == EXACT.subtract(most, least)


DECIMAL_WITH_EMPTY = [pa.decimal128(5, 2), pa.bool_()]
MOST, LEAST = Decimal("999.99"), Decimal("0.01")


@pytest.mark.parametrize(
    ("old", "new", "total"),
    [
        ((Decimal("1.00"), False), (Decimal("2.00"), False), (Decimal("3.00"), False)),
        ((None, True), (Decimal("2.00"), False), (Decimal("2.00"), False)),
        ((Decimal("0.00"), True), (Decimal("2.00"), False), (Decimal("2.00"), False)),
        ((Decimal("1.00"), False), (None, True), (Decimal("1.00"), False)),
        ((None, True), (Decimal("0.00"), True), (None, True)),
        ((MOST, False), (LEAST, False), (None, False)),
        ((None, False), (LEAST, False), (None, False)),
        ((None, False), (None, True), (None, False)),
        ((None, True), (None, False), (None, False)),
    ],
)
def test_without_ansi_a_decimal_overflow_is_null_and_stays_null(
    old: tuple[Any, bool], new: tuple[Any, bool], total: tuple[Any, bool]
) -> None:
    columns = merged("sum", DECIMAL_WITH_EMPTY, [[x] for x in old], [[x] for x in new], ansi=False)
    assert tuple(column[0] for column in columns) == total


def test_under_ansi_a_decimal_overflow_with_is_empty_is_an_error() -> None:
    with pytest.raises(Overflow, match="1 of 1 rows"):
        merged("sum", DECIMAL_WITH_EMPTY, [[MOST], [False]], [[LEAST], [False]])
    with pytest.raises(Overflow, match="1 of 1 rows"):
        merged("sum", DECIMAL_WITH_EMPTY, [[None], [False]], [[LEAST], [False]])


def test_a_count_is_never_null() -> None:
    old, new = [[1, None, 3, None]], [[10, 20, None, None]]
    assert merged("count", [pa.int64()], old, new) == [[11, 20, 3, 0]]
    with pytest.raises(Overflow, match="count of column 'c0'"):
        one("count", pa.int64(), LONG_MAX, 1)


# min and max


@pytest.mark.parametrize(
    ("kind", "small", "great"),
    [
        (pa.int32(), -5, 3),
        (pa.int64(), LONG_MIN, LONG_MAX),
        (pa.float64(), 1.0, NAN),
        (pa.float64(), INF, NAN),
        (pa.float32(), -INF, NAN),
        (pa.float64(), -1.5, 2.5),
        (pa.string(), "Z", "a"),
        (pa.string(), "a", "aa"),
        (pa.string(), "\x7f", "é"),
        (pa.large_string(), "\uffff", "\U0001f600"),  # as UTF-16 it is the other way round
        (pa.binary(), b"\x7f", b"\x80"),
        (pa.large_binary(), b"", b"\x00"),
        (pa.binary(2), b"\x00\xff", b"\x01\x00"),
        (SUM_TYPE, Decimal("-10.00"), Decimal("9.99")),
        (pa.date32(), dt.date(1969, 12, 31), dt.date(1970, 1, 1)),
        (pa.timestamp("us", "UTC"), *(dt.datetime(y, 1, 1, tzinfo=UTC) for y in (1960, 2024))),
        (pa.bool_(), False, True),
    ],
)
def test_min_and_max(kind: pa.DataType, small: Any, great: Any) -> None:
    for old, new in ((small, great), (great, small)):
        assert same(one("min", kind, old, new), small)
        assert same(one("max", kind, old, new), great)
    for function in ("min", "max"):
        assert same(one(function, kind, None, great), great)
        assert same(one(function, kind, great, None), great)
        assert one(function, kind, None, None) is None


@pytest.mark.parametrize("function", ["min", "max"])
def test_zeros_are_equal_and_the_old_one_stays(function: str) -> None:
    assert same(one(function, pa.float64(), -0.0, 0.0), -0.0)
    assert same(one(function, pa.float64(), 0.0, -0.0), 0.0)


# first_by and last_by

BY = [pa.string(), pa.int64()]


@pytest.mark.parametrize(
    ("old_by", "new_by", "first", "last"),
    [
        (1, 2, "old", "new"),
        (2, 1, "new", "old"),
        (1, 1, "old", "new"),
        (None, 1, "new", "new"),
        (1, None, "old", "old"),
        (None, None, "old", "new"),
    ],
)
def test_by(old_by: Any, new_by: Any, first: str, last: str) -> None:
    for function, winner in (("first_by", first), ("last_by", last)):
        columns = merged(function, BY, [["old"], [old_by]], [["new"], [new_by]])
        assert columns == [[winner], [old_by if winner == "old" else new_by]]


def test_by_takes_two_nans_for_equal() -> None:
    kinds = [pa.string(), pa.float64()]
    old, new = [["old"], [NAN]], [["new"], [NAN]]
    assert merged("first_by", kinds, old, new)[0] == ["old"]
    assert merged("last_by", kinds, old, new)[0] == ["new"]


def test_by_takes_whole_rows_of_any_type() -> None:
    kinds = [
        pa.list_(pa.field("element", pa.int32(), nullable=False)),
        pa.struct([pa.field("a", pa.string(), nullable=False)]),
        pa.map_(pa.string(), pa.int64()),
        pa.float64(),
    ]
    old = [[[1], [2]], [{"a": "x"}, None], [[("k", 1)], []], [1.0, NAN]]
    new = [[[3, 4], None], [None, {"a": "y"}], [None, [("l", 2)]], [2.0, 5.0]]
    columns = merged("last_by", kinds, old, new)
    assert columns[:3] == [[[3, 4], [2]], [None, None], [None, []]]
    assert same(columns[3], [2.0, NAN])


def test_nulls_lose_only_if_they_are_ignored() -> None:
    old, new = [["old"], [1]], [[None], [2]]
    assert merged("last_by", BY, old, new) == [[None], [2]]
    assert merged("last_by", BY, old, new, ignore_nulls=True) == [["old"], [1]]
    assert merged("first_by", BY, new, old, ignore_nulls=True) == [["old"], [1]]
    kinds = [pa.string(), pa.string(), pa.int64()]
    columns = merged("last_by", kinds, [["a"], ["b"], [1]], [[None], ["c"], [2]], ignore_nulls=True)
    assert columns == [[None], ["c"], [2]], "a row with some value is a row"


# any and all, replace


@pytest.mark.parametrize(
    ("old", "new", "any_", "all_"),
    [
        (True, False, True, False),
        (True, True, True, True),
        (False, False, False, False),
        (None, False, False, False),
        (True, None, True, True),
        (None, None, None, None),
    ],
)
def test_any_and_all(old: Any, new: Any, any_: Any, all_: Any) -> None:
    assert one("any", pa.bool_(), old, new) is any_
    assert one("all", pa.bool_(), old, new) is all_


def test_replace_is_the_new_value() -> None:
    kinds = [pa.string(), pa.string_view()]
    assert merged(
        "replace", kinds, [["a", "b"], ["c", "d"]], [[None, "x"], ["y", None]], [True, False]
    ) == [[None, "x"], ["y", None]]


# moments


@pytest.mark.parametrize("n", [pa.float64(), pa.int64()])
def test_moments(n: pa.DataType) -> None:
    kinds = [n, pa.float64(), pa.float64()]
    values = [1.5, -2.25, 8.0, 3.0, 3.0]

    def of(part: list[float]) -> list[list[Any]]:
        mean = float(np.mean(part))
        return [[len(part)], [mean], [float(np.sum((np.array(part) - mean) ** 2))]]

    (count,), (mean,), (m2,) = merged("moments", kinds, of(values[:2]), of(values[2:]))
    assert count == 5
    assert mean == pytest.approx(np.mean(values), rel=1e-15)
    assert m2 == pytest.approx(np.var(values) * 5, rel=1e-15)


def _powers(values: list[float]) -> list[list[Any]]:
    mean = sum(values) / len(values)
    return [[len(values)], [mean], *([sum((x - mean) ** p for x in values)] for p in (2, 3, 4))]


def test_four_moments() -> None:
    values = [1.0, 5.5, -3.25, 8.0, 8.0]
    kinds = [pa.int64(), *[pa.float64()] * 4]
    found = merged("moments", kinds, _powers(values[:2]), _powers(values[2:]))
    assert [each for (each,) in found] == pytest.approx([each for (each,) in _powers(values)])


def _products(pairs: list[tuple[float, float]]) -> list[list[Any]]:
    n = len(pairs)
    mx, my = sum(x for x, _ in pairs) / n, sum(y for _, y in pairs) / n
    c = sum((x - mx) * (y - my) for x, y in pairs)
    m2x, m2y = sum((x - mx) ** 2 for x, _ in pairs), sum((y - my) ** 2 for _, y in pairs)
    return [[n], [mx], [my], [c], [m2x], [m2y]]


def test_comoments() -> None:
    pairs = [(1.0, 2.0), (5.5, -3.0), (-3.25, 0.5), (8.0, 8.0)]
    kinds = [pa.int64(), *[pa.float64()] * 5]
    found = merged("comoments", kinds, _products(pairs[:3]), _products(pairs[3:]))
    assert [each for (each,) in found] == pytest.approx([each for (each,) in _products(pairs)])


@pytest.mark.parametrize(
    ("old", "new", "both"),
    [(-2, 7, (6, -1, -7)), (None, 5, (5, 5, 5)), (5, None, (5, 5, 5)), (None, None, (None,) * 3)],
)
def test_bits(old: Any, new: Any, both: tuple[Any, ...]) -> None:
    for name, want in zip(("bit_and", "bit_or", "bit_xor"), both, strict=True):
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64()):
            assert one(name, kind, old, new) == want


@pytest.mark.parametrize("empty", [[[0], [None], [None]], [[0], [0.0], [0.0]], [[None]] * 3])
def test_an_empty_side_changes_nothing(empty: list[list[Any]]) -> None:
    kinds = [pa.int64(), pa.float64(), pa.float64()]
    for some in ([[3], [0.1], [INF]], [[2], [-INF], [1.0]]):
        assert merged("moments", kinds, empty, some) == some
        assert merged("moments", kinds, some, empty) == some
    assert merged("moments", kinds, empty, empty) == empty
    nothing = [[None]] * 3
    assert merged("moments", kinds, empty, nothing) == empty
    assert merged("moments", kinds, nothing, empty) == empty


# lists

LIST = pa.list_(pa.field("element", pa.string(), nullable=False))


@pytest.mark.parametrize("kind", [LIST, pa.large_list(pa.string())])
def test_list_append(kind: pa.DataType) -> None:
    old = [[["a", "b"], [], None, None, ["c"]]]
    new = [[["d"], ["e"], ["f"], None, None]]
    assert merged("list_append", [kind], old, new) == [[["a", "b", "d"], ["e"], ["f"], None, ["c"]]]


@pytest.mark.parametrize(
    ("limit", "keep", "kept"),
    [
        (9, "last", "abcdef"),
        (4, "last", "cdef"),
        (2, "last", "ef"),
        (1, "last", "f"),
        (4, "first", "abcd"),
        (1, "first", "a"),
    ],
)
def test_a_limit_keeps_the_newest_or_the_oldest(limit: int, keep: str, kept: str) -> None:
    assert one("list_append", LIST, list("abc"), list("def"), limit=limit, keep=keep) == list(kept)


def test_a_limit_holds_for_a_new_key_too() -> None:
    found = [False]
    columns = merged("list_append", [LIST], [[None]], [[list("abc")]], found, limit=2)
    assert columns == [[["b", "c"]]]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, ["", "Z", "a", "a", "é", "\U0001f600"]),
        ({"descending": True}, ["\U0001f600", "é", "a", "a", "Z", ""]),
        ({"distinct": True}, ["", "Z", "a", "é", "\U0001f600"]),
        ({"limit": 3}, ["", "Z", "a"]),
        ({"limit": 3, "descending": True, "distinct": True}, ["\U0001f600", "é", "a"]),
        ({"limit": 9}, ["", "Z", "a", "a", "é", "\U0001f600"]),
    ],
)
def test_list_sorted(options: dict[str, Any], kept: list[str]) -> None:
    old = [[["a", "\U0001f600"], None, ["x"], []]]
    new = [[["é", "a", "", "Z"], ["b", "a"], None, None]]
    (found,) = merged("list_sorted", [LIST], old, new, **options)
    both = ["b", "a"] if options.get("descending") else ["a", "b"]
    assert found == [kept, both, ["x"], []]


ORDER = [
    (pa.int8(), [None, -128, 0, 127]),
    (pa.float32(), [None, -math.inf, -1.5, 0.0, 2.0, math.inf, NAN]),
    (pa.float64(), [None, -math.inf, -1e300, -5e-324, 0.0, 5e-324, 1.0, math.inf, NAN]),
    (pa.decimal128(20, 2), [None, Decimal("-9.50"), Decimal("0.00"), Decimal("10.00")]),
    (pa.bool_(), [None, False, True]),
    (pa.date32(), [None, dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    (pa.timestamp("us", "UTC"), [None, *(dt.datetime(y, 1, 1, tzinfo=UTC) for y in (2, 3000))]),
    (pa.duration("us"), [None, dt.timedelta(-1), dt.timedelta(0), dt.timedelta(1)]),
    (pa.binary(), [None, b"", b"a", b"a\x00", b"\xff"]),
]


@pytest.mark.parametrize(("kind", "ordered"), ORDER, ids=lambda value: str(value)[:20])
def test_elements_are_in_spark_s_order(kind: pa.DataType, ordered: list[Any]) -> None:
    """Of structs, too, field by field, in which a null is the smallest."""
    shuffled = random.Random(1).sample(ordered, len(ordered))
    (found,) = merged("list_sorted", [pa.list_(kind)], [[shuffled[:2]]], [[shuffled[2:]]])
    assert same(found, [ordered])
    pairs = [None, *({"a": a, "b": b} for a in (1, 2) for b in ordered)]
    mixed = random.Random(2).sample(pairs, len(pairs))
    struct = pa.list_(pa.struct([("a", pa.int64()), ("b", kind)]))
    (found,) = merged("list_sorted", [struct], [[mixed[:3]]], [[mixed[3:]]])
    assert same(found, [pairs])


def test_zeros_and_nans_are_one_element_of_a_set() -> None:
    old, new = [[[0.0, NAN, 1.0]]], [[[-0.0, -NAN, 1.0]]]
    (found,) = merged("list_sorted", [pa.list_(pa.float64())], old, new, distinct=True)
    assert same(found, [[0.0, 1.0, NAN]])


def test_a_null_list_may_hide_elements() -> None:
    offsets, values = pa.array([0, 2, 3], pa.int32()), pa.array(["hidden", "too", "a"])
    lists = pa.ListArray.from_arrays(offsets, values, mask=pa.array([True, False]))
    rows = pa.RecordBatch.from_arrays([lists], names=["l"])
    result = merge_rows([Merge("list_append", ("l",))], rows, rows, np.array([True, True]))
    result.validate(full=True)
    assert result.column("l").to_pylist() == [None, ["a", "a"]]
    assert len(result.column("l").values) == 2


# sketches


def test_without_the_extra_a_sketch_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(Unsupported, match=r"datasketches.*lamina\[sketch\]"):
        one("hll_union", pa.binary(), b"", b"")


def sketch(first: int, count: int, lg_k: int = 12) -> bytes:
    library = pytest.importorskip("datasketches")
    made = library.hll_sketch(lg_k, library.tgt_hll_type.HLL_8)
    for value in range(first, first + count):
        made.update(value)
    data: bytes = made.serialize_updatable()
    return data


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_hll_union(kind: pa.DataType) -> None:
    library = pytest.importorskip("datasketches")
    a, b = sketch(0, 3000), sketch(2000, 3000)
    (column,) = merged(
        "hll_union",
        [kind],
        [[a, None, a, None, b"?"]],
        [[b, b, None, None, b]],
        [True] * 4 + [False],
    )
    assert column[1:] == [b, a, None, b]
    assert library.hll_sketch.deserialize(column[0]).get_estimate() == pytest.approx(5000, rel=0.05)


def test_sketches_of_two_sizes_are_refused_unless_allowed() -> None:
    library = pytest.importorskip("datasketches")
    a, b = sketch(0, 100, lg_k=10), sketch(0, 100, lg_k=12)
    with pytest.raises(UsageError, match="column 'c0': a sketch of lg_k 10 and one of 12"):
        one("hll_union", pa.binary(), a, b)
    united = one("hll_union", pa.binary(), a, b, allow_different_lg_k=True)
    assert library.hll_sketch.deserialize(united).lg_config_k == 10


def quantiles(values: list[float], k: int = 200) -> bytes:
    kll = pytest.importorskip("datasketches").kll_doubles_sketch(k)
    for value in values:
        kll.update(value)
    data: bytes = kll.serialize()
    return data


def test_kll_union() -> None:
    both = one("kll_union", pa.binary(), quantiles([1.0, 2.0]), quantiles([3.0, 4.0, 5.0]))
    sketch = pytest.importorskip("datasketches").kll_doubles_sketch.deserialize(both)
    assert (sketch.n, sketch.get_quantile(0.5), sketch.get_max_value()) == (5, 3.0, 5.0)
    empty = quantiles([])
    assert one("kll_union", pa.binary(), None, both) == both
    assert one("kll_union", pa.binary(), both, None) == both
    assert one("kll_union", pa.binary(), empty, empty) == empty
    with pytest.raises(Corrupt, match="not a KLL sketch"):
        one("kll_union", pa.binary(), both, b"12345678")


def test_bytes_that_are_no_sketch_are_damage() -> None:
    good = sketch(0, 10)
    for bad in (b"", b"garbage", good[:20]):
        with pytest.raises(Corrupt, match="column 'c0': not an HLL sketch"):
            one("hll_union", pa.binary(), bad, good)


# batches

GARBAGE = [
    ("sum", [pa.int64()], [LONG_MAX], [1]),
    ("sum", [pa.decimal128(5, 2)], [MOST], [LEAST]),
    ("sum", DECIMAL_WITH_EMPTY, [MOST, False], [LEAST, False]),
    ("count", [pa.int64()], [LONG_MAX], [1]),
    ("min", [pa.int64()], [0], [1]),
    ("max", [pa.string()], ["z"], ["a"]),
    ("first_by", BY, ["old", 0], ["new", 1]),
    ("first_by", BY, ["old", None], ["new", None]),
    ("last_by", BY, ["old", 1], ["new", None]),
    ("any", [pa.bool_()], [True], [False]),
    ("all", [pa.bool_()], [False], [None]),
    ("moments", [pa.int64(), pa.float64(), pa.float64()], [LONG_MAX, NAN, NAN], [1, 0.1, 0.0]),
    ("moments", [pa.int64(), *[pa.float64()] * 4], [LONG_MAX, *[NAN] * 4], [1, 0.1, 0.0, 0.0, 0.0]),
    ("comoments", [pa.int64(), *[pa.float64()] * 5], [LONG_MAX, *[NAN] * 5], [1, *[0.1] * 5]),
    ("bit_and", [pa.int8()], [0], [3]),
    ("bit_or", [pa.int32()], [4], [3]),
    ("bit_xor", [pa.int64()], [-1], [3]),
    ("list_append", [LIST], [["old"]], [["new"]]),
    ("list_sorted", [LIST], [["old"]], [["new"]]),
    ("replace", [pa.string()], ["old"], ["new"]),
]


@pytest.mark.parametrize(("function", "kinds", "old", "new"), GARBAGE)
def test_what_stands_in_for_a_missing_row_does_not_matter(
    function: str, kinds: list[pa.DataType], old: list[Any], new: list[Any]
) -> None:
    columns = merged(function, kinds, [[x] for x in old], [[x] for x in new], [False])
    assert [column[0] for column in columns] == new


@pytest.mark.parametrize(("function", "kinds", "old", "new"), GARBAGE)
def test_empty_all_null_and_sliced_batches(
    function: str, kinds: list[pa.DataType], old: list[Any], new: list[Any]
) -> None:
    merges = [Merge(function, tuple(f"c{index}" for index in range(len(kinds))))]
    nothing: list[list[Any]] = [[] for _ in kinds]
    assert merged(function, kinds, nothing, nothing) == nothing
    nulls = [[None, None] for _ in kinds]
    empty = {"count": [[0, 0]], "sum": [[None] * 2, [True] * 2][: len(kinds)]}
    assert merged(function, kinds, nulls, nulls) == empty.get(function, nulls)

    left = batch(kinds, [[old[i], new[i], None, new[i]] for i in range(len(kinds))])
    right = batch(kinds, [[new[i], None, new[i], old[i]] for i in range(len(kinds))])
    found = np.array([False, True, True, False])
    whole = merge_rows(merges, left, right, found)
    for start in range(4):
        part = merge_rows(merges, left.slice(start), right.slice(start), found[start:])
        assert same(part.to_pydict(), whole.slice(start).to_pydict())
        shorter = merge_rows(merges, left.slice(0, start), right.slice(0, start), found[:start])
        assert same(shorter.to_pydict(), whole.slice(0, start).to_pydict())


def test_the_schema_stays_exactly_as_it_is() -> None:
    schema = pa.schema(
        [
            pa.field("total", pa.decimal128(22, 2), nullable=False, metadata={"a": "b"}),
            pa.field("seen", pa.int64(), nullable=False),
            pa.field("names", LIST),
        ],
        metadata={"c": "d"},
    )
    merges = [Merge("list_append", ("names",)), Merge("count", ("seen",)), Merge("sum", ("total",))]
    check_merges(merges, schema)
    rows = pa.RecordBatch.from_pylist(
        [{"total": Decimal(1), "seen": 1, "names": ["a"]}], schema=schema
    )
    result = merge_rows(merges, rows, rows, np.array([True]))
    assert result.schema.equals(schema, check_metadata=True)
    assert result.to_pylist() == [{"total": Decimal(2), "seen": 2, "names": ["a", "a"]}]


def test_a_state_of_keys_only_has_nothing_to_merge() -> None:
    rows = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    check_merges([], rows.schema)
    result = merge_rows([], rows, rows, np.array([True, False]))
    assert (result.num_rows, result.num_columns) == (2, 0)


# specs

VALUES = pa.schema([("n", pa.int64()), ("t", pa.string()), ("l", LIST), ("b", pa.binary())])


@pytest.mark.parametrize(
    ("merge", "text"),
    [
        (Merge("median", ("n",)), "no merge function 'median'; there are: all, any"),
        (Merge("sum", ("x",)), "no value column 'x'; there are: n, t, l, b"),
        (Merge("sum", ("n", "n")), "'n' is merged more than once"),
        (Merge("sum", ("t",)), "sum cannot merge column 't' of type string; it takes .*int64"),
        (Merge("sum", ("n", "t")), "sum of column 'n' of type int64 has no is_empty"),
        (Merge("sum", ("n",), {"ansi": 1}), "sum: ansi is 1, not bool"),
        (Merge("sum", ("n",), {"limit": 1}), "sum has no option 'limit'; it has: ansi"),
        (Merge("count", ("t",)), "count cannot merge column 't' of type string; it takes int64"),
        (Merge("count", ("n", "t")), "count takes one column; it was given 2: n, t"),
        (Merge("min", ("l",)), "min cannot merge column 'l' .* it takes numbers"),
        (Merge("last_by", ("n",)), "last_by takes the columns of the value"),
        (Merge("last_by", ("n", "l")), "last_by cannot merge column 'l' .* to order by"),
        (Merge("any", ("n",)), "any cannot merge column 'n' of type int64; it takes bool"),
        (Merge("list_sorted", ("l",), {"limit": 0}), "list_sorted has a limit of at least 1"),
        (Merge("list_sorted", ("n",)), "'n' of type int64; it takes list columns"),
        (Merge("moments", ("n",)), "moments takes three columns: n, mean and m2"),
        (Merge("moments", ("n", "t", "b")), "'t' of type string; it takes double"),
        (Merge("list_append", ("n",)), "'n' of type int64; it takes list"),
        (Merge("list_append", ("l",), {"limit": 0}), "a limit of at least 1, not 0"),
        (Merge("list_append", ("l",), {"limit": True}), "limit is True, not int"),
        (Merge("list_append", ("l",), {"limit": 1, "keep": "all"}), "'first' or 'last', not 'all'"),
        (Merge("list_append", ("l",), {"keep": "last"}), "without a limit keeps everything"),
        (Merge("hll_union", ("n",)), "'n' of type int64; it takes binary"),
        (Merge("replace", ()), "replace takes at least one column"),
    ],
)
def test_a_wrong_merge_is_named(merge: Merge, text: str) -> None:
    others = [Merge("replace", (name,)) for name in VALUES.names if name not in merge.columns]
    with pytest.raises(UsageError, match=text):
        check_merges([merge, *others], VALUES)


def test_lists_of_lists_have_no_order_here() -> None:
    schema = pa.schema([("l", pa.list_(pa.list_(pa.int64())))])
    with pytest.raises(UsageError, match="it takes lists of ordered values, or of structs"):
        check_merges([Merge("list_sorted", ("l",))], schema)


def test_a_column_that_nobody_merges_is_named() -> None:
    with pytest.raises(UsageError, match="no function merges the value column 't' of type string"):
        check_merges([Merge("sum", ("n",))], VALUES)


def test_a_decimal_sum_without_ansi_needs_is_empty() -> None:
    schema = pa.schema([("d", SUM_TYPE)])
    with pytest.raises(UsageError, match=r"column 'd' .*is_empty"):
        check_merges([Merge("sum", ("d",), {"ansi": False})], schema)
    with pytest.raises(UsageError, match=r"'d' of type int32; it takes .*bigint"):
        check_merges([Merge("sum", ("d",))], pa.schema([("d", pa.int32())]))


def test_a_merge_goes_through_json_and_pickle() -> None:
    merge = Merge("list_append", ("l",), {"limit": 3, "keep": "first"})
    assert Merge.from_json(json.loads(json.dumps(merge.to_json()))) == merge
    assert Merge.from_json({"function": "sum", "columns": ["n"]}) == Merge("sum", ("n",))
    assert pickle.loads(pickle.dumps(merge)) == merge
    assert len({merge, Merge("sum", ("n",))}) == 2


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"function": "sum"},
        {"columns": ["n"]},
        {"function": 1, "columns": ["n"]},
        {"function": "sum", "columns": "n"},
        {"function": "sum", "columns": ["n"], "options": []},
        {"function": "sum", "columns": ["n"], "options": {"ansi": None}},
    ],
)
def test_json_that_is_no_merge_is_damage(value: Any) -> None:
    with pytest.raises(Corrupt, match="at here"):
        Merge.from_json(value, "here")


def test_a_function_of_a_newer_release_is_not_damage() -> None:
    with pytest.raises(Unsupported, match="median"):
        Merge.from_json({"function": "median", "columns": ["n"]})


def test_every_function_is_in_the_table_of_the_module() -> None:
    table = sys.modules[Merge.__module__].__doc__ or ""
    for name in FUNCTIONS:
        assert name in table
