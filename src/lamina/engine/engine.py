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

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.saving import PipelineFacts
from lamina.clock import Clock, new_writer_id
from lamina.engine.backoff import Backoff
from lamina.engine.driver_runs import logged
from lamina.engine.epoch_times import EpochTimes
from lamina.engine.landing import landed
from lamina.engine.look_ahead import LookAhead, Read
from lamina.engine.measured import Measured
from lamina.engine.model import (
    Offset,
    SourceRange,
    StreamResult,
    TaskResult,
)
from lamina.engine.phases import COMMIT, DECIDE, PLAN, PUBLISH, RUN, Phases
from lamina.engine.planning import (
    EpochPlan,
    Watermarks,
    ahead_of,
    applied_of,
    check_not_drained,
    parts_of,
    plan_epoch,
)
from lamina.engine.plans import EnginePlan, EngineSettings, EpochReport, FailPoint, StreamPlan
from lamina.engine.ports import Held, Runner, Sink, Source, Table
from lamina.engine.publishing import Publisher, open_publisher
from lamina.engine.records import has_late, offsets_after, seen_by_source, staged_for
from lamina.engine.reports import Reporter
from lamina.engine.saves import Saves
from lamina.engine.spelling import respelled
from lamina.engine.states import States
from lamina.engine.tables import Tables
from lamina.engine.works import Works
from lamina.errors import Refused, StoreUnavailable
from lamina.format.commit import CommitRecord, Point
from lamina.ids import CheckpointId, fold
from lamina.logs import about
from lamina.recovery.manager import Recovered
from lamina.recovery.state import RecoveryReport
from lamina.workspace.base import Workspace

__all__ = ["Engine", "EnginePlan", "EngineSettings", "EpochReport", "FailPoint", "StreamPlan"]


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
        space: Workspace,
        clock: Clock,
        settings: EngineSettings,
        tables: Mapping[str, Table],
        fail_point: FailPoint = lambda _: None,
    ) -> None:
        self._plan, self._runner = plan, runner
        self.sources = sources
        self._recovered, self._driver = recovered, recovered.driver
        self._states = states
        self._space, self._clock = space, clock
        self._settings, self._fail_point = settings, fail_point
        self.notes: list[str] = []  # what a person who started it should know
        self._works = Works(
            plan,
            settings,
            states,
            space.for_tasks(settings.partitions * len(plan.streams)),
            generation=recovered.driver.generation,
            run_id=new_writer_id(clock)[:12],
        )
        self._phases = Phases(clock)  # of the epoch that is being decided
        self._broken = False
        self._reading = Backoff(clock)
        self._ahead = LookAhead(settings.looks_ahead)
        self._times = EpochTimes(clock, plan)
        self._has_read = False  # in this process
        self._tables = Tables(tables, recovered.state.table_offsets)
        self._begin_at(recovered)
        self._publisher = open_publisher(sinks, plan, recovered, staged=space.staged, clock=clock)
        self._saves = Saves(
            checkpointer,
            recovered=recovered,
            states=states,
            space=space,
            publisher=self._publisher,
            sources=sources,
            pipeline=PipelineFacts(recovered.pipeline, plan.settings),
            settings=settings,
            clock=clock,
            fail_point=fail_point,
        )
        self._reporter = Reporter(
            plan, self._publisher, self._saves, states, recovered.driver.generation
        )

    def _begin_at(self, recovered: Recovered) -> None:
        """Where recovery has landed."""
        state = recovered.state
        self._head: Point | None = state.head
        self._next_epoch = state.next_epoch
        offsets = respelled(state.source_offsets, self.sources, "the offsets of")
        self._offsets: dict[str, Offset] = {
            name: offsets[name].offsets if name in offsets else source.initial()
            for name, source in self.sources.items()
        }
        self._aside = {  # of sources that are not in the pipeline now: they may come back
            name: each for name, each in offsets.items() if name not in self.sources
        }
        times = respelled(state.source_watermarks, self.sources, "the watermark of")
        self._watermarks = Watermarks(times, ahead_of(offsets), parts_of(offsets))
        self._applied = applied_of(offsets)

    @property
    def epoch(self) -> int:
        return self._head.epoch if self._head else 0

    @property
    def saved_epoch(self) -> int:
        """The epoch of the last checkpoint; 0 before the first."""
        return self._saves.base_epoch

    @property
    def publisher(self) -> Publisher:
        return self._publisher

    @property
    def measured(self) -> Measured:
        stores = (self._saves.store, *self._space.stores)
        return Measured(self._publisher, self._saves, self.sources, stores)

    @property
    def report(self) -> RecoveryReport:
        """How recovery went, for people."""
        return self._recovered.state.report

    @property
    def held(self) -> str:
        """Why no epoch comes now: a source does not answer, or what is after it. Or empty."""
        return self._waits_for_output or self._reading.error

    @property
    def _waits_for_output(self) -> str:
        """A sink or the last checkpoint is too far behind for another epoch."""
        if self._publisher.behind > self._settings.behind_max:
            return "; ".join(f"{sink}: {why}" for sink, why in self._publisher.errors().items())
        return self._saves.error or "a checkpoint is being made" if self._saves.holds else ""

    @property
    def trouble(self) -> str:
        """What does not work now and is tried again, for people; or empty."""
        found = [f"{sink}: {why}" for sink, why in self._publisher.errors().items() if why]
        others = (self._saves.error, self._reading.error)
        return "; ".join([*found, *(why for why in others if why)])

    def step(self) -> EpochReport | None:
        """One epoch, if there is anything to do; None if not, or if the pipeline is `held`."""
        self._check_whole()
        self._saves.advance()
        self._publisher.drive()
        if self._waits_for_output or not self._reading.is_over:
            return None
        started = self._clock.monotonic()
        try:
            plan, results, self._phases = self._ahead.take() or self._read()
        except StoreUnavailable as error:
            if not self._has_read:  # it may never have been right: a person should know
                raise
            self._reading.failed(error)
            return None
        self._reading.succeeded()
        self._has_read = True
        if plan is None:
            return None
        self._phases.begin()
        commit = self._decide(plan, results)
        self._publish()
        self._phases.lap(PUBLISH)
        self._saves.advance()
        seconds = self._clock.monotonic() - started
        return self._reporter.report(
            plan, commit, results, self._watermarks, phases=self._phases, seconds=seconds
        )

    def checkpoint(self) -> CheckpointId | None:
        """Save now, and wait for it; None before the first epoch.

        First the sinks get what they lack: raises if one cannot get it now.
        """
        self._check_whole()
        self.drain()
        self._saves.save()
        return self._saves.base

    def drop_state(self, names: Collection[str]) -> None:
        """Delete what is kept aside of streams that are gone: an epoch that does nothing else.

        A name under which nothing is kept is a note: the same start may be repeated.
        """
        self._check_whole()
        streams = self._plan.streams
        used = [*self.sources, *(each for s in streams for each in (s.name, *s.operators))]
        runs = self._states.dropped(names, used)
        dropped_names = set(map(fold, runs))
        for name in sorted(name for name in names if fold(name) not in dropped_names):
            self.notes.append(f"no state is kept under the name {name!r}: nothing to drop")
        if not runs:
            return
        unread = {name: SourceRange(name, at, at) for name, at in self._offsets.items()}
        plan = EpochPlan(self._next_epoch, unread, self._applied)
        driver, epoch = self._driver, plan.epoch
        dropped = {name: logged(driver, epoch, name, each) for name, each in runs.items()}
        self._commit(plan, {}, dropped, self._watermarks)

    def finish_checkpoint(self) -> None:
        """Wait for the checkpoint that is being made, if one is."""
        self._saves.finish()

    def drain(self) -> None:
        """Give the sinks all that is decided; raises if one cannot get it now."""
        self._publisher.drive(now=True)
        self._publisher.check_drained()

    def close(self) -> None:
        """Release everything; a checkpoint that is being made is waited for, and counts.

        That the process has ended is said last. What fails keeps nothing else open.
        """
        sources = [each.close for each in self.sources.values() if isinstance(each, Held)]
        ours = [self._tables.close, self._publisher.close, self._recovered.close]
        with ExitStack() as last_first:
            for close in (self._space.leave, *sources, *ours, self._saves.abandon):
                last_first.callback(close)

    def _check_whole(self) -> None:
        if self._broken:
            raise Refused(
                "the commit was interrupted, so nobody knows yet whether the epoch counts",
                advice="Close the engine and open it again: recovery finds out",
            )

    def _read(self) -> Read:
        """All of an epoch that can be thrown away and done again: while a source is down, too."""
        phases = Phases(self._clock)
        plan = self._plan_epoch()
        phases.lap(PLAN)
        if plan is None:
            return None, {}, phases
        results = self._run(plan, phases)
        for name, each in plan.ranges.items():
            self.sources[name].confirm(each)
        self._tables.confirm(plan.tables)
        phases.lap(RUN)
        return plan, results, phases

    # plan

    def _plan_epoch(self) -> EpochPlan | None:
        limits = self._settings.limits
        ranges = {
            name: source.plan(self._offsets[name], limits, self._states.memory(name))
            for name, source in sorted(self.sources.items(), key=self._plan.when_planned)
        }
        drain = self._plan.delays_us if self._settings.drain else ()
        marks, timing = (self._watermarks, self._applied), self._plan.timing
        plan = plan_epoch(self._next_epoch, ranges, *marks, timing=timing, drain=drain)
        if plan is None:
            return None
        check_not_drained(plan, self._watermarks, self._plan.windowed_sources)
        plan = replace(plan, tables=self._tables.plan())
        return replace(plan, time_us=self._times.next_us(self._watermarks))

    # run

    def _run(self, plan: EpochPlan, phases: Phases) -> dict[str, StreamResult]:
        """Every stream; the output of one is the input of the next."""
        results: dict[str, StreamResult] = {}
        for stream in self._plan.streams:
            work = self._works.work(
                stream,
                plan,
                results,
                applied=self._applied,
                committed=self._watermarks,
                saved_epoch=self._saves.base_epoch,
            )
            self._fail_point(f"before {stream.name}")
            has_rows = not stream.late_of or has_late(results[stream.late_of])
            with about(epoch=plan.epoch, stream=stream.name):
                results[stream.name] = self._runner.run(work) if has_rows else StreamResult(())
            self._fail_point(f"after {stream.name}")
            phases.lap_stream(stream.name)
        return results

    # decide

    def _decide(self, plan: EpochPlan, results: Mapping[str, StreamResult]) -> CommitRecord:
        seen, ahead_max = seen_by_source(results), self._settings.max_ahead_us
        after = plan.watermarks.advanced(seen, self._plan.timing, ahead_max, plan.holding)
        return self._commit(plan, results, self._remember(plan), after)

    def _commit(
        self,
        plan: EpochPlan,
        results: Mapping[str, StreamResult],
        memories: Mapping[str, tuple[TaskResult, ...]],
        after: Watermarks,
    ) -> CommitRecord:
        """THE decision, and then memory that says what the log says."""
        results = landed(results, plan.epoch, self._driver, self._space)
        done = [task for result in results.values() for task in result.tasks]
        done += [task for each in memories.values() for task in each]
        commit = CommitRecord(
            epoch=plan.epoch,
            generation=self._driver.generation,
            parent=self._head,
            follows=self._driver.head,
            partitions=self._settings.partitions,
            source_offsets={**self._aside, **offsets_after(plan, after, self._plan.connectors)},
            table_offsets=self._tables.offsets(plan.tables, plan.epoch),
            watermark=plan.watermarks.of(frozenset(self._plan.delays_us)),
            source_watermarks=dict(after.by_source),
            ranges=tuple(place for task in done for place in task.ranges),
            staged=staged_for(self._plan.sinks, results),
            sinks=tuple(sorted(self._plan.sinks)),
        )
        self._fail_point("before COMMIT")
        self._broken = True  # until memory says what the log says
        self._phases.lap(DECIDE)
        self._head = self._driver.commit(commit, wait=not self._ahead.is_on)  # THE decision
        self._phases.lap(COMMIT)
        self._next_epoch = plan.epoch + 1
        self._offsets = {name: each.end for name, each in plan.ranges.items()}
        self._applied, self._watermarks = plan.watermarks, after
        self._tables.committed = commit.table_offsets
        for stream in self._plan.streams:
            for name in stream.operators if stream.name in results else ():
                self._states.advance(name, results[stream.name].tasks, plan.epoch)
        for name, tasks in memories.items():
            self._states.advance(name, tasks, plan.epoch)
        self._phases.lap(DECIDE)
        if not (self._publisher.behind or self._saves.holds):
            self._ahead.read(self._read)  # while the COMMIT is on its way to the store
            self._phases.begin()
        self._driver.settle()
        self._fail_point("after COMMIT")
        self._saves.add(commit)
        for sink in self._plan.sinks:
            self._publisher.add(sink, commit)
        self._phases.lap(COMMIT)
        self._broken = False
        return commit

    def _remember(self, plan: EpochPlan) -> dict[str, tuple[TaskResult, ...]]:
        """What sources learn in this epoch, as runs of their memory in the driver's log."""
        found: dict[str, tuple[TaskResult, ...]] = {}
        for source, each in plan.ranges.items():
            if each.learned is None:
                continue
            runs = self._states.remembered(source, each.learned, self._space.run_files)
            name = self._states.memory_name(source)
            found[name] = logged(self._driver, plan.epoch, name, runs.items())
        return found

    # publish

    def _publish(self) -> None:
        self._fail_point("before publish")
        self._publisher.drive()
        self._fail_point("after publish")
