"""The logs of all cores of a home, side by side; what may be dropped (R7)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lamina.disk import LocalDisk
from lamina.errors import StoreError, UsageError
from lamina.format.commit import CommitRecord
from lamina.format.wal import Kind
from lamina.testing import ManualClock
from lamina.wal import DriverLog, Home, claim_home, drop_segments, droppable
from lamina.wal.scan import segments_of
from lamina.wal.standalone import LogSet, read_up_to, replay_core, statistics
from tests.support.wal_logs import (
    HOME,
    FailingDisk,
    add_to,
    all_records,
    commit_epoch,
    entries_of,
    home_at,
    open_writer,
)


def fill(logs: LogSet, epoch: int) -> None:
    """One epoch: an entry per core."""
    logs.set_epoch(epoch)
    for core, writer in enumerate(logs.writers):
        writer.append_put(b"core %d" % core, b"epoch %d" % epoch)
    logs.barrier_all()
    logs.sync_all()


def test_a_set_has_a_writer_for_every_core(tmp_path: Path) -> None:
    logs = LogSet(home_at(tmp_path), 4)
    assert [writer.core_id for writer in logs.writers] == [0, 1, 2, 3]
    assert logs[2].core_id == 2
    logs.close()
    with pytest.raises(UsageError):
        LogSet(home_at(tmp_path), 0)


def test_barriers_carry_the_epoch_that_they_close_in_every_log(tmp_path: Path) -> None:
    logs = LogSet(home_at(tmp_path), 3)
    fill(logs, 7)
    for writer in logs.writers:
        records = all_records(home_at(tmp_path).disk, writer.segment)
        assert [(r.kind, r.epoch) for r in records] == [(Kind.RUN, 7), (Kind.BARRIER, 7)]
    logs.close()


def test_the_low_water_mark_is_what_every_core_has_reached(tmp_path: Path) -> None:
    logs = LogSet(home_at(tmp_path), 3)
    logs.set_epoch(4)
    logs[1].set_epoch(9)
    assert logs.low_water_mark == 4
    logs[0].set_epoch(6)
    assert logs.low_water_mark == 4
    logs.close()


def test_a_reopened_set_goes_on_in_its_epoch(tmp_path: Path) -> None:
    logs = LogSet(home_at(tmp_path), 2)
    fill(logs, 5)
    logs.close()
    again = LogSet(home_at(tmp_path), 2)
    assert [writer.epoch for writer in again.writers] == [5, 5]
    assert [writer.sequence for writer in again.writers] == [1, 1]
    again.close()


def test_ranges_of_all_cores_are_taken_once(tmp_path: Path) -> None:
    logs = LogSet(home_at(tmp_path), 3)
    fill(logs, 1)
    ranges = logs.take_ranges()
    assert [place.core for place in ranges] == [0, 1, 2]
    assert logs.take_ranges() == ()
    logs.close()


class Interrupted:
    """A writer whose ranges are asked for when somebody presses Ctrl-C."""

    def take_ranges(self) -> None:
        raise KeyboardInterrupt


def test_ranges_of_which_some_were_taken_are_not_left_out_of_the_next_commit(
    tmp_path: Path,
) -> None:
    """A caller that goes on after an interrupt committed an epoch without the first core's."""
    logs = LogSet(home_at(tmp_path), 2)
    fill(logs, 1)
    whole = logs.writers
    logs.writers = (whole[0], Interrupted())  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        logs.take_ranges()
    logs.writers = whole
    with pytest.raises(StoreError, match="interrupted"):
        logs.take_ranges()
    logs.close()


def test_a_failed_sync_of_one_log_is_not_hidden_by_the_others(tmp_path: Path) -> None:
    failing = FailingDisk(home_at(tmp_path).disk)
    logs = LogSet(Home(failing, HOME), 3)
    for writer in logs.writers:
        writer.append_put(b"a", b"1")
    failing.fail["sync"] = 1
    with pytest.raises(StoreError):
        logs.sync_all()
    with pytest.raises(StoreError):
        logs.sync_all()
    logs.close()


def test_entries_up_to_an_epoch_come_by_epoch_core_and_sequence(tmp_path: Path) -> None:
    """Also when a higher epoch stands before a lower one, in another segment of the same core."""
    home = home_at(tmp_path)
    logs = LogSet(home, 2)
    for epoch in (1, 2, 3, 8):
        fill(logs, epoch)
    logs.close()
    found = [
        (record.epoch, key)
        for record in read_up_to(home, 3)
        for key, _ in entries_of(record.batch())
    ]
    cores = [b"core 0", b"core 1"]
    assert found == [(epoch, core) for epoch in (1, 2, 3) for core in cores]


def test_statistics_say_what_there_is_and_what_is_torn(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    logs = LogSet(home, 2)
    fill(logs, 2)
    fill(logs, 3)
    logs[0].rotate()
    logs.close()
    add_to(tmp_path / logs[1].segment, b"LREC...")
    found = statistics(home.disk, HOME)
    assert (found.segments, found.records, found.torn_bytes) == (3, 8, 7)
    assert (found.epoch_min, found.epoch_max) == (2, 3)
    sizes = [home.disk.size(p) for core in (0, 1) for p in segments_of(home.disk, core)]
    assert found.bytes == sum(sizes)


# dropping


def test_whole_segments_below_the_floor_are_dropped_oldest_first(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    logs = LogSet(home, 2)
    made = []
    for epoch in range(1, 6):
        fill(logs, epoch)
        made.append(logs[0].segment)
        for writer in logs.writers:
            writer.rotate()
    dropped = logs.drop_through(3)
    assert [path for path in dropped if path.startswith("core-0/")] == made[:3]
    assert {r.epoch for r in read_up_to(home, 9)} == {4, 5}
    assert logs.drop_through(3) == ()
    logs.close()


def test_a_segment_with_one_record_above_the_floor_stays_whole(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    logs = LogSet(home, 1)
    fill(logs, 1)
    fill(logs, 5)
    logs[0].rotate()
    assert logs.drop_through(4) == ()
    assert len(logs.drop_through(5)) == 1
    logs.close()


def test_the_segment_that_is_open_and_the_newest_of_a_core_stay(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    logs = LogSet(home, 1)
    fill(logs, 1)
    assert logs.drop_through(100) == ()
    logs.close()
    assert drop_segments(home, 100, keep=set()) == ()


def test_an_empty_segment_of_a_running_task_is_not_dropped(tmp_path: Path) -> None:
    """It has no record yet, but its name says for which epoch it was made."""
    home = home_at(tmp_path)
    with open_writer(home.disk, epoch=9, tag="a-task"), open_writer(home.disk, epoch=10):
        assert droppable(home, 5, keep=set()) == ()


def test_the_segment_that_the_lock_holder_appends_to_is_not_dropped(tmp_path: Path) -> None:
    """A twin without the lock has a newer name: the older file is still in use."""
    home = home_at(tmp_path)
    with open_writer(home.disk, epoch=1, tag="a") as holder:
        holder.append_put(b"k", b"v")
        holder.sync()
        with open_writer(home.disk, epoch=2, tag="b"):
            assert holder.segment not in droppable(home, 5, keep=set())


def test_a_torn_segment_below_the_floor_goes_too(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    with open_writer(home.disk, epoch=1) as writer:
        writer.append_put(b"k", b"v")
        writer.sync()
    add_to(tmp_path / writer.segment, bytes(100))
    with open_writer(home.disk):
        pass
    assert drop_segments(home, 1, keep=set()) == (writer.segment,)


def test_dropping_does_not_make_a_core_forget_its_epoch_and_its_head(tmp_path: Path) -> None:
    """The newest segment is empty, and everything before it is in a checkpoint."""
    home = home_at(tmp_path)
    with open_writer(home.disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        writer.rotate()
        head = commit_epoch(writer, 7, {b"a": b"7"})
        writer.rotate()
    drop_segments(home, 7, keep=set())
    with open_writer(home.disk) as again:
        assert (again.epoch, again.head) == (7, head)
        commit_epoch(again, 8, {b"b": b"8"})
    assert [c.epoch for c in replay_core(home.disk, 0, HOME, base=head).commits] == [8]


def test_an_empty_log_remembers_the_epoch_it_was_made_in(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    open_writer(home.disk, epoch=7).close()
    with open_writer(home.disk) as again:
        assert again.epoch == 7


def test_entries_put_after_a_commit_are_not_dropped_with_its_epoch(tmp_path: Path) -> None:
    """Nobody has called set_epoch yet: they belong to a later epoch all the same."""
    home = home_at(tmp_path)
    with open_writer(home.disk) as writer:
        base = commit_epoch(writer, 1, {b"a": b"1"})
        writer.rotate()
        writer.append_put(b"b", b"2")
        writer.rotate()
        drop_segments(home, base.epoch, keep={writer.segment})
        commit_epoch(writer, 2, {})
    found = replay_core(home.disk, 0, HOME, base=base)
    assert [entries_of(batch) for _, batch in found.batches()] == [[(b"b", b"2")]]


def test_a_commit_that_is_not_synced_does_not_let_the_one_before_it_go(tmp_path: Path) -> None:
    """A power cut after the drop took the second COMMIT, and the first was gone already."""
    home = home_at(tmp_path)
    with open_writer(home.disk) as writer:
        first = commit_epoch(writer, 1, {b"a": b"1"})
        writer.rotate()
        synced = writer.position
        writer.set_epoch(2)
        writer.append_commit({})
        assert drop_segments(home, 1, keep={writer.segment}) == ()
    with (tmp_path / writer.segment).open("r+b") as file:
        file.truncate(synced)
    with open_writer(home.disk) as again:
        assert again.head == first


def test_statistics_left_out_the_driver_log(tmp_path: Path) -> None:
    """In an embedded store everything lies there."""
    home = claim_home(LocalDisk(tmp_path), ManualClock())
    driver = DriverLog(home, 1)
    driver.append_run(pa.record_batch({"k": [1]}), epoch=4)
    driver.commit(CommitRecord(epoch=4, generation=1))
    found = statistics(home.disk, home.identity)
    assert found.bytes == driver.size == home.disk.size(driver.segment)
    assert (found.segments, found.epoch_min, found.epoch_max) == (1, 4, 4)
    driver.close()
    home.release()
