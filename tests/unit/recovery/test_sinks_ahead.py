"""A sink that holds epochs which a person gave up: it goes on from there, each epoch once."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lamina.errors import Diverged, Refused, WouldLose
from lamina.format.commit import AdoptRecord, CommitRecord, Point, SinkAhead
from lamina.format.pipeline_record import Owner
from lamina.protocol.driver import Adopt, Commit, Segment
from lamina.protocol.recovery import plan_fresh, plan_recovery
from lamina.protocol.sinks import Publish, SinkPosition, decide_publish, seen_as
from lamina.recovery import RecoveredState, RecoveryConfig
from lamina.wal.driver_log import read_driver_log, rule_commit
from tests.support.recoveries import MemorySink, Pipeline, recovered_state
from tests.unit.protocol.test_recovery import (
    COMMITS,
    commit,
    epochs,
    found,
    point,
    segment,
    sink,
    stored,
)

# the rules


def test_a_sink_counts_as_standing_lower_only_where_a_person_saw_it() -> None:
    accepted = SinkAhead(point(5), point(3))
    assert seen_as(point(5), accepted) == point(3)
    assert seen_as(point(5), None) == point(5)
    assert seen_as(point(5, "b"), accepted) == point(5, "b")
    assert seen_as(None, accepted) is None
    assert seen_as(point(5), SinkAhead(point(5), None)) is None


def test_the_epoch_after_a_loss_was_refused_by_the_sink_for_ever() -> None:
    at = SinkPosition(Owner("p"), 1, point(5))
    six = Commit(point(6), point(3), point(3), 1)
    with pytest.raises(Refused):
        decide_publish(at, six, pipeline=Owner("p"), generation=1)
    accepted = SinkAhead(point(5), point(3))
    decided = decide_publish(at, six, pipeline=Owner("p"), generation=1, accepted=accepted)
    assert decided is Publish.NOW
    done = SinkPosition(Owner("p"), 1, point(6))
    again = decide_publish(done, six, pipeline=Owner("p"), generation=1, accepted=accepted)
    assert again is Publish.DONE


def test_what_a_sink_counts_as_is_written_down_carried_on_and_dropped() -> None:
    lost = plan_recovery(found(stored(3), segment(*COMMITS), sinks={"s": sink(5)}), lose_after=3)
    assert lost.adopt == Adopt(point(3), (), {"s": SinkAhead(point(5), point(3))})
    assert lost.next_epoch == 6
    adopted = Segment(2, lost.adopt)
    again = plan_recovery(found(stored(3), segment(*COMMITS), adopted, sinks={"s": sink(5)}))
    assert (again.head, again.adopt.sinks) == (point(3), lost.adopt.sinks)
    six = Commit(point(6), point(3), point(3), 2)
    went_on = Segment(2, lost.adopt, (six,))
    behind = plan_recovery(found(stored(3), segment(*COMMITS), went_on, sinks={"s": sink(5)}))
    assert (epochs(behind.publish["s"]), behind.adopt.sinks) == ([6], lost.adopt.sinks)
    done = plan_recovery(found(stored(3), segment(*COMMITS), went_on, sinks={"s": sink(6)}))
    assert (done.publish["s"], done.adopt.sinks) == ((), {})


def test_a_second_loss_on_top_lets_the_sink_count_as_even_less() -> None:
    accepted = {"s": SinkAhead(point(5), point(3))}
    six = Commit(point(6), point(3), point(3), 2)
    seen = found(
        stored(2), segment(*COMMITS), Segment(2, Adopt(point(3), COMMITS[2:3], accepted), (six,)),
        sinks={"s": sink(5), "t": sink(6)},
    )  # fmt: skip
    third = plan_recovery(seen, lose_after=3)
    assert third.adopt.sinks == accepted | {"t": SinkAhead(point(6), point(3))}
    second = plan_recovery(seen, lose_after=2)
    assert second.adopt.sinks == {
        "s": SinkAhead(point(5), point(2)),
        "t": SinkAhead(point(6), point(2)),
    }


def test_without_a_persons_word_a_sink_that_is_ahead_still_stops() -> None:
    accepted = {"s": SinkAhead(point(5), point(3))}
    adopted = Segment(2, Adopt(point(3), (), accepted))
    with pytest.raises(WouldLose, match="holds epoch 4"):
        plan_recovery(found(stored(3), adopted, sinks={"s": sink(4)}))
    late = Segment(2, Adopt(point(3), (), accepted), (Commit(point(6), point(3), point(3), 2),))
    with pytest.raises(Diverged):
        plan_recovery(found(stored(3), late, sinks={"s": sink(4)}))


def test_a_fresh_start_lets_every_sink_that_has_anything_begin_anew() -> None:
    seen = found(
        stored(3), segment(*COMMITS), sinks={"s": sink(5), "slow": sink(2), "new": sink(0)}
    )
    plan = plan_fresh(seen)
    assert plan.adopt.sinks == {
        "s": SinkAhead(point(5), None),
        "slow": SinkAhead(point(2), None),
    }
    six = Commit(point(6), None, None, 2)
    went_on = Segment(2, plan.adopt, (six,))
    after = plan_recovery(found(stored(3), segment(*COMMITS), went_on, sinks=dict(seen.sinks)))
    assert {name: epochs(chain) for name, chain in after.publish.items()} == {
        "s": [6],
        "slow": [6],
        "new": [6],
    }


def test_a_checkpoint_that_was_given_up_stopped_the_next_start() -> None:
    """Its process was killed right after the ADOPT, before a higher epoch covered it up."""
    lost = plan_recovery(found(stored(3, 5), segment(*COMMITS)), lose_after=3)
    adopted = Segment(2, lost.adopt)
    again = plan_recovery(found(stored(3, 5), segment(*COMMITS), adopted))
    assert (again.head, again.next_epoch, again.given_up) == (point(3), 6, ())
    fresh = Segment(2, plan_fresh(found(stored(3, 5), segment(*COMMITS))).adopt)
    assert plan_recovery(found(stored(3, 5), segment(*COMMITS), fresh)).head is None


def test_a_checkpoint_that_was_given_up_came_back_with_the_next_loss() -> None:
    """A sink that went on without epochs 4 and 5 would never have got them."""
    six = Commit(point(6), point(3), point(3), 2)
    went_on = Segment(2, Adopt(point(3), COMMITS[:3]), (six,))
    seen = found(stored(3, 5), segment(*COMMITS), went_on, sinks={"s": sink(6)})
    assert plan_recovery(seen, lose_after=5).head == point(3)
    adopted = Segment(2, Adopt(point(3), COMMITS[:3]))
    seen = found(stored(3, 5), segment(*COMMITS), adopted)
    assert plan_recovery(seen, lose_after=5).head == point(3)


def test_a_checkpoint_before_a_rewind_is_no_loss() -> None:
    rewind = commit(4, parent=point(1), follows=point(3))
    seen = found(stored(1, 3), segment(*COMMITS[:3], rewind))
    assert plan_recovery(seen, lose_after=3).head == point(3)


# the whole way, on the real code


@dataclass
class Ledger(MemorySink):
    """A sink with transactions: rows and position change together."""

    applied: list[int] = field(default_factory=list)

    def publish(self, commit: Commit, generation: int, accepted: SinkAhead | None) -> None:
        decided = decide_publish(
            self.position(), commit, pipeline=Owner("p"), generation=generation, accepted=accepted
        )
        if decided is Publish.NOW:
            self.applied.append(commit.epoch)
            self.at = commit.point


class Killed(Exception):
    """The process ends here."""


@dataclass
class Life:
    """A pipeline and its ledger; a process dies before its *steps_left* th step."""

    line: Pipeline
    ledger: Ledger
    steps_left: int = 1 << 30
    rotates: bool = False

    def step(self) -> None:
        if self.steps_left == 0:
            raise Killed
        self.steps_left -= 1

    def go_on(self, config: RecoveryConfig, *, to: int) -> RecoveredState:
        """Start, publish what is due, then commit and publish up to epoch *to*."""
        self.step()
        state = self.line.start(config)
        try:
            for due in state.plan.publish.get("out", ()):
                self._publish(due)
            head = self.line.recovered.driver.head
            while (head.epoch if head else 0) < to:
                head = self._epoch(max(state.next_epoch, head.epoch + 1 if head else 1))
        finally:
            self.line.stop()
        return state

    def _epoch(self, epoch: int) -> Point:
        self.step()
        made = self.line.epoch(epoch, {b"k%d" % epoch: b"v"})
        if self.rotates:
            self.step()
            driver = self.line.recovered.driver
            driver.rotate(AdoptRecord(driver.head, tuple(self._since(driver.head))))
        self._publish(rule_commit(self.line.commits[-1]))
        return made

    def _since(self, head: Point | None) -> list[CommitRecord]:
        by_point = {commit.point: commit for commit in self.line.commits}
        walked: list[CommitRecord] = []
        while head is not None:
            walked.insert(0, by_point[head])
            head = by_point[head].parent
        return walked

    def _publish(self, due: Commit) -> None:
        self.step()
        driver = self.line.recovered.driver
        self.ledger.publish(due, driver.generation, driver.sinks.get("out"))


PLAIN = RecoveryConfig(partitions=2)
STEPS_MAX = 9  # more than the life after the loss has


def five_epochs(tmp_path: Path, *, checkpoint_at: int = 3) -> Life:
    ledger = Ledger()
    life = Life(Pipeline(tmp_path, sinks=(ledger,)), ledger)
    life.go_on(PLAIN, to=checkpoint_at)
    life.line.start()
    life.line.checkpoint()
    life.line.stop()
    life.go_on(PLAIN, to=5)
    assert ledger.applied == [1, 2, 3, 4, 5]
    return life


def cut_driver_log(life: Life, through: int) -> None:
    """As if an old copy of the home had been restored: the log ends with epoch *through*."""
    identity = life.line.recovered.home.identity
    for each in read_driver_log(life.line.disk, identity):
        assert each.adopt is not None
        points = [each.adopt.head, *(commit.point for commit in each.commits)]
        if any(point is not None and point.epoch > through for point in points):
            life.line.disk.unlink(each.path)


@pytest.mark.parametrize("rotates", [False, True], ids=["", "rotates"])
@pytest.mark.parametrize("cut", [False, True], ids=["given up", "driver log cut"])
@pytest.mark.parametrize("killed_before", range(STEPS_MAX))
def test_a_pipeline_whose_sink_was_ahead_of_the_loss_never_published_again(
    tmp_path: Path, killed_before: int, cut: bool, rotates: bool
) -> None:
    life = five_epochs(tmp_path)
    life.rotates = rotates
    if cut:
        cut_driver_log(life, 3)
        with pytest.raises(WouldLose, match="holds epoch 5") as caught:
            life.go_on(PLAIN, to=7)
        assert "lose_after=3 in Python" in caught.value.advice
    life.steps_left = killed_before
    with suppress(Killed):
        life.go_on(RecoveryConfig(partitions=2, lose_after=3), to=7)
    life.steps_left = 1 << 30
    if killed_before == 0:
        life.go_on(RecoveryConfig(partitions=2, lose_after=3), to=3)
    life.go_on(PLAIN, to=7)
    assert life.ledger.applied == [1, 2, 3, 4, 5, 6, 7]
    life.line.start()
    state = recovered_state(life.line.recovered.state)
    assert sorted(state) == [b"k1", b"k2", b"k3", b"k6", b"k7"]
    assert life.line.recovered.driver.sinks == {}
    life.line.stop()


@pytest.mark.parametrize("killed_before", range(STEPS_MAX))
def test_a_fresh_start_with_a_sink_that_has_rows_never_published_again(
    tmp_path: Path, killed_before: int
) -> None:
    life = five_epochs(tmp_path, checkpoint_at=5)
    fresh = RecoveryConfig(partitions=2, start_fresh=True)
    life.steps_left = killed_before
    with suppress(Killed):
        life.go_on(fresh, to=7)
    life.steps_left = 1 << 30
    if killed_before == 0:
        life.go_on(fresh, to=0)
    life.go_on(PLAIN, to=7)
    assert life.ledger.applied == [1, 2, 3, 4, 5, 6, 7]
    life.line.start()
    assert sorted(recovered_state(life.line.recovered.state)) == [b"k6", b"k7"]
    life.line.stop()


def test_a_second_loss_while_the_sink_still_waits(tmp_path: Path) -> None:
    life = five_epochs(tmp_path)
    life.steps_left = 2  # the start and one COMMIT: epoch 6 is never published
    with pytest.raises(Killed):
        life.go_on(RecoveryConfig(partitions=2, lose_after=4), to=7)
    life.steps_left = 1 << 30
    life.go_on(RecoveryConfig(partitions=2, lose_after=3), to=3)
    assert life.line.recovered.state.plan.adopt.sinks["out"].counts_as == Point(
        3, life.line.commits[2].digest
    )
    life.go_on(PLAIN, to=7)
    assert life.ledger.applied == [1, 2, 3, 4, 5, 7]
