"""The log of one core: what it stamps, when it frames, what it does when the disk fails."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lamina.disk import LocalDisk
from lamina.errors import Refused, StoreError, StoreFull, UsageError, WalDamaged
from lamina.format.commit import CheckpointRecord, decode_checkpoint, decode_commit
from lamina.format.home_names import core_lock
from lamina.format.wal import HEADER_SIZE, PAYLOAD_BYTES_MAX, Kind
from lamina.wal import Clean, Home, SegmentReader, Torn
from lamina.wal.scan import segments_of
from lamina.wal.segment import SegmentWriter
from lamina.wal.standalone import CoreWalWriter, LogSet, replay_core
from tests.support.checkpoints import cid
from tests.support.wal_logs import (
    HOME,
    FailingDisk,
    all_records,
    batch_of,
    commit_epoch,
    entries_of,
    everything_below,
    offsets,
    open_writer,
    runs_of,
)

SYNCED = pytest.mark.parametrize("operation", ["append", "sync"])


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    return LocalDisk(tmp_path)


def kinds(disk: LocalDisk, path: str) -> list[Kind]:
    return [record.kind for record in all_records(disk, path)]


# what it is at


def test_a_new_writer_stands_behind_its_header_at_epoch_and_sequence_zero(disk: LocalDisk) -> None:
    with open_writer(disk, 3) as writer:
        assert writer.core_id == 3
        assert (writer.epoch, writer.sequence, writer.entries_since_sync) == (0, 0, 0)
        assert writer.position == writer.synced_position == HEADER_SIZE
        assert writer.head is None
        assert writer.segment.startswith("core-3/")


def test_the_header_of_a_new_segment_is_durable_before_anything_else(tmp_path: Path) -> None:
    failing = FailingDisk(LocalDisk(tmp_path))
    with open_writer(failing):
        assert failing.calls == ["create", "append", "sync", "sync_folder"]


def test_synced_position_follows_sync_only(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        writer.append_put(b"key1", b"value1")
        assert (writer.sequence, writer.entries_since_sync) == (1, 1)
        assert writer.synced_position == HEADER_SIZE
        writer.append_epoch_barrier()
        assert writer.position > writer.synced_position == HEADER_SIZE
        writer.sync()
        synced = writer.position
        assert (writer.synced_position, writer.entries_since_sync) == (synced, 0)
        writer.append_put(b"key2", b"value2")
        writer.append_epoch_barrier()
        assert writer.position > writer.synced_position == synced
        assert writer.entries_since_sync == 1


def test_nothing_but_a_sync_declares_bytes_durable(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        with pytest.raises(AttributeError):
            writer.synced_position = 10  # type: ignore[misc]
        assert not hasattr(writer, "mark_synced")


def test_its_text_says_where_it_is(disk: LocalDisk) -> None:
    with open_writer(disk, 42) as writer:
        assert "CoreWalWriter(core_id=42" in repr(writer)
        assert "synced_position=64" in repr(writer)


# entries


def test_puts_and_deletes_are_framed_as_one_run_at_the_sync(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        writer.append_put(b"a", b"1")
        writer.append_delete(b"b")
        writer.append_put(b"", b"")
        assert writer.position == HEADER_SIZE
        writer.sync()
        assert runs_of(disk, writer.segment) == [[(b"a", b"1"), (b"b", None), (b"", b"")]]


@pytest.mark.parametrize("step", ["barrier", "sync", "commit", "checkpoint", "epoch", "rotate"])
def test_what_was_put_is_framed_before_the_next_step(disk: LocalDisk, step: str) -> None:
    with open_writer(disk, epoch=1) as writer:
        first = writer.segment
        writer.append_put(b"k", b"v")
        match step:
            case "barrier":
                writer.append_epoch_barrier()
            case "sync":
                writer.sync()
            case "commit":
                writer.append_commit({})
            case "checkpoint":
                writer.append_checkpoint(CheckpointRecord(cid(1), 1, "a" * 64))
            case "epoch":
                writer.set_epoch(2)
            case "rotate":
                writer.rotate()
        [run, *_] = all_records(disk, first)
        assert (run.kind, run.epoch, run.header.count) == (Kind.RUN, 1, 1)


def test_a_run_is_framed_when_64_kib_have_come_together(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        for _ in range(64 * 1024 // 96 - 1):
            writer.append_put(b"k" * 32, b"v" * 64)
        assert writer.position == HEADER_SIZE
        writer.append_put(b"k" * 32, b"v" * 64)
        writer.append_put(b"k" * 32, b"v" * 64)
        assert writer.position > 64 * 1024
        writer.append_delete(b"k" * 64 * 1024)
        assert [r.header.count for r in all_records(disk, writer.segment)] == [683, 1]


def test_values_of_any_size_come_back(disk: LocalDisk) -> None:
    values = {b"empty": b"", b"zeros": bytes(4096), b"big": bytes(range(256)) * 4096, b"gone": None}
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, values)
    found: dict[bytes, bytes | None] = {}
    for _, batch in replay_core(disk, 0, HOME).batches():
        found |= dict(entries_of(batch))
    assert found == values


def test_a_put_without_a_value_is_refused_and_is_no_delete(disk: LocalDisk) -> None:
    with open_writer(disk, epoch=1) as writer:
        with pytest.raises((TypeError, UsageError)):
            writer.append_put(b"k", None)  # type: ignore[arg-type]
        with pytest.raises((TypeError, UsageError)):
            writer.append_delete(None)  # type: ignore[arg-type]
        assert writer.sequence == 0
        writer.append_commit({})
        writer.sync()
        assert kinds(disk, writer.segment) == [Kind.COMMIT]


def test_entries_that_cannot_be_framed_are_not_committed_without(disk: LocalDisk) -> None:
    """A list among the bytes: nothing goes on as if the entries beside it had never come."""
    with open_writer(disk, epoch=1) as writer:
        writer.append_put(b"good", b"1")
        writer.append_put(b"bad", [1])  # type: ignore[arg-type]
        for step in (writer.sync, lambda: writer.append_commit({}), writer.rotate, writer.sync):
            with pytest.raises(UsageError, match="are bytes"):
                step()
    assert replay_core(disk, 0, HOME).commits == ()


def test_a_batch_is_appended_as_it_is(disk: LocalDisk) -> None:
    batch = pa.RecordBatch.from_pydict(
        {"n": pa.array([1, 2, None], pa.int64()), "t": ["a", "", None]}
    )
    with open_writer(disk) as writer:
        writer.append_put(b"before", b"1")
        place = writer.append_batch(batch, operator="by n")
        assert writer.sequence == 4
        writer.sync()
        assert (place.operator, place.core, place.entries) == ("by n", 0, 3)
        found = SegmentReader(disk, place.segment).at(place.offset, place.size, place.crc)
        assert found.batch().equals(batch)
        assert found.header.first_sequence == 1
        assert kinds(disk, writer.segment) == [Kind.RUN, Kind.RUN]


def test_an_empty_batch_and_a_slice_are_batches_too(disk: LocalDisk) -> None:
    batch = batch_of({b"a": b"1", b"b": b"2", b"c": None})
    with open_writer(disk) as writer:
        writer.append_batch(batch.slice(1, 2))
        writer.append_batch(batch.slice(0, 0))
        writer.sync()
        assert runs_of(disk, writer.segment) == [[(b"b", b"2"), (b"c", None)], []]


def test_too_large_a_record_is_refused_before_anything_is_written(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PAYLOAD_BYTES_MAX == 1 << 30
    monkeypatch.setattr("lamina.wal.segment.PAYLOAD_BYTES_MAX", 100_000)
    with open_writer(disk) as writer:
        with pytest.raises(UsageError, match="100000 at most"):
            writer.append_batch(batch_of({b"k": bytes(200_000)}))
        assert writer.position == HEADER_SIZE
        writer.append_batch(batch_of({b"k": bytes(20_000)}))
        writer.sync()
        assert len(runs_of(disk, writer.segment)) == 1


def test_too_large_an_entry_is_not_left_out_of_a_commit(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lamina.wal.segment.PAYLOAD_BYTES_MAX", 100_000)
    with open_writer(disk, epoch=1) as writer:
        writer.append_put(b"small", b"1")
        with pytest.raises(UsageError):
            writer.append_put(b"large", bytes(200_000))
        with pytest.raises((UsageError, StoreError)):
            writer.append_commit({})
    assert replay_core(disk, 0, HOME).commits == ()


# barriers, commits, markers


def test_a_barrier_carries_the_epoch_it_closes(disk: LocalDisk) -> None:
    with open_writer(disk, epoch=5) as writer:
        offset = writer.append_epoch_barrier()
        writer.set_epoch(6)
        writer.append_epoch_barrier()
        writer.sync()
        records = all_records(disk, writer.segment)
        assert [(r.kind, r.epoch) for r in records] == [(Kind.BARRIER, 5), (Kind.BARRIER, 6)]
        assert records[0].offset == offset == HEADER_SIZE


def test_a_commit_names_every_range_since_the_last_one_its_parent_and_its_offsets(
    disk: LocalDisk,
) -> None:
    with open_writer(disk) as writer:
        first = commit_epoch(writer, 1, {b"a": b"1"}, at=10)
        writer.set_epoch(3)
        writer.append_put(b"b", b"2")
        place = writer.append_batch(batch_of({b"c": b"3"}), operator="other")
        writer.append_commit(
            offsets(topic=99),
            watermark=-7,
            table_offsets=offsets(table=1),
            source_watermarks={"topic": 5},
        )
        writer.sync()
        *_, last = all_records(disk, writer.segment)
        assert last.payload is not None
        commit = decode_commit(bytes(last.payload), "")
        assert (commit.epoch, commit.parent, commit.follows) == (3, first, first)
        assert (commit.source_offsets, commit.table_offsets) == (
            offsets(topic=99),
            offsets(table=1),
        )
        assert (commit.watermark, commit.source_watermarks) == (-7, {"topic": 5})
        assert [r.operator for r in commit.ranges] == ["state", "other"]
        assert commit.ranges[1] == place
        assert writer.head == commit.point


def test_an_epoch_is_committed_once_and_epoch_zero_never(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        with pytest.raises(Refused, match="epoch 0"):
            writer.append_commit({})
        commit_epoch(writer, 1, {})
        with pytest.raises(Refused, match="set_epoch"):
            writer.append_commit({})
    with open_writer(disk) as again, pytest.raises(Refused):
        again.append_commit({})


def test_a_checkpoint_marker_names_id_epoch_and_digest(disk: LocalDisk) -> None:
    marker = CheckpointRecord(cid(100), 7, "e" * 64)
    with open_writer(disk) as writer:
        assert writer.append_checkpoint(marker) == HEADER_SIZE
        writer.sync()
        [record] = all_records(disk, writer.segment)
        assert record.kind is Kind.CHECKPOINT
        assert record.payload is not None
        assert decode_checkpoint(bytes(record.payload), "") == marker


def test_ranges_that_were_taken_are_not_in_the_next_commit(disk: LocalDisk) -> None:
    with open_writer(disk, epoch=1) as writer:
        writer.append_put(b"a", b"1")
        [taken] = writer.take_ranges()
        assert taken.entries == 1
        assert writer.take_ranges() == ()
        writer.append_commit({})
        writer.sync()
        assert replay_core(disk, 0, HOME).entries == 0


# epoch and sequence only rise


def test_an_epoch_is_never_set_lower(disk: LocalDisk) -> None:
    with open_writer(disk, epoch=5) as writer:
        writer.set_epoch(5)
        with pytest.raises(Refused, match="epochs only rise"):
            writer.set_epoch(4)
        writer.append_epoch_barrier()
        writer.sync()
    with open_writer(disk) as writer:
        assert writer.epoch == 5
        with pytest.raises(Refused):
            writer.set_epoch(4)


def test_sequence_numbers_are_never_used_twice(disk: LocalDisk) -> None:
    """Across reopening, rotation, reset and a new generation, also after a torn tail."""
    writer = open_writer(disk, epoch=1)

    def use() -> None:
        writer.append_put(b"k", b"v")
        writer.append_batch(batch_of({b"x": b"1", b"y": b"2"}))
        writer.sync()

    use()
    writer.rotate()
    use()
    writer.reset()
    use()
    writer.close()
    writer = open_writer(disk, generation=writer.generation)
    use()
    writer.close()
    with (Path(disk.root) / writer.segment).open("ab") as file:
        file.write(b"half a record")
    writer = open_writer(disk, generation=9)
    use()
    writer.close()
    used = [
        (record.header.first_sequence + i)
        for path in segments_of(disk, 0)
        for record in all_records(disk, path)
        for i in range(record.header.count)
    ]
    assert sorted(used) == list(range(15))
    assert writer.sequence == 15


def test_reopening_goes_on_in_the_same_file_with_epoch_sequence_and_head(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        head = commit_epoch(writer, 4, {b"a": b"1", b"b": b"2"})
        segment, position = writer.segment, writer.position
    with open_writer(disk) as again:
        assert (again.epoch, again.sequence, again.head) == (4, 2, head)
        assert (again.segment, again.position, again.synced_position) == (
            segment,
            position,
            position,
        )
        commit_epoch(again, 5, {b"a": None})
    assert [c.epoch for c in replay_core(disk, 0, HOME).commits] == [4, 5]


def test_what_a_killed_process_left_is_synced_before_it_counts(tmp_path: Path) -> None:
    with open_writer(LocalDisk(tmp_path), epoch=1) as writer:
        writer.append_put(b"a", b"1")
        writer.append_commit({})  # never synced
    failing = FailingDisk(LocalDisk(tmp_path))
    with open_writer(failing) as again:
        assert failing.calls == ["sync"]
        assert again.synced_position == again.position
    failing.fail["sync"] = 0
    with pytest.raises(StoreError):
        open_writer(failing)


# which file (R1)


def test_after_a_rotation_the_newer_file_is_gone_on_with(disk: LocalDisk) -> None:
    """Also in the same epoch, where only the number at the end of the name differs."""
    with open_writer(disk, epoch=1) as writer:
        made = [writer.segment, *(writer.rotate() for _ in range(12))]
    assert segments_of(disk, 0) == tuple(made)
    with open_writer(disk) as again:
        assert again.segment == made[-1]


def test_a_full_segment_is_followed_by_another(disk: LocalDisk) -> None:
    with open_writer(disk, segment_bytes=10_000) as writer:
        for epoch in range(1, 9):
            commit_epoch(writer, epoch, {b"k": b"%d" % epoch * 4000})
    assert len(segments_of(disk, 0)) > 2
    assert [c.epoch for c in replay_core(disk, 0, HOME).commits] == list(range(1, 9))
    sizes = [disk.size(path) for path in segments_of(disk, 0)]
    assert all(size >= 10_000 for size in sizes[:-1])
    with open_writer(disk, segment_bytes=min(sizes)) as again:
        assert again.segment not in segments_of(disk, 0)[:-1]


def test_a_rotated_segment_is_durable_before_the_new_one_exists(tmp_path: Path) -> None:
    failing = FailingDisk(LocalDisk(tmp_path))
    with open_writer(failing) as writer:
        writer.append_put(b"a", b"1")
        failing.calls.clear()
        writer.rotate()
        assert failing.calls == ["append", "sync", "create", "append", "sync", "sync_folder"]
        assert writer.entries_since_sync == 0


def test_who_does_not_get_the_lock_has_a_segment_of_its_own(disk: LocalDisk) -> None:
    with open_writer(disk, epoch=1) as first:
        first.append_put(b"a", b"1")
        first.sync()
        with open_writer(disk, tag="second") as second:
            assert second.segment != first.segment
            assert second.epoch == 1
            second.append_put(b"b", b"2")
            second.sync()
            first.append_put(b"c", b"3")
            first.sync()
            assert runs_of(disk, second.segment) == [[(b"b", b"2")]]
        assert runs_of(disk, first.segment) == [[(b"a", b"1")], [(b"c", b"3")]]


def test_nobody_goes_on_in_a_segment_whose_writer_never_had_the_lock(disk: LocalDisk) -> None:
    """It may still be appending there, and would not know: its next record stands elsewhere."""
    first = open_writer(disk, epoch=1, tag="first")
    twin = open_writer(disk, epoch=1, tag="twin")
    first.close()
    third = open_writer(disk, epoch=1, tag="third")
    assert third.segment == first.segment
    third.append_put(b"third", b"3")
    third.sync()
    twin.append_put(b"twin", b"2")
    [place] = twin.take_ranges()
    twin.sync()
    found = SegmentReader(disk, place.segment).at(place.offset, place.size, place.crc)
    assert found.batch()["key"].to_pylist() == [b"twin"]
    third.close()
    twin.close()
    with open_writer(disk, epoch=1, tag="fourth") as fourth:
        assert fourth.segment == third.segment


def test_only_the_holder_of_the_lock_may_commit_in_the_log_of_a_core(disk: LocalDisk) -> None:
    """Two that commit after the same parent would both acknowledge, and one would be lost."""
    with open_writer(disk) as first, open_writer(disk, tag="twin") as twin:
        commit_epoch(first, 1, {b"a": b"1"})
        twin.set_epoch(1)
        with pytest.raises(Refused, match="lock"):
            twin.append_commit({})


def test_the_lock_goes_with_its_holder(disk: LocalDisk) -> None:
    writer = open_writer(disk)
    assert disk.try_lock(core_lock(0)) is None
    writer.close()
    lock = disk.try_lock(core_lock(0))
    assert lock is not None
    lock.release()
    lock.release()


@pytest.mark.parametrize("tail", [b"LREC", bytes(700), b""])
def test_behind_a_torn_tail_nobody_writes_and_nobody_cuts(
    disk: LocalDisk, tmp_path: Path, tail: bytes
) -> None:
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        commit_epoch(writer, 2, {b"a": b"2"})
    path = tmp_path / writer.segment
    path.write_bytes(path.read_bytes()[:-70] + tail if not tail else path.read_bytes() + tail)
    before = path.read_bytes()
    with open_writer(disk) as again:
        assert again.segment != writer.segment
        commit_epoch(again, 3, {b"b": b"3"})
    assert path.read_bytes() == before
    found = replay_core(disk, 0, HOME)
    assert found.commits[-1].epoch == 3
    assert len(found.torn) == 1
    with open_writer(disk) as third:
        assert third.segment == again.segment


def test_another_generation_or_another_p_begins_a_segment(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        first = writer.segment
    with open_writer(disk, generation=2) as writer:
        second = writer.segment
    with open_writer(disk, generation=2, partitions=4) as writer:
        third = writer.segment
    assert len({first, second, third}) == 3
    header = SegmentReader(disk, third).header
    assert header is not None
    assert (header.generation, header.partitions) == (2, 4)


def test_a_damaged_log_is_not_opened_for_writing(disk: LocalDisk, tmp_path: Path) -> None:
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
    path = tmp_path / writer.segment
    data = bytearray(path.read_bytes())
    data[HEADER_SIZE + 5] ^= 1
    path.write_bytes(data)
    before = everything_below(tmp_path)
    with pytest.raises(WalDamaged):
        open_writer(disk)
    assert everything_below(tmp_path) == before


def test_reset_is_a_new_generation_in_a_new_segment(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        old = writer.segment
        new = writer.reset()
        assert (writer.generation, writer.sequence, writer.position) == (2, 1, HEADER_SIZE)
        assert new != old
        assert runs_of(disk, old) == [[(b"a", b"1")]]
        header = SegmentReader(disk, new).header
        assert header is not None
        assert (header.generation, header.first_sequence) == (2, 1)


# open_at and truncate


def test_truncate_cuts_at_a_boundary_and_keeps_what_it_cuts(
    disk: LocalDisk, tmp_path: Path
) -> None:
    with open_writer(disk) as writer:
        first = commit_epoch(writer, 1, {b"a": b"1"})
        position = writer.position
        commit_epoch(writer, 2, {b"a": b"2"})
        whole = (tmp_path / writer.segment).read_bytes()
        kept = writer.truncate(position)
        assert kept == f"{writer.segment}.cut-{position}-2"
        assert (tmp_path / kept).read_bytes() == whole[position:]
        assert (writer.position, writer.synced_position) == (position, position)
        assert (writer.head, writer.sequence) == (first, 2)
        assert writer.truncate(position) is None
        commit_epoch(writer, 3, {b"a": b"3"})
        again = writer.truncate(position)
        assert again == f"{writer.segment}.cut-{position}-3"
        commit_epoch(writer, 4, {b"a": None})
    assert [c.epoch for c in replay_core(disk, 0, HOME).commits] == [1, 4]


def test_sequence_numbers_began_again_after_a_truncate_and_a_new_start(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        position = writer.position
        commit_epoch(writer, 2, {b"a": b"2", b"b": b"3"})
        writer.truncate(position)
        assert writer.sequence == 3
    with open_writer(disk) as again:
        assert again.sequence == 3
        commit_epoch(again, 3, {b"c": b"4"})
        again.truncate(HEADER_SIZE)
    with open_writer(disk, commits_here=False) as again:
        assert again.sequence == 4


def test_a_writer_without_a_generation_fell_back_to_the_first_one(disk: LocalDisk) -> None:
    """After `reset` the next writer went on in an older segment."""
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        writer.reset()
        writer.reset()
        commit_epoch(writer, 2, {b"a": b"2"})
        segment = writer.segment
    with CoreWalWriter(0, disk, home=HOME) as again:
        assert (again.generation, again.segment) == (3, segment)
        commit_epoch(again, 3, {b"a": b"3"})
    assert segments_of(disk, 0)[-1] == segment
    with CoreWalWriter.open_at(0, disk, HEADER_SIZE, home=HOME) as again:
        assert again.segment == segment
    logs = LogSet(Home(disk, HOME), 1)
    assert logs[0].generation == 3
    logs.close()


def test_the_cut_bytes_are_durable_before_the_cut(tmp_path: Path) -> None:
    failing = FailingDisk(LocalDisk(tmp_path))
    with open_writer(failing) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        failing.calls.clear()
        writer.truncate(HEADER_SIZE)
        steps = ["sync", "create", "append", "sync", "sync_folder", "truncate", "sync_folder"]
        assert failing.calls == steps


def test_positions_beyond_the_end_or_inside_a_record_are_refused(
    disk: LocalDisk, tmp_path: Path
) -> None:
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        writer.sync()
        before = everything_below(tmp_path)
        for position in (0, 1, 63, HEADER_SIZE + 64, writer.position - 64):
            with pytest.raises(Refused, match="no record begins"):
                writer.truncate(position)
        for position in (writer.position + 1, writer.position + 64, 1 << 40):
            with pytest.raises(Refused, match="beyond the end"):
                writer.truncate(position)
        assert everything_below(tmp_path) == before
        end = writer.position
    for position in (end + 64, HEADER_SIZE + 1):
        with pytest.raises(Refused):
            CoreWalWriter.open_at(0, disk, position, home=HOME)
    lock = disk.try_lock(core_lock(0))
    assert lock is not None, "a refused open_at keeps no lock"
    lock.release()


def test_open_at_goes_on_at_a_boundary_and_keeps_the_rest(disk: LocalDisk, tmp_path: Path) -> None:
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        position = writer.position
        commit_epoch(writer, 2, {b"a": b"2"})
    with CoreWalWriter.open_at(0, disk, position, home=HOME) as again:
        assert (again.segment, again.position) == (writer.segment, position)
        assert again.sequence == 2, "numbers of entries that were cut are not used again"
        assert (tmp_path / f"{writer.segment}.cut-{position}-2").exists()
        commit_epoch(again, 3, {b"b": b"3"})
    assert [c.epoch for c in replay_core(disk, 0, HOME).commits] == [1, 3]


def test_a_truncated_range_is_not_in_the_next_commit(disk: LocalDisk) -> None:
    with open_writer(disk, epoch=1) as writer:
        writer.append_put(b"a", b"1")
        writer.sync()
        position = writer.position
        writer.append_put(b"b", b"2")
        writer.truncate(position)
        writer.append_commit({})
        writer.sync()
        [(_, batch)] = replay_core(disk, 0, HOME).batches()
        assert batch["key"].to_pylist() == [b"a"]


# failures


@SYNCED
def test_after_a_failed_write_or_sync_nothing_more_is_written(
    tmp_path: Path, operation: str
) -> None:
    failing = FailingDisk(LocalDisk(tmp_path))
    with open_writer(failing) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        synced = writer.synced_position
        writer.set_epoch(2)
        writer.append_put(b"a", b"2")
        failing.fail[operation] = 0
        with pytest.raises(StoreError, match="the disk is gone"):
            writer.sync()
        assert writer.synced_position == synced
        size = failing.size(writer.segment)
        failing.calls.clear()
        for call in (
            writer.sync,
            writer.append_epoch_barrier,
            lambda: writer.append_commit({}),
            lambda: writer.append_batch(batch_of({b"b": b"2"})),
            writer.rotate,
            lambda: writer.truncate(HEADER_SIZE),
        ):
            with pytest.raises(StoreError):
                call()
        assert failing.calls == []
        assert failing.size(writer.segment) == size
        assert writer.synced_position == synced
        assert writer.entries_since_sync >= 1
    assert replay_core(failing, 0, HOME).commits[-1].epoch == 1


def test_a_failed_commit_write_is_not_the_head(tmp_path: Path) -> None:
    failing = FailingDisk(LocalDisk(tmp_path))
    with open_writer(failing) as writer:
        head = commit_epoch(writer, 1, {b"a": b"1"})
        writer.set_epoch(2)
        failing.fail["append"] = 0
        with pytest.raises(StoreError):
            writer.append_commit({})
        assert writer.head == head


@pytest.mark.parametrize("written", [0, 1, 63, 64, 65, 100, 300, 511, 512])
def test_a_full_disk_leaves_a_readable_log(tmp_path: Path, written: int) -> None:
    failing = FailingDisk(LocalDisk(tmp_path))
    failing.error = StoreFull("no space left")
    with open_writer(failing) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        good = writer.position
        failing.fail["append"] = 0
        failing.written = written
        with pytest.raises(StoreFull):
            commit_epoch(writer, 2, {b"a": b"2" * 900})
    reader = SegmentReader(failing, writer.segment)
    list(reader.records())
    assert reader.end == (
        Torn(good, written, reader.end.reason)
        if written and isinstance(reader.end, Torn)
        else Clean(good)
    )
    with open_writer(failing) as again:
        commit_epoch(again, 3, {b"b": b"3"})
    assert [c.epoch for c in replay_core(failing, 0, HOME).commits] == [1, 3]


@pytest.mark.parametrize("operation", ["create", "append", "sync", "sync_folder"])
def test_a_segment_that_could_not_be_made_ends_the_writer_and_hides_nothing(
    tmp_path: Path, operation: str
) -> None:
    failing = FailingDisk(LocalDisk(tmp_path))
    with open_writer(failing) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        failing.fail[operation] = 1 if operation == "sync" else 0
        with pytest.raises(StoreError):
            writer.rotate()
        with pytest.raises(StoreError):
            commit_epoch(writer, 2, {b"a": b"2"})
    with open_writer(failing) as again:
        commit_epoch(again, 3, {b"a": b"3"})
    assert [c.epoch for c in replay_core(failing, 0, HOME).commits] == [1, 3]


def test_a_segment_writer_refuses_a_name_that_is_taken(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        header = SegmentReader(disk, writer.segment).header
        assert header is not None
        with pytest.raises(Exception, match="exists"):
            SegmentWriter.create(disk, writer.segment, header)
