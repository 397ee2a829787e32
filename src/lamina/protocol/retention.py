"""R11 and R7: what may be forgotten, what may be deleted, how much WAL to keep.

Deletion knows no clock. First a FORGET entry, then the files. A file goes only if its folder is
garbage and no checkpoint that exists names it; a checkpoint in flight names files of its parent
and of its own folder only, and its parent cannot be forgotten (lamina.protocol.history).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from lamina.errors import StillNeeded, UsageError
from lamina.format.log import Begin, Committed
from lamina.ids import CheckpointId
from lamina.protocol.history import History, in_flight, judge_forget


class Fate(Enum):
    """What the folder of a checkpoint id is."""

    EXISTS = "exists"
    IN_FLIGHT = "in flight"
    GARBAGE = "garbage"
    UNKNOWN = "unknown"  # no begin.json: not ours to judge


@dataclass(frozen=True, slots=True)
class Sweep:
    """What to delete in one garbage folder, in this order, and what others still use."""

    delete: tuple[str, ...]
    shared: tuple[str, ...]


def line_of(history: History) -> tuple[Committed, ...]:
    """The checkpoints from the base (or the newest) back along parents; newest first."""
    at = history.find(history.base) if history.base else history.newest
    walked: list[Committed] = []
    while at is not None:
        walked.append(at)
        at = history.find(at.entry.parent) if at.entry.parent else None
    return tuple(walked)


def check_retain(retain: int) -> None:
    """Raise UsageError unless at least one checkpoint is kept."""
    if retain < 1:
        raise UsageError(f"retention must keep at least one checkpoint, not {retain}")


def plan_forget(history: History, retain: int) -> tuple[CheckpointId, ...]:
    """The checkpoints beyond the newest *retain* that nothing holds, oldest first."""
    return tuple(id for id in _beyond(history, retain) if not _held_by(history, id))


def held(history: History, retain: int) -> tuple[tuple[CheckpointId, str], ...]:
    """The checkpoints beyond the newest *retain* that must stay, and why."""
    found = ((id, _held_by(history, id)) for id in _beyond(history, retain))
    return tuple((id, why) for id, why in found if why)


def forgotten(history: History, ids: Collection[CheckpointId]) -> History:
    """The history as it would be after a FORGET: for showing a plan."""
    return replace(history, checkpoints=tuple(c for c in history.checkpoints if c.id not in ids))


def fate_of(history: History, id: CheckpointId, begin: Begin | None) -> Fate:
    """What to make of a folder; *history* must have been read after *begin* was."""
    if history.find(id) is not None:
        return Fate.EXISTS
    if begin is None:
        return Fate.UNKNOWN
    return Fate.IN_FLIGHT if in_flight(history, begin) else Fate.GARBAGE


def plan_sweep(objects: Iterable[str], begin: str, referenced: Collection[str]) -> Sweep:
    """Everything in a garbage folder that nobody names; begin.json last, when all else is gone.

    While it stands, an interrupted deletion is found again as garbage.
    """
    others = [path for path in objects if path != begin]
    shared = tuple(path for path in others if path in referenced)
    delete = [path for path in others if path not in referenced]
    if not shared:
        delete.append(begin)
    return Sweep(tuple(delete), shared)


def wal_floor(history: History, retain: int, sink_epochs: Iterable[int]) -> int:
    """The epoch down to which COMMITs and staged files are kept (R7).

    Everything above it may be needed: to reach the head from the oldest checkpoint kept for
    fallback, or to publish to the slowest sink. A savepoint older than those holds no WAL.
    """
    oldest = oldest_kept(history, retain)
    return min((oldest.epoch if oldest else 0, *sink_epochs))


def oldest_kept(history: History, retain: int) -> Committed | None:
    """The oldest checkpoint that recovery may fall back to; savepoints do not count.

    None if there is none on the line that counts: then nothing but the log holds that line.
    """
    if history.newest is None:
        return None
    return min(_kept_by_count(history, retain), key=lambda kept: kept.epoch, default=None)


def _beyond(history: History, retain: int) -> Iterator[CheckpointId]:
    """What the count alone would let go."""
    keep = {committed.id for committed in _kept_by_count(history, retain)}
    return (c.id for c in history.checkpoints if c.id not in keep)


def _kept_by_count(history: History, retain: int) -> tuple[Committed, ...]:
    """The newest are counted twice.

    Along the line that the pipeline is on, because recovery falls back along it; and over all, so
    that a rewind does not at once delete what it left behind, and because a full checkpoint has
    no parent to walk to.
    """
    check_retain(retain)
    newest = sorted(history.checkpoints, key=lambda c: (c.epoch, c.seq), reverse=True)
    return (*newest[:retain], *line_of(history)[:retain])


def _held_by(history: History, id: CheckpointId) -> str:
    try:
        judge_forget(history, id)
    except StillNeeded as error:
        return error.message
    return ""
