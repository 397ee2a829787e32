"""Topics of Kafka as a source: what the driver plans, and how Spark reads it.

The driver asks for topic ids and offsets, and never for rows; an epoch is a list of exact ranges of
offsets, which Spark's batch reader reads. Before COMMIT the driver looks again: the ranges are
still whole, and the topics are still the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from lamina.clock import SystemClock
from lamina.connectors.kafka.broker import ANSWER_S, FIRST_ANSWER_S, Broker
from lamina.connectors.kafka.debezium_kind import is_debezium
from lamina.connectors.kafka.planning import (
    GIVEN,
    Bounds,
    Loss,
    Part,
    Position,
    Slice,
    Topic,
    after,
    begin,
    lost_rows,
    lost_topic,
    rows_behind,
    slices,
)
from lamina.connectors.kafka.security import SERVERS, driver_settings
from lamina.connectors.kafka.silence import Silence
from lamina.connectors.kafka.source_kind import (
    COMPACTED,
    IDLE_AFTER,
    MAX_OFFSETS,
    PATTERN,
    STARTING,
    assigned_of,
    client_settings,
    starting_of,
    subscribed,
)
from lamina.connectors.kinds import SourceContext
from lamina.engine.model import Offset, SourceRange
from lamina.engine.ports import Backlog, Limits, SourceMemory
from lamina.errors import AccessDenied, LaminaError, NotFound, Refused
from lamina.state.schema import StateSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lamina.connectors.kafka.frames import KafkaFrames


T = TypeVar("T")
LOOK_AGAIN_S = 1.0
LOST_FOR_S = 5.0
LOOKS_MAX = 10


class KafkaSource:
    """Some topics of one cluster."""

    def __init__(self, context: SourceContext) -> None:
        self._context, given = context, context.given
        self._servers = given.text(SERVERS)
        self._pattern = re.compile(given.text(PATTERN)) if given.text(PATTERN) else None
        self._assigned = assigned_of(context)
        self._starting = starting_of(context)
        self._skips_lost = context.skip_lost  # for the first plan of this run
        self._accepted: tuple[Offset, list[Loss]] = ({}, [])  # the start of that plan, what it lost
        self._clock = SystemClock()
        self._lost: list[Loss] = []  # of the last look, and accepted
        idle_after_us = given.microseconds(IDLE_AFTER)
        self._silence = None if idle_after_us is None else Silence(idle_after_us, self._clock)
        self.backlog: Backlog | None = None  # in offsets: at least as many as there are rows
        self._allowed: set[str] = set()  # topics, by id, whose cleanup policy will do

    @property
    def name(self) -> str:
        return self._context.source.name

    @property
    def memory(self) -> StateSchema | None:
        return None

    def initial(self) -> Offset:
        return {}

    def probe(self, spark: SparkSession) -> None:
        """Whether the cluster answers, to us, and has the topics."""
        self._broker.patience_s = FIRST_ANSWER_S
        try:
            topics = self._topics(Position())
            self._check_topics(topics)
            self._broker.bounds(self._parts(topics))
        finally:
            self._broker.patience_s = ANSWER_S
        self._frames.probe(spark)

    def plan(self, start: Offset, limits: Limits, memory: SourceMemory | None) -> SourceRange:
        del memory
        return self._patiently(lambda: self._plan(start, limits))

    def _plan(self, start: Offset, limits: Limits) -> SourceRange:
        at, bounds = self._looked_twice(start)
        read = slices(at, bounds, self._limit(limits))
        # What is lost later stops the run again; a plan that is made again has lost the same.
        self._skips_lost, self._accepted = False, (start, self._lost)
        end = after(at, read)
        self.backlog = Backlog(rows=rows_behind(end, bounds))
        return SourceRange(
            self.name,
            start,
            end.written(),
            read,
            holding=self._holding(bounds, read),
            notes=tuple(
                f"the source {self.name!r} has skipped rows: {loss.message}" for loss in self._lost
            ),
        )

    def _looked_twice(self, start: Offset) -> tuple[Position, dict[Part, Bounds]]:
        """Where to read from. A loss is skipped if it is the same a while later: a broker that has
        just started may tell of less than it has, and rows that come back would be read twice."""
        found, lost = self._look(start), self._lost
        for _ in range(LOOKS_MAX):
            if not lost or (start, lost) == self._accepted:
                return found
            self._clock.wait(LOST_FOR_S)
            before = [loss.message for loss in lost]
            found, lost = self._look(start), self._lost
            if [loss.message for loss in lost] == before:
                return found
        raise self._refused(f"what is lost changes from look to look: {lost[0].message}")

    def _look(self, start: Offset) -> tuple[Position, dict[Part, Bounds]]:
        self._lost = []
        if start != self._accepted[0]:
            self._accepted = (start, [])
        topics, known = self._found_topics(Position.read(start))
        bounds = self._broker.bounds(self._parts(topics))
        if not known.started and is_debezium(self._context.given):
            self._check_whole(bounds)
        at = begin(known, topics, bounds, self._starting)
        return self._whole(at, bounds), bounds

    def confirm(self, planned: SourceRange) -> None:
        """The topics are the same, and nothing of what was read has been deleted meanwhile."""
        self._patiently(lambda: self._confirm(planned))

    def _confirm(self, planned: SourceRange) -> None:
        read: tuple[Slice, ...] = planned.data
        wanted = {each.topic for each in read}
        end = Position.read(planned.end)
        topics = self._broker.topics(wanted)
        if (loss := lost_topic(end, topics, wanted)) is not None:
            raise self._refused(f"{loss.message}, while it was read")
        parts = {(each.topic, each.partition): each for each in read}
        for part, earliest in self._broker.earliest(parts).items():
            if parts[part].start < earliest:
                raise self._refused(
                    f"partition {part[1]} of the topic {part[0]!r} was cut while it was read: the "
                    f"epoch begins at offset {parts[part].start}, and the earliest that is left is "
                    f"{earliest}"
                )

    def acknowledge(self, offset: Offset) -> None:
        """Kafka deletes rows by rules of its own."""

    def frame(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        """The rows of a range; without those that cannot be read, if these are kept elsewhere."""
        numbers = self._silence.numbers if self._silence else None
        return self._frames.rows(spark, planned.data, numbers)

    def bad_rows(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        return self._frames.bad_rows(spark, planned.data)

    def learn(self, error: LaminaError) -> bool:
        """A schema that a task has missed is fetched."""
        return self._frames.learn(error)

    @property
    def parts(self) -> list[str]:
        """The partitions by their numbers, of a source with `idle_after`."""
        return [_named(part) for part in self._silence.numbers] if self._silence else []

    # steps

    def _patiently(self, look: Callable[[], T]) -> T:
        """What is gone is looked for again, if a broker may have been restarted just now."""
        while True:
            try:
                return look()
            except (Refused, NotFound):
                if not self._broker.is_shaken:
                    raise
                self._clock.wait(LOOK_AGAIN_S)

    def _holding(self, parts: Iterable[Part], read: Sequence[Slice]) -> tuple[str, ...] | None:
        if self._silence is None:
            return None
        return tuple(map(_named, self._silence.holding(parts, read)))

    @cached_property
    def _broker(self) -> Broker:
        settings = driver_settings(self._servers, client_settings(self._context.given))
        return Broker(settings, self.name)

    @cached_property
    def _frames(self) -> KafkaFrames:
        from lamina.connectors.kafka.debezium_frames import DebeziumFrames  # noqa: PLC0415  an extra
        from lamina.connectors.kafka.frames import KafkaFrames  # noqa: PLC0415  an extra

        return (DebeziumFrames if is_debezium(self._context.given) else KafkaFrames)(self._context)

    def _limit(self, limits: Limits) -> int | None:
        ours = self._context.given.declared.get(MAX_OFFSETS)
        both = [each for each in (limits.rows, ours) if isinstance(each, int)]
        return min(both, default=None)

    def _wanted(self, known: Position) -> set[str]:
        """The topics that are to be read; of a pattern those that are there, or were read."""
        if self._pattern is not None:
            names = {*self._broker.names(), *known.ids}
            return {name for name in names if self._pattern.fullmatch(name)}
        assigned = {topic for topic, _ in self._assigned}
        return assigned or set(subscribed(self._context.given))

    def _topics(self, known: Position) -> dict[str, Topic]:
        """The topics that are wanted and there; Kafka's own are not for a pattern to find."""
        found = self._broker.topics(self._wanted(known))
        if self._pattern is not None:
            return {name: each for name, each in found.items() if not each.is_internal}
        return found

    def _found_topics(self, known: Position) -> tuple[dict[str, Topic], Position]:
        """The topics to read, and the position in those of them that are still the same."""
        topics = self._topics(known)
        wanted = self._wanted(known) if self._pattern is None else {*topics, *self._matching(known)}
        while (loss := lost_topic(known, topics, wanted)) is not None:
            known = self._skipped(loss)
        self._check_topics(topics)
        return topics, known

    def _matching(self, known: Position) -> set[str]:
        assert self._pattern is not None
        return {name for name in known.ids if self._pattern.fullmatch(name)}

    def _check_topics(self, topics: Mapping[str, Topic]) -> None:
        for topic in sorted(self._wanted(Position()) if self._pattern is None else ()):
            if topic not in topics:
                raise NotFound(
                    f"the topic {topic!r}, which the source {self.name!r} reads, does not exist",
                    where=self._servers,
                    advice="Create it, or correct its name; a right to DESCRIBE it is needed, too",
                )
        for topic, number in sorted(self._assigned):
            if number not in topics[topic].partitions:
                raise NotFound(
                    f"the topic {topic!r} has no partition {number}, which the source "
                    f"{self.name!r} reads",
                    where=self._servers,
                    advice=f"It has {len(topics[topic].partitions)}: correct the option assign",
                )
        self._check_policies(topics)

    def _check_policies(self, topics: Mapping[str, Topic]) -> None:
        """A compacted topic loses rows that may have to be read again: not without a word."""
        new = {name: each.id for name, each in topics.items() if each.id not in self._allowed}
        if not new or self._context.given.switch(COMPACTED):
            return
        advice = f"With {COMPACTED} 'true' it is read; docs/connectors.md says what that costs"
        if is_debezium(self._context.given):
            advice = "Compaction may take a delete away before it is read: cleanup.policy=delete"
        try:
            policies = self._broker.policies(new)
        except AccessDenied as error:
            message = f"{error.message}; so nobody knows whether they are compacted"
            how = f"Grant DESCRIBE_CONFIGS on the topics. {advice}"
            raise AccessDenied(message, where=self._servers, advice=how) from error
        for topic, policy in sorted(policies.items()):
            if "compact" in policy:
                raise Refused(
                    f"the topic {topic!r} of the source {self.name!r} is compacted "
                    f"(cleanup.policy={policy}): rows that were read may be gone when an epoch is "
                    "run again",
                    where=self._servers,
                    advice=advice,
                )
        self._allowed.update(new.values())

    def _parts(self, topics: Mapping[str, Topic]) -> list[Part]:
        return [
            (name, number)
            for name, each in sorted(topics.items())
            for number in each.partitions
            if not self._assigned or (name, number) in self._assigned
        ]

    def _whole(self, at: Position, bounds: Mapping[Part, Bounds]) -> Position:
        """A position that every partition can be read from, whether it has new rows or not."""
        while (loss := lost_rows(at, bounds)) is not None:
            at = self._skipped(loss)
        return at

    def _check_whole(self, bounds: Mapping[Part, Bounds]) -> None:
        """Of changes nothing may be missing at the beginning, unless a person has named it."""
        for (topic, number), each in sorted(bounds.items()):
            if each.earliest > 0 and self._starting.word != GIVEN:
                raise Refused(
                    f"the source {self.name!r}: partition {number} of the topic {topic!r} begins "
                    f"at offset {each.earliest}: the changes before it are gone, and rows that "
                    "they made would be missing",
                    where=self._servers,
                    advice="Take a new snapshot into a new topic, with retention.ms=-1. If a whole "
                    f"snapshot follows, name where it begins: {STARTING} with JSON",
                )

    def _skipped(self, loss: Loss) -> Position:
        """Where to go on behind what is lost. Refused unless a person has said so; and as long as
        a broker may have been restarted just now, for `_patiently` to look again."""
        is_named = loss.back in self._context.go_back if loss.back else self._skips_lost
        is_named = is_named and not is_debezium(self._context.given)
        was_accepted = loss.message in (each.message for each in self._accepted[1])
        if not (is_named or was_accepted) or self._broker.is_shaken:
            raise self._refused(loss.message, f"{self.name}:{loss.back}" if loss.back else "")
        self._lost.append(loss)
        return loss.skipped

    def _refused(self, message: str, back: str = "") -> Refused:
        if is_debezium(self._context.given):
            advice = (
                "A table whose changes are lost cannot be followed: take a new snapshot into a "
            )
            advice += "new topic (docs/connectors.md, Debezium)"
            return Refused(
                f"the source {self.name!r}: {message}", where=self._servers, advice=advice
            )
        advice = (
            "Restore the rows, or accept that they are lost: `lamina run --skip-lost "
            f"{back or self.name}` goes on with what is there. "
        )
        if back:
            advice += "First see that it stays so: rows of that place that come back come twice"
        else:
            advice += "Longer retention gives more time"
        return Refused(f"the source {self.name!r}: {message}", where=self._servers, advice=advice)


def _named(part: Part) -> str:
    return f"{part[0]}/{part[1]}"
