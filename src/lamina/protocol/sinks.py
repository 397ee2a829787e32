"""R6: a sink keeps (pipeline, generation, epoch, COMMIT digest) in the transaction of its data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lamina.errors import Diverged, Fenced, Refused
from lamina.format.commit import Point
from lamina.protocol.driver import Commit


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """What the outside system itself says it has."""

    pipeline: str
    generation: int
    point: Point | None


class Publish(Enum):
    NOW = "now"
    DONE = "done already"


def decide_publish(
    position: SinkPosition, commit: Commit, *, pipeline: str, generation: int
) -> Publish:
    """Whether to publish *commit*; strictly in order, never twice, never by an old generation."""
    if position.pipeline not in ("", pipeline):
        raise Refused(f"the sink belongs to the pipeline {position.pipeline!r}")
    if position.generation > generation:
        raise Fenced(f"the sink has seen generation {position.generation}, this is {generation}")
    at = position.point
    if at == commit.point:
        return Publish.DONE
    if at is not None and at.epoch == commit.epoch:
        raise Diverged(
            f"the sink holds another epoch {at.epoch}: COMMIT {at.digest[:12]}, "
            f"not {commit.point.digest[:12]}"
        )
    if at != commit.follows:
        raise Refused(
            f"epoch {commit.epoch} is published after {_show(commit.follows)}, "
            f"but the sink is at {_show(at)}"
        )
    return Publish.NOW


def check_fence(position: SinkPosition, generation: int) -> None:
    """A sink may be fenced by a higher generation only."""
    if position.generation > generation:
        raise Fenced(f"the sink has seen generation {position.generation}, this is {generation}")


def _show(point: Point | None) -> str:
    return "nothing" if point is None else f"epoch {point.epoch}"
