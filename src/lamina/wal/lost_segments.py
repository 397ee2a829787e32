"""Segments that the log still needs and the folder no longer has.

What the newest checkpoint covers may be dropped; what was acknowledged after it exists nowhere
else. Of a COMMIT that counts and is of a later epoch every record must be there.
"""

from __future__ import annotations

from collections.abc import Iterator

from lamina.disk.base import Disk
from lamina.errors import NotFound, WalDamaged
from lamina.format.commit import CommitRecord
from lamina.format.findings import Severity
from lamina.protocol.driver import accepted_head, by_digest, line
from lamina.wal.driver_log import DriverSegmentContent, read_driver_log
from lamina.wal.examination import RESTORE, Trouble


def lost_segments(disk: Disk, home: bytes) -> Iterator[Trouble]:
    """One finding for every missing file, at the first byte that is needed of it."""
    try:
        needed = _needed(read_driver_log(disk, home))
        missing = {p.segment for c in needed for p in c.ranges if not _exists(disk, p.segment)}
        if missing:  # a running pipeline may have dropped it, after it noted a checkpoint
            needed = _needed(read_driver_log(disk, home))
    except (WalDamaged, NotFound):
        return  # damage of the driver log is a finding of its own, and a moving one is not judged
    for segment in sorted(missing):
        commits = [c for c in needed if any(place.segment == segment for place in c.ranges)]
        if commits:
            yield _trouble(segment, commits)


def _needed(log: tuple[DriverSegmentContent, ...]) -> tuple[CommitRecord, ...]:
    """The COMMITs that count and that no checkpoint known to this home covers, oldest first."""
    truth = next((segment for segment in reversed(log) if segment.adopt is not None), None)
    if truth is None:
        return ()
    noted = max((marker.epoch for segment in log for marker in segment.checkpoints), default=0)
    rules, commits = truth.rules(), truth.known()
    walked = line(accepted_head([rules]), by_digest([rules]))
    return tuple(commits[c.point.digest] for c in reversed(walked) if c.epoch > noted)


def _exists(disk: Disk, path: str) -> bool:
    try:
        disk.size(path)
    except NotFound:
        return False
    return True


def _trouble(segment: str, commits: list[CommitRecord]) -> Trouble:
    places = [place for c in commits for place in c.ranges if place.segment == segment]
    epochs = [commit.epoch for commit in commits]
    named = f"epoch {epochs[0]}" if len(epochs) == 1 else f"epochs {epochs[0]} to {epochs[-1]}"
    return Trouble(
        Severity.ERROR,
        WalDamaged.code,
        segment,
        min(place.offset for place in places),
        f"the file is gone, and {named} cannot be read without it",
        f"{len(places)} records, {sum(place.size for place in places)} bytes",
        "no file",
        RESTORE,
    )
