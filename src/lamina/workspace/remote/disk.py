"""The disk of a home that is in an object store: a scratch folder, and objects behind it.

The scratch folder is on the driver's own machine and can be lost. Its driver segments are copies
of what is in the store: a sync creates the piece that the store lacks, and then the bytes are
durable. Runs that tasks have put into the store are fetched when somebody reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from lamina.clock import Clock
from lamina.disk import LocalDisk
from lamina.disk.base import Bytes, Lock, LogFile
from lamina.errors import AlreadyExists, Fenced, StoreUnavailable, WalDamaged
from lamina.format.home_file import HOME_BYTES_MAX
from lamina.format.home_names import (
    DRIVER,
    IDENTITY,
    CoreSegment,
    DriverSegment,
    parse_segment,
    segment_path,
)
from lamina.format.piece import Piece
from lamina.format.remote_names import run_key
from lamina.format.wal import HEADER_SIZE, decode_segment_header
from lamina.protocol.pieces import plan_restore
from lamina.store.base import Store
from lamina.workspace.remote.files import write_whole
from lamina.workspace.remote.log import PieceLog

if TYPE_CHECKING:
    import pyarrow as pa

_TRIES = 5


class RemoteDisk:
    """What the log asks of a file system, of a scratch folder and a store."""

    def __init__(self, store: Store, scratch: Path, log: PieceLog, clock: Clock) -> None:
        self._store = store
        self._scratch = scratch
        self._local = LocalDisk(scratch)
        self._log = log
        self._clock = clock
        self.generations: frozenset[int] = frozenset()  # of whoever has claimed the home before
        log.taken_over = self._take_over

    @property
    def root(self) -> str:
        return self._store.url.rstrip("/")

    # names

    def make_folder(self, path: str) -> None:
        self._local.make_folder(path)

    def list(self, folder: str) -> tuple[str, ...]:
        return self._local.list(folder)

    def sync_folder(self, path: str) -> None:
        """The scratch folder may be lost as a whole."""

    def rename(self, path: str, target: str) -> None:
        """The identity of the home, which is all that is ever renamed: it goes to the store."""
        assert target == IDENTITY, target
        data = self._local.read(path, 0, HOME_BYTES_MAX)
        if IDENTITY in self._local.list(""):
            self._store.put(IDENTITY, data)  # it is ours: it says now whose it is
        else:
            self._create_identity(data)
        self._local.rename(path, target)

    def unlink(self, path: str) -> None:
        """A segment goes with its pieces; without them it is only that copy."""
        self._local.unlink(path)
        if isinstance(parse_segment(path), DriverSegment):
            named = (parse_segment(f"{DRIVER}/{name}") for name in self._local.list(DRIVER))
            self._log.drop({name for name in named if isinstance(name, DriverSegment)})

    def try_lock(self, path: str) -> Lock | None:
        return self._local.try_lock(path)

    # bytes

    def create(self, path: str) -> LogFile:
        name = parse_segment(path)
        file = self._local.create(path)
        return PieceFile(file, name, self) if isinstance(name, DriverSegment) else file

    def open(self, path: str) -> LogFile:
        """To sync it: what is in the store is durable."""
        return _Durable(path, self.size(path))

    def read(self, path: str, offset: int, size: int) -> bytes:
        self._fetch(path)
        return self._local.read(path, offset, size)

    def map(self, path: str) -> pa.Buffer:
        self._fetch(path)
        return self._local.map(path)

    def size(self, path: str) -> int:
        self._fetch(path)
        return self._local.size(path)

    def write_piece(self, segment: DriverSegment, offset: int, data: bytes) -> None:
        """The bytes of a segment from *offset* on, into the store."""
        path = segment_path(segment)
        header = self._local.read(path, 0, HEADER_SIZE)
        known = decode_segment_header(header, path)
        assert known is not None, "a segment begins with its header"
        try:
            self._log.write(known.home, segment, header, offset, data)
        except AlreadyExists:
            self._local.unlink(path)  # the name is another's
            raise

    # restoring

    def identify(self) -> bool:
        """Copy the identity from the store; whether there is one."""
        found = {info.key for info in self._store.list_folder("").objects}
        if IDENTITY not in found:
            self._local.unlink(IDENTITY)
            return False
        self._write(IDENTITY, self._store.get(IDENTITY))
        return True

    def restore(self) -> None:
        """Make the driver log in the scratch folder what it is in the store.

        WalDamaged if a piece is missing that nobody has deleted as no longer needed. A process that
        still runs may delete some while they are read: then what is left is looked at again.
        """
        for _ in range(_TRIES):
            try:
                self._restore()
            except WalDamaged:
                if not self._log.has_vanished:
                    raise
            if not self._log.has_vanished:
                return
        raise StoreUnavailable(
            "pieces of the log are deleted faster than they can be read", where=self.root
        )

    def _restore(self) -> None:
        for name in self._local.list(DRIVER):
            self._local.unlink(f"{DRIVER}/{name}")
        self._local.make_folder(DRIVER)
        ends: dict[DriverSegment, tuple[int, int]] = {}
        for piece in self._log.load():
            before = (piece.sequence - 1, piece.offset)
            if piece.offset == 0 or before == ends.get(piece.segment):
                ends[piece.segment] = (piece.sequence, piece.end)
                self._append(piece)  # a later beginning replaces a claim that did not count
        plan = plan_restore(self._log.slots, self._log.where)
        whole = {part[0].segment for part in plan.segments}
        for segment in ends.keys() - whole:
            self._local.unlink(segment_path(segment))  # it is being dropped
        self.generations = plan.generations

    def _take_over(self, piece: Piece) -> None:
        """Another process wrote it between our look and our claim."""
        self.generations |= {piece.segment.generation}
        self._append(piece)

    def _append(self, piece: Piece) -> None:
        if piece.offset:
            file = self._local.open(piece.path)
        else:
            self._local.unlink(piece.path)
            file = self._local.create(piece.path)
        try:
            file.append([piece.data])
        finally:
            file.close()

    def _fetch(self, path: str) -> None:
        """A run that a task has put into the store, as a file."""
        if not isinstance(parse_segment(path), CoreSegment):
            return
        target = self._scratch / path
        if not target.exists():
            self._write(path, self._store.get(run_key(path)))

    def _write(self, path: str, data: bytes) -> None:
        write_whole(self._scratch / path, data)

    def _create_identity(self, data: bytes) -> None:
        try:
            self._store.put_if_absent(IDENTITY, data)
        except AlreadyExists:
            raise Fenced(
                "another process makes this home at the same time", where=self.root
            ) from None


class PieceFile:
    """A driver segment: appended here, durable there."""

    def __init__(self, file: LogFile, segment: DriverSegment, disk: RemoteDisk) -> None:
        self._file = file
        self._segment = segment
        self._disk = disk
        self._pending: list[bytes] = []
        self._sent = 0
        self._under_way: Future[None] | None = None

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def size(self) -> int:
        return self._file.size

    def append(self, parts: Sequence[Bytes]) -> None:
        self._file.append(parts)
        self._pending += [bytes(memoryview(part).cast("B")) for part in parts]

    def begin_sync(self) -> None:
        """Create the piece in a thread of its own; one at a time."""
        self.sync_begun()
        data = b"".join(self._pending)
        if len(data) <= HEADER_SIZE and not self._sent:
            return  # a header alone waits for the first record behind it
        if data:
            offset, self._sent = self._sent, self._sent + len(data)
            self._pending.clear()
            self._under_way = in_thread(lambda: self._disk.write_piece(self._segment, offset, data))

    def sync(self) -> None:
        self.begin_sync()
        self.sync_begun()

    def sync_begun(self) -> None:
        """Wait for what has begun; raises what failed."""
        if self._under_way is not None:
            under_way, self._under_way = self._under_way, None
            under_way.result()

    def truncate(self, size: int) -> None:  # noqa: ARG002
        raise AssertionError("nobody cuts a driver segment (R1)")

    def close(self) -> None:
        self._file.close()


def in_thread(work: Callable[[], None]) -> Future[None]:
    """Run *work* beside what the caller does; it ends with the process."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  who waits raises it
            done.set_exception(error)
        else:
            done.set_result(None)

    Thread(target=run, name="lamina-piece", daemon=True).start()
    return done


class _Durable:
    """A file of which every byte is in the store."""

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size

    def append(self, parts: Sequence[Bytes]) -> None:  # noqa: ARG002
        raise AssertionError("only new segments are written")

    def sync(self) -> None:
        """It is."""

    def truncate(self, size: int) -> None:  # noqa: ARG002
        raise AssertionError("nobody cuts a segment (R1)")

    def close(self) -> None:
        """Nothing is open."""
