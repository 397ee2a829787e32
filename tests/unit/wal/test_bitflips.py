"""Every bit of a log: whichever flips, it is noticed, with its file and its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from lamina.disk import LocalDisk
from lamina.errors import Unsupported, WalDamaged
from lamina.format.commit import AdoptRecord, CheckpointRecord, CommitRecord, WalRange
from lamina.format.wal import HEADER_SIZE
from lamina.wal import Clean, DriverLog, SegmentReader, Torn
from lamina.wal.driver_log import read_driver_segment
from tests.support.checkpoints import cid
from tests.support.wal_logs import (
    HOME,
    OneFile,
    all_records,
    batch_of,
    commit_epoch,
    driver_commit,
    flipped_bits,
    home_at,
    open_writer,
)

Content = list[tuple[int, int, bytes]]  # offset, kind, payload


def core_log(tmp_path: Path) -> tuple[str, bytes, tuple[WalRange, ...]]:
    """RUN, BARRIER, COMMIT and CHECKPOINT of two epochs, all synced."""
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        ranges: tuple[WalRange, ...] = ()
        for epoch in (1, 2):
            writer.set_epoch(epoch)
            writer.append_put(b"key", b"value of epoch %d" % epoch)
            writer.append_delete(b"gone")
            writer.append_epoch_barrier()
            ranges += tuple(writer._taken)
            commit_epoch(writer, epoch, {}, at=epoch)
            writer.append_checkpoint(CheckpointRecord(cid(epoch), epoch, "a" * 64))
            writer.sync()
        return writer.segment, (tmp_path / writer.segment).read_bytes(), ranges


def driver_log(tmp_path: Path) -> tuple[str, bytes]:
    """TAKEOVER, ADOPT, RUN, COMMIT and CHECKPOINT, all synced."""
    old = CommitRecord(epoch=1, generation=1)
    driver = DriverLog(home_at(tmp_path), 2)
    driver.adopt(AdoptRecord(old.point, (old,)))
    place = driver.append_run(batch_of({b"k": b"v"}), epoch=2)
    driver.commit(driver_commit(driver, 2, (place,)))
    driver.note_checkpoint(CheckpointRecord(cid(9), 2, "b" * 64))
    driver.close()
    return driver.segment, (tmp_path / driver.segment).read_bytes()


def content_of(disk: OneFile, path: str) -> tuple[Content, Clean | Torn | None]:
    reader = SegmentReader(disk, path)  # type: ignore[arg-type]
    found = [
        (record.offset, int(record.kind), bytes(record.payload))
        for record in reader.records()
        if record.payload is not None
    ]
    return found, reader.end


def assert_noticed(path: str, data: bytes, bits: Iterable[int]) -> int:
    """Each flipped bit raises and names the record it is in; returns how many there were."""
    whole, end = content_of(OneFile(data), path)
    assert end == Clean(len(data))
    starts = [0, *(offset for offset, _, _ in whole)]
    noticed = 0
    for bit, damaged in flipped_bits(data, list(bits)):
        place = max(start for start in starts if start <= bit // 8)
        with pytest.raises((WalDamaged, Unsupported)) as caught:
            content_of(OneFile(damaged), path)
        assert caught.value.where == f"memory/{path}, byte {place}", bit
        noticed += 1
    return noticed


def test_every_flipped_bit_of_a_core_segment_is_noticed_with_its_place(tmp_path: Path) -> None:
    path, data, _ = core_log(tmp_path)
    assert assert_noticed(path, data, range(len(data) * 8)) == len(data) * 8


def test_every_flipped_bit_of_a_driver_segment_is_noticed_with_its_place(tmp_path: Path) -> None:
    path, data = driver_log(tmp_path)
    assert assert_noticed(path, data, range(len(data) * 8)) == len(data) * 8


def test_no_flipped_bit_changes_what_a_driver_segment_says(tmp_path: Path) -> None:
    path, data = driver_log(tmp_path)
    for _, damaged in flipped_bits(data, range(0, len(data) * 8, 7)):
        with pytest.raises((WalDamaged, Unsupported)):
            read_driver_segment(OneFile(damaged), path, HOME)  # type: ignore[arg-type]


def test_no_flipped_bit_of_a_committed_range_is_read(tmp_path: Path) -> None:
    path, data, ranges = core_log(tmp_path)
    assert len(ranges) == 2
    for place in ranges:
        bits = range(place.offset * 8, (place.offset + place.size) * 8)
        for bit, damaged in flipped_bits(data, bits):
            reader = SegmentReader(OneFile(damaged), path)  # type: ignore[arg-type]
            with pytest.raises(WalDamaged) as caught:
                reader.at(place.offset, place.size, place.crc)
            assert caught.value.where == f"memory/{path}, byte {place.offset}", bit


def assert_prefix_or_damage(whole: Content, read: Callable[[], Content]) -> bool:
    """Either it raises, or what comes back is what was written, as far as it goes."""
    try:
        found = read()
    except WalDamaged:
        return True
    assert found == whole[: len(found)]
    return False


def test_a_sector_that_reads_as_zeros_is_damage_unless_nobody_has_proven_it_synced(
    tmp_path: Path,
) -> None:
    """R14 cannot tell a lost sector of the last record from one that was never written."""
    path, data, _ = core_log(tmp_path)
    whole, _ = content_of(OneFile(data), path)
    records = all_records(LocalDisk(tmp_path), path)
    proven = max(record.header.durable for record in records)
    assert HEADER_SIZE < proven < len(data)
    for sector in range(0, len(data), 512):
        damaged = data[:sector] + bytes(min(512, len(data) - sector)) + data[sector + 512 :]
        raised = assert_prefix_or_damage(
            whole, lambda damaged=damaged: content_of(OneFile(damaged), path)[0]
        )
        hit = [r for r in records if r.offset < sector + 512 and sector < r.end]
        # The proof itself may be among what was lost.
        survives = any(
            r.header.durable > hit[0].offset and r.offset >= sector + 512 for r in records
        )
        assert raised or not survives, sector


def test_two_flipped_bits_in_one_record_are_noticed(tmp_path: Path) -> None:
    path, data, _ = core_log(tmp_path)
    chance = Random(11)
    for _ in range(500):
        damaged = bytearray(data)
        for bit in chance.sample(range(len(data) * 8), 2):
            damaged[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises((WalDamaged, Unsupported)):
            content_of(OneFile(bytes(damaged)), path)


def test_sampled_bits_of_a_large_log_are_noticed(tmp_path: Path) -> None:
    chance = Random(7)
    disk = LocalDisk(tmp_path)
    with open_writer(disk, epoch=1) as writer:
        for size in (1_000_000, 300_000, 2_000_000, 10):
            column = pa.array([chance.randbytes(1000) for _ in range(size // 1000 + 1)])
            writer.append_batch(pa.RecordBatch.from_arrays([column], names=["data"]))
            writer.append_epoch_barrier()
        writer.append_commit({})
        writer.sync()
    data = (tmp_path / writer.segment).read_bytes()
    assert len(data) > 3_000_000
    bits = sorted(chance.sample(range(len(data) * 8), 300))
    assert assert_noticed(writer.segment, data, bits) == 300
