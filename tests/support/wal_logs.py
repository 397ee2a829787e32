"""What the tests of the write-ahead log share: a log on a real folder, and disks that fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from lamina.disk import LocalDisk
from lamina.disk.base import Bytes, Disk, LogFile
from lamina.errors import LaminaError, StoreError
from lamina.format.commit import CommitRecord, Point, WalRange
from lamina.format.manifest_model import ConnectorCheckpoint
from lamina.format.wal import (
    HEADER_SIZE,
    Kind,
    SegmentHeader,
    binding_of,
    encode_record,
    encode_segment_header,
)
from lamina.wal import DriverLog, Home, Record, SegmentReader
from lamina.wal.standalone import CoreWalWriter

HOME = bytes(range(16))
OTHER_HOME = bytes(range(16, 32))
PATH = "core-0/segment.wal"


def open_writer(
    disk: Disk, core: int = 0, *, generation: int = 1, partitions: int = 1, **more: object
) -> CoreWalWriter:
    return CoreWalWriter(
        core,
        disk,
        home=HOME,
        generation=generation,
        partitions=partitions,
        **more,  # type: ignore[arg-type]
    )


def offsets(**positions: int) -> dict[str, ConnectorCheckpoint]:
    return {
        name: ConnectorCheckpoint({"partition-0": str(position)}, 0, {})
        for name, position in positions.items()
    }


def put_all(writer: CoreWalWriter, values: Mapping[bytes, bytes | None]) -> None:
    for key, value in values.items():
        if value is None:
            writer.append_delete(key)
        else:
            writer.append_put(key, value)


def commit_epoch(
    writer: CoreWalWriter, epoch: int, values: Mapping[bytes, bytes | None], at: int = 0
) -> Point:
    """One acknowledged epoch: entries, COMMIT, sync."""
    writer.set_epoch(epoch)
    put_all(writer, values)
    point = writer.append_commit(offsets(source=at), watermark=at)
    writer.sync()
    return point


def entries_of(batch: pa.RecordBatch) -> list[tuple[bytes, bytes | None]]:
    columns = (batch.column(name).to_pylist() for name in ("key", "value"))
    return list(zip(*columns, strict=True))


def apply(state: dict[bytes, bytes], batch: pa.RecordBatch) -> None:
    for key, value in entries_of(batch):
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value


def all_records(disk: Disk, path: str, **more: int) -> list[Record]:
    return list(SegmentReader(disk, path).records(**more))


def runs_of(disk: Disk, path: str) -> list[list[tuple[bytes, bytes | None]]]:
    return [entries_of(r.batch()) for r in all_records(disk, path) if r.kind is Kind.RUN]


def batch_of(values: Mapping[bytes, bytes | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(list(values), pa.binary()), pa.array(list(values.values()), pa.binary())],
        schema=pa.schema([pa.field("key", pa.binary(), nullable=False), ("value", pa.binary())]),
    )


def segment_bytes(
    payloads: Sequence[tuple[int, bytes]],
    *,
    home: bytes = HOME,
    generation: int = 1,
    core: int = 0,
    durable: Sequence[int] = (),
    optional: bool = False,
    epoch: int = 1,
) -> bytes:
    """A segment by hand: (kind, payload) each; *durable* per record, else nothing was synced."""
    head = encode_segment_header(SegmentHeader(home, generation, core, 1, 0))
    data = head
    for number, (kind, payload) in enumerate(payloads):
        header, padding = encode_record(
            [payload],
            kind=kind,  # type: ignore[arg-type]
            epoch=epoch,
            first_sequence=number,
            count=0,
            offset=len(data),
            durable=durable[number] if number < len(durable) else HEADER_SIZE,
            binding=binding_of(head),
            optional=optional,
        )
        data += header + payload + padding
    return data


def write_file(root: Path, path: str, data: bytes) -> LocalDisk:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return LocalDisk(root)


def add_to(path: Path, data: bytes) -> None:
    """What a killed process left at the end of a file."""
    with path.open("ab") as file:
        file.write(data)


def everything_below(root: Path) -> dict[str, bytes]:
    """Every file and its bytes: to show that nothing was changed."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def driver_commit(
    driver: DriverLog, epoch: int, ranges: tuple[WalRange, ...] = (), **more: object
) -> CommitRecord:
    """The COMMIT that continues where a driver log stands."""
    fields: dict[str, object] = {"parent": driver.head, "follows": driver.head, **more}
    return CommitRecord(
        epoch=epoch,
        generation=driver.generation,
        ranges=ranges,
        **fields,  # type: ignore[arg-type]
    )


def home_at(root: Path) -> Home:
    """A home that nobody has locked, for driver logs side by side."""
    disk = LocalDisk(root)
    disk.make_folder("driver")
    return Home(disk, HOME)


class OneFile:
    """A disk in memory with one file on it."""

    root = "memory"

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, path: str, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    def size(self, path: str) -> int:
        return len(self.data)


class FailingDisk:
    """A disk whose k-th append or sync fails, once; *written* bytes of that append arrive."""

    def __init__(self, inner: Disk) -> None:
        self._inner = inner
        self.fail: dict[str, int] = {}  # operation -> how many more succeed
        self.error: LaminaError = StoreError("the disk is gone")
        self.written = 0
        self.calls: list[str] = []

    @property
    def root(self) -> str:
        return self._inner.root

    def make_folder(self, path: str) -> None:
        self._inner.make_folder(path)

    def create(self, path: str) -> LogFile:
        self.strike("create")
        return FailingFile(self, self._inner.create(path))

    def open(self, path: str) -> LogFile:
        return FailingFile(self, self._inner.open(path))

    def sync_folder(self, path: str) -> None:
        self.strike("sync_folder")
        self._inner.sync_folder(path)

    def read(self, path: str, offset: int, size: int) -> bytes:
        return self._inner.read(path, offset, size)

    def map(self, path: str) -> pa.Buffer:
        return self._inner.map(path)

    def size(self, path: str) -> int:
        return self._inner.size(path)

    def list(self, folder: str) -> tuple[str, ...]:
        return self._inner.list(folder)

    def unlink(self, path: str) -> None:
        self._inner.unlink(path)

    def rename(self, path: str, target: str) -> None:
        self._inner.rename(path, target)

    def try_lock(self, path: str) -> object:
        return self._inner.try_lock(path)

    def strike(self, operation: str) -> None:
        self.calls.append(operation)
        left = self.fail.get(operation)
        if left is None:
            return
        if left > 0:
            self.fail[operation] = left - 1
            return
        del self.fail[operation]
        raise self.error


class FailingFile:
    def __init__(self, disk: FailingDisk, inner: LogFile) -> None:
        self._disk = disk
        self._inner = inner

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def size(self) -> int:
        return self._inner.size

    def append(self, parts: Sequence[Bytes]) -> None:
        try:
            self._disk.strike("append")
        except LaminaError:
            whole = b"".join(bytes(part) for part in parts)
            self._inner.append([whole[: self._disk.written]])
            raise
        self._inner.append(parts)

    def sync(self) -> None:
        self._disk.strike("sync")
        self._inner.sync()

    def truncate(self, size: int) -> None:
        self._disk.strike("truncate")
        self._inner.truncate(size)

    def close(self) -> None:
        self._inner.close()


def flipped_bits(data: bytes, bits: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    for bit in bits:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << (bit % 8)
        yield bit, bytes(damaged)
