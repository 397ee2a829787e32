"""What engine, recovery, tasks, sinks and people ask of the place where a pipeline lives.

`LocalWorkspace` is a home on a file system that all executors see. Names of runs and staged files
are the workspace's own: whoever has one asks the workspace for what it names.

TaskSpace   for tasks, wherever they run: open runs, put the new one, stage output
Workspace   for the driver: claim, read what was decided, prepare, publish from, forget
Notes       small files beside the log: what a process says of itself, what people ask of it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lamina.clock import Clock
from lamina.disk.base import Lock
from lamina.format.commit import WalRange
from lamina.format.manifest_model import RunEntry
from lamina.format.pipeline_record import PipelineRecord
from lamina.workspace.model import Attempt, RunRef, SentRun, Staged

if TYPE_CHECKING:
    import pyarrow as pa

    from lamina.state.local import RunFolder
    from lamina.state.run import Run
    from lamina.store.base import Store
    from lamina.wal.driver_log import DriverLog
    from lamina.wal.home import Home
    from lamina.wal.reader import Proven
    from lamina.workspace.ranges import RangeReader


class TaskSpace(Protocol):
    """A value that travels with a task. What it returns for is durable (R1, R7)."""

    def check_visible(self) -> None:
        """NotShared if this executor does not see the place that the driver has claimed."""
        ...

    def open_run(self, ref: RunRef, operator: str = "") -> Run:
        """A committed run of an operator, mapped where it is and proven by its checksum."""
        ...

    def put_run(self, attempt: Attempt, operator: str, run: pa.RecordBatch) -> WalRange:
        """Append the new run of an operator, synced; bytes that no COMMIT names do not exist."""
        ...

    @property
    def run_files(self) -> RunFolder:
        """Where compacted runs go: files that can be made again."""
        ...

    @property
    def may_lack_room(self) -> bool:
        """Whether `run_files` may be full or not writable, and the task goes on without it."""
        ...

    def receive(self, operator: str, runs: Sequence[Sequence[RunRef]]) -> None:
        """Before its runs are opened: the lists of an operator, of all partitions."""
        ...

    def send_run(self, operator: str, run: Run) -> SentRun:
        """How the driver gets a compacted run, if it does not see the file."""
        ...

    def stage(self, attempt: Attempt, batches: Iterable[pa.RecordBatch]) -> tuple[Staged, ...]:
        """Output as a file of this attempt's own, synced; no rows, no file."""
        ...

    def open_staged(self, file: Staged) -> pa.Buffer:
        """The bytes of staged output, of this epoch or a committed one."""
        ...

    def staged_path(self, file: Staged) -> str | None:
        """Where Spark can read it as a file, whatever its executor; None: only `open_staged`."""
        ...


class StagedFiles(Protocol):
    """Staged output, as sinks get at it."""

    def open(self, file: Staged) -> BufferedIOBase:
        """The bytes as they are, not proven. NotFound if there is no such file."""
        ...

    def local_path(self, file: Staged) -> Path | None:
        """The file on this machine, if it is one that can be linked; it may be gone."""
        ...

    def where(self, file: Staged) -> str:
        """For people."""
        ...


class Notes(Protocol):
    """Small files beside the log, each whole or not there."""

    def where(self, name: str) -> str:
        """For people."""
        ...

    def names(self, folder: str) -> list[str]:
        """What is in a folder of notes; nothing if there is none."""
        ...

    def read(self, name: str) -> bytes | None:
        """None if there is no such note."""
        ...

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Replace it; a note that need not survive a power cut is not synced."""
        ...

    def remove(self, name: str) -> None:
        """No error if there is none."""
        ...


class Workspace(Protocol):
    """The driver's side."""

    @property
    def where(self) -> str:
        """For people."""
        ...

    @property
    def notes(self) -> Notes: ...

    @property
    def stores(self) -> Sequence[Store]:
        """What it asks over a network."""
        ...

    @property
    def staged(self) -> StagedFiles: ...

    @property
    def run_files(self) -> RunFolder:
        """Of this process alone: fetched and compacted runs."""
        ...

    def exists(self) -> bool:
        """Whether somebody has claimed the place before; reading only.

        WalDamaged if it has lost its identity.
        """
        ...

    def claim(self, clock: Clock, held: Lock | None = None) -> Home:
        """Take the place for this process, and make it if it is new. Fenced if it is taken.

        *held* is the lock of a caller who has it already; it stays the caller's.
        """
        ...

    def generations(self) -> Iterable[int]:
        """Those of every process that has ever claimed the place."""
        ...

    def open_log(
        self, home: Home, generation: int, *, partitions: int, pipeline: PipelineRecord | None
    ) -> DriverLog:
        """A new log of decisions. AlreadyExists if a process of that generation has one."""
        ...

    def ranges(self, proven: Proven | None = None) -> RangeReader:
        """Reads what COMMITs name; *proven* has been checked before."""
        ...

    def prepare_runs(self) -> None:
        """Once claimed: the folder of `run_files`, and no longer those of processes before."""
        ...

    def shown(self, nonce: str) -> AbstractContextManager[str]:
        """Something that only a driver of now can have put here; gives what a task opens."""
        ...

    def prepare(self, head: int) -> None:
        """Once recovered: make room for output, and drop what no COMMIT up to *head* names."""
        ...

    def discard(self) -> None:
        """Remove the run files of this process: it has failed to start."""
        ...

    def for_tasks(self, writers: int = 1) -> TaskSpace:
        """After the claim: what tasks are given; so many of them write in an epoch."""
        ...

    def lend(self, owner: str, files: Sequence[Path]) -> tuple[Staged, ...]:
        """Files of the driver's disk, as tasks get at them; in the place of what *owner* lent."""
        ...

    def leave(self) -> None:
        """The process ends in order: nobody need ask whether it is still there."""
        ...

    def open_range(self, place: WalRange, epoch: int, partitions: int) -> Run:
        """A run that a COMMIT names, where it is."""
        ...

    def send(
        self, runs: Sequence[Sequence[RunRef]], saved: Mapping[str, RunEntry]
    ) -> tuple[tuple[RunRef, ...], ...]:
        """Lists of runs for tasks, which may not see this disk; *saved* are those in the store."""
        ...

    def land_run(self, path: str, key: str, data: bytes) -> None:
        """See that a compacted run is at *path*: a task has made it, perhaps elsewhere."""
        ...

    def forget(self, floor: int) -> Iterable[str]:
        """Drop log and output of epochs up to *floor*, step by step; gives the name of each step.

        Nobody needs them (R7): the caller knows what checkpoints, sinks and lists still use.
        """
        ...
