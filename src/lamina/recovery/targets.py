"""Where a rewind can go back to: checkpoints, and epochs that the log still has between them.

A state is a checkpoint, then the COMMITs above it on its own line of parents. Epochs that a person
gave up are no targets: a sink may have gone on without them. Epochs that a rewind left behind are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.finding import find_checkpoint
from lamina.errors import NotFound, Refused
from lamina.format.commit import CommitRecord, Point
from lamina.format.log import Committed
from lamina.protocol.driver import Commit, by_digest, line, publish_line
from lamina.protocol.history import History
from lamina.protocol.recovery import point_of, stored_points
from lamina.recovery.scan import Scan

SHOWN_MAX = 8


@dataclass(frozen=True, slots=True)
class Target:
    """A state of the past as its parts; *commits* are those above the checkpoint, oldest first."""

    point: Point
    checkpoint: Committed
    commits: tuple[CommitRecord, ...] = ()


def known_commits(scan: Scan) -> dict[str, Commit]:
    """The COMMITs of this home since it has owned the pipeline: older ones were given up (R2)."""
    found = scan.found
    if found.void:
        return {}
    return by_digest(s for s in found.segments if s.generation >= found.history.home_since)


def known_epochs(head: Point, commits: Mapping[str, Commit]) -> dict[int, Commit]:
    """The COMMITs that are in the history of *head*, also of lines that a rewind has left."""
    return {c.epoch: c for c in (*publish_line(head, commits), *line(head, commits))}


def base_of(walked: Iterable[Commit], history: History) -> Committed | None:
    """The newest checkpoint that a line passes."""
    passed = {commit.parent for commit in walked}
    return newest_of(c for c in history.checkpoints if point_of(c) in passed)


def newest_of(checkpoints: Iterable[Committed]) -> Committed | None:
    return max(checkpoints, key=lambda c: (c.epoch, c.seq), default=None)


def find_target(checkpointer: Checkpointer, scan: Scan, head: Point, what: str) -> Target:
    """What a person calls *what*: a checkpoint's id, a savepoint, `latest` or an epoch."""
    commits, history = known_commits(scan), scan.found.history
    valid = set(stored_points(scan.found, commits, head))
    try:
        checkpoint = find_checkpoint(checkpointer, what)
    except NotFound:
        if not (what.isascii() and what.isdigit()):
            raise
        return _of_epoch(int(what), scan, head, commits, valid)
    if what not in history.pins and what.isascii() and what.isdigit():
        same = (c for c in history.checkpoints if str(c.epoch) == what and point_of(c) in valid)
        checkpoint = newest_of(same) or checkpoint
    if point_of(checkpoint) not in valid:
        raise Refused(
            f"checkpoint {checkpoint.id} holds epoch {checkpoint.epoch}, which was given up",
            advice=_advice(valid, ()),
        )
    return Target(point_of(checkpoint), checkpoint)


def _of_epoch(
    epoch: int, scan: Scan, head: Point, commits: Mapping[str, Commit], valid: set[Point]
) -> Target:
    """An epoch without a checkpoint, from the log."""
    known = known_epochs(head, commits)
    whole = {d: c for d, c in commits.items() if d not in scan.found.dropped}
    stored = [c for c in scan.found.history.checkpoints if point_of(c) in valid]
    if epoch in known and known[epoch].point.digest in whole:
        for base in sorted(stored, key=lambda c: (-c.epoch, -c.seq)):
            above = _above(known[epoch].point, whole, point_of(base))
            if above is not None:
                records = tuple(scan.commits[commit.point.digest] for commit in above)
                return Target(known[epoch].point, base, records)
    raise NotFound(
        f"epoch {epoch} cannot be gone back to: there is no checkpoint of it, and the log does "
        "not have all that it consists of",
        advice=_advice(valid, _rebuilt(known.values(), whole, valid)),
    )


def _above(at: Point, commits: Mapping[str, Commit], base: Point) -> list[Commit] | None:
    """The COMMITs from *base* up to *at*, oldest first; None if the line does not pass there."""
    found: list[Commit] = []
    for commit in line(at, commits):
        found.append(commit)
        if commit.parent == base:
            return found[::-1]
    return None


def _rebuilt(
    known: Iterable[Commit], whole: Mapping[str, Commit], valid: set[Point]
) -> Iterator[int]:
    """The epochs that checkpoints and log give together."""
    reached = set(valid)
    for commit in sorted(known, key=lambda c: c.epoch):
        if commit.point.digest in whole and commit.parent in reached:
            reached.add(commit.point)
            yield commit.epoch


def _advice(valid: Iterable[Point], rebuilt: Iterable[int]) -> str:
    stored = sorted({point.epoch for point in valid})
    if not stored:
        return "There is no checkpoint to go back to"
    said = f"There are checkpoints of the epochs {_shown(stored)}"
    between = sorted(set(rebuilt) - set(stored))
    return f"{said}; the log also gives {_shown(between)}" if between else said


def _shown(epochs: list[int]) -> str:
    """Ranges of numbers in a row, the newest ones if there are many."""
    ranges: list[list[int]] = []
    for epoch in epochs:
        if ranges and ranges[-1][-1] == epoch - 1:
            ranges[-1][1:] = [epoch]
        else:
            ranges.append([epoch])
    texts = [" to ".join(map(str, each)) for each in ranges[-SHOWN_MAX:]]
    return ", ".join(["...", *texts] if len(ranges) > SHOWN_MAX else texts)
