"""Repair, for people: it looks, says what it would cut, and keeps what it cuts.

Recovery never needs it: it passes over a torn end. It is for a log that somebody wants to
read with other tools, or go on writing to in the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from lamina.disk.base import Disk
from lamina.errors import Fenced, Refused, WalDamaged
from lamina.format.home_names import HOME_LOCK, CoreSegment, core_lock, cut_path, parse_segment
from lamina.wal.keep import keep_aside
from lamina.wal.reader import Clean, SegmentReader, Torn


@dataclass(frozen=True, slots=True)
class SegmentCheck:
    """What one segment holds, and how it ends."""

    path: str
    size: int
    records: int
    end: Clean | Torn | None
    damage: str = ""  # the first damaged place, if there is one
    damage_offset: int = 0

    @property
    def ok(self) -> bool:
        return not self.damage


@dataclass(frozen=True, slots=True)
class Repair:
    """What was cut, or would be: the bytes from *offset* on, kept in *kept*."""

    path: str
    offset: int
    bytes: int
    reason: str
    kept: str


def check_segment(disk: Disk, path: str) -> SegmentCheck:
    """Read every byte of a segment; changes nothing."""
    size = disk.size(path)
    records = 0
    reader = None
    try:
        reader = SegmentReader(disk, path)
        for _ in reader.records():
            records += 1
    except WalDamaged as error:
        offset = reader.position if reader is not None else 0
        return SegmentCheck(path, size, records, None, f"{error.message} ({error.where})", offset)
    return SegmentCheck(path, size, records, reader.end)


def plan_repair(disk: Disk, path: str, *, damage: bool = False) -> Repair | None:
    """What `repair` would cut; None if there is nothing to do. Damage is cut only if asked for."""
    found = check_segment(disk, path)
    if found.damage:
        if not damage:
            raise Refused(
                f"this is damage, not a torn tail: {found.damage}",
                where=path,
                advice="Restore the file from a copy. --damage cuts the file there: what "
                "follows is lost",
            )
        return Repair(
            path,
            found.damage_offset,
            found.size - found.damage_offset,
            found.damage,
            cut_path(path, found.damage_offset),
        )
    if not isinstance(found.end, Torn) or not found.end.bytes:
        return None
    at = found.end.end
    return Repair(path, at, found.end.bytes, found.end.reason, cut_path(path, at))


def repair(
    disk: Disk,
    path: str,
    *,
    damage: bool = False,
    agree: Callable[[Repair], None] | None = None,
) -> Repair | None:
    """Keep the cut bytes in a file beside, durably; only then cut. Fenced while somebody writes.

    *agree* is told the plan under the locks, so that what was asked is what is done; it raises
    to leave everything as it is.
    """
    with _locked(disk, path):
        plan = plan_repair(disk, path, damage=damage)
        if plan is None:
            return None
        if agree is not None:
            agree(plan)
        kept = keep_aside(disk, path, plan.offset, plan.bytes)
        file = disk.open(path)
        try:
            file.truncate(plan.offset)
        finally:
            file.close()
        return replace(plan, kept=kept)


@contextmanager
def _locked(disk: Disk, path: str) -> Iterator[None]:
    """Keep pipelines and their tasks out while a file is cut."""
    segment = parse_segment(path)
    cores = (segment.core,) if isinstance(segment, CoreSegment) else ()
    with ExitStack() as held:
        for name in (HOME_LOCK, *map(core_lock, cores)):
            lock = disk.try_lock(name)
            if lock is None:
                raise Fenced(
                    "another process has the lock: it may be writing to this segment",
                    where=f"{disk.root}/{name}",
                    advice="Stop the pipeline first; --dry-run only looks",
                )
            held.callback(lock.release)
        yield
