"""R2 and R12: where a recovery lands, or why it stops.

It lands on the highest acknowledged epoch that the driver log, the store log or any sink knows.
An older checkpoint plus COMMITs that reach that epoch is equal. Anything lower is a person's
decision: --lose-after EPOCH.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lamina.errors import Diverged, WouldLose
from lamina.format.commit import Point, SinkAhead
from lamina.format.log import Committed
from lamina.ids import CheckpointId, fold
from lamina.protocol.driver import (
    Adopt,
    Commit,
    Segment,
    accepted_head,
    accepted_segment,
    accepted_sinks,
    by_digest,
    line,
    next_epoch,
    publish_line,
)
from lamina.protocol.history import History
from lamina.protocol.sink_plan import advise_giving_up, plan_sink
from lamina.protocol.sinks import SinkPosition


@dataclass(frozen=True, slots=True)
class Found:
    """What a scan saw, after the home and every sink were claimed (R5)."""

    history: History  # with the own TAKEOVER at its end
    segments: tuple[Segment, ...]  # the driver log of this home, without the own new segment
    sinks: Mapping[str, SinkPosition]
    damaged: Mapping[CheckpointId, str]  # checkpoints whose files do not all verify, and why
    carried: Mapping[CheckpointId, tuple[Commit, ...]] = field(default_factory=dict)
    dropped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """COMMITs whose runs went with their WAL segment, by digest, and the segments' paths."""
    wal_epoch: int = 0  # the highest that a core's log has reached, committed or not
    void: bool = False  # another home owns the pipeline: *segments* only say which epochs are used
    driver_lost: bool = False
    """There is no driver log, although core logs or a TAKEOVER of this home say that there was."""


@dataclass(frozen=True, slots=True)
class Skipped:
    id: CheckpointId
    epoch: int
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to restore, replay, copy and publish; printing it changes nothing."""

    checkpoint: Committed | None
    replay: tuple[Commit, ...]  # oldest first
    head: Point | None
    publish: Mapping[str, tuple[Commit, ...]]  # by sink, oldest first
    adopt: Adopt
    next_epoch: int
    skipped: tuple[Skipped, ...]
    given_up: tuple[Point, ...]
    joins: tuple[str, ...] = ()  # sinks that are set to the head, without what they lack
    tip: Committed | None = None  # the newest checkpoint of the head's line, damaged or not


def plan_recovery(
    found: Found,
    *,
    lose_after: int | None = None,
    sinks_from_now: Collection[str] = (),
) -> Plan:
    """Decide everything a recovery will do, from what the scan saw.

    Of *sinks_from_now* a person has said that they need not get the epochs that they lack.
    """
    segments = _own_segments(found)
    commits = by_digest(segments)
    top = _highest(found, segments)
    if lose_after is None:
        _check_driver_log(found, segments, top)
    head, checkpoint, skipped = _reach(found, commits, top, lose_after)
    if checkpoint is not None:
        commits |= {c.point.digest: c for c in found.carried.get(checkpoint.id, ())}
    replay = tuple(c for c in reversed(line(head, commits)) if not _covered(c, checkpoint))
    assert not any(c.point.digest in found.dropped for c in replay)
    accepted, from_now = accepted_sinks(segments), set(map(fold, sinks_from_now))
    due = {
        name: plan_sink(
            name,
            position.point,
            head,
            commits,
            accepted=accepted.get(fold(name)),
            lose_after=lose_after,
            from_now=fold(name) in from_now,
        )
        for name, position in sorted(found.sinks.items())
    }
    publish = {name: each.commits for name, each in due.items()}
    copied = {c.epoch: c for chain in (replay, *publish.values()) for c in chain}
    return Plan(
        checkpoint=checkpoint,
        replay=replay,
        head=head,
        publish=publish,
        adopt=Adopt(
            head,
            tuple(copied[epoch] for epoch in sorted(copied)),
            {name: each.accepted for name, each in due.items() if each.accepted},
        ),
        next_epoch=_next_epoch(found),
        skipped=skipped,
        given_up=tuple(c.point for c in line(top, commits) if head is None or c.epoch > head.epoch),
        joins=tuple(name for name, each in due.items() if each.joins),
        tip=_tip(found, commits, head) or checkpoint,
    )


def plan_fresh(found: Found) -> Plan:
    """Start with nothing, by a person's flag: everything acknowledged so far is given up."""
    segments = _own_segments(found)
    top = _highest(found, segments)
    known = line(top, by_digest(segments))
    given_up = tuple(c.point for c in known) or ((top,) if top else ())
    held = {name: position.point for name, position in sorted(found.sinks.items())}
    return Plan(
        checkpoint=None,
        replay=(),
        head=None,
        publish={},
        adopt=Adopt(None, (), {name: SinkAhead(at, None) for name, at in held.items() if at}),
        next_epoch=_next_epoch(found),
        skipped=(),
        given_up=given_up,
    )


def has_lost_its_log(history: History, home: str, segments: Iterable[Segment], *, own: int) -> bool:
    """Whether processes before generation *own* have left a TAKEOVER of this home and no log.

    The first of them had a driver segment before that. It goes only once a later one has an ADOPT,
    and the newest with an ADOPT stays. Claims of starts that stopped here do not make it good.
    """
    if history.home != home or history.home_since in (0, own):
        return False
    return not any(s.adopt or s.generation == history.home_since for s in segments)


def _own_segments(found: Found) -> tuple[Segment, ...]:
    """Segments from before another home owned the pipeline are void: their epochs were given up."""
    if found.void:
        return ()
    return tuple(s for s in found.segments if s.generation >= found.history.home_since)


def _check_driver_log(found: Found, segments: tuple[Segment, ...], top: Point | None) -> None:
    """A home that owns the pipeline has decided at least what its own checkpoints hold.

    A driver log that is gone, or ends before them, has lost COMMITs: nobody knows how many.
    """
    if found.void:
        return
    driver, decided = accepted_head(segments), _decided_here(found, segments)
    if found.driver_lost or (driver.epoch if driver else 0) < decided:
        holds = f"ends with epoch {driver.epoch}" if driver else "holds no epoch"
        raise WouldLose(
            f"the driver log of this home {holds}"
            + (f", and a checkpoint made here holds epoch {decided}" if decided else "")
            + ": it has lost what was acknowledged since",
            advice="Restore the files of driver/ from a copy of the home. "
            + advise_giving_up(_reachable(found, by_digest(segments), top, None)),
        )


def _decided_here(found: Found, segments: tuple[Segment, ...]) -> int:
    """The newest epoch that a driver log of the home must know, because it decided it."""
    decided = [
        checkpoint.epoch
        for checkpoint in _unjudged(found, segments)
        if checkpoint.entry.commit_digest and checkpoint.generation >= found.history.home_since
    ]
    return max(decided, default=0)


def _unjudged(found: Found, segments: tuple[Segment, ...]) -> list[Committed]:
    """The checkpoints that the newest ADOPT has not seen.

    Its process claimed the store's log before it looked: every checkpoint of an older generation
    was there, and is in the history of the ADOPT's head, or was given up by a person.
    """
    truth = accepted_segment(segments)
    since = truth.generation if truth else 0
    return [c for c in found.history.checkpoints if c.generation >= since]


def _highest(found: Found, segments: tuple[Segment, ...]) -> Point | None:
    driver = accepted_head(segments)
    newest = max(_unjudged(found, segments), key=lambda c: (c.epoch, c.seq), default=None)
    stored = None if newest is None else point_of(newest)
    if driver is None or stored is None:
        return driver or stored
    if driver.epoch == stored.epoch and driver.digest != stored.digest:
        raise Diverged(f"driver log and store hold two different epochs {driver.epoch}")
    return driver if driver.epoch >= stored.epoch else stored


def _reach(
    found: Found, commits: Mapping[str, Commit], top: Point | None, lose_after: int | None
) -> tuple[Point | None, Committed | None, tuple[Skipped, ...]]:
    """The point to land on, which can be rebuilt in full, and the checkpoint it is rebuilt from.

    A person who gives up what came after an epoch has not given up that epoch.
    """
    skipped: dict[CheckpointId, Skipped] = {}
    head = next(_candidates(found, commits, top, lose_after), top)
    if _is_asked_for(head, commits, top, lose_after):
        base, complete = _base_of(found, commits, head, skipped)
        if base is not None or complete:
            return head, base, tuple(skipped.values())
    assert top is not None, "an empty history is always complete"
    reachable = _reachable(found, commits, top, lose_after)
    what = f"epoch {top.epoch} was acknowledged and cannot be rebuilt"
    if lose_after is not None:
        kept = min(lose_after, top.epoch)
        what = f"--lose-after {lose_after} keeps epoch {kept}, which cannot be rebuilt"
    if reachable:
        what += f"; the highest that can be is epoch {reachable}"
    reasons = [*_missing_wal(found, commits, top, reachable)]
    reasons += [f"checkpoint {s.id} (epoch {s.epoch}): {s.why}" for s in skipped.values()]
    raise WouldLose(
        what + "".join(f"; {reason}" for reason in reasons),
        advice=("Restore the named files from a copy. " if reasons else "")
        + advise_giving_up(reachable),
    )


def _reachable(
    found: Found, commits: Mapping[str, Commit], top: Point | None, lose_after: int | None
) -> int:
    """What --lose-after would land on: the highest epoch that can be rebuilt; 0 is nothing."""
    limit = lose_after if lose_after is not None else top.epoch if top else 0
    for head in _candidates(found, commits, top, limit):
        base, complete = _base_of(found, commits, head, {})
        if head is not None and (base is not None or complete):
            return head.epoch
    return 0


def _missing_wal(
    found: Found, commits: Mapping[str, Commit], top: Point, reachable: int
) -> Iterator[str]:
    """What the log lacks of the epochs after *reachable*: segments, or a COMMIT."""
    needed = [c for c in line(top, commits) if c.epoch > reachable]
    lacking = [c for c in needed if c.point.digest in found.dropped]
    if lacking:
        paths = {path: None for c in lacking for path in found.dropped[c.point.digest]}
        yield f"missing, and needed from epoch {lacking[-1].epoch} on: {', '.join(sorted(paths))}"
    before = needed[-1].parent if needed else None
    if before is not None and before.digest not in commits and before.epoch > reachable:
        yield f"no segment of the driver log holds the COMMIT of epoch {before.epoch}"


def _is_asked_for(
    head: Point | None, commits: Mapping[str, Commit], top: Point | None, lose_after: int | None
) -> bool:
    """Whether nothing else was acknowledged up to the epoch that a person named."""
    if lose_after is None or head is None:
        return True
    if head == top or head.epoch == lose_after:
        return head.epoch <= lose_after
    return any(c.parent == head and c.epoch > lose_after for c in line(top, commits))


def _candidates(
    found: Found, commits: Mapping[str, Commit], top: Point | None, lose_after: int | None
) -> Iterator[Point | None]:
    if lose_after is None:
        yield top
        return
    points = {c.point for c in line(top, commits)} | ({top} if top else set())
    points.update(stored_points(found, commits, top))
    yield from sorted(
        (p for p in points if p.epoch <= lose_after), key=lambda p: p.epoch, reverse=True
    )
    if lose_after == 0 or top is None:
        yield None


def stored_points(
    found: Found, commits: Mapping[str, Commit], top: Point | None
) -> Iterator[Point]:
    """What checkpoints hold of the history of *top*, as far as anybody knows.

    Not what is above it, nor what the line of COMMITs passes over: that was given up before, and
    a sink may have gone on without it.
    """
    walked = publish_line(top, commits)[::-1]
    epochs = [commit.epoch for commit in walked]
    for point in map(point_of, found.history.checkpoints):
        if top is None or point.epoch > top.epoch:
            continue
        after = bisect_left(epochs, point.epoch)
        if after < len(walked) and walked[after].point != point:
            follows = walked[after].follows
            if follows is None or follows.epoch < point.epoch:
                continue
        yield point


def _tip(found: Found, commits: Mapping[str, Commit], head: Point | None) -> Committed | None:
    """The newest checkpoint on the line of *head*: what counts as the newest from now on."""
    points = _points(head, line(head, commits))
    on_line = (c for c in found.history.checkpoints if point_of(c) in points)
    return max(on_line, key=lambda c: (c.epoch, c.seq), default=None)


def _points(head: Point | None, walked: tuple[Commit, ...]) -> set[Point | None]:
    """Where the line of *head* is known to have been."""
    return {head, *(c.point for c in walked), *(c.parent for c in walked)}


def _base_of(
    found: Found,
    commits: Mapping[str, Commit],
    head: Point | None,
    skipped: dict[CheckpointId, Skipped],
) -> tuple[Committed | None, bool]:
    """The newest usable checkpoint below *head* on its line; or True if no base is needed."""
    if head is None:
        return None, True
    walked = line(head, {d: c for d, c in commits.items() if d not in found.dropped})
    points = _points(head, walked)
    for checkpoint in sorted(found.history.checkpoints, key=lambda c: (-c.epoch, -c.seq)):
        if point_of(checkpoint) not in points:
            continue
        if checkpoint.id not in found.damaged:
            return checkpoint, True
        why = found.damaged[checkpoint.id]
        skipped[checkpoint.id] = Skipped(checkpoint.id, checkpoint.epoch, why)
    return None, bool(walked) and walked[-1].parent is None


def _covered(commit: Commit, checkpoint: Committed | None) -> bool:
    return checkpoint is not None and commit.epoch <= checkpoint.epoch


def _next_epoch(found: Found) -> int:
    """Not below what the logs of the cores have reached: they take no lower one (R4)."""
    return max(next_epoch(_epochs(found)), found.wal_epoch)


def _epochs(found: Found) -> list[int]:
    seen = [found.history.epoch_max]
    seen += [c.epoch for c in by_digest(found.segments).values()]
    seen += [p.point.epoch for p in found.sinks.values() if p.point]
    return seen


def point_of(checkpoint: Committed) -> Point:
    """The epoch a checkpoint holds; without a driver log its id stands for the COMMIT."""
    return Point(checkpoint.epoch, checkpoint.entry.commit_digest or str(checkpoint.id))
