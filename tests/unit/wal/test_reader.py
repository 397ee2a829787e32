"""Reads segments: clean, torn or damaged, and never one for the other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lamina.disk import LocalDisk
from lamina.errors import Unsupported, WalDamaged
from lamina.format.wal import Kind
from lamina.wal import Clean, SegmentReader, Torn
from lamina.wal.scan import read_tail
from tests.support.wal_logs import (
    HOME,
    OTHER_HOME,
    PATH,
    OneFile,
    all_records,
    batch_of,
    commit_epoch,
    entries_of,
    open_writer,
    runs_of,
    segment_bytes,
    write_file,
)

FULL = bytes(range(1, 255))  # no zero byte in it


def small_log(tmp_path: Path) -> tuple[LocalDisk, str]:
    """Three epochs of one core, synced."""
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        for epoch in (1, 2, 3):
            commit_epoch(writer, epoch, {b"k%d" % epoch: b"v" * epoch, b"gone": None}, epoch)
            writer.append_epoch_barrier()
        writer.sync()
        return disk, writer.segment


def read(tmp_path: Path, data: bytes) -> tuple[list[int], Clean | Torn | None]:
    disk = write_file(tmp_path, PATH, data)
    reader = SegmentReader(disk, PATH)
    found = [record.offset for record in reader.records()]
    return found, reader.end


# clean


def test_a_whole_log_is_read_in_order_and_ends_cleanly(tmp_path: Path) -> None:
    disk, path = small_log(tmp_path)
    reader = SegmentReader(disk, path)
    records = list(reader.records())
    kinds = [Kind.RUN, Kind.COMMIT, Kind.BARRIER]
    assert [r.kind for r in records] == kinds * 3
    assert [r.epoch for r in records] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert reader.end == Clean(disk.size(path))
    assert runs_of(disk, path) == [
        [(b"k1", b"v"), (b"gone", None)],
        [(b"k2", b"vv"), (b"gone", None)],
        [(b"k3", b"vvv"), (b"gone", None)],
    ]


def test_a_segment_without_records_is_clean(tmp_path: Path) -> None:
    assert read(tmp_path, segment_bytes([])) == ([], Clean(64))


def test_a_file_without_a_header_is_torn_at_its_beginning(tmp_path: Path) -> None:
    assert read(tmp_path, b"") == ([], Torn(0, 0, "no header yet"))
    assert read(tmp_path, bytes(64)) == ([], Torn(0, 64, "no header yet"))


# torn


def test_a_log_cut_anywhere_gives_its_whole_records_and_is_torn_or_clean(tmp_path: Path) -> None:
    disk, path = small_log(tmp_path)
    data = (tmp_path / path).read_bytes()
    ends = [64, *(record.end for record in all_records(disk, path))]
    for size in range(len(data)):
        reader = SegmentReader(OneFile(data[:size]), path)  # type: ignore[arg-type]
        found = [record.end for record in reader.records()]
        assert found == [end for end in ends[1:] if end <= size], size
        whole = max((end for end in ends if end <= size), default=0)
        if size in ends:
            assert reader.end == Clean(size)
        else:
            assert isinstance(reader.end, Torn)
            assert (reader.end.end, reader.end.bytes) == (whole, size - whole), size


def test_a_sector_of_the_last_record_that_never_reached_the_disk_is_torn(tmp_path: Path) -> None:
    data = segment_bytes([(Kind.RUN, FULL), (Kind.RUN, FULL * 8)])
    second = 64 + 64 + 256
    for sector in range(-(-second // 512), len(data) // 512 + 1):
        damaged = bytearray(data)
        begin, end = max(sector * 512, 0), min(sector * 512 + 512, len(data))
        damaged[begin:end] = bytes(end - begin)
        found, ended = read(tmp_path, bytes(damaged))
        assert found == [64]
        assert isinstance(ended, Torn)
        assert (ended.end, ended.bytes) == (second, len(data) - second)
        assert "never reached the disk" in ended.reason


def test_a_header_whose_sector_never_reached_the_disk_is_torn(tmp_path: Path) -> None:
    data = segment_bytes([(Kind.RUN, FULL), (Kind.RUN, FULL)])
    second = 64 + 64 + 256
    lost = data[:second] + bytes(512 - second % 512) + data[512:]
    found, ended = read(tmp_path, lost)
    assert found == [64]
    assert isinstance(ended, Torn)
    assert ended.end == second


def test_zeros_behind_the_last_record_are_torn(tmp_path: Path) -> None:
    """A file that was made longer, whose new sectors never came."""
    data = segment_bytes([(Kind.RUN, FULL)])
    for more in (1, 64, 512, 5000):
        found, ended = read(tmp_path, data + bytes(more))
        assert found == [64]
        assert ended is not None
        assert (ended.end, isinstance(ended, Torn)) == (len(data), True)


def test_unsynced_records_behind_a_torn_one_are_left_aside_with_it(tmp_path: Path) -> None:
    payloads = [(Kind.RUN, FULL * 8), (Kind.RUN, FULL)]
    data = bytearray(segment_bytes(payloads))
    data[512:1024] = bytes(512)
    found, ended = read(tmp_path, bytes(data))
    assert found == []
    assert isinstance(ended, Torn)
    assert (ended.end, ended.bytes) == (64, len(data) - 64)


def test_blank_sectors_that_were_written_are_not_torn(tmp_path: Path) -> None:
    """Zeros are data: only more blank sectors than the header counts are missing ones."""
    payload = FULL * 4 + bytes(4096) + FULL * 4
    assert read(tmp_path, segment_bytes([(Kind.RUN, payload)])) == (
        [64],
        Clean(64 + 64 + -(-len(payload) // 64) * 64),
    )
    damaged = bytearray(segment_bytes([(Kind.RUN, payload)]))
    damaged[200] ^= 1  # not in a blank sector
    with pytest.raises(WalDamaged):
        read(tmp_path, bytes(damaged))


# damage


def test_a_zero_sector_that_a_later_record_proves_synced_is_damage(tmp_path: Path) -> None:
    first_end = 64 + 64 + -(-len(FULL * 8) // 64) * 64
    payloads = [(Kind.RUN, FULL * 8), (Kind.RUN, FULL)]
    whole = segment_bytes(payloads, durable=[64, first_end])
    for begin, end in ((64, 512), (512, 1024), (1024, 1536)):
        data = bytearray(whole)
        data[begin:end] = bytes(end - begin)
        with pytest.raises(WalDamaged, match=f"synced up to byte {first_end}") as caught:
            read(tmp_path, bytes(data))
        assert caught.value.where.endswith(f"{PATH}, byte 64")


def test_the_proof_of_the_sync_is_found_far_behind_the_damage(tmp_path: Path) -> None:
    """Across the edge of the window that is searched."""
    big = FULL * ((1 << 20) // len(FULL) + 9)
    first_end = 64 + 64 + -(-len(big) // 64) * 64
    data = bytearray(segment_bytes([(Kind.RUN, big), (Kind.RUN, FULL)], durable=[64, first_end]))
    data[512:1024] = bytes(512)
    with pytest.raises(WalDamaged, match="synced up to"):
        read(tmp_path, bytes(data))


def test_a_whole_record_with_a_wrong_checksum_is_damage_also_at_the_end(tmp_path: Path) -> None:
    data = bytearray(segment_bytes([(Kind.RUN, FULL), (Kind.RUN, FULL)]))
    data[-10] ^= 1
    with pytest.raises(WalDamaged, match="does not match its CRC") as caught:
        read(tmp_path, bytes(data))
    assert caught.value.where == f"{tmp_path}/{PATH}, byte 384"


def test_a_damaged_record_header_is_damage(tmp_path: Path) -> None:
    data = bytearray(segment_bytes([(Kind.RUN, FULL)]))
    data[64 + 28] ^= 0xFF  # the length
    with pytest.raises(WalDamaged, match="record header") as caught:
        read(tmp_path, bytes(data))
    assert caught.value.where == f"{tmp_path}/{PATH}, byte 64"


def test_the_place_of_a_damaged_segment_header_is_named_once(tmp_path: Path) -> None:
    data = bytearray(segment_bytes([]))
    data[20] ^= 1
    with pytest.raises(WalDamaged) as caught:
        read(tmp_path, bytes(data))
    assert caught.value.where == f"{tmp_path}/{PATH}, byte 0"


def test_a_blank_segment_header_with_records_behind_it_is_damage(tmp_path: Path) -> None:
    """The header is synced before the first record exists: its sector cannot be missing."""
    data = segment_bytes([(Kind.COMMIT, FULL * 8)])
    with pytest.raises(WalDamaged, match="header") as caught:
        read(tmp_path, bytes(512) + data[512:])
    assert caught.value.where == f"{tmp_path}/{PATH}, byte 0"


def test_a_record_copied_to_another_place_is_damage(tmp_path: Path) -> None:
    data = segment_bytes([(Kind.RUN, FULL), (Kind.RUN, FULL[::-1])])
    one, two = data[64:384], data[384:704]
    for order in (one + one, two + one, one + two + two):
        with pytest.raises(WalDamaged):
            read(tmp_path, data[:64] + order)


def test_a_record_copied_from_another_segment_is_damage(tmp_path: Path) -> None:
    own = segment_bytes([(Kind.RUN, FULL)])
    for other in (
        segment_bytes([(Kind.RUN, FULL)], generation=2),
        segment_bytes([(Kind.RUN, FULL)], core=1),
        segment_bytes([(Kind.RUN, FULL)], home=OTHER_HOME),
    ):
        with pytest.raises(WalDamaged, match="record header"):
            read(tmp_path, own[:64] + other[64:])


def test_a_segment_of_another_home_is_damage(tmp_path: Path) -> None:
    disk = write_file(tmp_path, PATH, segment_bytes([], home=OTHER_HOME))
    with pytest.raises(WalDamaged, match=f"belongs to the home {OTHER_HOME.hex()}"):
        read_tail(disk, PATH, HOME)


def test_a_segment_in_the_folder_of_another_core_or_generation_is_damage(tmp_path: Path) -> None:
    name = f"{1:020d}-{0:020d}-t.wal"
    disk = write_file(tmp_path, f"core-0/{name}", segment_bytes([], core=1))
    with pytest.raises(WalDamaged, match="core 1 and"):
        read_tail(disk, f"core-0/{name}", HOME)
    disk = write_file(tmp_path, f"core-0/{name}", segment_bytes([], generation=2))
    with pytest.raises(WalDamaged, match="generation 2, its name says 0 and 1"):
        read_tail(disk, f"core-0/{name}", HOME)


# kinds


def test_an_unknown_kind_stops_unless_it_is_optional(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="unknown kind 99") as caught:
        read(tmp_path, segment_bytes([(99, FULL)]))
    assert caught.value.where == f"{tmp_path}/{PATH}, byte 64"
    found, ended = read(tmp_path, segment_bytes([(99, FULL), (Kind.RUN, FULL)], optional=True))
    assert found == [384]
    assert isinstance(ended, Clean)


def test_an_optional_record_is_passed_over_but_not_trusted(tmp_path: Path) -> None:
    data = bytearray(segment_bytes([(99, FULL)], optional=True))
    data[200] ^= 1
    with pytest.raises(WalDamaged):
        read(tmp_path, bytes(data))


# from a place, by range


def test_reading_goes_on_from_a_position(tmp_path: Path) -> None:
    disk, path = small_log(tmp_path)
    records = all_records(disk, path)
    for number, record in enumerate(records):
        reader = SegmentReader(disk, path)
        again = list(reader.records(record.offset))
        assert [r.offset for r in again] == [r.offset for r in records[number:]]
        assert isinstance(reader.end, Clean)


def test_a_position_where_no_record_begins_is_an_error(tmp_path: Path) -> None:
    disk, path = small_log(tmp_path)
    size = disk.size(path)
    inside = all_records(disk, path)[0].offset + 64
    for position in (65, inside, size + 64, size + 1):
        with pytest.raises(WalDamaged):
            list(SegmentReader(disk, path).records(position))


def test_a_range_that_a_commit_names_is_read_alone(tmp_path: Path) -> None:
    disk, path = small_log(tmp_path)
    for record in all_records(disk, path):
        header = record.header
        found = SegmentReader(disk, path).at(record.offset, header.size, header.payload_crc)
        assert found.payload is not None
        assert record.payload is not None
        assert bytes(found.payload) == bytes(record.payload)


def test_a_range_is_exactly_the_named_one_or_damage(tmp_path: Path) -> None:
    disk, path = small_log(tmp_path)
    record = all_records(disk, path)[0]
    offset, size, crc = record.offset, record.header.size, record.header.payload_crc
    reader = SegmentReader(disk, path)
    for wrong in (
        (offset + 64, size, crc),
        (offset + 1, size, crc),
        (offset, size + 64, crc),
        (offset, size, crc ^ 1),
        (offset, disk.size(path), crc),
    ):
        with pytest.raises(WalDamaged) as caught:
            reader.at(*wrong)
        assert f"byte {wrong[0]}" in caught.value.where


def test_a_named_range_is_never_torn(tmp_path: Path) -> None:
    """What a COMMIT names was synced: a blank sector in it is damage, and so is a short file."""
    data = bytearray(segment_bytes([(Kind.RUN, FULL * 8)]))
    disk = write_file(tmp_path, PATH, bytes(data))
    record = all_records(disk, PATH)[0]
    named = (record.offset, record.header.size, record.header.payload_crc)
    data[512:1024] = bytes(512)
    write_file(tmp_path, PATH, bytes(data))
    with pytest.raises(WalDamaged, match="does not match its CRC"):
        SegmentReader(disk, PATH).at(*named)
    write_file(tmp_path, PATH, bytes(data[:-64]))
    with pytest.raises(WalDamaged, match="is missing"):
        SegmentReader(disk, PATH).at(*named)


def test_a_mapped_batch_is_the_mapping_itself(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        place = writer.append_batch(batch_of({b"key%d" % i: b"value" * 9 for i in range(1000)}))
        writer.sync()
    mapping = disk.map(place.segment)
    mapped: list[pa.Buffer] = []

    class OneMapping(LocalDisk):
        def map(self, path: str) -> pa.Buffer:
            mapped.append(path)
            return mapping

    reader = SegmentReader(OneMapping(tmp_path), place.segment)
    record = reader.at(place.offset, place.size, place.crc, mapped=True)
    batch = record.batch()
    assert mapped == [place.segment]
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer]
    assert buffers
    for buffer in buffers:
        assert mapping.address <= buffer.address
        assert buffer.address + buffer.size <= mapping.address + mapping.size
    assert record.payload is not None
    assert (pa.py_buffer(record.payload).address - mapping.address) % 64 == 0
    assert len(entries_of(batch)) == 1000


def test_reading_maps_nothing_unless_it_is_asked_to(tmp_path: Path) -> None:
    class NoMapping(LocalDisk):
        def map(self, path: str) -> pa.Buffer:
            raise AssertionError("driver, checkpoint and recovery use pread")

    _, path = small_log(tmp_path)
    disk = NoMapping(tmp_path)
    record = all_records(disk, path)[0]
    SegmentReader(disk, path).at(record.offset, record.header.size, record.header.payload_crc)


def test_a_run_that_is_no_arrow_stream_is_damage(tmp_path: Path) -> None:
    disk = write_file(tmp_path, PATH, segment_bytes([(Kind.RUN, FULL)]))
    with pytest.raises(WalDamaged, match="not a valid Arrow batch"):
        all_records(disk, PATH)[0].batch()


def test_a_tail_counts_what_stands_in_a_segment(tmp_path: Path) -> None:
    disk, path = small_log(tmp_path)
    tail = read_tail(disk, path, HOME)
    assert (tail.records, tail.entries, tail.epoch, tail.next_sequence) == (9, 6, 3, 6)
    assert tail.end == Clean(tail.size)
    assert 64 < tail.durable < tail.size


@pytest.mark.parametrize(("epoch", "expected"), [(0, 9), (2, 6), (3, 3), (4, 0)])
def test_a_log_is_read_from_an_epoch_on(tmp_path: Path, epoch: int, expected: int) -> None:
    disk, path = small_log(tmp_path)
    reader = SegmentReader(disk, path)
    records = list(reader.from_epoch(epoch))
    assert len(records) == expected
    assert all(record.epoch >= epoch and record.payload is not None for record in records)
    assert isinstance(reader.end, Clean)
