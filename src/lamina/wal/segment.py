"""Writes one segment: create, append, sync. A failed write or sync ends it for good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamina.disk.base import Disk, EagerFile, LogFile
from lamina.errors import LaminaError, StoreError, UsageError
from lamina.format.wal import (
    HEADER_SIZE,
    PAYLOAD_BYTES_MAX,
    Kind,
    SegmentHeader,
    binding_of,
    encode_record,
    encode_segment_header,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a record went: what a COMMIT says about it."""

    segment: str
    offset: int
    size: int
    crc: int
    entries: int


class SegmentWriter:
    """Appends records to one file. Not shared between threads or processes."""

    def __init__(self, file: LogFile, header: SegmentHeader, *, durable: int) -> None:
        self._file = file
        self._binding = binding_of(encode_segment_header(header))
        self._failure: BaseException | None = None
        self.header = header
        self.synced_position = durable

    @classmethod
    def create(cls, disk: Disk, path: str, header: SegmentHeader) -> SegmentWriter:
        """A new file with a durable header and a durable name. AlreadyExists if it is taken."""
        file = disk.create(path)
        try:
            file.append([encode_segment_header(header)])
            file.sync()
            disk.sync_folder(path.rpartition("/")[0])
        except BaseException:
            file.close()
            raise
        return cls(file, header, durable=HEADER_SIZE)

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def position(self) -> int:
        """The end of the file, synced or not."""
        return self._file.size

    def append(
        self,
        kind: Kind,
        payload: Sequence[bytes | pa.Buffer],
        *,
        epoch: int,
        first_sequence: int,
        count: int = 1,
    ) -> Placed:
        """Append one record. After an error the file may end inside it, and the writer is done."""
        self.check_usable()
        if (size := sum(map(len, payload))) > PAYLOAD_BYTES_MAX:
            raise UsageError(
                f"a record of {size} bytes is too large: {PAYLOAD_BYTES_MAX} at most",
                advice="Commit fewer or smaller rows at once, or use more partitions",
            )
        offset = self.position
        header, padding = encode_record(
            payload,
            kind=kind,
            epoch=epoch,
            first_sequence=first_sequence,
            count=count,
            offset=offset,
            durable=self.synced_position,
            binding=self._binding,
        )
        try:
            self._file.append([header, *payload, padding])
        except BaseException as error:
            self._failure = error
            raise
        crc = int.from_bytes(header[56:60], "little")
        return Placed(self.path, offset, self.position - offset, crc, count)

    def begin_sync(self) -> None:
        """Let the next `sync` begin now, if the file can do that beside something else."""
        self.check_usable()
        if isinstance(self._file, EagerFile):
            self._file.begin_sync()

    def sync(self) -> None:
        """fdatasync; only its success moves the durable mark."""
        self.check_usable()
        end = self.position
        try:
            self._file.sync()
        except BaseException as error:
            self._failure = error
            raise
        self.synced_position = end

    def truncate(self, size: int) -> None:
        """Cut the file at a record boundary; seed 003's library call, never used by recovery."""
        self.check_usable()
        try:
            self._file.truncate(size)
        except BaseException as error:
            self._failure = error
            raise
        self.synced_position = size

    def close(self) -> None:
        self._file.close()

    def check_usable(self) -> None:
        """Raise if a write or sync has failed before."""
        if (failure := self._failure) is not None:
            why = failure.message if isinstance(failure, LaminaError) else repr(failure)
            raise StoreError(
                f"an earlier write or sync failed, so nothing more is written: {why}",
                where=self.path,
                advice="Close the log, look at the disk, open it again",
            )
