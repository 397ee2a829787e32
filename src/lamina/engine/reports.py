"""What people see of an epoch: its report, made when everything of it is over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lamina.engine.asof import Asof
from lamina.engine.joins import Join
from lamina.engine.model import StreamResult, TaskResult
from lamina.engine.phases import Phases
from lamina.engine.planning import EpochPlan, Watermarks
from lamina.engine.plans import EnginePlan, EpochReport
from lamina.engine.publishing import Publisher
from lamina.engine.records import seen_by_source
from lamina.engine.saves import Saves
from lamina.engine.states import States
from lamina.format.commit import CommitRecord
from lamina.format.home_names import parse_output_path


class Reporter:
    """Of one engine."""

    def __init__(
        self,
        plan: EnginePlan,
        publisher: Publisher,
        saves: Saves,
        states: States,
        generation: int,
    ) -> None:
        self._plan = plan
        self._publisher, self._saves, self._states = publisher, saves, states
        self._generation = generation

    def report(
        self,
        plan: EpochPlan,
        commit: CommitRecord,
        results: Mapping[str, StreamResult],
        after: Watermarks,
        *,
        phases: Phases,
        seconds: float,
    ) -> EpochReport:
        """Of an epoch that is decided and has been offered to every sink."""
        seen = seen_by_source(results)
        runs, state_bytes = self._states.size()
        counted = [
            task
            for stream in self._plan.streams
            if stream.is_counted
            for task in results[stream.name].tasks
        ]
        return EpochReport(
            epoch=plan.epoch,
            generation=self._generation,
            rows={name: each.rows for name, each in seen.items()},
            rows_out=_rows_out(commit, self._plan),
            bad=sum(_staged_rows(results[name].tasks) for name in self._plan.bad_rows),
            late=sum(task.late for task in counted),
            late_sides=dict(_late_sides(results, self._plan)),
            without_time=sum(each.without_time for each in seen.values()),
            ahead=sum(each.ahead for each in seen.values()),
            gaps_us=plan.watermarks.gaps(after, seen),
            watermark=after.of(frozenset(self._plan.delays_us)),
            watermarks={name: each for name, each in after.by_source.items() if each is not None},
            seconds=seconds,
            phases=dict(phases.seconds),
            streams=dict(phases.streams),
            keys=sum(task.keys for result in results.values() for task in result.tasks),
            state_runs=runs,
            state_bytes=state_bytes,
            wal_bytes=_wal_bytes(commit),
            saved_epoch=self._saves.base_epoch,
            saved_id=str(self._saves.base or ""),
            sinks=self._publisher.epochs(),
            sinks_behind=self._publisher.behind,
            sink_errors={name: why for name, why in self._publisher.errors().items() if why},
            staged=commit.staged,
            notes=tuple(_notes(plan)),
        )


def _rows_out(commit: CommitRecord, plan: EnginePlan) -> dict[str, int]:
    out = dict.fromkeys(plan.sinks, 0)
    for file in commit.staged:
        out[file.sink] += file.rows
    return out


def _staged_rows(tasks: tuple[TaskResult, ...]) -> int:
    return sum(file.rows for task in tasks for file in task.staged)


def _wal_bytes(commit: CommitRecord) -> int:
    """What the epoch has added to the log but for the COMMIT itself: runs, and small output."""
    runs = sum(place.size for place in commit.ranges)
    output = {file.path: file.size for file in commit.staged if parse_output_path(file.path)}
    return runs + sum(output.values())


def _notes(plan: EpochPlan) -> Iterator[str]:
    """What a person should know of what was read."""
    for each in plan.ranges.values():
        yield from each.notes
    for table in plan.tables.values():
        yield from table.notes


def _late_sides(
    results: Mapping[str, StreamResult], pipeline: EnginePlan
) -> Iterator[tuple[str, Mapping[str, int]]]:
    for stream in pipeline.streams:
        if any(isinstance(each.step, Join | Asof) for each in stream.operators.values()):
            tasks = results[stream.name].tasks
            right = sum(task.late_right for task in tasks)
            yield stream.name, {"left": sum(task.late for task in tasks) - right, "right": right}
