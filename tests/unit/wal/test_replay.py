"""Replay of a core's own log: exactly what was committed, or an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.disk import LocalDisk
from lamina.errors import Diverged, WalDamaged
from lamina.format.commit import CommitRecord, encode_commit
from lamina.format.wal import Kind
from lamina.wal.standalone import replay_core
from tests.support.wal_logs import (
    HOME,
    apply,
    batch_of,
    commit_epoch,
    open_writer,
    segment_bytes,
    write_file,
)


def state_of(disk: LocalDisk, **more: int) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for _, batch in replay_core(disk, 0, HOME).batches(**more):
        apply(state, batch)
    return state


def test_the_state_is_what_was_committed(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1", b"b": b"1"}, 10)
        commit_epoch(writer, 2, {b"a": None, b"c": b"2"}, 20)
        commit_epoch(writer, 5, {b"b": b"5"}, 50)
    assert state_of(disk) == {b"b": b"5", b"c": b"2"}
    found = replay_core(disk, 0, HOME)
    assert [c.epoch for c in found.commits] == [1, 2, 5]
    assert [c.watermark for c in found.commits] == [10, 20, 50]
    assert found.commits[-1].source_offsets["source"].offsets == {"partition-0": "50"}
    assert (found.entries, found.entries_dropped, found.torn) == (5, 0, ())


def test_an_empty_core_has_an_empty_history(tmp_path: Path) -> None:
    found = replay_core(LocalDisk(tmp_path), 0, HOME)
    assert (found.commits, found.entries, found.entries_dropped) == ((), 0, 0)


def test_what_no_commit_names_is_dropped_and_counted(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        writer.set_epoch(2)
        writer.append_put(b"a", b"2")
        writer.append_delete(b"b")
        writer.append_epoch_barrier()
        writer.append_batch(batch_of({b"x": b"1", b"y": b"1", b"z": b"1"}))
        writer.sync()
    assert state_of(disk) == {b"a": b"1"}
    assert replay_core(disk, 0, HOME).entries_dropped == 5


def test_uncommitted_entries_of_a_killed_process_are_in_no_later_commit(tmp_path: Path) -> None:
    """The new process reads from the committed offsets: it puts them itself."""
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        writer.set_epoch(2)
        writer.append_put(b"half", b"2")
        writer.sync()
    with open_writer(disk) as again:
        commit_epoch(again, 3, {b"b": b"3"})
    assert state_of(disk) == {b"a": b"1", b"b": b"3"}
    assert replay_core(disk, 0, HOME).entries_dropped == 1


def test_replay_after_an_epoch_begins_with_the_next_one(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        for epoch in (1, 2, 3):
            commit_epoch(writer, epoch, {b"k%d" % epoch: b"v"})
    assert state_of(disk, after_epoch=1) == {b"k2": b"v", b"k3": b"v"}
    assert state_of(disk, after_epoch=3) == {}


def test_a_commit_without_its_parent_is_a_gap_and_stops(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        first = writer.segment
        writer.rotate()
        commit_epoch(writer, 2, {b"a": b"2"})
    (tmp_path / first).unlink()
    with pytest.raises(WalDamaged, match="COMMIT of epoch 1 is missing"):
        replay_core(disk, 0, HOME)


def test_a_log_whose_beginning_is_in_a_checkpoint_is_replayed_from_there(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        base = commit_epoch(writer, 2, {b"a": b"2"})
        first = writer.segment
        writer.rotate()
        commit_epoch(writer, 3, {b"b": b"3"})
        commit_epoch(writer, 4, {b"b": b"4"})
    whole = replay_core(disk, 0, HOME, base=base)
    (tmp_path / first).unlink()
    rest = replay_core(disk, 0, HOME, base=base)
    assert [c.epoch for c in rest.commits] == [3, 4]
    assert rest.commits == whole.commits
    assert rest.entries_dropped == 0
    with pytest.raises(WalDamaged, match="epoch 2 is missing"):
        replay_core(disk, 0, HOME)


def test_a_base_that_the_log_does_not_stand_on_is_damage(tmp_path: Path) -> None:
    """A checkpoint of another history: what the log holds does not continue it."""
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        commit_epoch(writer, 2, {b"a": b"2"})
    other = CommitRecord(epoch=1, generation=9).point
    with pytest.raises((WalDamaged, Diverged)):
        replay_core(disk, 0, HOME, base=other)


def test_two_commits_after_the_same_parent_stop(tmp_path: Path) -> None:
    """Either may have been acknowledged: neither is dropped in silence."""
    one = CommitRecord(epoch=1, generation=1)
    two = CommitRecord(epoch=2, generation=1, parent=one.point)
    twin = CommitRecord(epoch=3, generation=1, parent=one.point)
    payloads = [(Kind.COMMIT, encode_commit(commit)) for commit in (one, two, twin)]
    disk = write_file(tmp_path, f"core-0/{1:020d}-{1:020d}-t.wal", segment_bytes(payloads))
    with pytest.raises(Diverged, match="epoch"):
        replay_core(disk, 0, HOME)


def test_a_damaged_range_stops_the_replay_with_its_place(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1" * 500})
    path = tmp_path / writer.segment
    data = bytearray(path.read_bytes())
    data[300] ^= 4
    path.write_bytes(data)
    with pytest.raises(WalDamaged, match="does not match") as caught:
        replay_core(disk, 0, HOME)
    assert caught.value.where == f"{tmp_path}/{writer.segment}, byte 64"


def test_removing_the_replay_would_be_noticed(tmp_path: Path) -> None:
    """In LaminarDB the log was written and never read: here the state comes from nowhere else."""
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"only in the log": b"1"})
    assert state_of(disk) == {b"only in the log": b"1"}
