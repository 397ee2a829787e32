"""What an epoch leaves behind in words: the parts of its COMMIT, and its report. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lamina.engine.asof import Asof
from lamina.engine.joins import Join
from lamina.engine.model import Seen, StreamResult
from lamina.engine.planning import EpochPlan, Watermarks, stood_at
from lamina.engine.plans import EnginePlan, EpochReport
from lamina.format.commit import CommitRecord, StagedFile
from lamina.format.manifest_model import ConnectorCheckpoint


def offsets_after(
    plan: EpochPlan, after: Watermarks, connectors: Mapping[str, str]
) -> dict[str, ConnectorCheckpoint]:
    """Where every source stands, with the watermark that was applied to it."""
    applied = plan.watermarks.by_source
    return {
        name: stood_at(
            plan.epoch,
            each.end,
            applied=applied.get(name),
            ahead=after.ahead.get(name),
            connector=connectors.get(name),
            parts=after.parts.get(name),
        )
        for name, each in plan.ranges.items()
    }


def staged_for(
    sinks: Mapping[str, str], results: Mapping[str, StreamResult]
) -> tuple[StagedFile, ...]:
    """Every file of output, for every sink that gets it."""
    return tuple(
        StagedFile(sink, file.path, file.size, file.sha256, file.rows)
        for sink, stream in sorted(sinks.items())
        if stream in results
        for task in results[stream].tasks
        for file in task.staged
    )


def seen_by_source(results: Mapping[str, StreamResult]) -> dict[str, Seen]:
    """What was read of each source; several streams may have read the same."""
    return {name: each for result in results.values() for name, each in result.seen.items()}


def has_late(result: StreamResult) -> bool:
    """Whether rows were left out because their window has closed."""
    return any(task.late for task in result.tasks)


def _notes(plan: EpochPlan) -> Iterator[str]:
    """What a person should know of what was read."""
    for each in plan.ranges.values():
        yield from each.notes
    for table in plan.tables.values():
        yield from table.notes


def report_of(
    plan: EpochPlan,
    commit: CommitRecord,
    results: Mapping[str, StreamResult],
    pipeline: EnginePlan,
    *,
    watermark: int | None,
    after: Watermarks,
    seconds: float,
    behind: int,
) -> EpochReport:
    """What people see of an epoch."""
    seen = seen_by_source(results)
    tasks = [task for result in results.values() for task in result.tasks]
    counted = [
        task
        for stream in pipeline.streams
        if stream.is_counted
        for task in results[stream.name].tasks
    ]
    out: dict[str, int] = dict.fromkeys(pipeline.sinks, 0)
    for file in commit.staged:
        out[file.sink] += file.rows
    return EpochReport(
        epoch=plan.epoch,
        rows={name: each.rows for name, each in seen.items()},
        rows_out=out,
        late=sum(task.late for task in counted),
        watermark=watermark,
        seconds=seconds,
        sinks_behind=behind,
        without_time=sum(each.without_time for each in seen.values()),
        keys=sum(task.keys for task in tasks),
        ahead=sum(each.ahead for each in seen.values()),
        gaps_us=plan.watermarks.gaps(after, seen),
        staged=commit.staged,
        notes=tuple(_notes(plan)),
        late_sides=dict(_late_sides(results, pipeline)),
    )


def _late_sides(
    results: Mapping[str, StreamResult], pipeline: EnginePlan
) -> Iterator[tuple[str, Mapping[str, int]]]:
    for stream in pipeline.streams:
        if any(isinstance(each.step, Join | Asof) for each in stream.operators.values()):
            tasks = results[stream.name].tasks
            right = sum(task.late_right for task in tasks)
            yield stream.name, {"left": sum(task.late for task in tasks) - right, "right": right}
