"""Which checkpoint and which COMMITs make up the state that a person asks for.

A checkpoint by itself, if one is meant. Otherwise an epoch: the newest checkpoint at or below it on
its own line of parents, then the COMMITs above that one, as long as the log still has them. Nothing
is claimed: it may be looked at beside a running pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.finding import LATEST, find_checkpoint
from lamina.disk import LocalDisk
from lamina.disk.base import Disk
from lamina.errors import NotFound
from lamina.format.commit import CommitRecord
from lamina.format.log import Committed
from lamina.ids import CheckpointId
from lamina.protocol.driver import Commit, line
from lamina.protocol.history import History
from lamina.recovery.rehearsal import look, plan_start
from lamina.recovery.targets import base_of, known_commits, known_epochs, newest_of
from lamina.wal.home import read_home
from lamina.workspace.ranges import RangeReader

HEAD = "head"
At = CheckpointId | str | int | None


@dataclass(frozen=True, slots=True)
class Reached:
    """A state as its parts: a checkpoint, then COMMITs of a log, oldest first."""

    epoch: int
    checkpoint: Committed | None
    commits: tuple[CommitRecord, ...] = ()
    wal: RangeReader | None = None  # where the runs of the commits are


def reach(checkpointer: Checkpointer, at: At, home: Path | None) -> Reached:
    """A checkpoint by id, savepoint, epoch or `latest`; with a home any epoch of it, or `head`."""
    history = checkpointer.history()
    if at not in history.pins:
        if at is None or at == LATEST:
            return _whole(_newest(checkpointer, history))
        if at == HEAD:
            return _reach_epoch(checkpointer, None, _needed(home, "the last acknowledged epoch"))
    try:
        return _whole(find_checkpoint(checkpointer, at if at is not None else LATEST))
    except NotFound:
        epoch = _epoch(at)
        if epoch is None:
            raise
    return _reach_epoch(checkpointer, epoch, _needed(home, f"epoch {epoch}"))


def as_of(checkpointer: Checkpointer, milliseconds: int) -> CheckpointId:
    """The newest checkpoint that was begun at or before a time, by the clock of who made it.

    NotFound if there is none. For people: clocks decide nothing else.
    """
    found = checkpointer.history().checkpoints
    before = [each for each in found if each.id.milliseconds <= milliseconds]
    if not before:
        first = min((each.id.milliseconds for each in found), default=None)
        since = "there is no checkpoint yet" if first is None else "all checkpoints are younger"
        raise NotFound(
            f"there is no state of that time: {since}",
            where=checkpointer.store.url,
            advice="`lamina list` shows the checkpoints with their times",
        )
    return max(before, key=lambda each: (each.id.milliseconds, each.seq)).id


def _whole(checkpoint: Committed) -> Reached:
    return Reached(checkpoint.epoch, checkpoint)


def _newest(checkpointer: Checkpointer, history: History) -> Committed:
    if history.newest is None:
        raise NotFound(
            "there is no checkpoint yet",
            where=checkpointer.store.url,
            advice="What is only committed is in the log: ask for `head`, and name the home",
        )
    return history.newest


def _epoch(at: At) -> int | None:
    if isinstance(at, int):
        return at
    return int(at) if isinstance(at, str) and at.isascii() and at.isdigit() else None


def _needed(home: Path | None, what: str) -> Path:
    if home is None:
        raise NotFound(
            f"no checkpoint is {what}, and no home was given whose log may have it",
            advice="Give the home, or name a checkpoint: `lamina list` shows them",
        )
    return home


def _reach_epoch(checkpointer: Checkpointer, epoch: int | None, home: Path) -> Reached:
    disk = LocalDisk(home)
    scan = look(read_home(disk), checkpointer)
    head = plan_start(scan).head
    if head is None:
        raise NotFound("nothing is committed yet", where=disk.root)
    if epoch is None:
        epoch = head.epoch
    history = scan.found.history
    if (same := newest_of(c for c in history.checkpoints if c.epoch == epoch)) is not None:
        return _whole(same)
    commits = known_commits(scan)
    accepted = known_epochs(head, commits)
    if epoch not in accepted:
        raise _unreachable(epoch, accepted, disk)
    whole = {d: c for d, c in commits.items() if d not in scan.found.dropped}
    walked = line(accepted[epoch].point, whole)
    base = base_of(walked, history)
    if not walked or (base is None and walked[-1].parent is not None):
        raise _unreachable(epoch, {}, disk)
    above = [c for c in reversed(walked) if base is None or c.epoch > base.epoch]
    reached = tuple(scan.commits[c.point.digest] for c in above)
    return Reached(epoch, base, reached, RangeReader(disk, scan.proven))


def _unreachable(epoch: int, accepted: dict[int, Commit], disk: Disk) -> NotFound:
    why = "the log no longer has all that it consists of"
    if accepted:
        why = f"the log has epochs {min(accepted)} to {max(accepted)} and not all in between"
        if not min(accepted) <= epoch <= max(accepted):
            why = f"the log has epochs {min(accepted)} to {max(accepted)}"
    return NotFound(
        f"epoch {epoch} cannot be reached: there is no checkpoint of it, and {why}",
        where=disk.root,
        advice="`lamina list` shows the checkpoints, `lamina wal list` the epochs of the log",
    )
