"""The report of a recovery, from what was seen and what was done."""

from __future__ import annotations

from lamina.format.commit import CommitRecord
from lamina.format.manifest_model import CheckpointManifest
from lamina.protocol.history import COPY_HOME
from lamina.protocol.recovery import Plan
from lamina.recovery.scan import Scan
from lamina.recovery.state import RecoveryReport


def report_of(
    scan: Scan,
    plan: Plan,
    manifest: CheckpointManifest | None,
    replayed: tuple[CommitRecord, ...],
    *,
    seconds: float,
) -> RecoveryReport:
    ranges = [place for commit in replayed for place in commit.ranges]
    checkpoint = plan.checkpoint
    checkpoint_epoch = checkpoint.epoch if checkpoint else 0
    return RecoveryReport(
        checkpoint=str(checkpoint.id) if checkpoint else None,
        checkpoint_epoch=checkpoint_epoch,
        epoch=replayed[-1].epoch if replayed else checkpoint_epoch,
        head_epoch=plan.head.epoch if plan.head else 0,
        epochs_replayed=len(replayed),
        entries_replayed=sum(place.entries for place in ranges),
        entries_dropped=_dropped(scan),
        skipped=plan.skipped,
        left_aside=scan.left_aside,
        given_up=plan.given_up,
        given_up_home=_given_up_home(scan),
        watermark_regressions=_regressions(manifest, replayed),
        bytes_restored=manifest.total_size_bytes if manifest else 0,
        bytes_replayed=sum(place.size for place in ranges),
        seconds=seconds,
    )


def _given_up_home(scan: Scan) -> str | None:
    owner = scan.found.history.home
    return owner if scan.moving and not owner.startswith(COPY_HOME) else None


def _dropped(scan: Scan) -> int:
    """Entries in the core logs that no known COMMIT names."""
    named = {
        (place.segment, place.offset): place.entries
        for commit in scan.commits.values()
        for place in commit.ranges
        if place.segment in scan.core_segments
    }
    return max(0, scan.entries - sum(named.values()))


def _regressions(
    manifest: CheckpointManifest | None, replayed: tuple[CommitRecord, ...]
) -> tuple[int, ...]:
    found: list[int] = []
    last = manifest.watermark if manifest else None
    for commit in replayed:
        if last is not None and (commit.watermark is None or commit.watermark < last):
            found.append(commit.epoch)
        last = commit.watermark if commit.watermark is not None else last
    return tuple(found)
