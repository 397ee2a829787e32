"""R2 and R12: a recovery lands on the highest acknowledged epoch, or says why it cannot."""

from __future__ import annotations

import pytest

from lamina.errors import Diverged, Refused, WouldLose
from lamina.format.pipeline_record import Owner
from lamina.protocol.driver import Adopt, Commit, Point, Segment
from lamina.protocol.history import COPY_HOME, History
from lamina.protocol.identity import check_claim
from lamina.protocol.recovery import Found, Plan, has_lost_its_log, plan_recovery, point_of
from lamina.protocol.sinks import SinkPosition
from tests.support.checkpoints import HOME, Scribe, cid


def point(epoch: int, line: str = "a") -> Point:
    return Point(epoch, f"{line}{epoch}")


def commit(epoch: int, parent: Point | None = None, follows: Point | None = None) -> Commit:
    parent = parent or (point(epoch - 1) if epoch > 1 else None)
    return Commit(point(epoch), parent, follows or parent, 1)


COMMITS = tuple(commit(epoch) for epoch in range(1, 6))  # epochs 1 to 5, in a line


def stored(*epochs: int) -> History:
    """A log whose checkpoint ids are the epochs they hold; the recovering process owns it."""
    scribe = Scribe().take_over(1)
    parent = None
    for epoch in epochs:
        scribe.checkpoint(epoch, epoch, parent=parent, digest=f"a{epoch}")
        parent = epoch
    return scribe.take_over(2).history


def segment(*commits: Commit, generation: int = 1) -> Segment:
    return Segment(generation, Adopt(None, ()), commits)


def sink(epoch: int, line: str = "a") -> SinkPosition:
    return SinkPosition(Owner("p"), 2, point(epoch, line) if epoch else None)


def found(
    history: History,
    *segments: Segment,
    sinks: dict[str, SinkPosition] | None = None,
    damaged: tuple[int, ...] = (),
    **more: object,
) -> Found:
    return Found(
        history=history,
        segments=segments,
        sinks=sinks or {},
        damaged={cid(number): "rotten" for number in damaged},
        **more,  # type: ignore[arg-type]
    )


def epochs(commits: tuple[Commit, ...]) -> list[int]:
    return [c.epoch for c in commits]


def base_epoch(plan: Plan) -> int | None:
    return None if plan.checkpoint is None else plan.checkpoint.epoch


# where it lands


def test_a_new_pipeline_starts_with_epoch_one_from_nothing() -> None:
    plan = plan_recovery(found(Scribe().take_over(1).history))
    assert (plan.checkpoint, plan.head, plan.replay, plan.next_epoch) == (None, None, (), 1)
    assert plan.adopt == Adopt(None, ())


def test_without_a_checkpoint_everything_is_replayed_from_genesis() -> None:
    plan = plan_recovery(found(stored(), segment(*COMMITS)))
    assert plan.checkpoint is None
    assert epochs(plan.replay) == [1, 2, 3, 4, 5]
    assert plan.head == point(5)
    assert plan.next_epoch == 6


def test_a_driver_log_ahead_of_the_store_is_replayed_on_the_newest_checkpoint() -> None:
    plan = plan_recovery(found(stored(1, 3), segment(*COMMITS)))
    assert base_epoch(plan) == 3
    assert epochs(plan.replay) == [4, 5]
    assert plan.adopt == Adopt(point(5), COMMITS[3:])


def test_a_driver_log_behind_its_own_checkpoint_has_lost_commits_and_stops() -> None:
    behind = found(stored(1, 5), segment(*COMMITS[:3]))
    with pytest.raises(WouldLose, match="ends with epoch 3, and a checkpoint made here holds"):
        plan_recovery(behind)
    plan = plan_recovery(behind, lose_after=5)
    assert (base_epoch(plan), plan.replay, plan.head) == (5, (), point(5))


def test_a_home_that_has_taken_over_and_has_no_log_has_lost_it() -> None:
    """And goes on having lost it: a start that stopped here has left a claim, and no more."""
    log = Scribe().take_over(1).take_over(2)
    first, claim = Segment(1, Adopt(None, ())), Segment(2, None)
    assert has_lost_its_log(log.history, HOME, (), own=2)
    assert has_lost_its_log(log.take_over(3).history, HOME, (claim,), own=3)
    assert has_lost_its_log(log.history, HOME, (), own=-1)
    assert not has_lost_its_log(log.history, HOME, (first, claim), own=3)
    assert not has_lost_its_log(log.history, HOME, (Segment(1, None), claim), own=3)
    assert not has_lost_its_log(log.history, "another", (), own=3)
    assert not has_lost_its_log(Scribe().take_over(1).history, HOME, (), own=1)
    assert not has_lost_its_log(Scribe().history, HOME, (), own=-1)


def test_a_lost_driver_log_stops_unless_the_home_is_another() -> None:
    with pytest.raises(WouldLose, match="holds no epoch"):
        plan_recovery(found(stored(2, 4)))
    with pytest.raises(WouldLose, match="holds no epoch"):
        plan_recovery(found(Scribe().take_over(1).history, driver_lost=True))
    plan = plan_recovery(found(stored(2, 4), void=True))
    assert (base_epoch(plan), plan.head, plan.next_epoch) == (4, point(4), 5)


def test_driver_and_store_with_two_different_epochs_of_one_number_stop() -> None:
    other = segment(Commit(point(3, "b"), None, None, 1))
    with pytest.raises(Diverged, match="two different epochs 3"):
        plan_recovery(found(stored(3), other))


def test_without_a_driver_log_the_id_stands_for_the_commit() -> None:
    history = Scribe().take_over(1).checkpoint(4, 4).take_over(2).history
    plan = plan_recovery(found(history))
    assert plan.head == Point(4, str(cid(4)))
    assert history.newest is not None
    assert point_of(history.newest) == plan.head


def test_epochs_are_never_used_again_whoever_has_seen_them() -> None:
    unadopted = Segment(2, None, (commit(9),))
    seen_by_segment = plan_recovery(found(stored(3), segment(*COMMITS[:3]), unadopted))
    assert seen_by_segment.next_epoch == 10
    history = Scribe().take_over(1).checkpoint(3, 3, digest="a3").rewind(20, 3, 3).take_over(2)
    assert plan_recovery(found(history.history, void=True)).next_epoch == 21


# damage


def test_a_damaged_newest_is_equal_to_an_older_one_plus_wal() -> None:
    plan = plan_recovery(found(stored(2, 4), segment(*COMMITS), damaged=(4,)))
    assert base_epoch(plan) == 2
    assert epochs(plan.replay) == [3, 4, 5]
    assert plan.head == point(5)
    [skipped] = plan.skipped
    assert (skipped.id, skipped.epoch, skipped.why) == (cid(4), 4, "rotten")
    assert plan.given_up == ()


def test_all_damaged_is_equal_to_genesis_plus_the_whole_wal() -> None:
    plan = plan_recovery(found(stored(2, 4), segment(*COMMITS), damaged=(2, 4)))
    assert plan.checkpoint is None
    assert epochs(plan.replay) == [1, 2, 3, 4, 5]
    assert {s.epoch for s in plan.skipped} == {2, 4}


def test_a_damaged_newest_without_wal_stops_and_names_it() -> None:
    with pytest.raises(WouldLose, match=r"epoch 4.*rotten") as caught:
        plan_recovery(found(stored(2, 4), damaged=(4,), void=True))
    assert "--lose-after" in caught.value.advice


def test_a_damaged_newest_whose_wal_was_dropped_stops() -> None:
    dropped = {"a3": ("core-0/three.wal",)}
    with pytest.raises(WouldLose):
        plan_recovery(found(stored(2, 4), segment(*COMMITS), damaged=(4,), dropped=dropped))


def test_dropped_wal_below_the_checkpoint_is_not_missed() -> None:
    dropped = dict.fromkeys(("a1", "a2", "a3"), ("core-0/old.wal",))
    plan = plan_recovery(found(stored(2, 4), segment(*COMMITS), dropped=dropped))
    assert base_epoch(plan) == 4
    assert epochs(plan.replay) == [5]


def test_a_hole_in_the_wal_above_the_checkpoint_stops() -> None:
    with pytest.raises(WouldLose):
        plan_recovery(found(stored(2), segment(*COMMITS[:3], COMMITS[4])))


def test_a_checkpoint_off_the_line_of_the_head_is_not_used() -> None:
    """Epoch 3 was rewound: 4 continues 1, so a checkpoint of 3 is no base for it."""
    rewind = commit(4, parent=point(1), follows=point(3))
    plan = plan_recovery(found(stored(1, 3), segment(*COMMITS[:3], rewind)))
    assert base_epoch(plan) == 1
    assert epochs(plan.replay) == [4]


def test_what_is_missing_and_what_can_be_reached_was_not_named() -> None:
    dropped = {"a4": ("core-0/four.wal", "core-1/four.wal"), "a5": ("core-0/five.wal",)}
    seen = found(stored(2), segment(*COMMITS), dropped=dropped)
    with pytest.raises(WouldLose) as caught:
        plan_recovery(seen)
    assert caught.value.message == (
        "epoch 5 was acknowledged and cannot be rebuilt; the highest that can be is epoch 3; "
        "missing, and needed from epoch 4 on: core-0/five.wal, core-0/four.wal, core-1/four.wal"
    )
    for form in ("--lose-after 3", "lose_after=3 in Python"):
        assert form in caught.value.advice
    assert plan_recovery(seen, lose_after=3).head == point(3)


def test_segments_that_went_below_a_checkpoint_are_not_called_missing() -> None:
    dropped = {"a1": ("core-0/one.wal",), "a5": ("core-0/five.wal",)}
    with pytest.raises(WouldLose, match=r"from epoch 5 on: core-0/five\.wal\. "):
        plan_recovery(found(stored(2), segment(*COMMITS), dropped=dropped))


def test_a_missing_commit_is_named_and_the_advice_is_what_can_be_reached() -> None:
    seen = found(stored(2), segment(*COMMITS[:3], COMMITS[4]))
    with pytest.raises(WouldLose, match="holds the COMMIT of epoch 4") as caught:
        plan_recovery(seen)
    assert "lose_after=2 in Python" in caught.value.advice
    assert plan_recovery(seen, lose_after=2).head == point(2)


def test_the_advice_for_a_lost_driver_log_is_what_can_be_reached() -> None:
    for damaged, reachable in (((), 4), ((4,), 2), ((2, 4), 0)):
        seen = found(stored(2, 4), damaged=damaged)
        with pytest.raises(WouldLose, match="holds no epoch") as caught:
            plan_recovery(seen)
        assert f"--lose-after {reachable} (lose_after" in caught.value.advice
        head = plan_recovery(seen, lose_after=reachable).head
        assert (head.epoch if head else 0) == reachable


def test_a_limit_below_everything_says_so() -> None:
    seen = found(stored(3), void=True)
    with pytest.raises(
        WouldLose, match="--lose-after 2 keeps epoch 2, which cannot be rebuilt"
    ) as caught:
        plan_recovery(seen, lose_after=2)
    assert "lose_after=0" in caught.value.advice


# what a person gives up


def test_lose_after_gave_up_epochs_before_the_one_that_was_named() -> None:
    """Nobody knows what epoch 3 was: a checkpoint covers it, and the log is gone."""
    broken = found(stored(2, 4), damaged=(4,))
    with pytest.raises(
        WouldLose,
        match="keeps epoch 3, which cannot be rebuilt; the highest that can be is epoch 2",
    ) as caught:
        plan_recovery(broken, lose_after=3)
    assert "--lose-after 2 (lose_after" in caught.value.advice
    plan = plan_recovery(broken, lose_after=2)
    assert (base_epoch(plan), plan.head) == (2, point(2))
    assert plan.next_epoch == 5  # the number of what was given up is not used again


def test_lose_after_an_epoch_that_never_was_lands_on_the_one_before_it() -> None:
    after_a_rewind = commit(6, parent=point(3))
    seen = found(stored(2), segment(commit(3), after_a_rewind))
    assert plan_recovery(seen, lose_after=5).head == point(3)


def test_lose_after_replays_up_to_the_epoch_and_names_what_it_gave_up() -> None:
    dropped = {"a5": ("core-0/five.wal",)}
    plan = plan_recovery(
        found(stored(2), segment(*COMMITS), dropped=dropped, damaged=()), lose_after=4
    )
    assert plan.head == point(4)
    assert epochs(plan.replay) == [3, 4]
    assert plan.given_up == (point(5),)
    assert plan.next_epoch == 6


def test_lose_after_zero_starts_fresh_and_a_higher_one_does_not() -> None:
    broken = found(stored(2), damaged=(2,))
    plan = plan_recovery(broken, lose_after=0)
    assert (plan.head, plan.checkpoint, plan.next_epoch) == (None, None, 3)
    with pytest.raises(WouldLose):
        plan_recovery(broken, lose_after=1)


def test_lose_after_keeps_what_needs_not_be_lost() -> None:
    plan = plan_recovery(found(stored(2, 4), segment(*COMMITS)), lose_after=99)
    assert plan.head == point(5)
    assert plan.given_up == ()


# homes


def test_another_home_takes_over_only_by_a_flag() -> None:
    history = Scribe().take_over(1).history
    check_claim(history, HOME, other_home=False)
    check_claim(history, "home-b", other_home=True)
    with pytest.raises(Refused, match=HOME) as caught:
        check_claim(history, "home-b", other_home=False)
    assert "--take-over-home" in caught.value.advice
    assert "take_over_home=True" in caught.value.advice


def test_an_empty_log_and_a_copy_belong_to_whoever_comes() -> None:
    check_claim(Scribe().history, HOME, other_home=False)
    copied = Scribe().take_over(1, f"{COPY_HOME}memory://").history
    check_claim(copied, HOME, other_home=False)


def test_segments_from_before_another_home_owned_the_pipeline_are_void() -> None:
    scribe = Scribe().take_over(1).checkpoint(2, 2, digest="a2")
    scribe.take_over(2, "home-b").checkpoint(3, 4, parent=2, digest="b4")
    back = scribe.take_over(3, HOME).history
    plan = plan_recovery(found(back, segment(*COMMITS)))
    assert plan.head == Point(4, "b4")  # not epoch 5 of the old segment: it was given up
    assert plan.next_epoch == 6
    own = Segment(3, Adopt(Point(4, "b4"), ()), (Commit(Point(6, "c6"), Point(4, "b4"), None, 3),))
    assert plan_recovery(found(back, segment(*COMMITS), own)).head == Point(6, "c6")


def test_void_segments_still_count_for_the_next_epoch() -> None:
    scribe = Scribe().take_over(1).checkpoint(2, 2, digest="a2").take_over(2, "home-b")
    assert plan_recovery(found(scribe.history, segment(*COMMITS))).next_epoch == 6


# sinks


def test_sinks_behind_get_what_they_miss_in_order() -> None:
    sinks = {"slow": sink(2), "new": sink(0), "done": sink(5)}
    plan = plan_recovery(found(stored(4), segment(*COMMITS), sinks=sinks))
    assert {name: epochs(chain) for name, chain in plan.publish.items()} == {
        "slow": [3, 4, 5],
        "new": [1, 2, 3, 4, 5],
        "done": [],
    }
    # what is published is copied too, although the checkpoint covers its state
    assert epochs(plan.adopt.commits) == [1, 2, 3, 4, 5]
    assert epochs(plan.replay) == [5]


def test_output_that_the_checkpoint_carries_is_published_without_a_driver_log() -> None:
    carried = {cid(4): COMMITS[2:4]}
    plan = plan_recovery(found(stored(4), sinks={"slow": sink(2)}, carried=carried, void=True))
    assert epochs(plan.publish["slow"]) == [3, 4]
    assert plan.replay == ()
    assert epochs(plan.adopt.commits) == [3, 4]


def test_a_sink_behind_whose_output_nobody_has_stops() -> None:
    seen = found(stored(4), sinks={"slow": sink(2), "new": sink(0)}, void=True)
    with pytest.raises(Diverged, match=r"'new' is at its start .* at epoch 4"):
        plan_recovery(seen, sinks_from_now={"slow"})
    with pytest.raises(Diverged, match="'slow' is at epoch 2") as caught:
        plan_recovery(seen, sinks_from_now={"new"})
    assert "--sink-from-now slow" in caught.value.advice


def test_a_sink_begins_from_now_if_a_person_says_so_and_only_if_it_must() -> None:
    named = {"new", "slow", "there"}
    sinks = {"new": sink(0), "slow": sink(2), "there": sink(4)}
    plan = plan_recovery(found(stored(4), sinks=sinks, void=True), sinks_from_now=named)
    assert plan.joins == ("new", "slow")
    assert not any(plan.publish.values())
    whole = plan_recovery(found(stored(4), segment(*COMMITS), sinks=sinks), sinks_from_now=named)
    assert whole.joins == ()
    assert epochs(whole.publish["new"]) == epochs(COMMITS)


def test_a_sink_ahead_of_everything_known_stops() -> None:
    with pytest.raises(WouldLose, match="holds epoch 5") as caught:
        plan_recovery(found(stored(4), sinks={"fast": sink(5)}, void=True))
    assert "--lose-after 4 (lose_after=4 in Python)" in caught.value.advice


def test_a_sink_ahead_of_an_empty_pipeline_stops_too() -> None:
    with pytest.raises(WouldLose):
        plan_recovery(found(stored(), sinks={"fast": sink(1)}))


def test_by_flag_a_sink_ahead_is_left_as_it_is_and_its_epoch_is_not_used_again() -> None:
    plan = plan_recovery(found(stored(4), sinks={"fast": sink(5)}), lose_after=4)
    assert plan.publish["fast"] == ()
    assert plan.next_epoch == 6


def test_a_sink_of_another_history_is_diverged() -> None:
    for at in (sink(5, "b"), sink(3, "b")):
        with pytest.raises(Diverged):
            plan_recovery(found(stored(4), segment(*COMMITS), sinks={"odd": at}))


def test_a_rewind_is_published_after_the_newest() -> None:
    rewind = commit(4, parent=point(1), follows=point(3))
    at_three = {"s": sink(3), "slow": sink(2)}
    plan = plan_recovery(found(stored(1, 3), segment(*COMMITS[:3], rewind), sinks=at_three))
    assert epochs(plan.publish["s"]) == [4]
    assert epochs(plan.publish["slow"]) == [3, 4]
