"""Which runs are merged: few runs, little rewriting. Arithmetic only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.state.tiers import FAN_OUT, RUNS_MAX, plan_compaction, tier_of

KIB, MIB = 1024, 1024 * 1024


def compacted(
    sizes: list[int], *, keep: float = 1.0, runs_max: int = RUNS_MAX
) -> tuple[list[int], int]:
    """The sizes when nothing is left to merge, and how many bytes that wrote."""
    written = 0
    while (chosen := plan_compaction(sizes, runs_max=runs_max)) is not None:
        merged = int(sum(sizes[chosen.start : chosen.stop]) * keep)
        sizes = [*sizes[: chosen.start], merged, *sizes[chosen.stop :]]
        written += merged
    return sizes, written


@given(st.lists(st.integers(0, 2**40), max_size=60))
def test_there_are_never_more_runs_than_the_limit(sizes: list[int]) -> None:
    left, _ = compacted(sizes)
    assert len(left) <= RUNS_MAX
    assert sum(left) == sum(sizes)


@given(st.lists(st.integers(0, 2**40), max_size=60))
def test_a_plan_is_a_range_of_neighbours_that_exist(sizes: list[int]) -> None:
    chosen = plan_compaction(sizes)
    if chosen is not None:
        assert 0 <= chosen.start < chosen.stop - 1 < len(sizes)
        assert chosen.step == 1


@pytest.mark.parametrize("keep", [1.0, 0.9], ids=["all-new", "some-again"])
def test_a_hundred_epochs_of_one_percent_are_written_less_than_six_times(keep: float) -> None:
    state = 1024 * MIB
    change = state // 100
    sizes, written, deepest = [state], 0, 0
    for _ in range(100):
        sizes, merged = compacted([*sizes, change], keep=keep)
        written += change + merged
        deepest = max(deepest, len(sizes))
    assert written / (100 * change) < 6
    assert deepest <= RUNS_MAX


def test_tiers_alone_rewrite_a_growing_state_about_once_per_tier() -> None:
    sizes: list[int] = []
    written = total = 0
    for _ in range(2_000):
        sizes, merged = compacted([*sizes, 64 * KIB], runs_max=100)
        written += 64 * KIB + merged
        total += 64 * KIB
    assert written / total < 1 + tier_of(total) + 1
    assert len(sizes) < FAN_OUT * (1 + tier_of(total))


def test_a_large_bottom_is_left_alone_until_it_pays() -> None:
    assert plan_compaction([100 * MIB, MIB, MIB, MIB]) == range(1, 4)
    assert plan_compaction([6 * MIB, MIB, MIB, MIB]) == range(4)
    assert plan_compaction([100 * MIB, MIB, MIB]) is None


def test_runs_that_differ_in_size_do_not_pile_up() -> None:
    sizes = [4**n * 64 * KIB for n in range(12, 0, -1)]
    chosen = plan_compaction(sizes)
    assert chosen == range(10, 12), "the two that cost least"


@pytest.mark.parametrize("count", range(FAN_OUT))
def test_few_runs_of_one_size_are_left_alone(count: int) -> None:
    assert plan_compaction([MIB] * count) is None


def test_runs_without_rows_are_merged_too() -> None:
    assert plan_compaction([0] * FAN_OUT) == range(FAN_OUT)


def test_tiers_begin_where_they_say() -> None:
    sizes = (0, 192 * KIB - 1, 192 * KIB, 576 * KIB - 1, 576 * KIB)
    assert [tier_of(size) for size in sizes] == [0, 0, 1, 1, 2]


def test_small_changes_to_a_large_state_do_not_rewrite_it_again_and_again() -> None:
    state = 330 * MIB
    sizes, written = [state], 0
    for _ in range(3_000):
        sizes, merged = compacted([*sizes, 33 * KIB])
        written += 33 * KIB + merged
    assert written / (3_000 * 33 * KIB) < 12
