"""What tasks have sent along with their results: the driver writes it, before the COMMIT names it.

A task that does not see the driver's disk, and has little to say, says it in its result: one
write, of the driver, makes all of it durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lamina.engine.model import CompactedRuns, StreamResult, TaskResult
from lamina.format.commit import WalRange
from lamina.wal.driver_log import DriverLog
from lamina.workspace.base import Workspace
from lamina.workspace.model import CarriedRange, CarriedStaged, Staged


def landed(
    results: Mapping[str, StreamResult], epoch: int, driver: DriverLog, space: Workspace
) -> dict[str, StreamResult]:
    """The same results, with everything where it stays."""
    return {
        name: replace(
            result, tasks=tuple(_landed(task, epoch, driver, space) for task in result.tasks)
        )
        for name, result in results.items()
    }


def _landed(task: TaskResult, epoch: int, driver: DriverLog, space: Workspace) -> TaskResult:
    if not (task.ranges or task.staged or task.compacted):
        return task
    return replace(
        task,
        ranges=tuple(_range(each, epoch, driver) for each in task.ranges),
        staged=tuple(_staged(each, epoch, driver) for each in task.staged),
        compacted=tuple(_compacted(each, space) for each in task.compacted),
    )


def _range(place: WalRange, epoch: int, driver: DriverLog) -> WalRange:
    if not isinstance(place, CarriedRange):
        return place
    return driver.append_payload(
        [place.payload], place.entries, epoch=epoch, operator=place.operator, core=place.core
    )


def _staged(file: Staged, epoch: int, driver: DriverLog) -> Staged:
    if not isinstance(file, CarriedStaged):
        return file
    name = driver.append_output(file.data, epoch=epoch)
    return Staged(name, file.size, file.sha256, file.rows)


def _compacted(runs: CompactedRuns, space: Workspace) -> CompactedRuns:
    """Its file is on the driver's disk now: lists of runs are made of files there."""
    space.land_run(runs.path, runs.key, runs.data)
    return CompactedRuns(runs.operator, runs.inputs, runs.path)
