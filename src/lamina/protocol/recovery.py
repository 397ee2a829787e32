"""R2 and R12: where a recovery lands, or why it stops.

It lands on the highest acknowledged epoch that the driver log, the store log or any sink knows.
An older checkpoint plus COMMITs that reach that epoch is equal. Anything lower is a person's
decision: --lose-after EPOCH.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lamina.errors import Diverged, Refused, WouldLose
from lamina.format.commit import Point
from lamina.format.log import Committed
from lamina.ids import CheckpointId
from lamina.protocol.driver import (
    Adopt,
    Commit,
    Segment,
    accepted_head,
    by_digest,
    line,
    next_epoch,
    publish_line,
)
from lamina.protocol.history import COPY_HOME, History
from lamina.protocol.sinks import SinkPosition


@dataclass(frozen=True, slots=True)
class Found:
    """What a scan saw, after the home and every sink were claimed (R5)."""

    history: History  # with the own TAKEOVER at its end
    segments: tuple[Segment, ...]  # the driver log of this home, without the own new segment
    sinks: Mapping[str, SinkPosition]
    damaged: Mapping[CheckpointId, str]  # checkpoints whose files do not all verify, and why
    carried: Mapping[CheckpointId, tuple[Commit, ...]] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()  # COMMITs whose runs went with their WAL segment
    wal_epoch: int = 0  # the highest that a core's log has reached, committed or not
    void: bool = False  # another home owns the pipeline: *segments* only say which epochs are used
    driver_lost: bool = False  # core logs are there, and no driver log that could have made them


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


def check_claim(history: History, home: str, *, other_home: bool) -> None:
    """R2: another home takes a pipeline over only by a person's flag."""
    owner = history.home
    if owner in ("", home) or owner.startswith(COPY_HOME) or other_home:
        return
    raise Refused(
        f"this pipeline's WAL is in the home {owner}, not in {home}",
        advice="Start it there. If that home is lost for ever, --take-over-home gives up every "
        "epoch after the newest checkpoint",
    )


def plan_recovery(found: Found, *, lose_after: int | None = None) -> Plan:
    """Decide everything a recovery will do, from what the scan saw."""
    segments = _own_segments(found)
    commits = by_digest(segments)
    top = _highest(found, accepted_head(segments))
    if lose_after is None:
        check_driver_log(found, accepted_head(segments))
    head, checkpoint, skipped = _reach(found, commits, top, lose_after)
    if checkpoint is not None:
        commits |= {c.point.digest: c for c in found.carried.get(checkpoint.id, ())}
    replay = tuple(c for c in reversed(line(head, commits)) if not _covered(c, checkpoint))
    assert not any(c.point.digest in found.dropped for c in replay)
    publish = {
        name: _pending(name, position, head, commits, lose_after)
        for name, position in sorted(found.sinks.items())
    }
    copied = {c.epoch: c for chain in (replay, *publish.values()) for c in chain}
    return Plan(
        checkpoint=checkpoint,
        replay=replay,
        head=head,
        publish=publish,
        adopt=Adopt(head, tuple(copied[epoch] for epoch in sorted(copied))),
        next_epoch=_next_epoch(found),
        skipped=skipped,
        given_up=tuple(c.point for c in line(top, commits) if head is None or c.epoch > head.epoch),
    )


def plan_fresh(found: Found) -> Plan:
    """Start with nothing, by a person's flag: everything acknowledged so far is given up."""
    segments = _own_segments(found)
    top = _highest(found, accepted_head(segments))
    known = line(top, by_digest(segments))
    given_up = tuple(c.point for c in known) or ((top,) if top else ())
    return Plan(
        checkpoint=None,
        replay=(),
        head=None,
        publish={},
        adopt=Adopt(None, ()),
        next_epoch=_next_epoch(found),
        skipped=(),
        given_up=given_up,
    )


def _own_segments(found: Found) -> tuple[Segment, ...]:
    """Segments from before another home owned the pipeline are void: their epochs were given up."""
    if found.void:
        return ()
    return tuple(s for s in found.segments if s.generation >= found.history.home_since)


def check_driver_log(found: Found, driver: Point | None) -> None:
    """A home that owns the pipeline has decided at least what its own checkpoints hold.

    A driver log that is gone, or ends before them, has lost COMMITs: nobody knows how many.
    """
    if found.void:
        return
    decided = _decided_here(found.history)
    if found.driver_lost or (driver.epoch if driver else 0) < decided:
        holds = f"ends with epoch {driver.epoch}" if driver else "holds no epoch"
        raise WouldLose(
            f"the driver log of this home {holds}"
            + (f", and a checkpoint made here holds epoch {decided}" if decided else "")
            + ": it has lost what was acknowledged since",
            advice="Restore the files of driver/ from a copy of the home. To go on without what "
            "they held: --lose-after EPOCH",
        )


def _decided_here(history: History) -> int:
    """The epoch of the newest checkpoint, if a driver log of the home that owns it decided it."""
    newest = history.newest
    if newest is None or newest.entry.commit_digest is None:
        return 0
    return newest.epoch if newest.generation >= history.home_since else 0


def _highest(found: Found, driver: Point | None) -> Point | None:
    newest = found.history.newest
    stored = None if newest is None else point_of(newest)
    if driver is None or stored is None:
        return driver or stored
    if driver.epoch == stored.epoch and driver.digest != stored.digest:
        raise Diverged(f"driver log and store hold two different epochs {driver.epoch}")
    return driver if driver.epoch >= stored.epoch else stored


def _reach(
    found: Found, commits: Mapping[str, Commit], top: Point | None, lose_after: int | None
) -> tuple[Point | None, Committed | None, tuple[Skipped, ...]]:
    """The highest point that can be rebuilt in full, and the checkpoint it is rebuilt from."""
    skipped: dict[CheckpointId, Skipped] = {}
    for head in _candidates(found, commits, top, lose_after):
        base, complete = _base_of(found, commits, head, skipped)
        if base is not None or complete:
            return head, base, tuple(skipped.values())
    assert top is not None, "an empty history is always complete"
    raise WouldLose(
        f"epoch {top.epoch} was acknowledged and cannot be rebuilt"
        + "".join(f"; checkpoint {s.id} (epoch {s.epoch}): {s.why}" for s in skipped.values()),
        advice="Restore the damaged files from a copy. To give up epochs for ever: "
        "--lose-after EPOCH",
    )


def _candidates(
    found: Found, commits: Mapping[str, Commit], top: Point | None, lose_after: int | None
) -> Iterator[Point | None]:
    if lose_after is None:
        yield top
        return
    points = {c.point for c in line(top, commits)} | set(map(point_of, found.history.checkpoints))
    points |= {top} if top else set()
    yield from sorted(
        (p for p in points if p.epoch <= lose_after), key=lambda p: p.epoch, reverse=True
    )
    if lose_after == 0 or top is None:
        yield None


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
    points = {head, *(c.point for c in walked), *(c.parent for c in walked)}
    for checkpoint in sorted(found.history.checkpoints, key=lambda c: (-c.epoch, -c.seq)):
        if point_of(checkpoint) not in points:
            continue
        if checkpoint.id not in found.damaged:
            return checkpoint, True
        why = found.damaged[checkpoint.id]
        skipped[checkpoint.id] = Skipped(checkpoint.id, checkpoint.epoch, why)
    return None, bool(walked) and walked[-1].parent is None


def _pending(
    name: str,
    position: SinkPosition,
    head: Point | None,
    commits: Mapping[str, Commit],
    lose_after: int | None,
) -> tuple[Commit, ...]:
    """What a sink has not got yet, oldest first."""
    at = position.point
    if at == head:
        return ()
    if at is not None and (head is None or at.epoch > head.epoch):
        if lose_after is not None:
            return ()
        raise WouldLose(
            f"the sink {name!r} holds epoch {at.epoch}, which neither the driver log nor a "
            f"checkpoint has",
            advice="Recover in the home that wrote it. To go on without it: --lose-after EPOCH",
        )
    pending: list[Commit] = []
    for commit in publish_line(head, commits):
        pending.append(commit)
        if commit.follows == at:
            return tuple(reversed(pending))
    last = pending[-1].epoch if pending else head.epoch if head else 0
    raise Diverged(
        f"the sink {name!r} is at {_show(at)}, which is not on the line of epoch "
        f"{head.epoch if head else 0} (known back to epoch {last})"
    )


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


def _show(point: Point | None) -> str:
    return "its start" if point is None else f"epoch {point.epoch}"
