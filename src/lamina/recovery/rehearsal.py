"""A dry run of recovery: the same scan and the same plan as a start, but nothing is claimed.

`look` and `plan_start` tell where a start would land. `rehearse` also proves what would be restored
and replayed, in place or as copies, so that a damaged checkpoint leads to the same second plan as
it would in a start. Nothing in the home or the store changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lamina.checkpoint import artifacts
from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.fetching import fetch
from lamina.checkpoint.parallel import run_all
from lamina.checkpoint.progress import Progress, Report, silent
from lamina.clock import SystemClock
from lamina.errors import Corrupt, NotFound, Refused
from lamina.format.commit import CommitRecord
from lamina.format.manifest_model import Artifact, CheckpointManifest
from lamina.ids import CheckpointId
from lamina.os_errors import typed_errors
from lamina.protocol.history import History
from lamina.protocol.identity import check_claim
from lamina.protocol.recovery import Plan
from lamina.recovery.config import RecoveryConfig, plan_and_take
from lamina.recovery.report import report_of
from lamina.recovery.scan import RecoverableSink, Scan, scan_home
from lamina.recovery.state import RecoveredState
from lamina.wal.home import Home
from lamina.wal.scan import all_segments
from lamina.workspace.ranges import RangeReader

LOOKS_MAX = 10


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a start would do now."""

    state: RecoveredState
    history: History
    takes_over_from: str | None  # the home that owns the pipeline now, if it is another one


@dataclass(frozen=True, slots=True)
class Proof:
    """How much of what a start would read is read, and where the rehearsal ends.

    Limits act on whole epochs, and the report says if it ended before the head.
    """

    verify: bool = True  # read and prove all that would be restored and replayed
    scratch: Path | None = None  # keep copies of the checkpoint's files here: its state can be read
    until_epoch: int | None = None
    entries_max: int | None = None


def look(home: Home, checkpointer: Checkpointer, sinks: Iterable[RecoverableSink] = ()) -> Scan:
    """Everything that a plan is made of. What is seen may change at once: nothing is claimed."""
    positions = {sink.name: sink.position() for sink in sinks}
    return scan_home(home, checkpointer.history, positions, own_generation=-1)


def plan_start(scan: Scan, config: RecoveryConfig | None = None) -> Plan:
    """What a start would do, before it has proven a single file. Pure."""
    config = config or RecoveryConfig()
    check_claim(scan.found.history, scan.home, other_home=config.take_over_home)
    return config.plan(scan.found)


def rehearse(
    home: Home,
    checkpointer: Checkpointer,
    config: RecoveryConfig | None = None,
    *,
    proof: Proof | None = None,
    report: Report = silent,
) -> Rehearsal:
    """Scan, plan and prove; raises what a start would raise."""
    proof = proof or Proof()
    return _Rehearsing(home, checkpointer, config or RecoveryConfig(), proof, report).run()


@dataclass(frozen=True, slots=True)
class _Rehearsing:
    home: Home
    checkpointer: Checkpointer
    config: RecoveryConfig
    proof: Proof
    report: Report
    clock: SystemClock = field(default_factory=SystemClock)

    def run(self) -> Rehearsal:
        started = self.clock.monotonic()
        if self.proof.scratch is not None:
            with typed_errors(self.proof.scratch):
                self.proof.scratch.mkdir(parents=True, exist_ok=True)
        history, scan = self._look()
        plan, taken = plan_and_take(scan.found, self.config, self._take)
        manifest, files = taken or (None, {})
        self._check_limit(manifest)
        replayed = tuple(scan.commits[commit.point.digest] for commit in plan.replay)
        wal = RangeReader(self.home.disk, scan.proven)
        if self.proof.verify:
            self._prove_ranges(wal, replayed)
        replayed = _limited(replayed, self.proof)
        seconds = self.clock.monotonic() - started
        summary = report_of(scan, plan, manifest, replayed, seconds=seconds)
        state = RecoveredState(wal, plan, manifest, replayed, files, summary)
        owner = history.home if history.home not in ("", self.home.name) else None
        return Rehearsal(state, history, owner)

    def _look(self) -> tuple[History, Scan]:
        """Look at store and home; again if a running pipeline has changed them in between.

        Nobody is fenced: a checkpoint that is newer than the first look is not damage.
        """
        for _ in range(LOOKS_MAX):
            before = self._now()
            history = before[0]
            check_claim(history, self.home.name, other_home=self.config.take_over_home)
            try:
                return history, look(self.home, self.checkpointer)
            except (Corrupt, NotFound):
                if self._now() == before:
                    raise
        raise Refused(
            "a running pipeline changes its log faster than this command can look at it",
            advice="Run the command again",
        )

    def _now(self) -> tuple[History, tuple[str, ...]]:
        return self.checkpointer.history(), tuple(all_segments(self.home.disk))

    def _take(self, id: CheckpointId) -> tuple[CheckpointManifest, Mapping[str, Path]]:
        manifest = self.checkpointer.load_manifest(id)
        if self.proof.scratch is not None:
            wanted, folder = manifest.artifacts(), self.proof.scratch
            return manifest, fetch(self.checkpointer, wanted, folder, report=self.report)
        if self.proof.verify:
            self._prove_files(manifest)
        return manifest, {}

    def _prove_files(self, manifest: CheckpointManifest) -> None:
        """Every file of the checkpoint, by size and digest."""
        store, paths = self.checkpointer.store, self.checkpointer.paths
        total, done = manifest.total_size_bytes, 0

        def check(artifact: Artifact) -> int:
            return artifacts.check(store, paths.absolute(artifact.path), artifact)

        def note(artifact: Artifact, size: int) -> None:
            nonlocal done
            done += size
            self.report(Progress(done, total, "bytes", artifact.path))

        limit = self.checkpointer.max_concurrent
        run_all(manifest.artifacts(), check, limit=limit, each=note)

    def _prove_ranges(self, wal: RangeReader, replayed: tuple[CommitRecord, ...]) -> None:
        """Every record that would be replayed, by its checksum."""
        ranges = wal.unproven(replayed)
        total, done = sum(place.size for place in ranges), 0
        for record in wal.records(ranges):
            done += record.header.size
            self.report(Progress(done, total, "bytes", record.segment))

    def _check_limit(self, manifest: CheckpointManifest | None) -> None:
        until = self.proof.until_epoch
        if until is not None and manifest is not None and manifest.epoch > until:
            raise Refused(
                f"the checkpoint that recovery starts from is already at epoch {manifest.epoch}",
                advice="Look at an older checkpoint: `lamina list` shows them",
            )


def _limited(replayed: tuple[CommitRecord, ...], proof: Proof) -> tuple[CommitRecord, ...]:
    """The longest prefix of whole epochs within the limits."""
    kept: list[CommitRecord] = []
    entries = 0
    for commit in replayed:
        entries += sum(place.entries for place in commit.ranges)
        beyond = proof.until_epoch is not None and commit.epoch > proof.until_epoch
        if beyond or (proof.entries_max is not None and entries > proof.entries_max):
            break
        kept.append(commit)
    return tuple(kept)
