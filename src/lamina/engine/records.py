"""What an epoch leaves behind in words: the parts of its COMMIT. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from lamina.engine.model import Seen, StreamResult
from lamina.engine.planning import EpochPlan, Watermarks, stood_at
from lamina.format.commit import StagedFile
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
