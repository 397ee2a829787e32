"""Random lives of a pipeline whose owner gives epochs up: the rules alone, with sinks that lag.

Whatever was given up, the next start goes on without a flag, and every sink gets every epoch of
the history that counts exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.format.commit import Point, SinkAhead
from lamina.format.pipeline_record import Owner
from lamina.protocol.driver import Adopt, Commit, Segment, publish_line
from lamina.protocol.recovery import Found, Plan, plan_fresh, plan_recovery
from lamina.protocol.sinks import Publish, SinkPosition, decide_publish
from tests.support.checkpoints import Scribe
from tests.support.examples import examples

SINKS = ("fast", "slow")


@dataclass
class Life:
    """The driver log, the store's log and the sinks; everything else dies with a process."""

    scribe: Scribe = field(default_factory=Scribe)
    segments: list[Segment] = field(default_factory=list)
    applied: dict[str, list[Point]] = field(default_factory=lambda: {s: [] for s in SINKS})
    commits: dict[str, Commit] = field(default_factory=dict)
    generation: int = 0
    checkpoints: int = 0
    head: Point | None = None
    stored: Point | None = None  # what the newest checkpoint holds

    def start(self, *, lose_after: int | None = None, fresh: bool = False) -> Plan:
        self.generation += 1
        self.scribe.take_over(self.generation)
        found = Found(self.scribe.history, tuple(self.segments), self._positions(), damaged={})
        plan = plan_fresh(found) if fresh else plan_recovery(found, lose_after=lose_after)
        self.segments.append(Segment(self.generation, plan.adopt))
        if lose_after is None and not fresh:
            assert plan.head == self.head
            assert plan.given_up == ()
        self.head, self.next_epoch = plan.head, plan.next_epoch
        self.pending = {name: list(plan.publish.get(name, ())) for name in SINKS}
        return plan

    def give_up(self, number: int) -> None:
        """A number near the head, also one that was given up before; or everything."""
        known = publish_line(self.head, self.commits)
        after = known[0].epoch + 2 - number if known else 0
        self.start(lose_after=after if known and after >= known[-1].epoch else 0)

    def commit(self) -> None:
        point = Point(self.next_epoch, f"{self.next_epoch}-of-{self.generation}")
        made = Commit(point, self.head, self.head, self.generation)
        last = self.segments[-1]
        assert last.adopt is not None
        self.segments[-1] = Segment(self.generation, last.adopt, (*last.commits, made))
        self.commits[point.digest] = made
        self.head, self.next_epoch = point, self.next_epoch + 1
        for chain in self.pending.values():
            chain.append(made)

    def checkpoint(self) -> None:
        if self.head is None or self.head == self.stored:
            return
        self.checkpoints += 1
        self.scribe.checkpoint(self.checkpoints, self.head.epoch, digest=self.head.digest)
        self.stored = self.head

    def publish(self, name: str) -> None:
        if self.pending[name]:
            commit = self.pending[name].pop(0)
            decided = decide_publish(
                self._positions()[name],
                commit,
                pipeline=Owner("p"),
                generation=self.generation,
                accepted=self._accepted().get(name),
            )
            assert decided is Publish.NOW
            self.applied[name].append(commit.point)

    def check(self) -> None:
        """Everything published: no epoch twice, none missing, in the order of the history."""
        history = [c.point for c in reversed(publish_line(self.head, self.commits))]
        for name, applied in self.applied.items():
            while self.pending[name]:
                self.publish(name)
            assert len(applied) == len(set(applied))
            assert [point for point in applied if point in set(history)] == history

    def _positions(self) -> dict[str, SinkPosition]:
        return {
            name: SinkPosition(Owner("p"), self.generation, applied[-1] if applied else None)
            for name, applied in self.applied.items()
        }

    def _accepted(self) -> dict[str, SinkAhead]:
        adopt = self.segments[-1].adopt
        assert isinstance(adopt, Adopt)
        return dict(adopt.sinks)


STEPS = st.one_of(
    st.tuples(st.just("commit"), st.just(0)),
    st.tuples(st.just("fast"), st.just(0)),
    st.tuples(st.just("slow"), st.just(0)),
    st.tuples(st.just("checkpoint"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("give up"), st.integers(0, 8)),
    st.tuples(st.just("fresh"), st.just(0)),
)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_after_any_number_of_given_up_epochs_every_sink_goes_on(
    steps: list[tuple[str, int]],
) -> None:
    life = Life()
    life.start()
    for step, number in steps:
        match step:
            case "commit":
                life.commit()
            case "checkpoint":
                life.checkpoint()
            case "restart":
                life.start()
            case "give up":
                life.give_up(number)
            case "fresh":
                life.start(fresh=True)
            case name:
                life.publish(name)
    life.start()
    life.commit()
    life.check()
    life.start()
    life.check()
