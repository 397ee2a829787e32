"""Checkpoint(epoch) + WAL.replay(epoch..now) is the exact acknowledged state, or recovery stops."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lamina.checkpoint import Checkpointer
from lamina.disk import LocalDisk
from lamina.errors import (
    Diverged,
    Fenced,
    LogDamaged,
    NotFound,
    Refused,
    WalDamaged,
    WouldLose,
)
from lamina.format.commit import CheckpointRecord, CommitRecord, Point
from lamina.format.manifest import CheckpointManifest
from lamina.recovery import Recovered, RecoveryConfig, RecoveryManager, rehearse
from lamina.recovery.rehearsal import plan_start
from lamina.store import MemoryStore, open_store
from lamina.wal import drop_driver_segments, drop_segments, read_home
from lamina.wal.standalone import LogSet
from tests.support.checkpoints import cid, snapshot_of
from tests.support.recoveries import MemorySink, Pipeline, recovered_state
from tests.support.wal_logs import add_to, everything_below, offsets
from tests.support.workspaces import workspace

START = {b"a": b"1", b"b": b"1", b"c": b"1", b"d": b"1"}


@pytest.fixture
def line(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)


def again(line: Pipeline, **config: object) -> dict[bytes, bytes]:
    """A new process; what it has recovered."""
    line.stop()
    found = line.start(RecoveryConfig(partitions=line.cores, **config))  # type: ignore[arg-type]
    return recovered_state(found)


# seed 004: nothing, checkpoint only, WAL only, both


def test_a_new_pipeline_recovers_to_nothing(line: Pipeline) -> None:
    found = line.start()
    assert (found.epoch, found.head, found.next_epoch) == (0, None, 1)
    assert not found.has_state
    assert (found.source_offsets, found.table_offsets, found.source_watermarks) == ({}, {}, {})
    assert found.watermark is None
    assert list(found.partitions()) == []
    assert found.report.checkpoint is None
    assert (found.report.entries_replayed, found.report.complete) == (0, True)


def test_a_checkpoint_alone_is_restored(line: Pipeline) -> None:
    line.start()
    line.epoch(42, START, at=100)
    made = line.checkpoint()
    line.stop()
    found = line.start()
    assert recovered_state(found) == START
    assert (found.epoch, found.watermark) == (42, 100)
    assert found.source_offsets == offsets(source=100)
    assert found.report.checkpoint == str(made.id)
    assert (found.report.epochs_replayed, found.report.entries_replayed) == (0, 0)
    assert found.next_epoch == 43


def test_the_wal_alone_is_replayed_with_offsets_and_watermark(line: Pipeline) -> None:
    line.start()
    line.epoch(1, {b"key1": b"value1", b"key2": b"value2"}, at=50)
    line.stop()
    found = line.start()
    assert found.report.checkpoint is None
    assert (found.report.epochs_replayed, found.report.entries_replayed) == (1, 2)
    assert (found.watermark, found.source_watermarks) == (50, {"source": 50})
    assert found.source_offsets == offsets(source=50)
    assert recovered_state(found) == {b"key1": b"value1", b"key2": b"value2"}


def test_a_checkpoint_and_the_wal_after_it_are_the_state(line: Pipeline) -> None:
    line.start()
    line.epoch(10, START)
    line.checkpoint()
    line.epoch(11, {b"a": None, b"e": b"2"})
    line.epoch(15, {b"b": b"3"})
    line.stop()
    found = line.start()
    assert recovered_state(found) == line.state == {b"b": b"3", b"c": b"1", b"d": b"1", b"e": b"2"}
    assert (found.report.checkpoint_epoch, found.epoch, found.next_epoch) == (10, 15, 16)
    assert (found.report.epochs_replayed, found.report.entries_replayed) == (2, 3)
    assert (found.watermark, found.source_offsets) == (1500, offsets(source=1500))


def test_replay_is_what_brings_the_epochs_back(line: Pipeline) -> None:
    """Without it every epoch after the checkpoint would be gone: nothing else has them."""
    line.start()
    line.epoch(1, START)
    line.checkpoint()
    for epoch in range(2, 9):
        line.epoch(epoch, {b"n": b"%d" % epoch})
    assert again(line)[b"n"] == b"8"


def test_recovering_again_and_again_changes_nothing(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    line.checkpoint()
    line.epoch(2, {b"a": b"2"})
    for _ in range(4):
        assert again(line) == line.state
        assert line.recovered.state.epoch == 2
    assert line.recovered.driver.generation == 5


def test_every_process_goes_on_where_the_last_one_was(line: Pipeline) -> None:
    line.start()
    epoch = 0
    for _ in range(4):
        for _ in range(3):
            epoch = max(epoch + 1, line.recovered.state.next_epoch)
            line.epoch(epoch, {b"k%d" % epoch: b"v"})
        if epoch == 6:
            line.checkpoint()
        assert again(line) == line.state
    assert len(line.state) == 12


# only what was committed


def test_what_was_not_committed_is_dropped_and_counted(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    line.prepare(2, {b"a": b"2", b"b": None, b"x": b"2"})
    assert again(line) == START
    report = line.recovered.state.report
    assert (report.entries_dropped, report.entries_replayed, report.epoch) == (3, 4, 1)
    assert line.recovered.state.source_offsets == offsets(source=100)


def test_dropped_entries_are_counted_also_after_old_segments_went(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    for writer in line.logs.writers:
        writer.rotate()
    line.epoch(2, {b"a": b"2"})
    line.checkpoint()
    line.prepare(3, {b"x": b"3", b"y": b"3"})
    assert len(line.logs.drop_through(1)) == 2
    assert again(line) == line.state
    assert line.recovered.state.report.entries_dropped == 2


def test_a_torn_tail_is_left_aside_and_reported(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    core, driver = line.logs[0].segment, line.recovered.driver.segment
    sizes = {path: line.disk.size(path) for path in (core, driver)}
    line.stop()
    for path in (core, driver):
        add_to(Path(line.disk.root) / path, b"LREC, and then the power went")
    before = {path: (Path(line.disk.root) / path).read_bytes() for path in (core, driver)}
    found = line.start()
    assert recovered_state(found) == START
    assert {(e.path, e.offset) for e in found.report.left_aside} == set(sizes.items())
    assert found.report.torn_bytes == 2 * 29
    for path, data in before.items():
        assert (Path(line.disk.root) / path).read_bytes() == data, "recovery cuts nothing"


def test_damage_in_a_committed_range_stops_before_any_effect(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    segment = line.logs[0].segment
    line.stop()
    path = Path(line.disk.root) / segment
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with pytest.raises(WalDamaged) as caught:
        line.start()
    assert f"{segment}, byte 64" in caught.value.where
    path.write_bytes(bytes(data[:200]) + bytes([data[200] ^ 1]) + bytes(data[201:]))
    line.start()
    assert recovered_state(line.recovered.state) == START


def test_a_committed_range_that_is_missing_stops(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    segment = line.logs[0].segment
    line.stop()
    path = Path(line.disk.root) / segment
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(WalDamaged, match="is missing"):
        line.start()
    path.unlink()
    with pytest.raises(WouldLose, match="epoch 1"):
        line.start()


# limits


def test_a_preview_stops_at_whole_epochs_and_says_so(line: Pipeline) -> None:
    line.start()
    for epoch in (1, 2, 3):
        line.epoch(epoch, {b"a%d" % epoch: b"v", b"b%d" % epoch: b"v"})
    line.stop()
    for entries, epochs in ((0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (100, 3)):
        found = line.preview(entries_max=entries)
        assert (found.epoch, found.report.entries_replayed) == (epochs, 2 * epochs)
        assert found.report.complete == (epochs == 3)
        assert found.report.head_epoch == 3
        assert found.watermark == (epochs * 100 or None)
        assert len(recovered_state(found)) == 2 * epochs
    for until in (1, 2, 3, 9):
        assert line.preview(until_epoch=until).epoch == min(until, 3)


def test_a_preview_below_the_checkpoint_is_refused_not_exceeded(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    line.epoch(5, {b"a": b"5"})
    line.checkpoint()
    line.stop()
    with pytest.raises(Refused, match="epoch 5"):
        line.preview(until_epoch=3)


def test_a_preview_is_what_a_run_restores(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    line.checkpoint()
    line.epoch(2, {b"a": None})
    line.stop()
    before = everything_below(Path(line.disk.root)), snapshot_of(line.store)
    seen = line.preview()
    assert (everything_below(Path(line.disk.root)), snapshot_of(line.store)) == before
    assert recovered_state(seen) == line.state
    found = line.start()
    assert recovered_state(found) == line.state
    assert replace(seen.report, seconds=0.0) == replace(found.report, seconds=0.0)


# dry run


def test_a_plan_changes_nothing_on_disk_in_the_store_or_at_a_sink(tmp_path: Path) -> None:
    sink = MemorySink()
    line = Pipeline(tmp_path, sinks=(sink,))
    line.start()
    line.epoch(1, START)
    sink.at = line.recovered.driver.head
    line.checkpoint()
    line.epoch(2, {b"a": b"2"})
    line.stop()
    before = everything_below(Path(line.disk.root)), snapshot_of(line.store), replace(sink)
    made = plan_start(line.look())
    assert plan_start(line.look()) == made
    assert (everything_below(Path(line.disk.root)), snapshot_of(line.store)) == before[:2]
    assert sink == before[2]
    assert made.checkpoint is not None
    assert ([c.epoch for c in made.replay], made.next_epoch) == ([2], 3)
    assert [c.epoch for c in made.publish["out"]] == [2]
    found = line.start()
    assert found.plan.replay == made.replay


def test_a_plan_needs_no_lock_and_sees_a_running_pipeline(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    plan = plan_start(line.look())
    assert plan.head is not None
    assert plan.head.epoch == 1


def test_a_folder_that_is_no_home_is_not_planned_for(line: Pipeline) -> None:
    with pytest.raises(NotFound):
        plan_start(line.look())
    assert everything_below(line.root) == {}


# checkpoints that do not verify


def test_a_damaged_newest_checkpoint_is_equal_to_an_older_one_and_the_wal(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    line.checkpoint()
    line.epoch(2, {b"a": b"2"})
    newest = line.checkpoint()
    line.epoch(3, {b"b": None})
    line.damage(newest)
    assert again(line) == line.state
    report = line.recovered.state.report
    assert (report.checkpoint_epoch, report.epochs_replayed, report.epoch) == (1, 2, 3)
    [skipped] = report.skipped
    assert (skipped.id, skipped.epoch) == (newest.id, 2)
    assert "SHA-256" in skipped.why or "digest" in skipped.why.lower()
    assert report.given_up == ()


def test_a_checkpoint_whose_files_are_missing_is_skipped_with_its_reason(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    made = line.checkpoint()
    for info in list(line.store.list()):
        if str(made.id) in info.key and info.key.endswith(("manifest.json", ".snap")):
            line.store.delete(info.key)
    assert again(line) == START
    [skipped] = line.recovered.state.report.skipped
    assert skipped.id == made.id
    assert line.recovered.state.report.checkpoint is None


def drop_all_below(line: Pipeline, epoch: int) -> None:
    """What gc does after a checkpoint: older WAL goes."""
    for writer in line.logs.writers:
        writer.set_epoch(epoch + 1)
        writer.rotate()
    drop_segments(line.recovered.home, epoch, keep=set())


def test_without_the_wal_a_damaged_checkpoint_stops_and_a_person_may_give_up_epochs(
    line: Pipeline,
) -> None:
    line.start()
    line.epoch(1, START)
    older = line.checkpoint()
    line.epoch(2, {b"a": b"2"})
    newest = line.checkpoint()
    drop_all_below(line, 2)
    line.damage(newest)
    line.stop()
    with pytest.raises(WouldLose, match="epoch 2 was acknowledged") as caught:
        line.start()
    assert "--lose-after" in caught.value.advice
    assert str(newest.id) in caught.value.message
    found = line.start(RecoveryConfig(lose_after=1, partitions=2))
    assert recovered_state(found) == START
    assert found.report.checkpoint == str(older.id)
    assert (found.epoch, found.watermark) == (1, 100)
    assert [p.epoch for p in found.report.given_up] == [2]
    assert found.next_epoch == 3, "the number of a lost epoch is not used again"
    line.epoch(3, {b"z": b"3"})
    assert again(line)[b"z"] == b"3"


def test_an_epoch_that_was_given_up_stays_given_up(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    line.epoch(2, {b"a": b"2"})
    assert again(line, lose_after=1) == START
    assert again(line) == START
    assert line.recovered.state.next_epoch == 3


def test_when_every_checkpoint_is_damaged_nothing_starts_fresh_by_itself(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    line.damage(line.checkpoint())
    drop_all_below(line, 1)
    line.stop()
    with pytest.raises(WouldLose):
        line.start()
    with pytest.raises(WouldLose):
        line.start(RecoveryConfig(partitions=2, lose_after=1))
    found = line.start(RecoveryConfig(partitions=2, start_fresh=True))
    assert not found.has_state
    assert [p.epoch for p in found.report.given_up] == [1]
    assert found.next_epoch == 2
    line.epoch(2, {b"new": b"1"})
    assert again(line) == {b"new": b"1"}


def test_a_dropped_segment_below_the_checkpoint_is_not_missed(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    line.checkpoint()
    drop_all_below(line, 1)
    line.epoch(2, {b"a": b"2"})
    assert again(line) == line.state
    assert drop_driver_segments(line.recovered.home, 1) == ()
    assert again(line) == line.state


# who may


def test_two_processes_in_one_home_are_one_too_many(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    with pytest.raises(Fenced):
        line.manager().run()
    line.epoch(2, {b"a": b"2"})


def test_another_home_is_refused_and_takes_over_only_by_a_flag(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    line.checkpoint()
    line.epoch(2, {b"a": b"2"})
    line.stop()
    owner = line.recovered.home.name
    line.home = "other"
    with pytest.raises(Refused, match=owner) as caught:
        line.start()
    assert "--take-over-home" in caught.value.advice
    found = line.start(RecoveryConfig(partitions=2, take_over_home=True))
    assert recovered_state(found) == START, "the WAL of the other home is given up"
    line.epoch(found.next_epoch, {b"b": b"3"})
    line.stop()
    line.home = "home"
    with pytest.raises(Refused):
        line.start()


def test_a_dry_run_of_the_way_back_to_an_old_home_numbers_epochs_as_the_start_does(
    line: Pipeline,
) -> None:
    take_over = RecoveryConfig(partitions=2, take_over_home=True)
    line.start()
    line.epoch(1, START)
    line.checkpoint()
    for epoch in (2, 3, 4):
        line.epoch(epoch, {b"a": b"2"})
    line.stop()
    line.home = "other"
    line.start(take_over)
    line.stop()
    line.home = "home"
    seen = rehearse(read_home(line.disk), line.checkpointer(), take_over)
    found = line.start(take_over)
    assert seen.state.plan.next_epoch == found.next_epoch == 5, "2 to 4 are in the log, given up"
    assert seen.takes_over_from == found.report.given_up_home


def test_a_plan_for_another_home_is_refused_as_its_run_would_be(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    line.stop()
    other = Pipeline(line.root, home="other", processes=50)
    other.start()
    other.stop()
    other.store = line.store
    with pytest.raises(Refused, match="is in the home"):
        plan_start(other.look())


def test_a_store_of_another_pipeline_is_noticed_by_the_marker(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    line.checkpoint()
    line.stop()
    mine, line.store = line.store, MemoryStore()
    with pytest.raises(LogDamaged, match="right store"):
        line.start()
    line.store = mine
    line.start()


def test_a_marker_with_another_digest_stops(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    made = line.checkpoint(note=False)
    line.recovered.driver.note_checkpoint(CheckpointRecord(made.id, 1, "0" * 64))
    line.stop()
    with pytest.raises(LogDamaged, match="not the one this home's log knows"):
        line.start()


def test_a_marker_that_the_store_has_forgotten_is_no_error(line: Pipeline) -> None:
    """gc forgets old checkpoints: only one that is newer than all the store has is missing."""
    line.start()
    line.epoch(1, START)
    line.recovered.driver.note_checkpoint(CheckpointRecord(cid(77), 1, "0" * 64))
    line.epoch(2, {b"a": b"2"})
    line.checkpoint()
    assert again(line) == line.state


# sinks


def test_a_sink_that_is_behind_gets_what_it_misses_in_order(tmp_path: Path) -> None:
    sink = MemorySink()
    line = Pipeline(tmp_path, sinks=(sink,))
    line.start()
    points = [line.epoch(epoch, {b"n": b"%d" % epoch}) for epoch in (1, 2, 3)]
    line.stop()
    for published in (None, *points):
        sink.at = published
        plan = plan_start(line.look())
        left = [c.point for c in plan.publish["out"]]
        assert left == [p for p in points if published is None or p.epoch > published.epoch]


def test_recovery_fences_every_sink_before_it_looks(tmp_path: Path) -> None:
    sink = MemorySink(generation=6)
    line = Pipeline(tmp_path, sinks=(sink,))
    line.start()
    assert line.recovered.driver.generation == sink.generation == 7


def test_a_sink_that_is_ahead_stops_recovery(tmp_path: Path) -> None:
    sink = MemorySink()
    line = Pipeline(tmp_path, sinks=(sink,))
    line.start()
    line.epoch(1, START)
    line.stop()
    sink.at = Point(9, "f" * 64)
    with pytest.raises(WouldLose, match="'out' holds epoch 9"):
        line.start()
    sink.at = Point(1, "f" * 64)
    with pytest.raises(Diverged):
        line.start()


# streams


def test_partitions_are_applied_in_parallel_and_each_in_order(tmp_path: Path) -> None:
    line = Pipeline(tmp_path, cores=4)
    line.start()
    for epoch in range(1, 6):
        line.epoch(epoch, {bytes([k]): b"%d" % epoch for k in range(8)})
    line.checkpoint()
    line.epoch(6, {bytes([k]): b"6" for k in range(4)})
    line.stop()
    found = line.start()
    meet = threading.Barrier(4, timeout=20)
    states: dict[int, list[bytes]] = {}

    def work(operator: str, partition: int, batches: Iterator[pa.RecordBatch]) -> None:
        meet.wait()  # nobody gets on unless all four are under way
        values = [batch["value"].to_pylist() for batch in batches]
        states[partition] = [value for batch in values for value in batch]

    found.apply(work, parallel=4)
    assert states.keys() == {0, 1, 2, 3}
    assert all(values == [b"5", b"5", b"6"] for values in states.values())


def test_an_error_of_one_partition_is_raised(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START)
    line.stop()
    found = line.start()

    def work(operator: str, partition: int, batches: Iterator[pa.RecordBatch]) -> None:
        if partition == 1:
            raise ValueError("no room")
        list(batches)

    with pytest.raises(ValueError, match="no room"):
        found.apply(work, parallel=2)


def test_state_comes_in_batches_not_at_once(line: Pipeline) -> None:
    """Many epochs, each its own batch: whoever applies them holds one at a time."""
    line.start()
    for epoch in range(1, 31):
        line.epoch(epoch, {b"%d-%d" % (epoch, i): bytes(500) for i in range(50)})
    line.stop()
    found = line.start()
    assert found.report.bytes_replayed > 30 * 50 * 500
    sizes = [batch.nbytes for place in found.partitions() for batch in found.batches(*place)]
    assert len(sizes) == 60
    assert max(sizes) < 50 * 600
    assert len(recovered_state(found)) == 1500


# the report


def test_the_report_says_what_was_done(line: Pipeline) -> None:
    line.start()
    line.epoch(1, START, at=100)
    made = line.checkpoint()
    line.epoch(2, {b"a": b"2", b"b": b"2"}, at=90)  # event time went back
    line.prepare(3, {b"x": b"3"})
    line.stop()
    found = line.start()
    report = found.report
    assert (report.checkpoint, report.checkpoint_epoch) == (str(made.id), 1)
    assert (report.epoch, report.head_epoch, report.complete) == (2, 2, True)
    assert (report.epochs_replayed, report.entries_replayed, report.entries_dropped) == (1, 2, 1)
    assert report.watermark_regressions == (2,)
    assert report.bytes_restored == made.entry.total_size > 0
    assert report.bytes_replayed == sum(r.size for r in line.commits[-1].ranges)
    assert (report.skipped, report.left_aside, report.given_up) == ((), (), ())
    assert report.seconds >= 0
    assert found.generation == line.recovered.driver.generation


def test_damage_in_bytes_that_no_commit_names_stops_nobody(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path / "home")

    def start() -> Recovered:
        checkpointer = Checkpointer(open_store(str(tmp_path / "store")))
        return RecoveryManager(workspace(disk, tmp_path / "scratch"), checkpointer).run()

    first = start()
    logs = LogSet(first.home, 1, generation=first.driver.generation)
    logs.set_epoch(1)
    logs[0].append_put(b"named", b"kept")
    logs.sync_all()
    commit = CommitRecord(
        epoch=1, generation=first.driver.generation, ranges=logs.take_ranges(), watermark=7
    )
    first.driver.commit(commit)
    logs.set_epoch(2)
    logs[0].append_put(b"unnamed", b"of a task that was never committed")
    logs.sync_all()
    unnamed = logs.take_ranges()[0]
    logs.close()
    first.close()
    path = tmp_path / "home" / unnamed.segment
    data = bytearray(path.read_bytes())
    data[unnamed.offset + 100] ^= 1
    path.write_bytes(data)

    second = start()
    (batch,) = second.state.batches("state", 0)
    assert batch["key"].to_pylist() == [b"named"]
    (left,) = second.state.report.left_aside
    assert left.path == unnamed.segment
    assert left.offset == unnamed.offset
    assert left.reason.startswith("damaged")
    again = LogSet(second.home, 1, generation=second.driver.generation)
    assert again[0].segment != unnamed.segment  # nobody appends behind damage
    again.close()
    second.close()


@pytest.mark.parametrize("loss", ["gone", "empty", "cut"])
@pytest.mark.parametrize("checkpointed", [True, False], ids=["checkpoint", "no checkpoint"])
def test_a_driver_log_that_lost_its_commits_was_taken_for_a_shorter_history(
    tmp_path: Path, loss: str, checkpointed: bool
) -> None:
    disk = LocalDisk(tmp_path / "home")

    def manager(config: RecoveryConfig | None = None) -> RecoveryManager:
        checkpointer = Checkpointer(open_store(str(tmp_path / "store")))
        return RecoveryManager(workspace(disk, tmp_path / "scratch"), checkpointer, config=config)

    checkpointer = Checkpointer(open_store(str(tmp_path / "store")))
    first = RecoveryManager(workspace(disk, tmp_path / "scratch"), checkpointer).run()
    logs = LogSet(first.home, 1, generation=first.driver.generation)
    head: Point | None = None
    for epoch in (1, 2, 3):
        logs.set_epoch(epoch)
        logs[0].append_put(b"k%d" % epoch, b"v")
        logs.sync_all()
        head = first.driver.commit(
            CommitRecord(
                epoch=epoch,
                generation=first.driver.generation,
                parent=head,
                follows=head,
                ranges=logs.take_ranges(),
            )
        )
        if epoch == 2 and checkpointed:
            begin = checkpointer.begin(full=True)
            manifest = CheckpointManifest(
                checkpoint_id=begin.id, epoch=2, timestamp_ms=1, commit_digest=head.digest
            )
            checkpointer.commit(begin, manifest)
    logs.close()
    first.close()
    (segment,) = (tmp_path / "home" / "driver").glob("*.wal")
    if loss == "gone":
        segment.unlink()
    else:
        segment.write_bytes(segment.read_bytes()[: 0 if loss == "empty" else 700])
    if loss != "gone" and not checkpointed:
        return  # nothing is left that could tell how long the log was
    with pytest.raises(WouldLose, match="driver log of this home"):
        manager().run()
    lost = manager(RecoveryConfig(lose_after=2)).run()
    assert lost.state.epoch == (2 if checkpointed else 0)
    lost.close()
