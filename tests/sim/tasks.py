"""Spark tasks: each appends the run of one epoch to its core's WAL (R1); twins may come late."""

from __future__ import annotations

from dataclasses import dataclass

from tests.sim.disk import Disk
from tests.sim.scheduler import Actor, Scheduler


@dataclass(frozen=True)
class Range:
    """Where a run lies, as the task's one row says, with its checksum."""

    core: int
    path: str
    index: int
    checksum: str


@dataclass(frozen=True)
class Run:
    epoch: int
    core: int
    content: str


class TaskSet:
    """The copies of one task; the first that returns is the one Spark's action reports."""

    def __init__(self) -> None:
        self.result: Range | None = None

    def run(self, disk: Disk, run: Run, attempt: str) -> None:
        landed = append_run(disk, run, attempt)
        if self.result is None:
            self.result = landed


def append_run(disk: Disk, run: Run, attempt: str) -> Range:
    """Try the lock; append at a record boundary of the newest segment, else to an own segment."""
    folder = f"core-{run.core}/"
    newest = (disk.paths(folder) or [""])[-1]
    locked = folder not in disk.locks
    if locked:
        disk.locks[folder] = attempt
    try:
        if locked and newest and disk.ends_whole(newest):
            return _append(disk, newest, run)
        own = f"{folder}{run.epoch:06d}-{attempt}"
        assert disk.create_exclusive(own)
        disk.sync_folder(own)
        return _append(disk, own, run)
    finally:
        if disk.locks.get(folder) == attempt:
            del disk.locks[folder]


def _append(disk: Disk, path: str, run: Run) -> Range:
    index = disk.append(path, run)
    disk.sync(path)
    return Range(run.core, path, index, run.content)


def start_tasks(scheduler: Scheduler, disk: Disk, runs: list[Run], *, tag: str) -> list[TaskSet]:
    """Start every task, some of them twice; they outlive the driver, as executors do."""
    sets = []
    for run in runs:
        copies = TaskSet()
        for number in range(2 if scheduler.chance(0.25) else 1):
            attempt = f"{tag}-{number}"
            name = f"task {attempt} of core {run.core}"
            actor: Actor = scheduler.spawn(
                name,
                disk.name,
                lambda c=copies, r=run, a=attempt: c.run(disk, r, a),  # type: ignore[misc]
            )
            if number:
                actor.held = scheduler.random.randrange(0, 60)
        sets.append(copies)
    return sets
