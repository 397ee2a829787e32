"""The epoch loop: plan, run, decide, publish; and now and then a checkpoint.

    plan      how far every source is read; nothing new and no watermark step: no epoch
    run       every stream, in the order they depend on each other
    decide    COMMIT in the driver log, synced: THE decision
    publish   every sink, in order
    save      beside further epochs: runs are immutable

Everything before the decision can be thrown away, everything after it is done again until it is
done: whatever instruction the process is killed at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.saving import Pipeline, Saved, Saving
from lamina.clock import Clock, new_writer_id
from lamina.engine.model import (
    Offset,
    OperatorPlan,
    Seen,
    SourceRange,
    StagedRows,
    StreamResult,
    StreamWork,
    TaskResult,
)
from lamina.engine.planning import EpochPlan, Watermarks, plan_epoch
from lamina.engine.ports import Limits, Runner, Sink, Source
from lamina.engine.publishing import Publisher
from lamina.engine.staging import drop_staged
from lamina.engine.states import States, memory_name
from lamina.format.commit import AdoptRecord, CheckpointRecord, CommitRecord, Point, StagedFile
from lamina.format.manifest_model import ConnectorCheckpoint
from lamina.ids import CheckpointId
from lamina.protocol.retention import wal_floor
from lamina.recovery.manager import Recovered
from lamina.state.local import RunFolder
from lamina.wal.driver_log import drop_driver_segments
from lamina.wal.logset import drop_segments


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """A stream as the engine sees it: what it reads, and the state it keeps."""

    name: str
    reads: str  # a source or another stream
    sources: frozenset[str]  # all that its rows come from
    operator: OperatorPlan | None = None


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """A pipeline, compiled: streams in the order they run."""

    pipeline: str
    pipeline_hash: str
    streams: tuple[StreamPlan, ...]
    sinks: Mapping[str, str]  # sink -> stream
    delays_us: Mapping[str, int]  # of sources with a watermark


@dataclass(frozen=True, slots=True)
class EngineSettings:
    partitions: int = 1
    limits: Limits = field(default_factory=Limits)
    checkpoint_epochs: int = 10  # a checkpoint after this many; 0: only on request
    behind_max: int = 8  # epochs that a sink may lack before it holds the pipeline
    max_ahead_us: int | None = None
    retain: int = 3


@dataclass(frozen=True, slots=True)
class EpochReport:
    """What one epoch did, for people."""

    epoch: int
    rows: Mapping[str, int]  # read, by source
    rows_out: Mapping[str, int]  # by sink
    late: int
    watermark: int | None
    seconds: float
    sinks_behind: int


FailPoint = Callable[[str], None]


class Engine:
    """One pipeline, claimed and recovered. Not shared between threads."""

    def __init__(
        self,
        plan: EnginePlan,
        *,
        runner: Runner,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        recovered: Recovered,
        checkpointer: Checkpointer,
        states: States,
        folder: RunFolder,
        home: Path,
        clock: Clock,
        settings: EngineSettings,
        fail_point: FailPoint = lambda _: None,
    ) -> None:
        state = recovered.state
        self._plan = plan
        self._runner = runner
        self._sources = sources
        self._recovered = recovered
        self._driver = recovered.driver
        self._checkpointer = checkpointer
        self._states = states
        self._folder = folder
        self._home = home
        self._clock = clock
        self._settings = settings
        self._fail_point = fail_point
        self._run_id = new_writer_id(clock)[:12]
        self._head: Point | None = state.head
        self._next_epoch = state.next_epoch
        self._offsets: dict[str, Offset] = {
            name: state.source_offsets[name].offsets
            if name in state.source_offsets
            else source.initial()
            for name, source in sources.items()
        }
        self._watermarks = Watermarks(dict(state.source_watermarks))
        self._applied = Watermarks()
        self._commits = list(state.replayed)
        self._base: CheckpointId | None = state.manifest.checkpoint_id if state.manifest else None
        self._base_epoch = state.manifest.epoch if state.manifest else 0
        self._saving: Saving | None = None
        self._publisher = self._open_publisher(sinks)

    @property
    def epoch(self) -> int:
        return self._head.epoch if self._head else 0

    @property
    def publisher(self) -> Publisher:
        return self._publisher

    def step(self) -> EpochReport | None:
        """One epoch, if there is anything to do; None if not, or if a sink holds the pipeline."""
        self._settle_if_done()
        self._publisher.drive()
        if self._publisher.behind > self._settings.behind_max:
            return None
        started = self._clock.monotonic()
        plan = self._plan_epoch()
        if plan is None:
            self._save_if_due()
            return None
        results = self._run(plan)
        commit = self._decide(plan, results)
        self._publish(commit)
        self._save_if_due()
        return self._report(plan, commit, results, started)

    def checkpoint(self) -> CheckpointId | None:
        """Save now, and wait for it; None before the first epoch."""
        self.settle()
        self._start_saving()
        self.settle()
        return self._base

    def settle(self) -> None:
        """Wait for the checkpoint that is being made, if one is."""
        if self._saving is not None:
            saving, self._saving = self._saving, None
            self._take_over(saving.wait())

    def drain(self) -> None:
        """Give the sinks all that is decided, whatever it takes; raises if one cannot get it."""
        self._publisher.drive(now=True)

    def close(self) -> None:
        """Release everything; what is decided stays decided."""
        try:
            if self._saving is not None:
                self.settle()
        finally:
            self._recovered.close()

    # plan

    def _plan_epoch(self) -> EpochPlan | None:
        limits = self._settings.limits
        ranges = {
            name: source.plan(self._offsets[name], limits, self._states.memory(name))
            for name, source in sorted(self._sources.items())
        }
        return plan_epoch(self._next_epoch, ranges, self._watermarks, self._applied)

    # run

    def _run(self, plan: EpochPlan) -> dict[str, StreamResult]:
        """Every stream; the output of one is the input of the next."""
        results: dict[str, StreamResult] = {}
        for stream in self._plan.streams:
            work = self._work(stream, plan, results)
            self._fail_point(f"before {stream.name}")
            results[stream.name] = self._runner.run(work)
            self._fail_point(f"after {stream.name}")
        return results

    def _work(
        self, stream: StreamPlan, plan: EpochPlan, results: Mapping[str, StreamResult]
    ) -> StreamWork:
        reads: SourceRange | StagedRows
        if stream.reads in plan.ranges:
            reads = plan.ranges[stream.reads]
        else:
            before = results[stream.reads].tasks
            reads = StagedRows(stream.reads, tuple(s.path for t in before for s in t.staged))
        watermark = plan.watermarks.of(stream.sources)
        return StreamWork(
            stream=stream.name,
            epoch=plan.epoch,
            generation=self._driver.generation,
            run_id=self._run_id,
            home=str(self._home),
            home_id=self._recovered.home.identity,
            partitions=self._settings.partitions,
            input=reads,
            operator=stream.operator,
            runs=self._states.refs(stream.name) if stream.operator else (),
            floor=None if watermark is None else watermark + 1,  # late: window_end <= watermark
            state_folder=str(self._folder.path),
        )

    # decide

    def _decide(self, plan: EpochPlan, results: Mapping[str, StreamResult]) -> CommitRecord:
        for name, each in plan.ranges.items():
            self._sources[name].confirm(each)
        memories = self._remember(plan)
        seen: dict[str, Seen] = {}
        for result in results.values():
            seen.update(result.seen)
        after = self._watermarks.advanced(seen, self._plan.delays_us, self._settings.max_ahead_us)
        commit = CommitRecord(
            epoch=plan.epoch,
            generation=self._driver.generation,
            parent=self._head,
            follows=self._driver.head,
            partitions=self._settings.partitions,
            source_offsets={
                name: ConnectorCheckpoint.with_offsets(plan.epoch, each.end)
                for name, each in plan.ranges.items()
            },
            watermark=plan.watermarks.of(frozenset(self._plan.delays_us)),
            source_watermarks=dict(after.by_source),
            ranges=tuple(
                task.range
                for tasks in (*(r.tasks for r in results.values()), *memories.values())
                for task in tasks
                if task.range is not None
            ),
            staged=tuple(
                StagedFile(sink, file.path, file.size, file.sha256, file.rows)
                for sink, stream in sorted(self._plan.sinks.items())
                for task in results[stream].tasks
                for file in task.staged
            ),
        )
        self._fail_point("before COMMIT")
        self._head = self._driver.commit(commit)  # THE decision
        self._fail_point("after COMMIT")
        self._next_epoch = plan.epoch + 1
        self._offsets = {name: each.end for name, each in plan.ranges.items()}
        self._applied, self._watermarks = plan.watermarks, after
        self._commits.append(commit)
        for stream in self._plan.streams:
            if stream.operator is not None:
                self._states.advance(stream.name, results[stream.name].tasks, plan.epoch)
        for name, tasks in memories.items():
            self._states.advance(name, tasks, plan.epoch)
        return commit

    def _remember(self, plan: EpochPlan) -> dict[str, tuple[TaskResult, ...]]:
        """The files that this epoch reads, as runs of the source's memory in the driver's log."""
        found: dict[str, tuple[TaskResult, ...]] = {}
        for source, each in plan.ranges.items():
            if not each.files:
                continue
            name = memory_name(source)
            runs = self._states.remembered(source, each.files, self._folder)
            found[name] = tuple(
                TaskResult(
                    number,
                    range=self._driver.append_run(
                        run, epoch=plan.epoch, operator=name, core=number
                    ),
                )
                for number, run in runs.items()
            )
        return found

    # publish

    def _publish(self, commit: CommitRecord) -> None:
        for sink in self._plan.sinks:
            self._publisher.add(sink, commit)
        self._fail_point("before publish")
        self._publisher.drive()
        self._fail_point("after publish")

    def _open_publisher(self, sinks: Mapping[str, Sink]) -> Publisher:
        """Sinks as recovery found them, with what each has still to get."""
        state = self._recovered.state
        publisher = Publisher(
            sinks,
            pipeline=self._plan.pipeline,
            generation=self._driver.generation,
            home=self._home,
            accepted=self._driver.sinks,
            clock=self._clock,
        )
        known = {commit.digest: commit for commit in self._recovered.commits}
        for name in sinks:
            pending = state.plan.publish.get(name, ())
            first = pending[0].epoch if pending else self.epoch + 1
            publisher.note_published(name, first - 1)
            for commit in pending:
                publisher.add(name, known[commit.point.digest])
        return publisher

    # save

    def _save_if_due(self) -> None:
        every = self._settings.checkpoint_epochs
        due = every and self.epoch - self._base_epoch >= every
        if due and self._saving is None and not self._publisher.behind:
            self._start_saving()

    def _start_saving(self) -> None:
        if self._head is None or not self._commits or self._base_epoch == self._head.epoch:
            return
        self._saving = Saving(
            self._checkpointer,
            self._commits[-1],
            dict(self._states.operators),
            self._folder,
            parent=self._base,
            pipeline=Pipeline(
                self._plan.pipeline,
                self._plan.pipeline_hash,
                self._publisher.epochs(),
                self._publisher.statuses(),
            ),
        )

    def _settle_if_done(self) -> None:
        if self._saving is not None and self._saving.is_over:
            self.settle()

    def _take_over(self, saved: Saved) -> None:
        """A checkpoint exists: note it, use its files, drop WAL and staged files nobody needs."""
        entry = saved.checkpoint.entry
        self._base, self._base_epoch = entry.id, entry.epoch
        self._commits = [commit for commit in self._commits if commit.epoch > entry.epoch]
        for name, operator in saved.state.operators.items():
            self._states.settle(name, operator)
        self._fail_point("before note")
        self._driver.note_checkpoint(CheckpointRecord(entry.id, entry.epoch, entry.manifest_sha256))
        self._driver.rotate(AdoptRecord(self._driver.head, tuple(self._commits)))
        epochs = self._publisher.epochs().values()
        floor = wal_floor(self._checkpointer.history(), self._settings.retain, epochs)
        self._fail_point("before drop")
        home = self._recovered.home
        drop_driver_segments(home, floor)
        drop_segments(home, floor, keep=set())
        drop_staged(self._home, floor)
        self._folder.keep_only(
            run for operator in self._states.operators.values() for run in operator.runs()
        )

    def _report(
        self,
        plan: EpochPlan,
        commit: CommitRecord,
        results: Mapping[str, StreamResult],
        started: float,
    ) -> EpochReport:
        rows = {name: s.rows for r in results.values() for name, s in r.seen.items()}
        out: dict[str, int] = dict.fromkeys(self._plan.sinks, 0)
        for file in commit.staged:
            out[file.sink] += file.rows
        return EpochReport(
            epoch=plan.epoch,
            rows=rows,
            rows_out=out,
            late=sum(task.late for result in results.values() for task in result.tasks),
            watermark=self._watermarks.of(frozenset(self._plan.delays_us)),
            seconds=self._clock.monotonic() - started,
            sinks_behind=self._publisher.behind,
        )
