"""Opening a core's log when the driver log decides: only the ends of the newest are read (R1).

Epoch and sequence must not go back, whatever stands in the folder.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from lamina.disk import LocalDisk
from lamina.disk.base import LogFile
from lamina.errors import Refused
from lamina.format.home_names import CoreSegment, segment_path
from lamina.format.wal import HEADER_SIZE
from lamina.wal import Home, drop_segments
from lamina.wal.scan import read_end, read_tail, segments_of
from lamina.wal.standalone import CoreWalWriter
from tests.support.wal_logs import HOME, add_to, batch_of, commit_epoch, open_writer


class CountingDisk(LocalDisk):
    """A folder that counts the bytes read of each file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.bytes_read: Counter[str] = Counter()

    def read(self, path: str, offset: int, size: int) -> bytes:
        data = super().read(path, offset, size)
        self.bytes_read[path] += len(data)
        return data


def open_task(
    disk: LocalDisk, *, epoch: int = 0, tag: str = "task", generation: int = 1, **more: object
) -> CoreWalWriter:
    return open_writer(
        disk, epoch=epoch, tag=tag, generation=generation, commits_here=False, **more
    )


def run_task(disk: LocalDisk, epoch: int, *, entries: int = 1, **more: object) -> CoreWalWriter:
    """What a task does in one epoch."""
    with open_task(disk, epoch=epoch, **more) as writer:  # type: ignore[arg-type]
        append(writer, entries)
    return writer


def append(writer: CoreWalWriter, entries: int) -> None:
    writer.append_batch(batch_of({b"%d" % i: b"v" for i in range(entries)}))
    writer.sync()


def read_to_open(root: Path, **more: object) -> Counter[str]:
    disk = CountingDisk(root)
    open_task(disk, **more).close()  # type: ignore[arg-type]
    return disk.bytes_read


# what is read


def test_opening_reads_the_newest_segment_only(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    for epoch in range(1, 30):
        run_task(disk, epoch, segment_bytes=2_000)
    paths = segments_of(disk, 0)
    assert len(paths) > 5
    assert set(read_to_open(tmp_path)) == {paths[-1]}


def test_opening_reads_no_more_when_the_segment_is_longer(tmp_path: Path) -> None:
    def bytes_read(epochs: int) -> int:
        root = tmp_path / str(epochs)
        root.mkdir()
        for epoch in range(1, epochs + 1):
            run_task(LocalDisk(root), epoch)
        return read_to_open(root).total()

    assert bytes_read(300) == bytes_read(40) < 40_000


def test_a_last_record_that_is_large_is_found_too(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    for size in (10, 100_000, 3_000_000, 9_000_000):
        with open_task(disk) as writer:
            sequence = writer.sequence
            writer.append_batch(batch_of({b"big": os.urandom(size)}))
        with open_task(disk) as again:
            assert again.sequence == sequence + 1
            assert again.segment == writer.segment


def test_a_log_that_decides_by_itself_is_still_walked_once(tmp_path: Path) -> None:
    """Its damage stops, wherever it is; the COMMIT it goes on from is read, not searched again."""
    with open_writer(LocalDisk(tmp_path), segment_bytes=2_000) as writer:
        for epoch in range(1, 12):
            commit_epoch(writer, epoch, {b"a": b"1"})
    disk = CountingDisk(tmp_path)
    with open_writer(disk) as again:
        assert again.head == writer.head
    assert set(disk.bytes_read) == set(segments_of(disk, 0))
    assert all(disk.bytes_read[path] < 3 * disk.size(path) for path in disk.bytes_read)


@pytest.mark.parametrize("changed", [{"partitions": 4}, {"generation": 2}])
def test_another_p_or_generation_begins_a_segment_of_its_own(
    tmp_path: Path, changed: dict[str, int]
) -> None:
    """R13: P is in the header of a segment, for all of its records."""
    disk = LocalDisk(tmp_path)
    with open_task(disk, epoch=1, partitions=2, generation=1) as before:
        append(before, 1)
    with open_task(disk, epoch=2, **{"partitions": 2, "generation": 1, **changed}) as after:
        append(after, 1)
    assert after.segment != before.segment


# epoch and sequence


def test_a_newest_segment_without_a_header_does_not_set_the_sequence_back(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    run_task(disk, 5, entries=7)
    for epoch, left in ((8, b""), (9, bytes(64)), (10, bytes(30))):
        path = segment_path(CoreSegment(0, 1, epoch, "killed"))
        (tmp_path / path).write_bytes(left)
    with open_task(disk) as writer:
        assert (writer.epoch, writer.sequence) == (10, 7)


def test_the_last_segment_with_a_header_is_not_dropped_behind_one_without(tmp_path: Path) -> None:
    """Dropped, the sequence began at 0 again."""
    disk = LocalDisk(tmp_path)
    run_task(disk, 5, entries=7)
    (tmp_path / segment_path(CoreSegment(0, 1, 8, "killed"))).write_bytes(b"")
    assert drop_segments(Home(disk, HOME), 6, keep=set()) == ()
    with open_task(disk) as writer:
        assert writer.sequence == 7


@pytest.mark.parametrize("at", [10, HEADER_SIZE + 10], ids=["header", "first record"])
def test_a_damaged_newest_segment_does_not_set_the_sequence_back(tmp_path: Path, at: int) -> None:
    disk = LocalDisk(tmp_path)
    old = run_task(disk, 5, entries=7)
    newest = run_task(disk, 6, segment_bytes=100)
    path = tmp_path / newest.segment
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with open_task(disk) as writer:
        assert writer.epoch == 6
        assert writer.sequence >= 7
        assert writer.segment not in (old.segment, newest.segment)


def test_a_torn_end_is_left_aside_and_the_sequence_goes_on(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    first = run_task(disk, 1, entries=3)
    add_to(tmp_path / first.segment, b"LREC" + bytes(100))
    with open_task(disk, epoch=2) as writer:
        assert (writer.sequence, writer.segment == first.segment) == (3, False)


def test_a_late_twin_that_went_on_after_the_next_epoch_began_is_seen(tmp_path: Path) -> None:
    """Its segment has the lower epoch in its name and the higher sequence in its records."""
    disk = LocalDisk(tmp_path)
    with open_task(disk, epoch=5, tag="winner") as winner:
        twin = open_task(disk, epoch=5, tag="twin")
        append(winner, 1)
    run_task(disk, 6, segment_bytes=100)
    append(twin, 50)
    twin.close()
    with open_task(disk) as writer:
        assert writer.sequence == twin.sequence >= 50
        assert writer.epoch == 6


def test_a_late_task_of_an_older_generation_is_seen(tmp_path: Path) -> None:
    """It got the lock after the newer one: its segment sorts before, and goes on behind."""
    disk = LocalDisk(tmp_path)
    newer = run_task(disk, 5, generation=2)
    late = run_task(disk, 5, generation=1, entries=9)
    assert late.segment < newer.segment
    with open_task(disk, generation=2) as writer:
        assert writer.sequence == late.sequence == 10
        assert writer.segment == newer.segment


def test_a_twin_with_a_tag_that_sorts_before_is_seen(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    first = run_task(disk, 5, tag="run-b", segment_bytes=100)
    second = run_task(disk, 5, tag="run-a", entries=9, segment_bytes=100)
    assert second.segment < first.segment
    with open_task(disk) as writer:
        assert writer.sequence == 10


def test_a_lost_sector_before_the_last_record_is_torn_and_not_gone_on_behind(
    tmp_path: Path,
) -> None:
    """A power cut may keep the last record and lose one before it: nobody had synced either."""
    disk = LocalDisk(tmp_path)
    with open_task(disk, epoch=1) as writer:
        for _ in range(3):
            writer.append_batch(batch_of({b"a": b"x" * 3_000}))
    path = tmp_path / writer.segment
    data = bytearray(path.read_bytes())
    data[1024:1536] = bytes(512)
    path.write_bytes(data)
    with open_task(disk) as again:
        assert again.segment != writer.segment
        assert again.sequence == 3


def test_an_end_says_what_a_walk_over_the_whole_segment_says(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    with open_task(disk) as writer:
        for epoch in range(1, 9):
            writer.set_epoch(epoch)
            append(writer, epoch)
        writer.append_epoch_barrier()
        end, tail = (read(disk, writer.segment, HOME) for read in (read_end, read_tail))
    for name in ("path", "header", "end", "next_sequence", "epoch", "durable", "size"):
        assert getattr(end, name) == getattr(tail, name), name


def test_epochs_rise_from_record_to_record_also_after_a_commit(tmp_path: Path) -> None:
    """A put after a COMMIT is of the next epoch: the barrier behind it said the one before."""
    with open_writer(LocalDisk(tmp_path)) as writer:
        commit_epoch(writer, 5, {b"a": b"1"})
        writer.append_put(b"b", b"2")
        writer.append_epoch_barrier()
        writer.rotate()
    with open_task(LocalDisk(tmp_path)) as again:
        assert again.epoch == 6


# open_at


def test_open_at_goes_on_in_a_log_of_several_partitions(tmp_path: Path) -> None:
    """It took every log for one of a single partition."""
    disk = LocalDisk(tmp_path)
    with open_writer(disk, partitions=4) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
    with pytest.raises(Refused, match="with P = 1"):
        CoreWalWriter.open_at(0, disk, writer.position, home=HOME)
    with CoreWalWriter.open_at(0, disk, writer.position, home=HOME, partitions=4) as again:
        assert again.segment == writer.segment
        again.set_epoch(2)
        again.append_commit({})


class SyncingDisk(LocalDisk):
    """A folder that notes which files were opened for writing."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.opened: list[str] = []

    def open(self, path: str) -> LogFile:
        self.opened.append(path)
        return super().open(path)


def test_a_commit_in_a_torn_segment_is_made_durable_before_a_later_one_names_it(
    tmp_path: Path,
) -> None:
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        torn = writer.segment
    with (tmp_path / torn).open("ab") as file:
        file.write(b"LREC")  # killed while it wrote the next record
    watched = SyncingDisk(tmp_path)
    with open_writer(watched) as writer:
        assert writer.segment != torn
        assert writer.head is not None
    assert watched.opened == [torn]
