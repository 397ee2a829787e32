"""How fast the write-ahead log and recovery are, as ratios to the least that could do the work.

python benchmarks/wal.py            the numbers of docs/benchmarks.md
python benchmarks/wal.py --quick    the same shape with smaller sizes
python benchmarks/wal.py --json     the last line of stdout is one JSON object
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import google_crc32c
import numpy as np
import pyarrow as pa
import recovery_memory
from report import Number, run
from timing import Comparison, Work, compare, seconds_of

from lamina.checkpoint import Checkpointer, PartitionData
from lamina.clock import SystemClock
from lamina.disk import LocalDisk
from lamina.format.commit import CommitRecord
from lamina.format.manifest import CheckpointManifest, with_runs
from lamina.recovery import RecoveryConfig, RecoveryManager
from lamina.store import open_store
from lamina.wal import DriverLog, SegmentReader, claim_home
from lamina.wal.runs import ENTRY_SCHEMA, serialize
from lamina.wal.segment import SegmentWriter
from lamina.wal.standalone import CoreWalWriter
from lamina.wal.standalone.writer import FRAME_BYTES
from lamina.workspace.local import LocalWorkspace

MIB = 1024 * 1024
HOME = b"benchmark-home--"
BIG_SEGMENT = 1 << 40
PARTITIONS = 8
KEY, VALUE = b"k" * 16, b"v" * 64
BATCH_ENTRIES = FRAME_BYTES // (len(KEY) + len(VALUE)) + 1  # what a RUN of puts holds


@dataclass(frozen=True, slots=True)
class Scale:
    wal_mib: int
    state_mib: int
    puts: int
    rounds: int


SCALES = {
    "full": Scale(100, 1024, 400_000, 9),
    "quick": Scale(24, 128, 100_000, 5),
    "tiny": Scale(2, 2, 2_000, 1),
}


def main() -> None:
    run(__doc__ or "", SCALES, measured)


def measured(scale: Scale, folder: Path) -> Iterator[Number]:
    batches = _batches(scale.wal_mib)
    written = _batch_writes(batches, folder / "batch", scale)
    yield Number("batch_ratio", written.ratio, written.describe(), at_least=0.8)
    yield from _puts(folder / "put", scale)
    replayed = _replay(batches, folder / "replay", scale)
    yield Number("replay_ratio", replayed.ratio, replayed.describe(), at_least=0.5)
    yield from _recovery(batches, folder / "recovery", scale)
    syncs = _commit_syncs(folder / "commit")
    yield Number("commit_fdatasyncs", syncs, "per commit through one log, counted", at_most=1)


def _batches(mib: int) -> list[pa.RecordBatch]:
    """Batches of about one MiB: keys, two numbers and a text."""
    random = np.random.default_rng(7)
    rows = 24_000
    batches = []
    for _ in range(mib):
        keys = pa.array(random.integers(0, 1 << 40, rows))
        total = pa.array(random.integers(0, 1 << 40, rows))
        count = pa.array(random.integers(0, 1 << 20, rows))
        text = pa.array([f"symbol-{i % 997:06d}" for i in range(rows)])
        batches.append(pa.RecordBatch.from_arrays([keys, total, count, text], list("ktcs")))
    return batches


def _batch_writes(batches: list[pa.RecordBatch], folder: Path, scale: Scale) -> Comparison:
    chunks = [b"".join(map(bytes, serialize(batch))) for batch in batches]

    def ours() -> Work:
        writer = _writer(_empty(folder))

        def work() -> None:
            for batch in batches:
                writer.append_batch(batch)
            writer.sync()
            writer.close()

        return work

    def bare() -> Work:
        path = _empty(folder) / "bare"

        def work() -> None:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for chunk in chunks:
                os.write(fd, chunk)
            os.fdatasync(fd)
            os.close(fd)

        return work

    mib = sum(len(chunk) for chunk in chunks) / MIB
    return compare(ours, bare, rounds=scale.rounds, mib=mib)


def _puts(folder: Path, scale: Scale) -> Iterator[Number]:
    """Entries one by one against two plain writers, then the same entries as Arrow batches."""
    speedup, ours_ns, bare_ns = _put_speedup(folder, scale, buffering=-1)
    yield Number("put_speedup", speedup, "to pack, CRC32C and write of each entry", at_least=4)
    yield Number("put_ns", ours_ns, f"per put, framed and written; bare {bare_ns:.0f} ns")
    speedup, _, bare_ns = _put_speedup(folder, scale, buffering=0)
    details = f"to the same with a system call for each; bare {bare_ns:.0f} ns; not the target's"
    yield Number("put_speedup_unbuffered", speedup, details)
    details = f"in batches of {BATCH_ENTRIES} that are there already"
    yield Number("batch_entry_ns", _batch_entry_ns(folder, scale), details)


def _put_speedup(folder: Path, scale: Scale, *, buffering: int) -> tuple[float, float, float]:
    """Speed-up, ns of ours and ns of a plain writer; no sync."""

    def ours() -> Work:
        writer = _writer(_empty(folder))

        def work() -> None:
            put = writer.append_put
            for _ in range(scale.puts):
                put(KEY, VALUE)
            writer.append_epoch_barrier()

        return work

    def bare() -> Work:
        writer = PlainWriter(_empty(folder) / "bare", buffering)

        def work() -> None:
            put = writer.append_put
            for _ in range(scale.puts):
                put(KEY, VALUE)
            writer.file.flush()

        return work

    found = compare(ours, bare, rounds=max(3, scale.rounds), mib=1)
    ours_ns, bare_ns = (median(each) / scale.puts * 1e9 for each in (found.ours, found.bare))
    return found.ratio, ours_ns, bare_ns


def _batch_entry_ns(folder: Path, scale: Scale) -> float:
    columns = [pa.array([each] * BATCH_ENTRIES, pa.binary()) for each in (KEY, VALUE)]
    batch = pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)
    rounds = max(1, scale.puts // BATCH_ENTRIES)

    def work(writer: CoreWalWriter) -> None:
        for _ in range(rounds):
            writer.append_batch(batch)

    spent = [
        seconds_of(partial(work, _writer(_empty(folder)))) for _ in range(max(3, scale.rounds))
    ]
    return median(spent) / (rounds * BATCH_ENTRIES) * 1e9


class PlainWriter:
    """Each entry packed, checksummed and written by itself: what the log would be without RUNs."""

    ENTRY = struct.Struct("<HQQBII")
    HEADER = struct.Struct("<II")

    def __init__(self, path: Path, buffering: int) -> None:
        self.file = path.open("wb", buffering=buffering)
        self.core, self.epoch, self.sequence, self.position = 0, 1, 0, 0

    def append_put(self, key: bytes, value: bytes) -> int:
        head = self.ENTRY.pack(self.core, self.epoch, self.sequence, 1, len(key), len(value))
        payload = head + key + value
        record = self.HEADER.pack(len(payload), google_crc32c.value(payload)) + payload
        self.file.write(record)
        position = self.position
        self.position = position + len(record)
        self.sequence += 1
        return position


def _replay(batches: list[pa.RecordBatch], folder: Path, scale: Scale) -> Comparison:
    """Reading a log back as Arrow batches, against reading the same bytes with CRC32C."""
    writer = _writer(_empty(folder))
    for batch in batches:
        writer.append_batch(batch)
    writer.sync()
    path, disk = writer.segment, LocalDisk(folder)
    size = disk.size(path)

    def ours() -> Work:
        def work() -> None:
            rows = sum(record.batch().num_rows for record in SegmentReader(disk, path).records())
            assert rows == sum(batch.num_rows for batch in batches)

        return work

    def bare() -> Work:
        def work() -> None:
            crc = 0
            with (folder / path).open("rb", buffering=0) as file:
                while chunk := file.read(MIB):
                    crc = google_crc32c.extend(crc, chunk)

        return work

    return compare(ours, bare, rounds=scale.rounds, mib=size / MIB)


def _recovery(batches: list[pa.RecordBatch], folder: Path, scale: Scale) -> Iterator[Number]:
    """A checkpoint and the WAL after it, restored and replayed, against sha256sum of the files."""
    home, store = _prepared(batches, _empty(folder), scale)
    ratios, seconds = [], []
    for _ in range(max(3, scale.rounds // 3)):
        bare = _sha256sum([*store.rglob("*.snap"), *home.rglob("*.wal")])
        ours = recover(home, store, folder / "scratch")
        ratios.append(ours / bare)
        seconds.append(ours)
    details = f"{median(seconds):.2f} s for {scale.state_mib} MiB and {scale.wal_mib} MiB of WAL"
    yield Number("recovery_ratio", median(ratios), details, at_most=1.7)
    peak = recovery_memory.measure(home, store, folder / "scratch")
    yield Number(
        "recovery_peak_mib", peak, "anonymous memory above the imports, of its own process"
    )


def _prepared(batches: list[pa.RecordBatch], folder: Path, scale: Scale) -> tuple[Path, Path]:
    home, store = folder / "home", folder / "store"
    checkpointer = Checkpointer(open_store(str(store)))
    manager = RecoveryManager(LocalWorkspace(home), checkpointer)
    recovered = manager.run()
    first = CommitRecord(epoch=1, generation=recovered.driver.generation)
    head = recovered.driver.commit(first)
    begin = checkpointer.begin(full=True)
    parts = [
        PartitionData("state", p, "snap", 1, 1, 1, _run_file(folder / "run", batches, scale))
        for p in range(PARTITIONS)
    ]
    runs = checkpointer.save_partitions(begin.id, parts)
    manifest = CheckpointManifest(
        checkpoint_id=begin.id, epoch=1, timestamp_ms=1, commit_digest=head.digest
    )
    checkpointer.commit(begin, with_runs(manifest, runs))
    for epoch, batch in enumerate(batches, start=2):
        place = recovered.driver.append_run(batch, epoch=epoch)
        commit = CommitRecord(
            epoch=epoch,
            generation=recovered.driver.generation,
            parent=head,
            follows=head,
            ranges=(place,),
        )
        head = recovered.driver.commit(commit)
    recovered.close()
    return home, store


def _run_file(path: Path, batches: list[pa.RecordBatch], scale: Scale) -> Path:
    """One partition's run: an Arrow stream of its share of the state."""
    if not path.exists():
        with (
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_stream(sink, batches[0].schema) as stream,
        ):
            for index in range(max(1, scale.state_mib // PARTITIONS)):
                stream.write_batch(batches[index % len(batches)])
    return path


def recover(home: Path, store: Path, scratch: Path) -> float:
    shutil.rmtree(scratch, ignore_errors=True)
    start = time.perf_counter()
    manager = RecoveryManager(
        LocalWorkspace(scratch, disk=LocalDisk(home)),
        Checkpointer(open_store(str(store))),
        config=RecoveryConfig(max_concurrent=2),
    )
    recovered = manager.run()
    recovered.state.apply(_consume, parallel=2)
    seconds = time.perf_counter() - start
    recovered.close()
    return seconds


def _consume(_: str, __: int, batches: Iterator[pa.RecordBatch]) -> None:
    for batch in batches:
        assert batch.num_rows


def _sha256sum(paths: list[Path]) -> float:
    start = time.perf_counter()
    subprocess.run(["sha256sum", *map(str, paths)], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def _commit_syncs(folder: Path) -> float:
    """fdatasyncs of one commit, when run and decision go through one log."""
    home = claim_home(LocalDisk(_empty(folder)), SystemClock())
    driver = DriverLog(home, 1)
    batch = pa.RecordBatch.from_pydict({"key": [b"k"], "value": [b"v"]})
    counted = 0
    sync = SegmentWriter.sync

    def counting(self: SegmentWriter) -> None:
        nonlocal counted
        counted += 1
        sync(self)

    SegmentWriter.sync = counting  # type: ignore[method-assign]
    try:
        for epoch in range(1, 11):
            place = driver.append_run(batch, epoch=epoch)
            head = driver.head
            driver.commit(
                CommitRecord(epoch=epoch, generation=1, parent=head, follows=head, ranges=(place,))
            )
    finally:
        SegmentWriter.sync = sync  # type: ignore[method-assign]
    return counted / 10


def _writer(folder: Path) -> CoreWalWriter:
    writer = CoreWalWriter(0, LocalDisk(folder), home=HOME, segment_bytes=BIG_SEGMENT)
    writer.set_epoch(1)
    return writer


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    main()
