"""Runs that the driver writes itself, into its own log: what sources learn, what is dropped."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from lamina.engine.model import TaskResult
from lamina.wal.driver_log import DriverLog


def logged(
    driver: DriverLog, epoch: int, name: str, runs: Iterable[tuple[int, pa.RecordBatch]]
) -> tuple[TaskResult, ...]:
    """Runs of the operator *name*, by their partitions; they count with the COMMIT of *epoch*."""
    return tuple(
        TaskResult(number, (driver.append_run(run, epoch=epoch, operator=name, core=number),))
        for number, run in runs
    )
