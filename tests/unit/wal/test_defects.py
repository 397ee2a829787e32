"""One test per defect of LaminarDB's log and recovery (shared/reference/laminar-storage.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.disk import LocalDisk
from lamina.errors import LogDamaged, Refused, StoreError, UsageError, WalDamaged, WouldLose
from lamina.format.manifest_model import ConnectorCheckpoint
from lamina.format.wal import HEADER_SIZE, Kind
from lamina.recovery import RecoveryConfig
from lamina.store import MemoryStore
from lamina.wal import SegmentReader, Torn, check_segment, drop_segments, repair
from lamina.wal.standalone import CoreWalWriter, read_up_to, replay_core
from tests.support.recoveries import Pipeline, recovered_state
from tests.support.wal_logs import (
    HOME,
    FailingDisk,
    add_to,
    all_records,
    batch_of,
    commit_epoch,
    entries_of,
    everything_below,
    home_at,
    offsets,
    open_writer,
    runs_of,
)


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    return LocalDisk(tmp_path)


@pytest.fixture
def line(tmp_path: Path) -> Pipeline:
    """A pipeline with a checkpoint at epoch 1 and the WAL of epochs 2 and 3 behind it."""
    line = Pipeline(tmp_path)
    line.start()
    line.epoch(1, {b"a": b"1", b"b": b"1"})
    line.checkpoint()
    line.epoch(2, {b"a": b"2"})
    line.epoch(3, {b"c": b"3"})
    line.stop()
    return line


def corrupt(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


# recovery (seed 004)


def test_a3_offsets_never_move_without_the_changes_they_cover(line: Pipeline) -> None:
    found = line.preview()
    assert (recovered_state(found), found.source_offsets) == (line.state, offsets(source=300))
    half = line.preview(until_epoch=2)
    assert recovered_state(half) == {b"a": b"2", b"b": b"1"}
    assert half.source_offsets == offsets(source=200)


def test_a4_entries_after_the_last_commit_are_not_applied(line: Pipeline) -> None:
    line.start()
    line.prepare(4, {b"a": b"4"})
    line.stop()
    found = line.start()
    assert recovered_state(found)[b"a"] == b"2"
    assert found.report.entries_dropped == 1


def test_a5_a_checkpoint_that_cannot_be_loaded_is_not_an_empty_base(line: Pipeline) -> None:
    line.damage(line.checkpointer().list_checkpoints()[0])
    found = line.start()
    assert recovered_state(found) == line.state, "an older base and the whole WAL"
    assert len(found.report.skipped) == 1


def test_a6_one_bad_checkpoint_does_not_make_a_pipeline_unstartable(line: Pipeline) -> None:
    line.start()
    newest = line.checkpoint()
    line.store.put(f"p/{newest.id}/manifest.json", b"{")
    line.stop()
    found = line.start()
    assert recovered_state(found) == line.state
    assert [s.id for s in found.report.skipped] == [newest.id]


def test_a7_a_limit_never_cuts_inside_an_epoch_and_is_reported(tmp_path: Path) -> None:
    line = Pipeline(tmp_path)
    line.start()
    line.epoch(1, {b"a": b"1", b"b": b"1", b"c": b"1"})
    line.stop()
    found = line.preview(entries_max=2)
    assert (recovered_state(found), found.report.complete) == ({}, False)


def test_a8_recovery_repairs_and_cuts_nothing(line: Pipeline) -> None:
    home = Path(line.disk.root)
    segment = next(path for path in everything_below(home) if path.startswith("core-0/0"))
    add_to(home / segment, b"torn")
    before = everything_below(home)
    line.start()
    after = everything_below(home)
    assert {path: after[path] for path in before} == before


def test_a9_damage_in_the_middle_stops_instead_of_ending_the_replay(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        commit_epoch(writer, 2, {b"a": b"2"})
    corrupt(Path(disk.root) / writer.segment, 200)
    with pytest.raises(WalDamaged, match="does not match"):
        replay_core(disk, 0, HOME)


def test_a10_a_position_beyond_the_end_or_of_another_log_is_an_error(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        place = writer.append_batch(batch_of({b"a": b"1"}))
        writer.sync()
        writer.reset()
        after_reset = writer.segment
    with pytest.raises(WalDamaged):
        SegmentReader(disk, after_reset).at(place.offset, place.size, place.crc)
    with pytest.raises(WalDamaged):
        list(SegmentReader(disk, after_reset).records(1 << 20))


def test_a11_epochs_that_were_used_are_never_issued_again(line: Pipeline) -> None:
    found = line.start()
    assert (found.epoch, found.next_epoch) == (3, 4)


def test_a12_a_watermark_that_went_back_is_reported(line: Pipeline) -> None:
    line.start()
    line.epoch(4, {b"d": b"4"}, at=5)
    line.stop()
    assert line.start().report.watermark_regressions == (4,)


def test_a13_a_log_that_does_not_belong_to_the_store_is_noticed(line: Pipeline) -> None:
    line.store = MemoryStore()
    with pytest.raises(LogDamaged):
        line.start()


def test_a14_a_base_is_complete_or_it_is_none(line: Pipeline) -> None:
    """One run of one partition is missing, and so is the WAL that could stand in for it."""
    for info in list(line.store.list()):
        if info.key.endswith("partition-1-0-1.snap"):
            line.store.delete(info.key)
    home = Path(line.disk.root)
    for name in [n for n in everything_below(home) if n.startswith("core-1/") and "lock" not in n]:
        (home / name).unlink()
    with pytest.raises(WouldLose, match="epoch 3 was acknowledged"):
        line.start()


def test_a15_a_checkpoint_without_its_state_is_not_valid(line: Pipeline) -> None:
    for info in list(line.store.list()):
        if info.key.endswith(".snap"):
            line.store.delete(info.key)
    found = line.start()
    assert (found.report.checkpoint, len(found.report.skipped)) == (None, 1)
    assert recovered_state(found) == line.state


def test_a16_state_is_a_stream_of_batches_by_partition(line: Pipeline) -> None:
    found = line.start()
    batches = [next(iter(found.batches(*place))) for place in found.partitions()]
    assert len(batches) == 2
    assert all(isinstance(path, Path) for path in found.files.values()), "on disk, not in memory"


# the writer (seed 003)


def test_a17_dropping_takes_the_old_and_keeps_the_new(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    with open_writer(home.disk) as writer:
        for epoch in (1, 2, 3):
            writer.set_epoch(epoch)
            writer.append_put(b"k", b"%d" % epoch)
            writer.rotate()
    drop_segments(home, 2, keep=set())
    assert [entries_of(r.batch()) for r in read_up_to(home, 9)] == [[(b"k", b"3")]]


def test_a18_nothing_is_appended_behind_a_torn_record(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
    add_to(Path(disk.root) / writer.segment, b"LREC torn")
    with open_writer(disk) as again:
        commit_epoch(again, 2, {b"a": b"2"})
    assert [c.epoch for c in replay_core(disk, 0, HOME).commits] == [1, 2]


def test_a19_a_cut_is_synced_before_its_position_is_durable(tmp_path: Path) -> None:
    failing = FailingDisk(LocalDisk(tmp_path))
    with open_writer(failing) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        end = writer.synced_position
        failing.fail["truncate"] = 0
        with pytest.raises(StoreError):
            writer.truncate(HEADER_SIZE)
        assert writer.synced_position == end


def test_a20_a_position_beyond_the_end_is_refused_and_zeros_are_no_record(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        with pytest.raises(Refused, match="beyond the end"):
            writer.truncate(writer.position + 64)
        end = writer.position
    with pytest.raises(Refused):
        CoreWalWriter.open_at(0, disk, end + 64, home=HOME)
    add_to(Path(disk.root) / writer.segment, bytes(64))
    reader = SegmentReader(disk, writer.segment)
    assert list(reader.records()) == []
    assert isinstance(reader.end, Torn)


def test_a21_length_kind_epoch_sequence_and_place_are_under_the_checksum(disk: LocalDisk) -> None:
    with open_writer(disk, epoch=1) as writer:
        writer.append_put(b"a", b"1")
        writer.sync()
    for field in (4, 5, 8, 16, 24, 28, 32, 40):
        corrupt(Path(disk.root) / writer.segment, HEADER_SIZE + field)
        with pytest.raises(WalDamaged):
            all_records(disk, writer.segment)
        corrupt(Path(disk.root) / writer.segment, HEADER_SIZE + field)
    assert len(all_records(disk, writer.segment)) == 1


@pytest.mark.parametrize("operation", ["append", "sync"])
def test_a22_a24_a_failed_write_or_sync_is_never_followed_by_a_success(
    tmp_path: Path, operation: str
) -> None:
    failing = FailingDisk(LocalDisk(tmp_path))
    failing.written = 100
    with open_writer(failing) as writer:
        writer.append_put(b"a", b"1")
        failing.fail[operation] = 0
        for _ in range(3):
            with pytest.raises(StoreError):
                writer.sync()
        assert (writer.synced_position, writer.entries_since_sync > 0) == (HEADER_SIZE, True)


def test_a23_nobody_declares_bytes_durable_without_a_sync(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        writer.append_put(b"a", b"1")
        writer.append_epoch_barrier()
        assert writer.synced_position == HEADER_SIZE
        assert not hasattr(writer, "mark_synced")


def test_a25_what_a_power_cut_would_take_is_known(disk: LocalDisk) -> None:
    """When to sync is the caller's policy; the acknowledgement comes from sync alone."""
    with open_writer(disk) as writer:
        for _ in range(5):
            writer.append_put(b"a", b"1")
        assert writer.entries_since_sync == 5
        writer.sync()
        assert writer.entries_since_sync == 0


def test_a26_the_folder_of_a_new_file_is_synced(tmp_path: Path) -> None:
    failing = FailingDisk(LocalDisk(tmp_path))
    with open_writer(failing) as writer:
        assert failing.calls[-1] == "sync_folder"
        writer.rotate()
        assert failing.calls[-1] == "sync_folder"


def test_a27_reopening_and_resetting_keep_epoch_and_sequence(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        commit_epoch(writer, 9, {b"a": b"1", b"b": b"2"})
        writer.reset()
        assert (writer.epoch, writer.sequence) == (9, 2)
    with open_writer(disk, generation=2) as again:
        assert (again.epoch, again.sequence) == (9, 2)


def test_a28_the_writer_stamps_and_an_epoch_is_never_set_lower(disk: LocalDisk) -> None:
    with open_writer(disk, epoch=5) as writer:
        with pytest.raises(Refused):
            writer.set_epoch(4)
        assert not hasattr(writer, "append")


def test_a29_positions_of_any_kind_of_source_fit(disk: LocalDisk) -> None:
    gtid = ConnectorCheckpoint({"gtid": "3E11FA47:1-5", "slot": "0/16B3748"}, 1, {"type": "mysql"})
    with open_writer(disk, epoch=1) as writer:
        writer.append_commit({"orders": gtid})
        writer.sync()
    assert replay_core(disk, 0, HOME).commits[0].source_offsets == {"orders": gtid}


def test_a30_a_record_above_the_limit_is_refused(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lamina.wal.segment.PAYLOAD_BYTES_MAX", 10_000)
    with open_writer(disk) as writer, pytest.raises(UsageError, match="at most"):
        writer.append_batch(batch_of({b"k": bytes(20_000)}))


# how the parts were put together (B)


def test_b1_a_checkpoint_erases_nothing(line: Pipeline) -> None:
    line.start()
    before = everything_below(Path(line.disk.root))
    line.checkpoint()
    after = everything_below(Path(line.disk.root))
    assert all(after[path].startswith(data) for path, data in before.items())
    line.stop()
    assert recovered_state(line.start()) == line.state


def test_b9_nothing_starts_fresh_unless_a_person_says_so(line: Pipeline) -> None:
    line.damage(line.checkpointer().list_checkpoints()[0])
    home = Path(line.disk.root)
    for name in [n for n in everything_below(home) if n.startswith("core-") and "lock" not in n]:
        (home / name).unlink()
    with pytest.raises(WouldLose):
        line.start()
    found = line.start(RecoveryConfig(partitions=2, start_fresh=True))
    assert [p.epoch for p in found.report.given_up] == [3, 2, 1]


def test_b10_there_is_one_kind_of_record_and_one_reader(line: Pipeline) -> None:
    """Core and driver segments are read by the same code, and every record is understood."""
    home = Path(line.disk.root)
    kinds = set()
    for name in everything_below(home):
        if name.endswith(".wal"):
            assert check_segment(line.disk, name).ok
            kinds |= {record.kind for record in all_records(line.disk, name)}
    assert kinds == {Kind.RUN, Kind.COMMIT, Kind.CHECKPOINT, Kind.TAKEOVER, Kind.ADOPT}


def test_b11_the_wal_before_the_checkpoint_is_not_applied_again(line: Pipeline) -> None:
    found = line.start()
    assert (found.report.checkpoint_epoch, found.report.entries_replayed) == (1, 2)
    assert (found.watermark, found.source_offsets) == (300, offsets(source=300))


def test_b12_the_end_of_a_torn_log_is_a_boundary_that_repair_cuts_at(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        end = writer.position
        commit_epoch(writer, 2, {b"a": b"2" * 900})
    path = Path(disk.root) / writer.segment
    path.write_bytes(path.read_bytes()[: end + 700])
    found = check_segment(disk, writer.segment).end
    assert isinstance(found, Torn)
    assert found.end == end
    done = repair(disk, writer.segment)
    assert done is not None
    assert done.offset == end
    with open_writer(disk) as again:
        assert again.position == end


def test_b13_order_is_by_sequence_and_knows_no_clock(disk: LocalDisk) -> None:
    with open_writer(disk, epoch=1) as writer:
        for number in range(3):
            writer.append_put(b"k", b"%d" % number)
        writer.sync()
        [run] = all_records(disk, writer.segment)
        assert run.batch().schema.names == ["key", "value"]
        assert runs_of(disk, writer.segment) == [[(b"k", b"0"), (b"k", b"1"), (b"k", b"2")]]


def test_b14_a_higher_epoch_before_a_lower_one_hides_nothing(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    with open_writer(home.disk, epoch=1) as first, open_writer(home.disk, tag="z", epoch=1) as twin:
        twin.set_epoch(9)
        twin.append_put(b"nine", b"")
        twin.sync()
        first.set_epoch(2)
        first.append_put(b"two", b"")
        first.sync()
    assert [r.epoch for r in read_up_to(home, 5)] == [2]
    with open_writer(home.disk) as again:
        assert again.epoch == 9


def test_b15_a_barrier_carries_the_epoch_that_it_completes(disk: LocalDisk) -> None:
    with open_writer(disk, epoch=4) as writer:
        writer.append_epoch_barrier()
        writer.set_epoch(5)
        writer.sync()
        assert [r.epoch for r in all_records(disk, writer.segment)] == [4]


def test_b16_an_explicit_cut_keeps_what_it_cuts(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        data = (Path(disk.root) / writer.segment).read_bytes()
        kept = writer.truncate(HEADER_SIZE)
        assert kept is not None
        assert (Path(disk.root) / kept).read_bytes() == data[HEADER_SIZE:]


def test_b17_a_checkpoint_exists_by_its_log_entry_and_not_by_its_files(line: Pipeline) -> None:
    line.start()
    begin = line._checkpointer.begin()
    line.store.put(f"p/{begin.id}/manifest.json", b"{}")
    line.stop()
    assert line.start().report.checkpoint_epoch == 1
