"""A home on a local or coherently shared file system.

The driver's log and a folder per core hold what is decided (lamina.wal); beside them lie staged
output, run files of the process that has the home, and notes. format/home_names.py has every name.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lamina.clock import Clock, SystemClock, new_writer_id
from lamina.disk import LocalDisk
from lamina.disk.base import Disk, Lock
from lamina.disk.folders import remove_tree
from lamina.errors import NotShared, UsageError
from lamina.format.commit import WalRange
from lamina.format.home_names import (
    STAGED,
    CoreSegment,
    parse_segment,
    preflight_path,
    state_folder,
)
from lamina.format.manifest_model import RunEntry
from lamina.format.pipeline_record import PipelineRecord
from lamina.os_errors import typed_errors
from lamina.state.local import RunFolder
from lamina.state.run import Run
from lamina.store.base import Store
from lamina.wal.core_log import CoreLog
from lamina.wal.driver_log import DriverLog, drop_driver_segments
from lamina.wal.dropping import drop_segments
from lamina.wal.home import Home, claim_home, is_home, read_home
from lamina.wal.leftovers import drop_leftovers
from lamina.wal.reader import Proven
from lamina.wal.scan import driver_generations
from lamina.workspace.arriving import has_arrived
from lamina.workspace.base import Notes, StagedFiles, TaskSpace
from lamina.workspace.model import Attempt, RunRef, SentRun, Staged
from lamina.workspace.notes import LocalNotes
from lamina.workspace.open_files import OpenRunFiles
from lamina.workspace.ranges import RangeReader
from lamina.workspace.runs import EpochRange, wal_run
from lamina.workspace.staging import HomeStaged, drop_staged, drop_undecided, stage

_OPEN_RUN_FILES = OpenRunFiles()
"""Of this process: a task knows nothing of the one before it that ran in the same process."""


@dataclass(frozen=True, slots=True)
class LocalTaskSpace:
    """What a task needs to find the home: texts, so that it can be sent anywhere."""

    home: str
    home_id: bytes
    state_folder: str

    def check_visible(self) -> None:
        if not Path(self.state_folder).is_dir():  # the driver made it when it claimed the home
            host = socket.gethostname()
            raise NotShared(f"the executor on {host} does not see the home of this pipeline")

    def open_run(self, ref: RunRef, operator: str = "") -> Run:  # noqa: ARG002
        if ref.offset < 0:
            return _OPEN_RUN_FILES.open(Path(ref.path))
        place = WalRange("", 0, ref.path, ref.offset, ref.size, ref.crc, 0)
        return wal_run(LocalDisk(Path(self.home)), EpochRange(place, ref.last_epoch, 1))

    def put_run(self, attempt: Attempt, operator: str, run: pa.RecordBatch) -> WalRange:
        with CoreLog(
            attempt.partition,
            LocalDisk(Path(self.home)),
            home=self.home_id,
            generation=attempt.generation,
            partitions=attempt.partitions,
            epoch=attempt.epoch,
            tag=attempt.tag,
        ) as writer:
            if _begun(writer.segment) <= attempt.saved_epoch:
                writer.rotate()  # what a checkpoint has can be dropped, but only as a whole file
            writer.append_batch(run, operator=operator)
            writer.sync()
            ranges = writer.take_ranges()
        if len(ranges) != 1:
            raise UsageError(f"one run was appended, and {len(ranges)} ranges came back")
        return ranges[0]

    @property
    def run_files(self) -> RunFolder:
        return RunFolder(Path(self.state_folder))

    @property
    def may_lack_room(self) -> bool:
        return False  # it is the disk of the home

    def receive(self, operator: str, runs: Sequence[Sequence[RunRef]]) -> None:
        """They are where the driver sees them."""

    def send_run(self, operator: str, run: Run) -> SentRun:  # noqa: ARG002
        return SentRun()  # the driver sees the file

    def stage(self, attempt: Attempt, batches: Iterable[pa.RecordBatch]) -> tuple[Staged, ...]:
        return stage(Path(self.home), attempt, batches)

    def open_staged(self, file: Staged) -> pa.Buffer:
        path = self.staged_path(file)
        with typed_errors(Path(path)):
            return pa.memory_map(path, "r").read_buffer()

    def staged_path(self, file: Staged) -> str:
        return str(Path(self.home) / file.path)


class LocalWorkspace:
    """The driver's side of a home."""

    def __init__(self, home: Path, clock: Clock | None = None, *, disk: Disk | None = None) -> None:
        """*disk* is where the log is, if that is not the folder *home*."""
        self._home = home.absolute()
        self._disk: Disk = disk or LocalDisk(self._home)
        self.notes: Notes = LocalNotes(self._home)
        self.stores: Sequence[Store] = ()
        self.staged: StagedFiles = HomeStaged(self._home)
        self.run_files = RunFolder(self._home / state_folder(new_writer_id(clock or SystemClock())))

    @property
    def where(self) -> str:
        return str(self._home)

    def exists(self) -> bool:
        return is_home(self._disk)

    def claim(self, clock: Clock, held: Lock | None = None) -> Home:
        return claim_home(self._disk, clock, held, has_arrived=has_arrived)

    def generations(self) -> list[int]:
        return driver_generations(self._disk)

    def open_log(
        self, home: Home, generation: int, *, partitions: int, pipeline: PipelineRecord | None
    ) -> DriverLog:
        return DriverLog(home, generation, partitions=partitions, pipeline=pipeline)

    def ranges(self, proven: Proven | None = None) -> RangeReader:
        return RangeReader(self._disk, proven)

    @contextmanager
    def shown(self, nonce: str) -> Iterator[str]:
        self._disk.make_folder("")
        path = self._home / preflight_path(nonce)
        with typed_errors(path):
            try:
                path.write_text(nonce)
                yield str(path)
            finally:
                path.unlink(missing_ok=True)

    def prepare_runs(self) -> None:
        own = self.run_files.path
        with typed_errors(own.parent):
            own.mkdir(parents=True, exist_ok=True)
            for folder in own.parent.iterdir():  # of processes that are gone: the lock is ours
                if folder != own:
                    remove_tree(folder)

    def prepare(self, head: int) -> None:
        drop_undecided(self._home, head)
        drop_leftovers(read_home(self._disk), head)
        self._disk.make_folder(STAGED)  # durable before a task of the first epoch writes into it

    def discard(self) -> None:
        shutil.rmtree(self.run_files.path, ignore_errors=True)

    def lend(self, owner: str, files: Sequence[Path]) -> tuple[Staged, ...]:  # noqa: ARG002
        return lent_here(files)

    def leave(self) -> None:
        """The lock says it all."""

    def for_tasks(self, writers: int = 1) -> TaskSpace:  # noqa: ARG002
        identity = read_home(self._disk).identity
        return LocalTaskSpace(str(self._home), identity, str(self.run_files.path))

    def open_range(self, place: WalRange, epoch: int, partitions: int) -> Run:
        return wal_run(self._disk, EpochRange(place, epoch, partitions))

    def send(
        self,
        runs: Sequence[Sequence[RunRef]],
        saved: Mapping[str, RunEntry],  # noqa: ARG002
    ) -> tuple[tuple[RunRef, ...], ...]:
        return tuple(map(tuple, runs))

    def land_run(self, path: str, key: str, data: bytes) -> None:
        """It was made on this disk."""

    def forget(self, floor: int) -> Iterator[str]:
        home = read_home(self._disk)
        drop_driver_segments(home, floor)
        yield "driver"
        drop_segments(home, floor, keep=set())
        yield "cores"
        drop_staged(self._home, floor)
        yield STAGED


def lent_here(files: Sequence[Path]) -> tuple[Staged, ...]:
    """Files that tasks see where they are."""
    paths = [path.absolute() for path in files]
    return tuple(Staged(str(path), path.stat().st_size, "", 0) for path in paths)


def _begun(segment: str) -> int:
    """The epoch that a segment was made for."""
    name = parse_segment(segment)
    assert isinstance(name, CoreSegment), segment
    return name.epoch
