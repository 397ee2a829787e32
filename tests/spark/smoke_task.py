"""What runs inside a Spark task: one partition of one stream, one epoch, one row of answer."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from lamina.disk import LocalDisk
from lamina.format.commit import WalRange
from lamina.recovery.operators import EpochRange, wal_run
from lamina.state.changes import changes, key_columns, slots_of_keys
from lamina.state.layers import PlacedRun, stack
from lamina.state.local import RunFolder
from lamina.state.merge import Merge
from lamina.state.operator import merge_runs
from lamina.state.partition import StatePartition
from lamina.state.run import Run
from lamina.state.run_file import open_run, read_run
from lamina.state.schema import StateSchema
from lamina.state.vnodes import SlotRange, partition_of, slots_of
from lamina.wal import CoreWalWriter

ANSWER = "operator string, p int, answer string"
VNODE, HASH = "_vnode", "_hash"
FAN_OUT = 2
"""Merge early: the job has few epochs."""


@dataclass(frozen=True)
class RunAt:
    """Where a run lies, as data: in the WAL, in a file, or in the manifest (then its bytes)."""

    name: str
    within: SlotRange
    wal: EpochRange | None = None
    path: Path | None = None
    inline: bytes | None = None


@dataclass(frozen=True)
class Plan:
    """Everything the tasks of a stream need to know for one epoch."""

    operator: str
    schema: StateSchema
    merges: tuple[Merge, ...]
    lists: Mapping[int, Sequence[RunAt]]  # by partition, oldest first
    epoch: int
    generation: int
    run_id: str
    home: Path
    identity: bytes
    folder: Path  # for merged runs
    kill: int | None = None  # a process group: die between the WAL and the answer

    @property
    def partitions(self) -> int:
        return len(self.lists)


@dataclass(frozen=True)
class Answer:
    """What a task says it did: nothing else of it enters a COMMIT (R1)."""

    wal: WalRange | None = None  # None: nothing has changed
    merged: Path | None = None
    inputs: tuple[str, ...] = ()

    def encode(self) -> str:
        wal = self.wal and asdict(self.wal)
        return json.dumps({"wal": wal, "merged": str(self.merged or ""), "inputs": self.inputs})

    @classmethod
    def decode(cls, text: str) -> Answer:
        said = json.loads(text)
        return cls(
            WalRange(**said["wal"]) if said["wal"] else None,
            Path(said["merged"]) if said["merged"] else None,
            tuple(said["inputs"]),
        )


def run_task(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function for mapInArrow; it runs, and answers, also where there are no batches."""
    context = TaskContext.get()
    assert context is not None
    p = context.partitionId()
    partition = open_partition(plan, p)
    wal = None
    arrived = list(batches)
    if arrived:
        applied = partition.apply(changes_of(plan, arrived, p))
        wal = append(plan, p, applied.run, tag=f"{plan.run_id}-{context.taskAttemptId()}")
    if plan.kill is not None and wal is not None:
        os.killpg(plan.kill, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    answer = compact(plan, partition, wal).encode()
    names = ["operator", "p", "answer"]
    yield pa.record_batch([[plan.operator], pa.array([p], pa.int32()), [answer]], names=names)


def open_partition(plan: Plan, p: int) -> StatePartition:
    """The partition as the driver's list has it; anything else on this disk does not exist."""
    within = SlotRange.of_partition(p, plan.partitions)
    disk = LocalDisk(plan.home)
    placed = [PlacedRun(_open(at, disk), at.within) for at in plan.lists[p]]
    runs = stack(placed, within)
    return StatePartition(plan.schema, runs, merges=plan.merges, within=within)


def _open(at: RunAt, disk: LocalDisk) -> Run:
    if at.wal is not None:
        return wal_run(disk, at.wal)
    if at.path is not None:
        return open_run(at.path)
    assert at.inline is not None
    return read_run(pa.py_buffer(at.inline), at.name)


def changes_of(plan: Plan, arrived: Iterable[pa.RecordBatch], p: int) -> pa.RecordBatch:
    """Partial aggregates as sorted changes; Spark has computed where each belongs."""
    batch = pa.concat_batches(arrived)
    vnodes, hashes = batch.column(VNODE).to_numpy(), batch.column(HASH).to_numpy()
    strangers = {int(v) for v in vnodes if partition_of(int(v), plan.partitions) != p}
    assert not strangers, f"{plan.operator}, task {p} of {plan.partitions}: vnodes {strangers}"
    slots = slots_of(vnodes, hashes)
    rows = batch.select(plan.schema.row.names).cast(plan.schema.row)
    ours = slots_of_keys(key_columns(plan.schema, rows))
    assert np.array_equal(slots, ours), f"{plan.operator}: Spark hashes keys in another way"
    return changes(plan.schema, rows, slots=slots)


def append(plan: Plan, p: int, run: pa.RecordBatch, *, tag: str) -> WalRange:
    """The run in the WAL of this core, synced."""
    with CoreWalWriter(
        p,
        LocalDisk(plan.home),
        home=plan.identity,
        generation=plan.generation,
        partitions=plan.partitions,
        epoch=plan.epoch,
        tag=tag,
        commits_here=False,
    ) as writer:
        writer.append_batch(run, operator=plan.operator)
        writer.sync()
        (place,) = writer.take_ranges()
    return place


def compact(plan: Plan, partition: StatePartition, wal: WalRange | None) -> Answer:
    """Committed runs become one where that is due; the next list may name it (R10)."""
    chosen = partition.plan_merge(fan_out=FAN_OUT)
    if chosen is None:
        return Answer(wal)
    made = merge_runs(partition, chosen, RunFolder(plan.folder)).runs[chosen.start]
    return Answer(wal, made.path, made.inputs)
