"""What a task has of a remote home: the store, and a folder of its own machine.

Small runs and small output travel in the task's result, and the driver writes them: one object an
epoch. Large ones are put into the store before the task returns, under names that no other
attempt has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.errors import DigestMismatch, LaminaError, NotFound, SizeMismatch, WalDamaged
from lamina.format.canonical import sha256_hex
from lamina.format.commit import WalRange
from lamina.format.home_names import OWN, CoreSegment, segment_path, staged_path
from lamina.format.remote_names import merged_key, run_key, staged_key
from lamina.format.wal import (
    HEADER_SIZE,
    Kind,
    SegmentHeader,
    binding_of,
    decode_record_header,
    encode_record,
    encode_segment_header,
    payload_matches,
)
from lamina.state.local import RunFolder
from lamina.state.run import Run, run_of_batch
from lamina.state.run_file import check_run, open_run, read_run
from lamina.store.base import Store
from lamina.wal.runs import serialize
from lamina.workspace.local import LocalTaskSpace
from lamina.workspace.model import (
    Attempt,
    CarriedRange,
    CarriedStaged,
    Origin,
    RunRef,
    SentRun,
    Staged,
)
from lamina.workspace.open_files import OpenRunFiles, Stamp, stamp_of
from lamina.workspace.remote.cache import Cache
from lamina.workspace.remote.cache_folders import cache_folder
from lamina.workspace.remote.files import write_whole
from lamina.workspace.remote.places import StorePlace
from lamina.workspace.staging import repeated_columns

CARRIED_BYTES_MAX = 64 * 1024
"""What is larger is put into the store by its task."""


_OPEN = OpenRunFiles()
_PROVEN: dict[Path, Stamp] = {}
"""Of this process: files of the cache that were looked at as a whole, and how they were then."""


@dataclass(frozen=True, slots=True)
class RemoteTaskSpace:
    """Texts and addresses, so that it can be sent anywhere."""

    place: StorePlace
    saved: StorePlace  # checkpoints
    home_id: bytes
    generation: int  # of the driver
    process: str  # of the driver
    scratch: str  # of the driver, on its own disk
    state_folder: str  # likewise
    is_here: bool  # tasks run on the driver's machine
    carried_max: int = CARRIED_BYTES_MAX

    def check_visible(self) -> None:
        """The store is asked when something is read or written; there is nothing else to see."""

    # runs

    def receive(self, operator: str, runs: Sequence[Sequence[RunRef]]) -> None:
        """Keep what the driver has sent along: the next epochs do not send it again."""
        if self.is_here:
            return
        cache = self._cache(operator)
        refs = [ref for listed in runs for ref in listed]
        for ref in refs:
            if ref.origin is not None and ref.origin.data and not cache.has(ref.name):
                cache.put(ref.name, ref.origin.data)
        cache.keep_only(ref.name for ref in refs)

    def open_run(self, ref: RunRef, operator: str = "") -> Run:
        if self.is_here:
            return self._local.open_run(ref)
        origin = ref.origin
        assert origin is not None, "the driver says where a run is"
        if ref.offset < 0:
            return self._run_file(ref, origin, operator)
        return self._record(ref, origin, operator)

    def put_run(self, attempt: Attempt, operator: str, run: pa.RecordBatch) -> WalRange:
        payload = serialize(run)
        if sum(map(len, payload)) <= self.carried_max:
            data = b"".join(bytes(memoryview(part).cast("B")) for part in payload)
            return CarriedRange(operator, attempt.partition, "", 0, 0, 0, run.num_rows, data)
        name = CoreSegment(
            attempt.partition,
            attempt.generation,
            attempt.epoch,
            f"{attempt.tag}-{_short(operator)}{OWN}",
        )
        path = segment_path(name)
        header = encode_segment_header(
            SegmentHeader(
                self.home_id, attempt.generation, attempt.partition, attempt.partitions, 0
            )
        )
        head, padding = encode_record(
            payload,
            kind=Kind.RUN,
            epoch=attempt.epoch,
            first_sequence=0,
            count=run.num_rows,
            offset=HEADER_SIZE,
            durable=HEADER_SIZE,
            binding=binding_of(header),
        )
        parts = [bytes(memoryview(part).cast("B")) for part in (header, head, *payload, padding)]
        data = b"".join(parts)
        self._store.put(run_key(path), data)
        if self.is_here:  # the driver opens it, too
            write_whole(Path(self.scratch) / path, data)
        crc = int.from_bytes(head[56:60], "little")
        size = len(data) - HEADER_SIZE
        return WalRange(operator, attempt.partition, path, HEADER_SIZE, size, crc, run.num_rows)

    @property
    def run_files(self) -> RunFolder:
        if self.is_here:
            return RunFolder(Path(self.state_folder))
        folder = cache_folder(self.home_id, self.process) / "made"
        return _NamedFolder(folder, Path(self.state_folder))

    @property
    def may_lack_room(self) -> bool:
        return not self.is_here

    def send_run(self, operator: str, run: Run) -> SentRun:
        if self.is_here:
            return SentRun()
        assert run.path is not None, "a compacted run is a file"
        small = run.size <= self.carried_max
        sent = SentRun(data=run.path.read_bytes()) if small else SentRun(self._shared(run))
        self._cache(operator).adopt(run.name, run.path)
        return sent

    def _shared(self, run: Run) -> str:
        assert run.path is not None, "a compacted run is a file"
        key = merged_key(self.generation, Path(run.name).name)
        self._store.put(key, run.path)
        return key

    # output

    def stage(self, attempt: Attempt, batches: Iterable[pa.RecordBatch]) -> tuple[Staged, ...]:
        """A Parquet file of this attempt's own; no rows, no file."""
        sink = pa.BufferOutputStream()
        writer: pq.ParquetWriter | None = None
        rows = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            if writer is None:
                columns = repeated_columns(batch.schema)
                writer = pq.ParquetWriter(sink, batch.schema, use_dictionary=columns)
            writer.write_batch(batch)
            rows += batch.num_rows
        if writer is None:
            return ()
        writer.close()
        data = sink.getvalue()
        name = staged_path(attempt.epoch, attempt.stream, attempt.partition, attempt.tag)
        sha256 = hashlib.sha256(data).hexdigest()
        if data.size <= self.carried_max:
            return (CarriedStaged(name, data.size, sha256, rows, data.to_pybytes()),)
        key = staged_key(attempt.generation, name)
        self._store.put(key, memoryview(data))
        return (Staged(key, data.size, sha256, rows),)

    def open_staged(self, file: Staged) -> pa.Buffer:
        """Output of another stream of this epoch, proven."""
        if isinstance(file, CarriedStaged):
            return pa.py_buffer(file.data)
        return pa.py_buffer(proven(self._store.get(file.path), file, self._store.url))

    def staged_path(self, file: Staged) -> str | None:
        """Only of what a driver with its tasks on its own machine has lent."""
        return file.path if Path(file.path).is_absolute() else None

    # steps

    @property
    def _local(self) -> LocalTaskSpace:
        return LocalTaskSpace(self.scratch, self.home_id, self.state_folder)

    @property
    def _store(self) -> Store:
        return self.place.open()

    def _cache(self, operator: str) -> Cache:
        return Cache(cache_folder(self.home_id, self.process), operator)

    def _run_file(self, ref: RunRef, origin: Origin, operator: str) -> Run:
        """In the cache, or fetched into it; in memory, if there is no room."""
        cache = self._cache(operator)
        path = cache.file(ref.name)
        if not _is_proven(path, origin):
            store = self.saved if origin.is_saved else self.place
            data = origin.data or _fetched(store.open(), origin, ref.name)
            if not cache.put(ref.name, data):
                return replace(read_run(pa.py_buffer(data), ref.name), name=ref.name)
            _PROVEN[path] = stamp_of(path)
        return replace(_OPEN.open(path), name=ref.name)

    def _record(self, ref: RunRef, origin: Origin, operator: str) -> Run:
        """A run that is a record of the log: in the cache, or a range of its object."""
        cache = self._cache(operator)
        for _ in range(2):
            data = cache.get(ref.name, lambda: origin.data or self._range(origin))
            payload = _payload(data, ref, origin.header)
            if payload is not None:
                batch = pa.ipc.open_stream(payload).read_next_batch()
                return run_of_batch(
                    batch, name=ref.name, first_epoch=ref.first_epoch, last_epoch=ref.last_epoch
                )
            cache.drop(ref.name)  # it is damaged here: what the store has may be good
        where = f"{self._store.url.rstrip('/')}/{origin.key}, byte {origin.start}"
        raise WalDamaged("a record is not the one that its COMMIT names", where=where)

    def _range(self, origin: Origin) -> bytes:
        try:
            return self._store.get_range(origin.key, origin.start, origin.size)
        except (NotFound, SizeMismatch) as error:
            where = f"{self._store.url.rstrip('/')}/{origin.key}"
            raise WalDamaged(f"a run of the log is gone: {error.message}", where=where) from error


class _NamedFolder(RunFolder):
    """A folder whose files are called as if they were in the driver's."""

    def __init__(self, path: Path, driver: Path) -> None:
        super().__init__(path)
        self._driver = driver

    def write(self, inputs: Sequence[Run], *args: Any, **kwargs: Any) -> Run:
        made = super().write(inputs, *args, **kwargs)
        assert made.path is not None, "it has just been written"
        return replace(made, name=str(self._driver / made.path.name))


def proven(data: bytes, file: Staged, url: str) -> bytes:
    """Staged output as its COMMIT names it."""
    if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.sha256:
        raise DigestMismatch(
            "staged output is not what its task wrote", where=f"{url.rstrip('/')}/{file.path}"
        )
    return data


def _fetched(store: Store, origin: Origin, where: str) -> bytes:
    data = store.get(origin.key)
    if len(data) != origin.size:
        raise SizeMismatch(f"{origin.size} bytes are named, {len(data)} are there", where=where)
    if origin.sha256 and hashlib.sha256(data).hexdigest() != origin.sha256:
        raise DigestMismatch("the run is not the one that was written", where=where)
    return data


def _is_proven(path: Path, origin: Origin) -> bool:
    """Whether a file of the cache is what it was, or is found to be now; a bad one goes."""
    try:
        stamp = stamp_of(path)
        if _PROVEN.get(path) == stamp:
            return True
        if not origin.sha256:
            check_run(open_run(path))
        elif hashlib.sha256(path.read_bytes()).hexdigest() != origin.sha256:
            path.unlink()
            return False
    except (OSError, LaminaError):
        _PROVEN.pop(path, None)
        return False
    _PROVEN[path] = stamp
    return True


def _payload(data: pa.Buffer, ref: RunRef, segment_header: bytes) -> pa.Buffer | None:
    """The Arrow bytes of a record; None unless it is exactly the one that is meant."""
    binding = binding_of(segment_header)
    head = data[:HEADER_SIZE].to_pybytes()
    header = decode_record_header(head, offset=ref.offset, binding=binding)
    if header is None or header.size != data.size or header.payload_crc != ref.crc:
        return None
    end = HEADER_SIZE + header.payload_size
    payload, padding = data[HEADER_SIZE:end], data[end:]
    whole = payload_matches(head, payload, padding, offset=ref.offset, binding=binding)
    return payload if whole else None


def _short(operator: str) -> str:
    """Operators of one task write to different objects."""
    return sha256_hex(operator.encode())[:8]
