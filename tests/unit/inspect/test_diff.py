"""Diffs: what two dicts would say, over any runs, windows, partitions and columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina
from lamina.checkpoint.progress import Progress
from lamina.errors import NotFound, StateChanged, UsageError
from lamina.inspect import Counts, OperatorDiff, diff, open_archive
from lamina.inspect import diff as diff_function
from lamina.inspect.compare import differing, match
from lamina.inspect.view import Lists, PlacedIdentity
from lamina.inspect.windows import parts, windows
from lamina.state.layers import PlacedRun
from lamina.state.operator import OperatorState
from lamina.state.run import run_of_batch
from lamina.state.schema import StateSchema
from lamina.state.vnodes import EVERYTHING, SlotRange
from tests.support.examples import examples
from tests.support.shop import FIRST, make_shop
from tests.support.states import KV, kv

Change = dict[int, "int | None"]


def lists(*changes: Change, partitions: int = 1, schema: StateSchema = KV) -> Lists:
    """A state of one run per change; a run's identity is its content."""
    runs = [run_of_batch(kv(change), name=str(sorted(change.items()))) for change in changes]
    placed = [PlacedRun(run, EVERYTHING) for run in runs]
    state = OperatorState.open(schema, partitions, placed=placed)
    return Lists(state, tuple(PlacedIdentity(run.name, EVERYTHING) for run in runs))


def folded(*changes: Change) -> dict[int, int]:
    """The state as a dict."""
    found: dict[int, int] = {}
    for change in changes:
        for key, value in change.items():
            found.pop(key, None)
            if value is not None:
                found[key] = value
    return found


def expected(left: Mapping[int, int], right: Mapping[int, int]) -> dict[int, tuple[Any, ...]]:
    both = {**left, **right}
    kinds = {
        key: ("removed" if key not in right else "added" if key not in left else "changed")
        for key in both
        if left.get(key) != right.get(key)
    }
    return {key: (kind, left.get(key), right.get(key)) for key, kind in kinds.items()}


def found(difference: OperatorDiff) -> dict[int, tuple[Any, ...]]:
    listed = [row for batch in difference.batches() for row in batch.to_pylist()]
    rows = {row["k"]: (row["change"], row["old_v"], row["new_v"]) for row in listed}
    assert len(rows) == len(listed), "a key is there once"
    return rows


CHANGES = st.lists(
    st.dictionaries(st.integers(0, 40), st.none() | st.integers(0, 3), min_size=1), max_size=4
)


@settings(max_examples=examples(150), deadline=None)
@given(CHANGES, CHANGES, CHANGES, st.sampled_from([1, 2, 8]), st.sampled_from([1, 4]))
def test_a_diff_is_what_two_dicts_say(
    common: list[Change],
    left_only: list[Change],
    right_only: list[Change],
    left_p: int,
    right_p: int,
) -> None:
    left_changes, right_changes = [*common, *left_only], [*common, *right_only]
    left, right = lists(*left_changes, partitions=left_p), lists(*right_changes, partitions=right_p)
    difference = OperatorDiff("t", left, right, KV)
    wanted = expected(folded(*left_changes), folded(*right_changes))
    assert found(difference) == wanted
    counts = difference.counts()
    kinds = [kind for kind, _, _ in wanted.values()]
    assert (counts.added, counts.removed, counts.changed) == tuple(
        kinds.count(kind) for kind in ("added", "removed", "changed")
    )
    assert counts.removed + counts.changed + counts.same == len(folded(*left_changes))


def test_a_large_state_is_walked_in_windows_and_in_the_order_of_slots() -> None:
    left = lists({key: key for key in range(50_000)})
    right = lists({key: key for key in range(25_000)}, {key: -key for key in range(1_000)})
    all_windows = list(windows(EVERYTHING, left, right, rows=1_000))
    assert len(all_windows) >= 64
    assert [w.first for w in all_windows[1:]] == [w.last + 1 for w in all_windows[:-1]]
    assert (all_windows[0].first, all_windows[-1].last) == (EVERYTHING.first, EVERYTHING.last)
    told: list[Progress] = []
    counts = OperatorDiff("t", left, right, KV).counts(told.append)
    assert counts == Counts(added=0, removed=25_000, changed=999, same=24_001)
    assert told[-1].done == told[-1].total


def test_the_same_runs_are_not_compared_and_their_part_is_as_large_as_can_be() -> None:
    left, right = lists({1: 1}, {2: 2}, partitions=4), lists({1: 1}, {2: 2}, partitions=1)
    assert [(p.within, p.same) for p in parts(left, right)] == [(EVERYTHING, True)]
    half = SlotRange.of_partition(1, 2)
    run = run_of_batch(kv({3: 3}, slots=[half.first + 5]), name="more")
    placed = [PlacedRun(r, EVERYTHING) for r in left.state.runs()[:1]] + [PlacedRun(run, half)]
    more = Lists(
        OperatorState.open(KV, 2, placed=placed), (*right.placed, PlacedIdentity("more", half))
    )
    assert [p.same for p in parts(right, more)] == [True, False]


def test_two_keys_in_one_slot_are_told_apart() -> None:
    def batch(values: Change) -> pa.RecordBatch:
        return kv(values, slots=[7 if key < 10 else key for key in values])

    left, right = batch({1: 1, 2: 2, 20: 1}), batch({2: 5, 3: 3, 20: 1})
    matched = match(left, right, KV)
    keys = [left["k"].to_pylist(), right["k"].to_pylist()]
    assert [keys[0][i] for i in matched.left_only] == [1]
    assert [keys[1][i] for i in matched.right_only] == [3]
    assert [(keys[0][i], keys[1][j]) for i, j in zip(matched.left, matched.right, strict=True)] == [
        (2, 2),
        (20, 20),
    ]
    one, other = kv({1: 1}, slots=[7]), kv({2: 2}, slots=[7])  # one key in it, but another one
    matched = match(one, other, KV)
    assert (matched.left_only.tolist(), matched.right_only.tolist()) == ([0], [0])


VALUES = [
    (pa.float64(), [1.0, math.nan, None, math.nan], [1.0, math.nan, None, 2.0]),
    (pa.string(), ["a", "", None, None], ["a", "", None, ""]),
    (pa.bool_(), [True, False, None, True], [True, False, None, False]),
    (pa.decimal128(5, 2), [1, 2, None, 3], [1, 2, None, 4]),
    (pa.list_(pa.float64()), [[math.nan], [], None, []], [[math.nan], [], None, None]),
    (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": None}, None, None], None),
    (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [], None, [("b", 1)]], None),
    (pa.timestamp("ns"), [1, 2, None, 3], [1, 2, None, 4]),
]


@pytest.mark.parametrize(("kind", "old", "new"), VALUES, ids=lambda v: str(v)[:20])
def test_values_of_any_type_are_compared(
    kind: pa.DataType, old: list[Any], new: list[Any] | None
) -> None:
    left = pa.record_batch({"v": pa.array(old, kind)})
    changed = [*old[:3], old[0]] if new is None else new
    right = pa.record_batch({"v": pa.array(changed, kind)})
    assert differing(left, right).tolist() == [False, False, False, True]


def test_columns_that_were_added_or_widened_meanwhile(tmp_path: Path) -> None:
    key = pa.schema([("k", pa.int64())])
    narrow, wide = (
        pa.schema([("v", pa.int32())]),
        pa.schema([("v", pa.int64()), ("w", pa.string())]),
    )
    with lamina.open(tmp_path) as store:
        table = store.table("t", key, narrow)
        table.write(pa.table({"k": [1, 2], "v": [1, 2]}, table.schema.row))
        store.commit()
        table = store.table("t", key, wide)
        table.write(pa.table({"k": [2], "v": [2], "w": ["new"]}, table.schema.row))
        store.commit()
    with open_archive(tmp_path) as archive:
        for left, right in ((1, 2), (2, 1)):
            difference = diff(archive.view(left), archive.view(right), "t")
            assert difference.counts() == Counts(changed=1, same=1)
            assert difference.schema.names == ["change", "k", "old_v", "new_v", "old_w", "new_w"]
            (batch,) = difference.batches()
            (row,) = batch.to_pylist()
            assert {row["old_w"], row["new_w"]} == {None, "new"}


def test_a_key_of_another_type_cannot_be_compared(tmp_path: Path) -> None:
    for name, kind in (("a", pa.int64()), ("b", pa.string())):
        with lamina.open(tmp_path / name) as store:
            table = store.table("t", pa.schema([("k", kind)]), pa.schema([("v", pa.int64())]))
            table.write(pa.record_batch({"k": pa.array([None], kind), "v": [1]}))
            store.commit()
    with open_archive(tmp_path / "a") as one, open_archive(tmp_path / "b") as other:
        views = one.view("head"), other.view("head")
        with pytest.raises(StateChanged, match="'k'"):
            diff(*views, "t")


def test_an_expiry_is_a_difference_though_no_row_was_written(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        table = store.table(
            "t", pa.schema([("k", pa.int64())]), pa.schema([("t", pa.int64())]), time="t"
        )
        table.write(pa.table({"k": [1, 2], "t": [10, 20]}))
        store.commit()
        list(table.expire(15))
        store.commit()
    with open_archive(tmp_path) as archive:
        counts = diff(archive.view(1), archive.view(2), "t").counts()
        assert counts == Counts(removed=1, same=1)


def test_names_of_columns_never_clash() -> None:
    key, value = (
        pa.schema([("change", pa.int64()), ("old_v", pa.int64())]),
        pa.schema([("v", pa.int64())]),
    )
    difference = OperatorDiff("t", None, None, StateSchema(key, value))
    assert difference.schema.names == ["_change", "change", "old_v", "_old_v", "new_v"]
    assert difference.counts() == Counts()
    assert difference.counts().equal


def test_an_operator_of_one_side_only_is_all_added_or_all_removed(tmp_path: Path) -> None:
    shop = make_shop(tmp_path / "shop")
    with lamina.open(shop.folder) as store:
        store.table("new", KV.key, KV.value).write(pa.table({"k": [1, 2], "v": [1, None]}))
        store.commit()
    with open_archive(shop.folder) as archive:
        monday, head = archive.view("monday"), archive.view("head")
        assert diff(monday, head, "new").counts() == Counts(added=2)
        assert diff(head, monday, "new").counts() == Counts(removed=2)
        assert diff(monday, head, "returns").counts() == Counts()
        with pytest.raises(NotFound):
            _ = diff(monday, head, "returns").schema
        with pytest.raises(NotFound, match="returns, state, totals"):
            diff(monday, head, "nothing")


def test_a_shop_from_monday_to_today(tmp_path: Path) -> None:
    shop = make_shop(tmp_path / "shop", partitions=4)
    with open_archive(shop.folder) as archive:
        difference = diff_function(archive.view("monday"), archive.view("head"), "totals")
        assert difference.counts() == Counts(added=2, removed=1, changed=1, same=1)
        listed = [row for batch in difference.batches() for row in batch.to_pylist()]
        (removed,) = [row for row in listed if row["change"] == "removed"]
        assert (removed["customer"], removed["day"]) == ("cleo", FIRST)
        assert (removed["old_orders"], removed["new_orders"]) == (3, None)


def test_state_that_is_not_keyed_is_named_so(tmp_path: Path) -> None:
    shop = make_shop(tmp_path / "shop")
    with open_archive(shop.folder) as archive:
        view = archive.view()
        view.not_keyed = ("counter",)
        with pytest.raises(UsageError, match="not keyed state"):
            diff(view, view, "counter")


def test_rows_of_a_window_come_by_slot() -> None:
    left, right = dict.fromkeys(range(100), 1), dict.fromkeys(range(50, 150), 2)
    (batch,) = OperatorDiff("t", lists({**left}), lists({**right}), KV).batches()
    assert batch["k"].to_pylist() == kv(dict.fromkeys(range(150), 0))["k"].to_pylist()
