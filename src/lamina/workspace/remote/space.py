"""The driver's side of a home in an object store.

It is a home in a scratch folder of the driver's machine whose log is replicated (disk.py): what the
packages above ask is answered there. What others have to see lies in the store.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from lamina.clock import Clock, SystemClock
from lamina.disk.base import Lock
from lamina.disk.folders import remove_tree
from lamina.errors import AlreadyExists, Refused, StoreError, WalDamaged
from lamina.format.holder import Holder
from lamina.format.home_file import ADVICE
from lamina.format.home_names import (
    IDENTITY,
    STAGED,
    CoreSegment,
    DriverSegment,
    parse_core_folder,
    parse_segment,
    preflight_path,
    segment_path,
)
from lamina.format.manifest_model import RunEntry
from lamina.format.piece import PIECE_HEADER_SIZE
from lamina.format.pipeline_record import PipelineRecord
from lamina.format.remote_names import (
    LENT,
    MERGED,
    RUNS,
    made_by,
    merged_key,
    parse_run_key,
    piece_key,
    run_key,
)
from lamina.format.wal import HEADER_SIZE
from lamina.protocol.pieces import is_leftover, is_outdone
from lamina.store.probe import probe_store
from lamina.wal.driver_log import DriverLog, drop_driver_segments
from lamina.wal.dropping import drop_segments
from lamina.wal.home import Home, check_not_moved, claim_home, read_home, take_lock
from lamina.wal.leftovers import drop_leftovers
from lamina.wal.reader import Damaged
from lamina.wal.scan import driver_generations, read_tail
from lamina.workspace.arriving import has_arrived
from lamina.workspace.local import LocalWorkspace, lent_here
from lamina.workspace.model import Origin, RunRef, Staged
from lamina.workspace.remote.disk import RemoteDisk
from lamina.workspace.remote.files import write_whole
from lamina.workspace.remote.holders import drop_older, newest_holder, say_holder
from lamina.workspace.remote.lending import Lending
from lamina.workspace.remote.log import PATIENCE_S, PieceLog
from lamina.workspace.remote.notes import RemoteNotes
from lamina.workspace.remote.places import StorePlace, Url
from lamina.workspace.remote.staged import RemoteStaged
from lamina.workspace.remote.tasks import CARRIED_BYTES_MAX, RemoteTaskSpace

CARRIED_SUM_MAX = 8 * 1024 * 1024
"""Of one epoch: what all tasks together send to the driver."""

SENT_SUM_MAX = 4 * 1024 * 1024
"""Of one stream and epoch: what the driver sends along with the tasks."""


class RemoteWorkspace(LocalWorkspace):
    """A home below an address of a store."""

    def __init__(
        self,
        place: StorePlace,
        scratch: Path,
        clock: Clock | None = None,
        *,
        saved: StorePlace | None = None,
        tasks_here: bool = True,
        take_over: bool = False,
        patience_s: float = PATIENCE_S,
        carried_bytes: int = CARRIED_BYTES_MAX,
    ) -> None:
        """*saved* is where checkpoints are; *tasks_here* says that tasks see this machine's disk.

        With *take_over* a person has said that the process on another machine has ended. What is
        larger than *carried_bytes* is put into the store by its task.
        """
        self._clock = clock or SystemClock()
        self._place, self._saved = place, saved or place
        self._store = place.open()
        self._log = PieceLog(self._store, self._clock, patience_s=patience_s)
        self._remote = RemoteDisk(self._store, scratch.absolute(), self._log, self._clock)
        super().__init__(scratch, self._clock, disk=self._remote)
        self.notes = RemoteNotes(self._store)
        self.stores = (self._store,)
        self.staged = RemoteStaged(self._store, self._remote)
        self._tasks_here = tasks_here
        self._takes_over = take_over
        self._carried_bytes = carried_bytes
        self._generation = 0
        self._lending = Lending(self._store, carried_max=carried_bytes)
        self._shared: set[str] = set()  # run files that are in the store, by their name

    @property
    def where(self) -> str:
        return self._store.url

    # claim

    def exists(self) -> bool:
        self._remote.make_folder("")
        if self._remote.identify():
            return True
        if self._log.listed():
            raise WalDamaged(
                "home.json is missing, and there is a log",
                where=f"{self._remote.root}/{IDENTITY}",
                advice=ADVICE,
            )
        return False

    def claim(self, clock: Clock, held: Lock | None = None) -> Home:
        """The lock of the scratch folder, and a copy of what is in the store.

        Nothing is claimed in the store yet: `open_log` does that. UnsafeStore if a new home would
        be in one that takes create-only puts for puts: two processes would not see each other.
        """
        self._remote.make_folder("")
        lock = None if held is not None else take_lock(self._remote)
        try:
            self.check_holder()
            if not self._remote.identify():
                probe_store(self._store, self._clock)
            self._clear()
            self._remote.restore()
            home = claim_home(self._remote, clock, held or lock, has_arrived=has_arrived)
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return replace(home, lock=lock)

    def generations(self) -> list[int]:
        """Also of those whose log is gone: their claims stay."""
        return sorted({*driver_generations(self._remote), *self._remote.generations})

    def open_log(
        self, home: Home, generation: int, *, partitions: int, pipeline: PipelineRecord | None
    ) -> DriverLog:
        """THE claim: from here on nobody older writes to the log."""
        if self._log.is_stale:
            self._remote.restore()
        if is_outdone(generation, self.generations()):
            raise AlreadyExists(f"generation {generation} is taken", where=self.where)
        driver = super().open_log(home, generation, partitions=partitions, pipeline=pipeline)
        check_not_moved(self._remote)  # who moved it may have been quicker than our claim
        self._generation = generation
        self._say_holder(has_ended=False)
        drop_older(self.notes, generation)
        return driver

    def lend(self, owner: str, files: Sequence[Path]) -> tuple[Staged, ...]:
        if self._tasks_here:
            return lent_here(files)
        return self._lending.lend(owner, files, self._generation)

    def leave(self) -> None:
        """If the store is not there, the next machine asks a person."""
        if self._generation:
            with suppress(StoreError):
                self._say_holder(has_ended=True)

    # running

    @contextmanager
    def shown(self, nonce: str) -> Iterator[str]:
        key = preflight_path(nonce)
        self._store.put(key, nonce.encode())
        try:
            yield f"{self._store.url.rstrip('/')}/{key}"
        finally:
            self._store.delete(key)

    def prepare(self, head: int) -> None:
        """What no COMMIT names goes; what was compacted by others is nobody's."""
        drop_leftovers(read_home(self._remote), head)
        own = self._generation
        for folder in (STAGED, RUNS):
            self._drop(folder, lambda made: is_leftover(*made, own=own, head=head))
        for folder in (MERGED, LENT):
            self._drop(folder, lambda made: made[0] < own)

    def for_tasks(self, writers: int = 1) -> RemoteTaskSpace:
        identity = read_home(self._remote).identity
        return RemoteTaskSpace(
            place=self._place,
            saved=self._saved,
            home_id=identity,
            generation=self._generation,
            process=self.run_files.path.name,
            scratch=str(self._home),
            state_folder=str(self.run_files.path),
            is_here=self._tasks_here,
            carried_max=min(self._carried_bytes, CARRIED_SUM_MAX // max(1, writers)),
        )

    def send(
        self, runs: Sequence[Sequence[RunRef]], saved: Mapping[str, RunEntry]
    ) -> tuple[tuple[RunRef, ...], ...]:
        """With each run where a task gets it; with the newest, if they are small, themselves."""
        if self._tasks_here:
            return tuple(map(tuple, runs))
        newest = max((ref.last_epoch for listed in runs for ref in listed), default=0)
        budget = _Budget(SENT_SUM_MAX)
        return tuple(
            tuple(
                replace(
                    ref,
                    origin=self._record(ref, budget, is_new=ref.last_epoch == newest)
                    if ref.offset >= 0
                    else self._file(ref, saved.get(ref.name), budget),
                )
                for ref in listed
            )
            for listed in runs
        )

    def land_run(self, path: str, key: str, data: bytes) -> None:
        target = Path(path)
        if key:
            self._shared.add(target.name)
        if not target.exists():
            write_whole(target, data or self._store.get(key))

    def forget(self, floor: int) -> Iterator[str]:
        home = read_home(self._remote)
        drop_driver_segments(home, floor)
        yield "driver"
        self._drop_shared(home, floor)
        drop_segments(home, floor, keep=set())
        self._drop(RUNS, lambda made: made[1] <= floor)
        yield "cores"
        self._drop(STAGED, lambda made: made[1] <= floor)
        kept = {file.name for file in self.run_files.path.iterdir()}
        for name in sorted(self._shared - kept):
            self._store.delete(merged_key(self._generation, name))
        self._shared &= kept
        yield STAGED

    # steps

    def check_holder(self) -> None:
        """Refused if another machine may have it: a courtesy, for it is the claim that decides."""
        holder = newest_holder(self.notes)
        if holder is None or self._takes_over:
            return
        if holder.has_ended or (holder.host, holder.scratch) == self._here():
            return
        raise Refused(
            f"the pipeline is, or was, run on {holder.host}, and has not ended there in order",
            where=self.where,
            advice="If that process or machine is gone, start with --take-over; if it is not, it "
            "stops when this one claims the pipeline",
        )

    def _say_holder(self, *, has_ended: bool) -> None:
        host, scratch = self._here()
        holder = Holder(host, scratch, self._clock.now_ms(), has_ended)
        say_holder(self.notes, self._generation, holder)

    def _here(self) -> tuple[str, str]:
        return socket.gethostname(), str(self._home)

    def _clear(self) -> None:
        """What an earlier process has left in the scratch folder: copies, and of an unknown day."""
        for name in self._remote.list(""):
            if name == STAGED or parse_core_folder(name) is not None:
                remove_tree(self._home / name)

    def _drop(self, folder: str, goes: Callable[[tuple[int, int]], bool]) -> None:
        """Objects of tasks that are no longer needed, by generation and epoch."""
        for info in list(self._store.list(folder)):
            if goes(made_by(info.key)):
                self._store.delete(info.key)

    def _drop_shared(self, home: Home, floor: int) -> None:
        """Segments of a home that was local: they hold more epochs than the one in their name."""
        for info in list(self._store.list(RUNS)):
            name = parse_run_key(info.key)
            if name is None or name.own:
                continue
            tail = read_tail(self._remote, segment_path(name), home.identity, judge=False)
            if tail.epoch <= floor and not isinstance(tail.end, Damaged):
                self._store.delete(info.key)

    def _record(self, ref: RunRef, budget: _Budget, *, is_new: bool) -> Origin:
        """A record of the log: a range of an object."""
        segment = parse_segment(ref.path)
        header = self._remote.read(ref.path, 0, HEADER_SIZE)
        key, start = "", 0
        if isinstance(segment, CoreSegment):
            key, start = run_key(ref.path), ref.offset
        elif isinstance(segment, DriverSegment):
            place = self._log.slot_of(segment, ref.offset, ref.size)
            if place is not None:
                key = piece_key(place.sequence)
                start = PIECE_HEADER_SIZE + ref.offset - place.offset
        data = b""
        if not key or (is_new and ref.size <= 2 * CARRIED_BYTES_MAX and budget.take(ref.size)):
            data = self._remote.read(ref.path, ref.offset, ref.size)
        return Origin(key, start, ref.size, header=header, data=data)

    def _file(self, ref: RunRef, entry: RunEntry | None, budget: _Budget) -> Origin:
        """A run file: a checkpoint's, or one that has been compacted since."""
        if entry is not None and entry.path is not None:
            return Origin(entry.path, 0, entry.size, sha256=entry.sha256 or "", is_saved=True)
        path = Path(ref.path)
        if path.name not in self._shared:
            if ref.size <= self._carried_bytes and budget.take(ref.size):
                return Origin("", 0, ref.size, data=path.read_bytes())
            self._store.put(merged_key(self._generation, path.name), path)
            self._shared.add(path.name)
        return Origin(merged_key(self._generation, path.name), 0, path.stat().st_size)


@dataclass(slots=True)
class _Budget:
    left: int

    def take(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True


def remote_workspace(
    url: str,
    scratch: Path,
    clock: Clock | None = None,
    *,
    store: str = "",
    tasks_here: bool = True,
    take_over: bool = False,
) -> RemoteWorkspace:
    """The home at *url*; *store* is the address of the checkpoints."""
    return RemoteWorkspace(
        Url(url),
        scratch,
        clock,
        saved=Url(store) if store else None,
        tasks_here=tasks_here,
        take_over=take_over,
    )
