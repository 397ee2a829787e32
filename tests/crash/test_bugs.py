"""What the crash tests have found, each by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from lamina.errors import Fenced, Refused, StoreFull
from lamina.format.home_names import IDENTITY
from lamina.format.manifest_model import ConnectorCheckpoint
from lamina.store import MemoryStore
from lamina.testing import ManualClock
from lamina.wal import Clean, DriverLog, Home, SegmentReader, Torn, claim_home, read_home
from lamina.wal.scan import segments_of
from lamina.wal.standalone import CoreWalWriter, LogSet, replay_core
from lamina.wal.standalone.writer import OPERATOR
from tests.crash.disk import Call, Hook, Image, Platter, PowerCut, RecordingDisk
from tests.crash.pipeline import CONFIG, Process, Truth

HOME = bytes(16)
OFFSETS = {"s": ConnectorCheckpoint({"0": "1"}, 1)}


def torn_in(first: bytes) -> list[Image]:
    """One synced epoch, then a second whose bytes reached the disk in part."""
    disk = RecordingDisk()
    with CoreWalWriter(0, disk, home=HOME) as writer:
        writer.set_epoch(1)
        writer.append_put(b"a", b"1")
        writer.append_commit(OFFSETS)
        writer.sync()
        writer.set_epoch(2)
        writer.append_put(b"a", first)
        writer.append_commit(OFFSETS)
    return [*disk.platter.crash_images(Random(0), at_most=120)]


def test_a_torn_commit_was_damage_to_the_writer_that_opened_the_log_again() -> None:
    opened = 0
    for image in torn_in(b"2" * 900):
        disk = RecordingDisk(Platter.of(image))
        commits = replay_core(disk, 0, HOME).commits
        with CoreWalWriter(0, disk, home=HOME) as writer:
            assert writer.head == commits[-1].point
        opened += 1
    assert opened > 20


def test_a_commit_behind_a_torn_run_was_the_head_and_the_next_one_had_no_parent() -> None:
    for image in torn_in(b"2" * 900):
        disk = RecordingDisk(Platter.of(image))
        with CoreWalWriter(0, disk, home=HOME) as writer:
            writer.set_epoch(3)
            writer.append_commit(OFFSETS)
            writer.sync()
        assert replay_core(disk, 0, HOME).commits[-1].epoch == 3


def test_a_run_in_the_driver_log_was_adopted_from_the_page_cache_and_lost(scratch: Path) -> None:
    """R5 copies the COMMIT; the run it names stood in the same unsynced bytes."""
    platter, store, truth = Platter(), MemoryStore(), Truth()
    first = Process(RecordingDisk(platter, name="first"), store, truth, scratch, seed=1)
    first.start()
    first.driver._segment._file.sync = first.disk.kill  # type: ignore[method-assign]
    with pytest.raises(PowerCut):
        first.small_epoch({b"k": b"v"})
    assert truth.acked == []
    second = Process(RecordingDisk(platter, name="second"), store, truth, scratch, seed=2)
    truth.acked[:] = [second.start().head]  # type: ignore[list-item]
    for image in platter.crash_images(Random(0), at_most=100):
        third = RecordingDisk(Platter.of(image), name="third")
        Process(third, _copy(store), truth, scratch, seed=3).start()


def test_an_abandoned_epoch_stopped_every_later_process(scratch: Path) -> None:
    """The cores had reached epoch 3, the next to be committed was 2: epochs only rise."""
    platter, store, truth = Platter(), MemoryStore(), Truth()
    changes = {(OPERATOR, 0): {b"k": b"v"}, (OPERATOR, 1): {b"k": b"v"}}
    first = Process(RecordingDisk(platter, name="first"), store, truth, scratch, seed=1)
    first.start()
    first.epoch(changes)
    first.append(2, changes)  # its COMMIT was never written: a task was lost
    first.append(3, changes)
    first.disk.kill()
    second = Process(RecordingDisk(platter, name="second"), store, truth, scratch, seed=2)
    second.start()
    assert second.epoch(changes).epoch >= 3


def full_at(folder: str) -> Hook:
    """No new file in one folder: the disk is full."""

    def hook(call: Call) -> None:
        if call.operation == "create" and call.path.startswith(folder):
            raise StoreFull("No space left on device", where=call.path)

    return hook


def test_a_writer_that_could_not_open_left_the_lock_of_the_core_behind() -> None:
    disk = RecordingDisk(hook=full_at("core-0/"))
    with pytest.raises(StoreFull):
        CoreWalWriter(0, disk, home=HOME)
    assert disk.try_lock("core-0/lock") is not None


def test_a_set_of_logs_that_could_not_open_kept_the_locks_of_the_first_ones() -> None:
    disk = RecordingDisk(hook=full_at("core-1/"))
    with pytest.raises(StoreFull):
        LogSet(Home(disk, HOME), 2)
    assert disk.try_lock("core-0/lock") is not None


def test_the_newest_segment_was_taken_for_an_older_one_by_its_name() -> None:
    """`tag.000001.wal` sorts before `tag.wal`, but it was made later."""
    disk = RecordingDisk()
    with CoreWalWriter(0, disk, home=HOME) as writer:
        writer.append_put(b"a", b"1")
        newest = writer.rotate()
    assert segments_of(disk, 0)[-1] == newest
    with CoreWalWriter(0, disk, home=HOME) as writer:
        assert writer.segment == newest


def test_a_reader_that_raced_the_header_called_the_segment_damaged() -> None:
    """It had the size from before the first write, and the header from after it."""
    disk = RecordingDisk()
    CoreWalWriter(0, disk, home=HOME).close()
    (path,) = segments_of(disk, 0)
    inode = disk.platter.files[path]
    header, inode.data = bytes(inode.data), bytearray()

    def write_now(call: Call) -> None:
        if call.operation == "read" and not inode.data:
            inode.data += header

    reader = SegmentReader(disk.process("twin", write_now), path)
    assert [*reader.records()] == []
    assert reader.end == Clean(len(header))


def test_a_reader_in_mid_append_took_what_came_later_for_proof_of_damage() -> None:
    """It saw half a record; before it looked behind that, the writer had synced it and gone on."""
    disk = RecordingDisk()
    with CoreWalWriter(0, disk, home=HOME) as writer:
        writer.set_epoch(1)
        for value in (b"1", b"2"):
            writer.append_put(b"a", value)
            writer.sync()
        (path,) = segments_of(disk, 0)
    inode = disk.platter.files[path]
    whole, inode.data = bytes(inode.data), inode.data[:500]
    reader = SegmentReader(disk, path)
    inode.data[:] = whole
    assert [*reader.records()] == []
    assert isinstance(reader.end, Torn)


def test_a_start_in_the_old_home_took_the_pipeline_back_without_a_flag(scratch: Path) -> None:
    """Its claim was judged before the other home took over, its TAKEOVER written after."""
    store, truth = MemoryStore(), Truth()
    old, new = Platter(), Platter()
    first = Process(RecordingDisk(old, name="first"), store, truth, scratch, seed=1)
    first.start()
    first.epoch({(OPERATOR, 0): {b"k": b"v"}})
    first.checkpoint()
    for generation in range(2, 6):  # starts that never reached the store
        DriverLog(first.home, generation).close()
    first.disk.kill()
    flag = replace(CONFIG, take_over_home=True)
    moved = Process(RecordingDisk(new), store, truth, scratch, seed=2, config=flag)

    def take_over_now(call: Call) -> None:
        if call.operation == "create" and call.moment == "before" and moved.logs is None:
            moved.start()
            moved.epoch({(OPERATOR, 0): {b"k": b"acknowledged in the new home"}})

    late = RecordingDisk(old, name="late", hook=take_over_now)
    with pytest.raises((Refused, Fenced)):
        Process(late, store, truth, scratch, seed=3).recover()
    moved.disk.kill()
    Process(RecordingDisk(new), store, truth, scratch, seed=4).start()


def _copy(store: MemoryStore) -> MemoryStore:
    copied = MemoryStore()
    for info in store.list():
        copied.put(info.key, store.get(info.key))
    return copied


def test_a_home_read_from_the_page_cache_was_claimed_and_lost_in_a_power_cut() -> None:
    """Its maker was killed between the rename of home.json and the sync of the folder."""

    def die(call: Call) -> None:
        if call.operation == "sync_folder" and call.path == "" and IDENTITY in platter.files:
            raise PowerCut  # a kill: what is in the page cache stays

    platter = Platter()
    maker = RecordingDisk(platter, hook=die)
    with pytest.raises(PowerCut):
        claim_home(maker, ManualClock(1))
    maker.kill()
    claimed = claim_home(RecordingDisk(platter), ManualClock(2))
    for image in platter.crash_images(Random(0), at_most=50):
        assert read_home(RecordingDisk(Platter.of(image))).identity == claimed.identity
