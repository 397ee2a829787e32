"""A recovery rehearsed: the same scan and the same plan as a start, but nothing is claimed.

What a start would restore is read and proven in place, from store and home, without a copy; so a
damaged checkpoint leads to the same second plan as it would there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lamina.checkpoint import Checkpointer, artifacts
from lamina.checkpoint.parallel import run_all
from lamina.checkpoint.progress import Progress
from lamina.cli.support.screen import Screen
from lamina.clock import SystemClock
from lamina.errors import Corrupt, NotFound, Refused
from lamina.format.commit import CommitRecord
from lamina.format.manifest import Artifact, CheckpointManifest
from lamina.protocol.history import History
from lamina.protocol.identity import check_claim
from lamina.protocol.recovery import Plan
from lamina.recovery import RecoveredState, RecoveryConfig, RecoveryManager, Scan
from lamina.recovery.ranges import in_file_order, read_ranges
from lamina.recovery.report import report_of
from lamina.recovery.scan import scan_home
from lamina.wal.home import Home
from lamina.wal.scan import all_segments

LOOKS_MAX = 10


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a start would do now."""

    state: RecoveredState
    history: History
    takes_over_from: str | None  # the home that owns the pipeline now, if it is another one


@dataclass(frozen=True, slots=True)
class Stage:
    """What a rehearsal is made of."""

    home: Home
    checkpointer: Checkpointer
    config: RecoveryConfig
    verify: bool
    screen: Screen


def rehearse(stage: Stage) -> Rehearsal:
    """Scan, plan and prove; raises what a start would raise."""
    clock = SystemClock()
    started = clock.monotonic()
    history, scan = _look(stage)
    owner = history.home if history.home not in ("", stage.home.name) else None
    if owner is not None:  # the log of another home is not there to be replayed, nor is this one's
        scan = replace(scan, found=replace(scan.found, segments=()))
    plan, manifest = _plan(stage, scan)
    replayed = tuple(scan.commits[commit.point.digest] for commit in plan.replay)
    if stage.verify:
        _prove_ranges(stage, replayed)
    seconds = clock.monotonic() - started
    report = report_of(scan, plan, manifest, replayed, seconds=seconds)
    state = RecoveredState(stage.home.disk, plan, manifest, replayed, {}, report)
    return Rehearsal(state, history, owner)


def _look(stage: Stage) -> tuple[History, Scan]:
    """Look at store and home; again if a running pipeline has changed them in between.

    Nobody is fenced: a checkpoint that is newer than the first look is no damage.
    """
    for _ in range(LOOKS_MAX):
        before = _now(stage)
        history = before[0]
        check_claim(history, stage.home.name, other_home=stage.config.take_over_home)
        try:
            return history, scan_home(stage.home, stage.checkpointer.history, {}, own_generation=-1)
        except (Corrupt, NotFound):
            if _now(stage) == before:
                raise
    raise Refused(
        "a running pipeline changes its log faster than this command can look at it",
        advice="Run the command again",
    )


def _now(stage: Stage) -> tuple[History, tuple[str, ...]]:
    return stage.checkpointer.history(), tuple(all_segments(stage.home.disk))


def _plan(stage: Stage, scan: Scan) -> tuple[Plan, CheckpointManifest | None]:
    """Plan again without each checkpoint that turns out to be damaged."""
    unused = Path(stage.home.disk.root)  # where a start would restore to; a plan restores nothing
    manager = RecoveryManager(
        stage.home.disk, stage.checkpointer, scratch=unused, config=stage.config
    )
    while True:
        plan = manager.plan(scan)
        if plan.checkpoint is None:
            return plan, None
        id = plan.checkpoint.id
        try:
            manifest = stage.checkpointer.load_manifest(id)
            if stage.verify:
                _prove_files(stage, manifest)
        except (Corrupt, NotFound) as error:
            why = f"{error.message} (at {error.where})" if error.where else error.message
            damaged = {**scan.found.damaged, id: why}
            scan = replace(scan, found=replace(scan.found, damaged=damaged))
        else:
            return plan, manifest


def _prove_files(stage: Stage, manifest: CheckpointManifest) -> None:
    """Every file of the checkpoint, by size and digest."""
    checkpointer, total, done = stage.checkpointer, manifest.total_size_bytes, 0

    def check(artifact: Artifact) -> int:
        key = checkpointer.paths.absolute(artifact.path)
        return artifacts.check(checkpointer.store, key, artifact)

    with stage.screen.progress("verifying the checkpoint") as report:

        def note(artifact: Artifact, size: int) -> None:
            nonlocal done
            done += size
            report(Progress(done, total, "bytes", artifact.path))

        run_all(manifest.artifacts(), check, limit=checkpointer.max_concurrent, each=note)


def _prove_ranges(stage: Stage, replayed: tuple[CommitRecord, ...]) -> None:
    """Every record that would be replayed, by its checksum."""
    ranges = in_file_order(replayed)
    total, done = sum(place.size for place in ranges), 0
    with stage.screen.progress("verifying the log") as report:
        for record in read_ranges(stage.home.disk, ranges):
            done += record.header.size
            report(Progress(done, total, "bytes", record.segment))
