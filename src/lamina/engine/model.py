"""What the engine, its runners and their tasks say to each other: values that can be pickled.

StreamWork   one stream, one epoch: what to read, the state it has, what to write
TaskWork     the part of one partition
TaskResult   the one row that a task returns: where its bytes are, with their proofs (R1)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lamina.format.commit import WalRange
from lamina.pipeline.model import Emit
from lamina.workspace.model import Attempt, RunRef, Staged

if TYPE_CHECKING:
    import pyarrow as pa

    from lamina.engine.steps import Step
    from lamina.state.merge import Merge
    from lamina.workspace.base import TaskSpace

Offset = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """What the memory of a source gains, and loses, with the COMMIT of a range."""

    rows: pa.RecordBatch  # key and value columns
    gone: pa.RecordBatch | None = None  # key columns


@dataclass(frozen=True, slots=True)
class SourceRange:
    """The rows of a source from *start* to *end*."""

    source: str
    start: Offset
    end: Offset
    data: Any = None  # what only the source understands: which files to read, say
    learned: MemoryChange | None = None
    holding: tuple[str, ...] | None = None
    """The parts of a source that hold its watermark: it is that of the slowest. None: it has none.

    A part that was silent for long is not among them.
    """
    notes: tuple[str, ...] = ()  # what a person should know once the epoch counts


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table as one epoch reads it."""

    table: str
    format: str
    identity: Mapping[str, str]  # what COMMIT says: the same for the same rows, and for no others
    rows: int = 0
    size: int = 0  # bytes, without compression
    files: tuple[str, ...] = ()  # Parquet, for tasks; they do not change
    metadata: Mapping[str, str] = field(default_factory=dict)  # beside the identity, for people
    rises: str = ""  # of identity or metadata: a number that only rises, if there is one
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What a stream has put out in this epoch; no file if there is none."""

    stream: str
    files: tuple[Staged, ...]


Input = SourceRange | StagedRows
"""What a stream reads in one epoch, once for each source or stream that it names."""


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """The keyed state of a stream: Arrow schemas, serialized, and how old and new become one."""

    key_schema: bytes
    value_schema: bytes
    step: Step
    time: str | None
    emit: Emit
    definition: str | None = None  # a digest of what computes the values, but for the step
    meanings: tuple[str, ...] = ()  # what each column holds, keys first
    given: tuple[str, ...] = ()
    """What the runner calls the columns, keys first, if the state has other names for them."""
    takes_back: bool = False  # it is over changes: partials may take rows back
    live: str | None = None
    """The value column that counts the rows of a group, if a group without rows is gone."""
    late_by: str | None = None
    """Of a keyed step: the column of the epoch's rows that says whether a row is late."""
    rows_schema: bytes = b""  # of a keyed step: the epoch's rows; empty: as they come
    output_schema: bytes = b""  # of a keyed step that has rows of its own to put out
    has_timers: bool = False  # of a keyed step: `keyed.with_timers` makes the operator for them
    group: int = 0  # rows are found by this many columns, the first of the key; 0: by all of them
    every_us: int | None = None
    """Rows come out once in so much event time; 0: what waits comes out now. None: none waits."""

    @property
    def merges(self) -> tuple[Merge, ...]:
        return self.step.merges


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """One keyed state of a stream, as it is before the epoch."""

    name: str  # in the log, in manifests and in lists of runs
    plan: OperatorPlan
    runs: tuple[tuple[RunRef, ...], ...] = ()  # by partition, oldest first


@dataclass(frozen=True, slots=True)
class StreamWork:
    """Everything a runner needs for one stream in one epoch."""

    stream: str
    epoch: int
    generation: int
    run_id: str
    space: TaskSpace
    partitions: int
    inputs: tuple[Input, ...]
    operators: tuple[OperatorWork, ...] = ()  # none: a stream without state
    late_floor: int | None = None  # what is older is late
    floor: int | None = None  # what is older is gone when this epoch is over
    floor_before: int | None = None  # that of the epoch before
    saved_epoch: int = 0  # a checkpoint has everything up to here: WAL goes on in a new segment
    latest_max_us: Mapping[str, int | None] = field(default_factory=dict)
    """Of sources with `max_ahead`: a later event time does not count in what was `Seen`."""
    epoch_time_us: int = 0  # when the epoch was planned: some sources have it as a column
    tables: tuple[TableVersion, ...] = ()  # all tables of the pipeline, as this epoch reads them

    def task(self, partition: int, attempt: str) -> TaskWork:
        return TaskWork(self, partition, attempt)


@dataclass(frozen=True, slots=True)
class TaskWork:
    """One partition of a stream's epoch; *attempt* tells two copies of a task apart."""

    stream: StreamWork
    partition: int
    attempt: str

    @property
    def writer(self) -> Attempt:
        """Who writes; an epoch that was killed is run again, by a process with another id."""
        work = self.stream
        return Attempt(
            stream=work.stream,
            partition=self.partition,
            partitions=work.partitions,
            epoch=work.epoch,
            generation=work.generation,
            tag=f"{work.run_id}-{self.attempt}",
            saved_epoch=work.saved_epoch,
        )


@dataclass(frozen=True, slots=True)
class CompactedRuns:
    """A run file of an operator that a task has made of others (R10)."""

    operator: str
    inputs: tuple[str, ...]
    path: str  # on the driver's disk; a task that does not see it says where the file is
    key: str = ""  # an object of the workspace
    data: bytes = b""  # or the file itself, if it is small


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What one task has done; only results that the runner returns ever count."""

    partition: int
    ranges: tuple[WalRange, ...] = ()  # at most one for each operator
    staged: tuple[Staged, ...] = ()
    compacted: tuple[CompactedRuns, ...] = ()
    rows_in: int = 0
    late: int = 0
    keys: int = 0
    late_right: int = 0  # of a join: so many of the late ones are of its right side
    row_bytes: int = 0  # the average row of the heaviest batch that the runner gave it


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read of a source, and of its event times.

    A row that is later than the limit of its source (`StreamWork.latest_max_us`) is *ahead*: it
    does not count in *latest_us*. *earliest_us* is that of the rows ahead; of all, while a source
    has no watermark yet; None for a source without a limit.
    """

    rows: int = 0
    latest_us: int | None = None
    without_time: int = 0
    earliest_us: int | None = None
    ahead: int = 0
    parts: Mapping[str, int] = field(default_factory=dict)
    """The latest event time of each part of the source that had rows, if it has parts."""

    @property
    def timed(self) -> int:
        return self.rows - self.without_time


@dataclass(frozen=True, slots=True)
class StreamResult:
    tasks: tuple[TaskResult, ...]
    seen: Mapping[str, Seen] = field(default_factory=dict)
