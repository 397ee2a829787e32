"""R11 and R7: what may be forgotten, what may be deleted, how much WAL to keep."""

from __future__ import annotations

import pytest

from lamina.errors import UsageError
from lamina.format.log import Begin, Takeover
from lamina.protocol.retention import (
    Fate,
    fate_of,
    forgotten,
    held,
    line_of,
    oldest_kept,
    plan_forget,
    plan_sweep,
    wal_floor,
)
from tests.support.checkpoints import HOME, Scribe, cid


def line_of_five() -> Scribe:
    scribe = Scribe().take_over(1).checkpoint(1, 10)
    for number in range(2, 6):
        scribe.checkpoint(number, number * 10, parent=number - 1)
    return scribe


def ids(*numbers: int) -> tuple[object, ...]:
    return tuple(map(cid, numbers))


@pytest.mark.parametrize(
    ("retain", "gone"),
    [(1, (1, 2, 3, 4)), (2, (1, 2, 3)), (4, (1,)), (5, ()), (99, ())],
)
def test_the_newest_are_kept_and_the_rest_goes_oldest_first(
    retain: int, gone: tuple[int, ...]
) -> None:
    assert plan_forget(line_of_five().history, retain) == ids(*gone)


@pytest.mark.parametrize("retain", [0, -1])
def test_to_keep_none_is_no_retention(retain: int) -> None:
    with pytest.raises(UsageError):
        plan_forget(line_of_five().history, retain)


def test_an_empty_log_has_nothing_to_forget() -> None:
    assert plan_forget(Scribe().history, 1) == ()
    assert held(Scribe().history, 1) == ()


def test_newest_means_epoch_not_the_order_of_ids_or_of_the_log() -> None:
    scribe = Scribe().take_over(1).checkpoint(9, 10).checkpoint(3, 30).take_over(2)
    scribe.checkpoint(5, 20)  # a full one of an older epoch: the pipeline stands on it
    assert plan_forget(scribe.history, 1) == ids(9)


def test_a_savepoint_stays_and_says_why() -> None:
    scribe = line_of_five().pin("monday", 2)
    assert plan_forget(scribe.history, 2) == ids(1, 3)
    [(id, why)] = held(scribe.history, 2)
    assert id == cid(2)
    assert "monday" in why


def test_a_savepoint_does_not_count_against_the_retention() -> None:
    scribe = line_of_five().pin("monday", 1)
    assert plan_forget(scribe.history, 3) == ids(2)


def test_after_a_takeover_everything_beyond_is_held() -> None:
    scribe = line_of_five().take_over(2)
    assert plan_forget(scribe.history, 1) == ()
    assert {id for id, _ in held(scribe.history, 1)} == set(ids(1, 2, 3, 4))


def test_a_rewind_keeps_both_its_line_and_what_it_left_behind() -> None:
    scribe = line_of_five().rewind(60, 2, 20)
    assert plan_forget(scribe.history, 2) == ()
    # beyond are neither the line 2, 1 nor the newest 5, 4; and 3 is held until a checkpoint
    assert [id for id, _ in held(scribe.history, 2)] == list(ids(3))
    scribe.checkpoint(6, 61, parent=2)
    assert [c.id for c in line_of(scribe.history)] == list(ids(6, 2, 1))
    assert plan_forget(scribe.history, 2) == ids(1, 3, 4)
    scribe.checkpoint(7, 62, parent=6)
    assert plan_forget(scribe.history, 2) == ids(1, 2, 3, 4, 5)


def test_the_line_ends_where_its_parent_was_forgotten() -> None:
    scribe = line_of_five().forget(3)
    assert [c.id for c in line_of(scribe.history)] == list(ids(5, 4))


def test_a_plan_can_be_shown_as_if_it_were_done() -> None:
    history = line_of_five().history
    after = forgotten(history, plan_forget(history, 2))
    assert [c.id for c in after.checkpoints] == list(ids(4, 5))
    assert plan_forget(after, 2) == ()


# folders


def begin(number: int, after: int, generation: int = 1) -> Begin:
    return Begin(cid(number), generation, None, after, "w", 0)


def test_the_fate_of_a_folder() -> None:
    scribe = line_of_five()
    history = scribe.history
    current = history.lineage_seq
    assert fate_of(history, cid(5), begin(5, current - 1)) is Fate.EXISTS
    assert fate_of(history, cid(5), None) is Fate.EXISTS  # the log says so, begin.json or not
    assert fate_of(history, cid(9), begin(9, current)) is Fate.IN_FLIGHT
    assert fate_of(history, cid(9), begin(9, current - 1)) is Fate.GARBAGE  # abandoned
    assert fate_of(history, cid(9), begin(9, current, generation=0)) is Fate.GARBAGE
    assert fate_of(history, cid(9), None) is Fate.UNKNOWN
    scribe.forget(1)
    assert fate_of(scribe.history, cid(1), begin(1, 1)) is Fate.GARBAGE
    scribe.take_over(2)
    assert fate_of(scribe.history, cid(9), begin(9, current)) is Fate.GARBAGE  # a dead generation


def test_begin_json_goes_last_and_only_when_all_else_is_gone() -> None:
    objects = ["a/begin.json", "a/manifest.json", "a/run-1", "a/run-2"]
    alone = plan_sweep(objects, "a/begin.json", ())
    assert alone.delete == ("a/manifest.json", "a/run-1", "a/run-2", "a/begin.json")
    assert alone.shared == ()
    used = plan_sweep(objects, "a/begin.json", {"a/run-2", "b/run-9"})
    assert used.delete == ("a/manifest.json", "a/run-1")
    assert used.shared == ("a/run-2",)


# the WAL


def test_the_wal_reaches_back_to_the_oldest_checkpoint_kept_for_fallback() -> None:
    history = line_of_five().history
    assert wal_floor(history, 1, ()) == 50
    assert wal_floor(history, 3, ()) == 30
    assert wal_floor(history, 99, ()) == 10


def test_the_slowest_sink_holds_the_wal_and_a_savepoint_does_not() -> None:
    scribe = line_of_five().pin("old", 1)
    assert wal_floor(scribe.history, 2, (45, 50)) == 40
    assert wal_floor(scribe.history, 2, (45, 17)) == 17


def test_without_a_checkpoint_the_whole_wal_is_kept() -> None:
    assert wal_floor(Scribe().take_over(1).history, 3, (7,)) == 0


def test_a_checkpoint_that_was_given_up_let_the_log_before_it_go() -> None:
    scribe = line_of_five()
    scribe.write(Takeover(2, HOME, tip=""), generation=2)  # --lose-after 7: no checkpoint counts
    assert wal_floor(scribe.history, 3, ()) == 0
    assert oldest_kept(scribe.history, 3) is None
    scribe.checkpoint(6, 60)
    assert wal_floor(scribe.history, 1, ()) == 60


def test_after_a_rewind_the_wal_goes_by_the_line_the_pipeline_is_on() -> None:
    scribe = line_of_five().rewind(60, 2, 20)
    assert wal_floor(scribe.history, 1, ()) == 20
