"""R4 and R5: which COMMITs of a driver log count, and who may go on.

A driver log is a folder of segments, one per process that ever claimed the home. A new process
opens its segment first, looks afterwards, and writes what it accepts as one ADOPT before its
first effect. So the newest segment with an ADOPT is the truth: what older segments gained
after somebody looked at them was never acknowledged, because their driver looks for a newer
segment between the sync of a COMMIT and its first effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lamina.errors import Fenced, LogDamaged
from lamina.format.commit import Point, SinkAhead
from lamina.ids import fold


@dataclass(frozen=True, slots=True)
class Commit:
    """The decision of one epoch, as far as the rules need it.

    *parent* is the epoch whose state it continues; *follows* the epoch after which sinks get it.
    They differ for a rewind only: it continues an old epoch and is published after the newest.
    *sinks* are those that it has output for, even if that is no row; if none, nobody says. Their
    names are compared without case.
    """

    point: Point
    parent: Point | None
    follows: Point | None
    generation: int
    sinks: frozenset[str] = frozenset()

    @property
    def epoch(self) -> int:
        return self.point.epoch

    def is_for(self, sink: str) -> bool:
        """Whether its output for *sink* was staged."""
        return not self.sinks or fold(sink) in map(fold, self.sinks)


@dataclass(frozen=True, slots=True)
class Adopt:
    """What a new process accepted of its predecessors: the head, and the COMMITs it copied.

    *sinks* holds those that are at an epoch which a person gave up (protocol.sinks.seen_as).
    """

    head: Point | None
    commits: tuple[Commit, ...]
    sinks: Mapping[str, SinkAhead] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Segment:
    """One process's part of the driver log, as far as it could be read."""

    generation: int
    adopt: Adopt | None
    commits: tuple[Commit, ...] = ()
    number: int = 0  # a long-lived process goes on in a new part, with an ADOPT of its own


def accepted_segment(segments: Iterable[Segment]) -> Segment | None:
    """The truth: the newest segment with an ADOPT, or None if there is none."""
    adopted = (segment for segment in segments if segment.adopt is not None)
    return max(adopted, key=lambda s: (s.generation, s.number), default=None)


def accepted_head(segments: Iterable[Segment]) -> Point | None:
    """The newest acknowledged epoch of a home, or None if it never had one."""
    truth = accepted_segment(segments)
    if truth is None or truth.adopt is None:
        return None
    return truth.commits[-1].point if truth.commits else truth.adopt.head


def accepted_sinks(segments: Iterable[Segment]) -> Mapping[str, SinkAhead]:
    """The sinks that count as standing lower than they are, because a person said so; folded."""
    truth = accepted_segment(segments)
    if truth is None or truth.adopt is None:
        return {}
    return {fold(name): ahead for name, ahead in truth.adopt.sinks.items()}


def by_digest(segments: Iterable[Segment]) -> dict[str, Commit]:
    """Every COMMIT of every segment; reached only through the digests that later ones name."""
    found: dict[str, Commit] = {}
    for segment in segments:
        for commit in (*(segment.adopt.commits if segment.adopt else ()), *segment.commits):
            found[commit.point.digest] = commit
    return found


def line(head: Point | None, commits: Mapping[str, Commit]) -> tuple[Commit, ...]:
    """The COMMITs from *head* back along parents, as far as they are known; newest first."""
    return _walk(head, commits, lambda commit: commit.parent)


def publish_line(head: Point | None, commits: Mapping[str, Commit]) -> tuple[Commit, ...]:
    """The COMMITs from *head* back in the order in which sinks get them; newest first."""
    return _walk(head, commits, lambda commit: commit.follows)


def check_not_superseded(generation: int, generations: Iterable[int]) -> None:
    """After the sync of a COMMIT and before any effect: is there a newer driver segment?"""
    newest = max(generations, default=generation)
    if newest > generation:
        raise Fenced(f"generation {newest} has opened a newer driver segment in this home")


def next_generation(generations: Iterable[int]) -> int:
    """One above every generation seen: store log, driver segments, sinks."""
    return 1 + max(generations, default=0)


def next_epoch(epochs: Iterable[int]) -> int:
    """One above every epoch seen: driver log, store log, sinks. Numbers are never used again."""
    return 1 + max(epochs, default=0)


def _walk(
    head: Point | None,
    commits: Mapping[str, Commit],
    link: Callable[[Commit], Point | None],
) -> tuple[Commit, ...]:
    walked: list[Commit] = []
    at = head
    while at is not None and (commit := commits.get(at.digest)) is not None:
        if commit.epoch != at.epoch:
            raise LogDamaged(f"COMMIT {at.digest[:12]} is of epoch {commit.epoch}, not {at.epoch}")
        walked.append(commit)
        at = link(commit)
        if at is not None and at.epoch >= commit.epoch:
            raise LogDamaged(f"epoch {commit.epoch} names epoch {at.epoch} as an earlier one")
    return tuple(walked)
