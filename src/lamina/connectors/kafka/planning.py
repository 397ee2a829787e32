"""Which offsets of which partitions an epoch reads: pure decisions, and how they are written down.

The offset of a source is a flat map of texts, as it is in every COMMIT and manifest:

    started     'earliest', 'latest' or 'given': startingOffsets has done its work
    TOPIC/id    the id of the topic: one that is deleted and made again has another
    TOPIC/N     the next offset of partition N

The name of a topic has no slash. Topics that the pipeline does not name any more stay in the map:
if they come back, they go on where they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lamina.engine.model import Offset
from lamina.errors import Refused

STARTED = "started"
_ID = "id"
EARLIEST, LATEST, GIVEN = "earliest", "latest", "given"
AT_EARLIEST, AT_LATEST = -2, -1  # Spark's numbers for both, in JSON

Part = tuple[str, int]
"""A partition: topic and number."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the broker describes it."""

    id: str
    partitions: tuple[int, ...]
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition holds: from its first offset to its last stable one."""

    earliest: int
    latest: int  # the next offset that will be readable


@dataclass(frozen=True, slots=True)
class Slice:
    """What an epoch reads of one partition."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Starting:
    """Where partitions begin when a pipeline is new: `startingOffsets`."""

    word: str = EARLIEST
    given: Mapping[Part, int] = field(default_factory=dict)

    def of(self, part: Part, bounds: Bounds) -> int:
        if self.word == GIVEN and part not in self.given:
            topic, number = part
            raise Refused(
                f"startingOffsets does not name partition {number} of the topic {topic!r}",
                advice=f"Name every partition; {AT_EARLIEST} is its earliest offset",
            )
        at = self.given[part] if self.word == GIVEN else AT_EARLIEST
        if self.word == LATEST or at == AT_LATEST:
            return bounds.latest
        return bounds.earliest if at == AT_EARLIEST else at


@dataclass(frozen=True, slots=True)
class Position:
    """An offset of the source, read."""

    started: str = ""
    ids: Mapping[str, str] = field(default_factory=dict)
    next: Mapping[Part, int] = field(default_factory=dict)

    @classmethod
    def read(cls, offset: Offset) -> Position:
        ids: dict[str, str] = {}
        places: dict[Part, int] = {}
        for name, value in offset.items():
            topic, slash, what = name.partition("/")
            if what == _ID:
                ids[topic] = value
            elif slash:
                places[topic, int(what)] = int(value)
        return cls(offset.get(STARTED, ""), ids, places)

    def written(self) -> dict[str, str]:
        texts = {STARTED: self.started} if self.started else {}
        texts |= {f"{topic}/{_ID}": id_ for topic, id_ in self.ids.items()}
        texts |= {f"{topic}/{number}": str(at) for (topic, number), at in self.next.items()}
        return dict(sorted(texts.items()))

    def without(self, topic: str) -> Position:
        ids = {name: id_ for name, id_ in self.ids.items() if name != topic}
        places = {part: at for part, at in self.next.items() if part[0] != topic}
        return Position(self.started, ids, places)

    def read_of(self, topic: str) -> str:
        """How far a topic was read, for people."""
        found = sorted((number, at) for (name, number), at in self.next.items() if name == topic)
        return ", ".join(f"partition {number} up to offset {at}" for number, at in found)


def rows_behind(end: Position, bounds: Mapping[Part, Bounds]) -> int:
    """How many offsets there are behind *end*; not all of them need be rows."""
    return sum(
        max(each.latest - end.next.get(part, each.earliest), 0) for part, each in bounds.items()
    )


@dataclass(frozen=True, slots=True)
class Loss:
    """Rows of a topic that can no longer be read, or not as what follows those before."""

    message: str
    skipped: Position  # where to go on if a person accepts it
    back: str = ""  # TOPIC/N@OFFSET, if that is a place before the next offset


def lost_topic(known: Position, topics: Mapping[str, Topic], wanted: Iterable[str]) -> Loss | None:
    """The first topic that is gone, or that is another one under the same name."""
    for topic in sorted(wanted):
        if topic not in known.ids:
            continue
        read = known.read_of(topic)
        if topic not in topics:
            message = f"the topic {topic!r} is gone; it was read: {read}"
            return Loss(message, known.without(topic))
        if topics[topic].id != known.ids[topic]:
            message = (
                f"the topic {topic!r} was deleted and made again: its id was {known.ids[topic]} "
                f"and is {topics[topic].id}; of the one before was read: {read}"
            )
            return Loss(message, known.without(topic))
    return None


def lost_rows(known: Position, bounds: Mapping[Part, Bounds]) -> Loss | None:
    """The first partition that no longer holds the next offset, with the numbers.

    A partition that was cut off and has grown beyond the next offset since looks as it did.
    """
    for part, at in sorted(known.next.items()):
        if part not in bounds or bounds[part].earliest <= at <= bounds[part].latest:
            continue
        (topic, number), found = part, bounds[part]
        where = f"partition {number} of the topic {topic!r}"
        if at < found.earliest:
            message = (
                f"{where} has lost {found.earliest - at} offsets that were not read yet: the next "
                f"one is {at}, and the earliest that is left is {found.earliest}"
            )
            return Loss(message, _moved(known, part, found.earliest))
        message = (
            f"{where} ends before what was read of it: the next offset is {at}, and the partition "
            f"ends at {found.latest}"
        )
        back = f"{topic}/{number}@{found.latest}"
        return Loss(message, _moved(known, part, found.latest), back)
    return None


def _moved(known: Position, part: Part, at: int) -> Position:
    return Position(known.started, known.ids, {**known.next, part: at})


def begin(
    known: Position,
    topics: Mapping[str, Topic],
    bounds: Mapping[Part, Bounds],
    starting: Starting,
) -> Position:
    """Where every partition is read from: new ones from their beginning, once it has started."""
    first = Starting() if known.started else starting
    ids = {**known.ids, **{topic: each.id for topic, each in topics.items()}}
    new = {part: first.of(part, each) for part, each in bounds.items() if part not in known.next}
    return Position(known.started or starting.word, ids, {**known.next, **new})


def slices(at: Position, bounds: Mapping[Part, Bounds], limit: int | None) -> tuple[Slice, ...]:
    """What one epoch reads: all there is, or *limit* offsets."""
    lags = {part: bounds[part].latest - at.next[part] for part in sorted(bounds)}
    shares = share(lags, limit, turn=sum(at.next[part] for part in bounds))
    return tuple(
        Slice(*part, at.next[part], at.next[part] + count)
        for part, count in shares.items()
        if count > 0
    )


def share(lags: Mapping[Part, int], limit: int | None, *, turn: int = 0) -> dict[Part, int]:
    """How many offsets each partition gives: in proportion to what waits in it.

    So partitions that were written side by side come to their ends together, and their event times
    stay together. None is passed over for ever: each gives one at least, or when its *turn* comes.
    """
    waiting = [part for part, lag in lags.items() if lag > 0]
    total = sum(lags[part] for part in waiting)
    if limit is None or total <= limit:
        return {part: lags[part] for part in waiting}
    if limit <= len(waiting):
        first = turn % len(waiting)
        return dict.fromkeys((waiting[first:] + waiting[:first])[:limit], 1)
    rest, spare = total - len(waiting), limit - len(waiting)
    shares = {part: 1 + (lags[part] - 1) * spare // rest for part in waiting}
    left = limit - sum(shares.values())  # what rounding down has left: fewer than partitions
    for part in waiting:
        more = min(left, 1, lags[part] - shares[part])
        shares[part] += more
        left -= more
    return shares


def after(at: Position, read: Iterable[Slice]) -> Position:
    """The position behind what an epoch reads."""
    ends = {(each.topic, each.partition): each.end for each in read}
    return Position(at.started, at.ids, {**at.next, **ends})
