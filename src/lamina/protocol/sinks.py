"""R6: a sink keeps (pipeline, generation, epoch, COMMIT digest) in the transaction of its data.

A sink may hold an epoch that a person gave up (--lose-after, start fresh). It keeps those rows;
from then on, as long as it stands exactly there, it counts as standing where recovery landed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from lamina.errors import Diverged, Fenced, Refused
from lamina.format.commit import Point, SinkAhead
from lamina.format.pipeline_record import Owner
from lamina.protocol.driver import Commit, publish_line


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """What the outside system itself says it has."""

    pipeline: Owner
    generation: int
    point: Point | None


class Publish(Enum):
    NOW = "now"
    DONE = "done already"


def seen_as(at: Point | None, accepted: SinkAhead | None) -> Point | None:
    """Where a sink counts as standing: where it is, unless a person accepted just that place."""
    return accepted.counts_as if accepted is not None and at == accepted.at else at


def judge_publish(
    position: SinkPosition, point: Point, *, pipeline: Owner, generation: int
) -> Publish:
    """What a sink itself can tell: whose it is, who has claimed it, and that epochs only rise."""
    check_owner(position, pipeline)
    if position.generation > generation:
        raise Fenced(f"generation {position.generation} owns the sink, this is {generation}")
    at = position.point
    if at is None or at.epoch < point.epoch:
        return Publish.NOW
    if at == point:
        return Publish.DONE
    if at.epoch == point.epoch:
        raise Diverged(
            f"the sink holds another epoch {at.epoch}: COMMIT {at.digest[:12]}, "
            f"not {point.digest[:12]}"
        )
    raise Refused(
        f"epoch {point.epoch} comes too late: the sink is at epoch {at.epoch}",
        advice="Start the pipeline again. If that fails, the sink is further than the pipeline: "
        "its home or its store was restored from a backup, or another process writes to the sink",
    )


def decide_publish(
    position: SinkPosition,
    commit: Commit,
    *,
    pipeline: Owner,
    generation: int,
    accepted: SinkAhead | None = None,
) -> Publish:
    """Whether to publish *commit*; strictly in order, never twice, never by an old generation.

    *accepted* is what the driver log's ADOPT says about this sink, if anything.
    """
    verdict = judge_publish(position, commit.point, pipeline=pipeline, generation=generation)
    at = position.point
    if verdict is Publish.NOW and seen_as(at, accepted) != commit.follows:
        raise Refused(
            f"epoch {commit.epoch} must come after {_show(commit.follows)}, "
            f"but the sink is at {_show(at)}",
            advice="Start the pipeline again: it publishes what is still kept of the epochs after "
            f"{_show(at)}. If that fails, the sink was restored from a backup, or somebody else "
            "has changed it: restore it to where the pipeline is, or go on with --sink-from-now "
            "SINK, which leaves out what the sink lacks",
        )
    return verdict


@dataclass(frozen=True, slots=True)
class Due:
    """What a sink is to get after a recovery, oldest first, and what it counts as until then."""

    commits: tuple[Commit, ...]
    accepted: SinkAhead | None = None
    joins: bool = False  # it is set to the head, without what it lacks: a person has said so


def due_of(
    at: Point | None,
    head: Point | None,
    commits: Mapping[str, Commit],
    accepted: SinkAhead | None,
) -> Due | None:
    """What a sink at *at* lacks of the history of *head*; None if it is not in that history.

    Where it really is comes first: who gave an epoch up may have come back to it.
    """
    missing = _missing(at, head, commits)
    if missing is not None:
        return Due(missing)
    missing = _missing(seen_as(at, accepted), head, commits)
    return None if missing is None else Due(missing, accepted)


def is_ahead(at: Point | None, head: Point | None) -> bool:
    """Whether a sink holds an epoch above *head*."""
    return at is not None and (head is None or at.epoch > head.epoch)


def _missing(
    at: Point | None, head: Point | None, commits: Mapping[str, Commit]
) -> tuple[Commit, ...] | None:
    if at == head:
        return ()
    walked: list[Commit] = []
    for commit in publish_line(head, commits):
        walked.append(commit)
        if commit.follows == at:
            return tuple(reversed(walked))
    return None


def check_owner(position: SinkPosition, pipeline: Owner) -> None:
    """A sink belongs to one pipeline for ever."""
    if position.pipeline.id not in ("", pipeline.id):
        raise Refused(
            f"the sink belongs to the pipeline {position.pipeline}, not to {pipeline}",
            advice="Give each pipeline a sink of its own",
        )


def check_fence(position: SinkPosition, generation: int) -> None:
    """A sink may be fenced by a higher generation only."""
    if position.generation > generation:
        raise Fenced(f"generation {position.generation} owns the sink, this is {generation}")


def _show(point: Point | None) -> str:
    return "nothing" if point is None else f"epoch {point.epoch}"
