"""Recovery (seed 004): claim, then look, then plan, then restore, then copy. R5 and R12.

    Checkpoint(epoch) + WAL.replay(epoch..now) = the exact acknowledged state

`run` claims the home and fences every older process first, so that what it then sees cannot change
any more. A dry run, which claims nothing, is lamina.recovery.rehearsal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.fetching import fetch
from lamina.checkpoint.progress import Report, silent
from lamina.clock import Clock, SystemClock, new_writer_id
from lamina.disk.base import Lock
from lamina.errors import AlreadyExists, Fenced
from lamina.format.commit import AdoptRecord, CommitRecord
from lamina.format.manifest_model import CheckpointManifest
from lamina.format.pipeline_record import NOBODY, PipelineRecord
from lamina.ids import CheckpointId
from lamina.os_errors import typed_errors
from lamina.protocol.driver import next_generation
from lamina.protocol.history import History
from lamina.protocol.identity import (
    changes,
    check_claim,
    check_no_pipeline,
    check_still_ours,
    identify,
)
from lamina.protocol.recovery import Plan
from lamina.protocol.sinks import SinkPosition
from lamina.recovery.config import RecoveryConfig, plan_and_take
from lamina.recovery.identity import find_owners, record_of
from lamina.recovery.report import report_of
from lamina.recovery.scan import RecoverableSink, Scan, scan_home
from lamina.recovery.state import RecoveredState
from lamina.wal.driver_log import DriverLog
from lamina.wal.home import Home, give_home
from lamina.workspace.base import Workspace
from lamina.workspace.ranges import RangeReader


@dataclass(frozen=True, slots=True)
class Recovered:
    """A pipeline that is claimed and at its highest acknowledged epoch."""

    state: RecoveredState
    home: Home
    driver: DriverLog
    commits: tuple[CommitRecord, ...] = ()  # what was adopted: to be replayed, or still published
    pipeline: PipelineRecord | None = None  # with its id

    def close(self) -> None:
        self.driver.close()
        self.home.release()


class RecoveryManager:
    """Brings one pipeline back, from its home and its store."""

    def __init__(
        self,
        space: Workspace,
        checkpointer: Checkpointer,
        *,
        sinks: Sequence[RecoverableSink] = (),
        pipeline: PipelineRecord | None = None,
        config: RecoveryConfig | None = None,
        clock: Clock | None = None,
        lock: Lock | None = None,
    ) -> None:
        """*pipeline* is what it is today, without an id; None if it is not a pipeline.

        *lock* is the home's, of a caller who has it already and keeps it.
        """
        self._lock = lock
        self._space = space
        self._checkpointer = checkpointer
        self._sinks = sinks
        self._pipeline = pipeline
        self._config = config or RecoveryConfig()
        self._clock = clock or SystemClock()

    def run(self, report: Report = silent) -> Recovered:
        """Claim, look, plan, restore and adopt; after it the pipeline may go on."""
        started = self._clock.monotonic()
        with ExitStack() as on_failure:
            home = self._identify(on_failure)
            owner = self._pipeline.owner if self._pipeline else NOBODY
            driver = self._claim(home, on_failure)
            if owner:
                home = give_home(home, owner)
            positions = {s.name: s.fence(driver.generation, owner) for s in self._sinks}
            scan = self._look(home, driver, positions)
            plan, manifest, files = self._restore(scan, report)
            wal = self._space.ranges(scan.proven)
            replayed = _prove(wal, scan, plan)
            wal.sync(replayed)  # a COMMIT may name bytes that are in the page cache only, as it is
            tip = _new_tip(scan.found.history, plan)
            if scan.moving or tip is not None:
                driver = self._move(home, driver, on_failure, tip)
            adopted = tuple(scan.commits[c.point.digest] for c in plan.adopt.commits)
            driver.adopt(AdoptRecord(plan.head, adopted, plan.adopt.sinks))
            self._space.prepare_runs()
            on_failure.pop_all()
        seconds = self._clock.monotonic() - started
        summary = report_of(scan, plan, manifest, replayed, seconds=seconds)
        before = record_of(scan.driver, manifest, replayed)
        if before is not None and self._pipeline is not None:
            summary = replace(summary, changes=changes(before, self._pipeline))
        state = RecoveredState(wal, plan, manifest, replayed, files, summary, driver.generation)
        return Recovered(state, home, driver, adopted, self._pipeline)

    # claim

    def _identify(self, on_failure: ExitStack) -> Home:
        """The home, locked, if home, store and sinks are this pipeline's: a look, nothing else.

        A home that is not there yet is made only after that.
        """
        home: Home | None = None
        if self._space.exists():
            home = self._space.claim(self._clock, self._lock)
            on_failure.callback(home.release)
        history = self._checkpointer.history()
        name = home.name if home else "a new one"
        check_claim(history, name, other_home=self._config.take_over_home)
        if self._pipeline is None:
            check_no_pipeline(home.pipeline if home else NOBODY, history.pipeline)
        else:
            found = find_owners(home, self._checkpointer, self._sinks)
            id = identify(self._pipeline, found, same_pipeline=self._config.same_pipeline)
            owner = replace(self._pipeline.owner, id=id or new_writer_id(self._clock))
            self._pipeline = replace(self._pipeline, owner=owner)
        if home is None:
            home = self._space.claim(self._clock, self._lock)
            on_failure.callback(home.release)
        return home

    def _claim(self, home: Home, on_failure: ExitStack) -> DriverLog:
        """A driver segment, then a TAKEOVER. A pipeline of another home is only fenced so far."""
        history = self._checkpointer.history()
        check_claim(history, home.name, other_home=self._config.take_over_home)
        sinks = [sink.position().generation for sink in self._sinks]
        seen = (history.generation, *self._space.generations(), *sinks)
        driver = self._open_driver(home, next_generation(seen), on_failure)
        self._checkpointer.log.take_over(
            lambda now: self._owner(now, home),
            generation=driver.generation,
            pipeline=self._pipeline,
        )
        return driver

    def _owner(self, now: History, home: Home) -> str:
        """Asked again for the log as it is when TAKEOVER is written: it may have moved (R2)."""
        check_still_ours(now.pipeline, self._pipeline)
        check_claim(now, home.name, other_home=self._config.take_over_home)
        return now.home or home.name

    def _open_driver(self, home: Home, generation: int, on_failure: ExitStack) -> DriverLog:
        while True:
            try:
                driver = self._space.open_log(
                    home,
                    generation,
                    partitions=self._config.partitions,
                    pipeline=self._pipeline,
                )
            except AlreadyExists:
                generation += 1
            else:
                on_failure.callback(driver.close)
                return driver

    def _move(
        self, home: Home, driver: DriverLog, on_failure: ExitStack, tip: str | None
    ) -> DriverLog:
        """The plan holds: only now does the pipeline change homes, or give checkpoints up."""
        driver.close()
        moved = self._open_driver(home, driver.generation + 1, on_failure)

        def still_ours(now: History) -> str:
            if now.generation != driver.generation:
                raise Fenced(f"generation {now.generation} has taken over while this one planned")
            return home.name

        self._checkpointer.log.take_over(
            still_ours, generation=moved.generation, pipeline=self._pipeline, tip=tip
        )
        return moved

    # look and plan

    def _look(self, home: Home, driver: DriverLog, positions: Mapping[str, SinkPosition]) -> Scan:
        look = self._checkpointer.history
        scan = scan_home(home, look, positions, own_generation=driver.generation)
        newest = scan.found.history.generation
        if newest > driver.generation:  # what it means to be overtaken, not to have lost epochs
            raise Fenced(f"generation {newest} has taken over from generation {driver.generation}")
        return scan

    def _restore(
        self, scan: Scan, report: Report
    ) -> tuple[Plan, CheckpointManifest | None, Mapping[str, Path]]:
        """Plan; fetch and prove what the plan needs."""
        if scan.found.history.checkpoints:
            folder = self._space.run_files.path
            with typed_errors(folder):  # not below: a checkpoint is not damaged by it
                folder.mkdir(parents=True, exist_ok=True)

        def take(id: CheckpointId) -> tuple[CheckpointManifest, Mapping[str, Path]]:
            manifest = self._checkpointer.load_manifest(id)
            return manifest, self._fetch(manifest, report)

        plan, taken = plan_and_take(scan.found, self._config, take)
        return plan, *(taken or (None, {}))

    def _fetch(self, manifest: CheckpointManifest, report: Report) -> dict[str, Path]:
        wanted, limit = manifest.artifacts(), self._config.max_concurrent
        folder = self._space.run_files.path
        return fetch(self._checkpointer, wanted, folder, limit=limit, report=report)


def _prove(wal: RangeReader, scan: Scan, plan: Plan) -> tuple[CommitRecord, ...]:
    """Every range that will be replayed reads back with its checksum, before any effect."""
    replayed = tuple(scan.commits[c.point.digest] for c in plan.replay)
    for _ in wal.records(wal.unproven(replayed)):
        pass
    return replayed


def _new_tip(history: History, plan: Plan) -> str | None:
    """What counts as the newest checkpoint now, for the log; None if it is the one that did."""
    newest, tip = history.newest, plan.tip
    if (newest and newest.id) == (tip and tip.id):
        return None
    return str(tip.id) if tip else ""
