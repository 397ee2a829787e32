"""What a review of the write-ahead log found, each by what went wrong."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lamina.disk import LocalDisk
from lamina.errors import AlreadyExists, LaminaError, NotFound, Refused, StoreError, UsageError
from lamina.format.commit import AdoptRecord, CommitRecord, Point
from lamina.format.manifest_model import ConnectorCheckpoint
from lamina.recovery import RecoveryConfig
from lamina.wal import DriverLog, Home, SegmentReader, Torn, drop_segments, read_driver_log
from lamina.wal.scan import read_tail, segments_of
from lamina.wal.standalone import CoreWalWriter, read_up_to, replay_core
from tests.support.recoveries import Pipeline
from tests.support.wal_logs import HOME, commit_epoch, driver_commit, home_at, open_writer
from tests.support.workspaces import workspace

NOTHING = AdoptRecord(None, ())
TEXTS = pa.array(["a", "b", None, "a"])
WORDS = TEXTS.dictionary_encode()
NUMBERS = pa.array([1, None, 3, 4], pa.int32())


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    return LocalDisk(tmp_path)


def lose_a_sector(path: Path, filling: bytes) -> None:
    """As after a power cut: a sector in the middle of what is filled with *filling* is zero."""
    data = bytearray(path.read_bytes())
    at = (data.index(filling * 1500) // 512 + 1) * 512
    data[at : at + 512] = bytes(512)
    path.write_bytes(data)


# what an Arrow batch is written as

COLUMNS: dict[str, pa.Array] = {
    "numbers": NUMBERS,
    "texts": TEXTS,
    "nulls": pa.nulls(4),
    "booleans": pa.array([True, False, None, True]),
    "times": NUMBERS.cast(pa.int64()).cast(pa.timestamp("us", "UTC")),
    "fixed": pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2)),
    "views": TEXTS.cast(pa.string_view()),
    "dictionary": WORDS,
    "lists": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4]), NUMBERS),
    "list of dictionaries": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4]), WORDS),
    "fixed list of dictionaries": pa.FixedSizeListArray.from_arrays(WORDS, 1),
    "struct of dictionaries": pa.StructArray.from_arrays([NUMBERS, WORDS], ["n", "d"]),
    "struct in struct": pa.StructArray.from_arrays(
        [pa.StructArray.from_arrays([WORDS], ["d"])], ["s"]
    ),
    "map to dictionaries": pa.MapArray.from_arrays(
        pa.array([0, 1, 2, 3, 4]), pa.array(["k", "l", "m", "n"]), WORDS
    ),
    "run ends": pa.RunEndEncodedArray.from_arrays([2, 4], ["x", "y"]),
    "union": pa.UnionArray.from_sparse(pa.array([0, 1, 0, 1], pa.int8()), [NUMBERS, WORDS]),
}


@pytest.mark.parametrize("repeats", [1, 10_000], ids=["small", "large"])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_small_batch_lost_its_dictionaries(disk: LocalDisk, name: str, repeats: int) -> None:
    column = pa.concat_arrays([COLUMNS[name]] * repeats)
    batch = pa.record_batch({"k": pa.array(range(4 * repeats)), "v": column})
    with open_writer(disk, epoch=1) as writer:
        writer.append_batch(batch)
        writer.append_commit({})
        writer.sync()
    [(_, found)] = replay_core(disk, 0, HOME).batches()
    found.validate(full=True)
    assert found.schema == batch.schema
    assert found.to_pylist()[:8] == batch.to_pylist()[:8]
    assert found.num_rows == batch.num_rows


# what a torn tail hides


def test_the_head_was_dropped_for_a_commit_behind_a_torn_run(
    disk: LocalDisk, tmp_path: Path
) -> None:
    with open_writer(disk) as writer:
        head = commit_epoch(writer, 1, {b"a": b"1"})
        writer.rotate()
        writer.set_epoch(2)
        writer.append_put(b"a", b"2" * 3000)
        writer.append_commit({})
    lose_a_sector(tmp_path / writer.segment, b"2")
    assert read_tail(disk, writer.segment, HOME).committed == 0
    open_writer(disk).close()
    assert drop_segments(Home(disk, HOME), 1, keep=set()) == ()
    with open_writer(disk) as again:
        assert again.head == head
        commit_epoch(again, 3, {b"z": b"z"})
    assert [c.epoch for c in replay_core(disk, 0, HOME, base=head).commits] == [3]


@pytest.fixture
def torn(disk: LocalDisk, tmp_path: Path) -> str:
    """Epoch 1 is committed, the RUN of epoch 2 is torn, epoch 3 stands behind it."""
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        for epoch, value in ((2, b"2" * 3000), (3, b"3")):
            writer.set_epoch(epoch)
            writer.append_put(b"a", value)
            writer.append_epoch_barrier()
    lose_a_sector(tmp_path / writer.segment, b"2")
    return writer.segment


@pytest.mark.parametrize("payloads", [True, False])
def test_reading_from_an_epoch_went_past_a_torn_place(
    disk: LocalDisk, torn: str, *, payloads: bool
) -> None:
    reader = SegmentReader(disk, torn)
    assert list(reader.from_epoch(3, payloads=payloads)) == []
    assert isinstance(reader.end, Torn)
    assert [r.epoch for r in SegmentReader(disk, torn).from_epoch(1)] == [1, 1]


def test_reading_up_to_an_epoch_took_a_torn_tail_for_damage(disk: LocalDisk, torn: str) -> None:
    assert torn
    assert [record.epoch for record in read_up_to(Home(disk, HOME), 9)] == [1]


# what no reader takes

BAD_COMMITS: dict[str, dict[str, Any]] = {
    "an integer as an offset": {"source_offsets": {"s": ConnectorCheckpoint({"0": 5}, 1)}},  # type: ignore[dict-item]
    "an integer as metadata": {"table_offsets": {"s": ConnectorCheckpoint({}, 1, {"a": 1})}},  # type: ignore[dict-item]
    "a negative epoch": {"source_offsets": {"s": ConnectorCheckpoint({"0": "5"}, -1)}},
    "a truth as a watermark": {"watermark": True},
    "no watermark of a source": {"source_watermarks": {"s": None}},
    "no connector": {"source_offsets": {"s": None}},
    "a number as a name": {"source_watermarks": {1: 1}},
}


@pytest.mark.parametrize("name", BAD_COMMITS)
def test_a_commit_was_written_that_no_reader_takes(disk: LocalDisk, name: str) -> None:
    bad = {"source_offsets": {}, **BAD_COMMITS[name]}
    with open_writer(disk, epoch=1) as writer:
        writer.append_put(b"k", b"v")
        with pytest.raises(UsageError):
            writer.append_commit(**bad)
        writer.append_commit({})
        writer.sync()
    assert [c.epoch for c in replay_core(disk, 0, HOME).commits] == [1]


def test_a_log_of_no_partitions_was_committed(disk: LocalDisk) -> None:
    with open_writer(disk, epoch=1, partitions=0) as writer, pytest.raises(UsageError):
        writer.append_commit({})


@pytest.mark.parametrize("name", BAD_COMMITS)
def test_a_driver_wrote_what_no_reader_takes(tmp_path: Path, name: str) -> None:
    home = home_at(tmp_path)
    driver = DriverLog(home, 1)
    bad = CommitRecord(epoch=1, generation=1, **BAD_COMMITS[name])
    with pytest.raises(UsageError):
        driver.adopt(AdoptRecord(None, (bad,)))
    with pytest.raises(UsageError):
        driver.commit(bad)
    driver.commit(driver_commit(driver, 1))
    assert [c.epoch for c in read_driver_log(home.disk, HOME)[0].commits] == [1]


# what a driver log is


def test_a_second_adopt_made_a_driver_log_unreadable(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    driver = DriverLog(home, 1)
    driver.commit(driver_commit(driver, 1))
    with pytest.raises(Refused):
        driver.adopt(AdoptRecord(driver.head, ()))
    driver.close()
    second = DriverLog(home, 2)
    second.adopt(AdoptRecord(driver.head, ()))
    with pytest.raises(Refused):
        second.adopt(AdoptRecord(driver.head, ()))
    assert [len(s.commits) for s in read_driver_log(home.disk, HOME)] == [1, 0]


def test_a_rotation_took_the_head_back(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    driver = DriverLog(home, 1)
    head = driver.commit(driver_commit(driver, 1))
    with pytest.raises(Refused, match="epoch 0"):
        driver.rotate(NOTHING)
    assert driver.head == head
    assert len(read_driver_log(home.disk, HOME)) == 1
    driver.rotate(AdoptRecord(head, ()))
    driver.commit(driver_commit(driver, 2))


@pytest.mark.parametrize(
    "wrong",
    [
        {"generation": 7},
        {"parent": Point(2, "a" * 64)},
        {"parent": Point(9, "a" * 64)},
        {"follows": Point(9, "a" * 64)},
        {"follows": Point(1, "a" * 64)},
        {"follows": None},
    ],
)
def test_a_commit_that_breaks_the_chain_was_accepted(tmp_path: Path, wrong: dict[str, Any]) -> None:
    home = home_at(tmp_path)
    driver = DriverLog(home, 1)
    head = driver.commit(driver_commit(driver, 1))
    fields = {"generation": 1, "parent": head, "follows": head, **wrong}
    with pytest.raises(Refused):
        driver.commit(CommitRecord(epoch=2, **fields))
    driver.commit(driver_commit(driver, 2))


# interrupts


def interrupt_after(
    monkeypatch: pytest.MonkeyPatch, target: object, name: str, *, after: bool = True
) -> None:
    """The next call of *name* is done, then a signal handler raises."""
    real: Callable[..., Any] = getattr(target, name)

    def once(*args: Any, **more: Any) -> Any:
        monkeypatch.setattr(target, name, real)
        if after:
            real(*args, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr(target, name, once)


def check_ended(writer: CoreWalWriter) -> None:
    steps: Sequence[Callable[[], object]] = (
        writer.sync,
        writer.take_ranges,
        writer.append_epoch_barrier,
        writer.rotate,
        writer.reset,
        lambda: writer.append_commit({}),
        lambda: writer.truncate(64),
    )
    for step in steps:
        with pytest.raises(StoreError, match="nothing more is written"):
            step()


@pytest.mark.parametrize("place", ["write", "chain"])
def test_an_interrupted_commit_was_gone_on_from(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        writer.set_epoch(2)
        if place == "write":
            interrupt_after(monkeypatch, os, "writev")
        else:
            interrupt_after(monkeypatch, writer._chain, "append")
        with pytest.raises(KeyboardInterrupt):
            writer.append_commit({})
        check_ended(writer)
    with open_writer(disk) as again:
        commit_epoch(again, 3, {b"b": b"2"})
    assert [c.epoch for c in replay_core(disk, 0, HOME).commits] == [1, 2, 3]


def test_entries_of_an_interrupted_frame_were_written_twice(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_writer(disk, epoch=1) as writer:
        writer.append_put(b"a", b"1")
        interrupt_after(monkeypatch, writer._chain, "append")
        with pytest.raises(KeyboardInterrupt):
            writer.sync()
        check_ended(writer)


@pytest.mark.parametrize("operation", ["fdatasync", "ftruncate"])
def test_an_interrupted_sync_or_cut_was_gone_on_from(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        interrupt_after(monkeypatch, os, operation, after=False)
        with pytest.raises(KeyboardInterrupt):
            writer.truncate(64)
        check_ended(writer)


@pytest.mark.parametrize("operation", ["append", "sync"])
def test_an_interrupted_commit_of_a_driver_was_gone_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    home = home_at(tmp_path)
    driver = DriverLog(home, 1)
    driver.commit(driver_commit(driver, 1))
    interrupt_after(monkeypatch, driver._segment, operation)
    with pytest.raises(KeyboardInterrupt):
        driver.commit(driver_commit(driver, 2))
    for step in (
        lambda: driver.commit(driver_commit(driver, 3)),
        lambda: driver.rotate(AdoptRecord(driver.head, ())),
        lambda: driver.append_run(pa.record_batch({"k": [1]}), epoch=3),
    ):
        with pytest.raises(StoreError, match="nothing more is written"):
            step()
    [segment] = read_driver_log(home.disk, HOME)
    assert [c.epoch for c in segment.commits] == [1, 2]


# what a commit costs


def test_every_commit_parsed_every_name_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = home_at(tmp_path)
    driver = DriverLog(home, 1)
    for epoch in range(1, 20):
        driver.commit(driver_commit(driver, epoch))
        driver.rotate(AdoptRecord(driver.head, ()))
    parsed: list[str] = []
    monkeypatch.setattr("lamina.wal.driver_log.parse_segment", parsed.append)
    monkeypatch.setattr("lamina.wal.scan.parse_segment", parsed.append)
    driver.commit(driver_commit(driver, 20))
    assert parsed == []


def test_a_digest_was_computed_at_each_use(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = CommitRecord(epoch=1, generation=1)
    digest = commit.digest
    monkeypatch.setattr("lamina.format.commit.encode_commit", None)
    assert commit.digest == digest
    assert commit == CommitRecord(epoch=1, generation=1)
    assert "digest" not in repr(commit)


# files and locks


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc")


@needs_proc
def test_a_failed_lock_kept_its_file_open(disk: LocalDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    before = open_files()
    for _ in range(3):
        with pytest.raises(StoreError):
            disk.try_lock("lock")
    assert open_files() == before


@needs_proc
def test_a_failed_sync_of_a_reopened_segment_kept_it_open(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: int) -> None:
        raise OSError(errno.EIO, "io")

    open_writer(disk).close()
    before = open_files()
    monkeypatch.setattr(os, "fdatasync", failing)
    for _ in range(3):
        with pytest.raises(StoreError):
            open_writer(disk)
    assert open_files() == before


def test_writers_without_the_lock_raced_for_a_name(disk: LocalDisk) -> None:
    opened: list[CoreWalWriter] = []
    together = threading.Barrier(8)

    def open_one() -> None:
        together.wait()
        opened.append(open_writer(disk))

    with open_writer(disk):
        for _ in range(5):
            threads = [threading.Thread(target=open_one) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len({writer.segment for writer in opened}) == 40
    for writer in opened:
        writer.close()


@pytest.mark.parametrize("below", ["", "further/down"])
def test_a_scratch_folder_that_cannot_be_made_was_an_error_of_python(
    tmp_path: Path, below: str
) -> None:
    line = Pipeline(tmp_path)
    line.start()
    line.epoch(1, {b"a": b"1"})
    line.checkpoint()
    line.stop()
    (tmp_path / "file").write_text("x")
    manager = line.manager()
    manager._space = workspace(line.disk, tmp_path / "file" / below)
    with pytest.raises(LaminaError) as caught:
        manager.run()
    assert isinstance(caught.value, AlreadyExists | NotFound), "and not that the state is lost"
    assert caught.value.where.startswith(str(tmp_path / "file" / below))


# a home that comes back


def test_a_home_that_came_back_used_its_epochs_again(tmp_path: Path) -> None:
    line = Pipeline(tmp_path, home="first")
    moved = RecoveryConfig(partitions=2, take_over_home=True)
    line.start()
    line.epoch(1, {b"a": b"1"})
    line.checkpoint()
    for epoch in range(2, 6):
        line.epoch(epoch, {})
    line.stop()
    line.home = "second"
    assert line.start(moved).head == line.commits[0].point
    line.stop()
    line.home = "first"
    found = line.start(moved)
    assert found.head == line.commits[0].point, "what it held was given up"
    assert found.next_epoch == 6
    line.stop()


# open_at


@pytest.mark.parametrize("how", ["short", "sector"])
def test_open_at_made_a_new_segment_beside_a_torn_one(
    disk: LocalDisk, tmp_path: Path, how: str
) -> None:
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        good = writer.position
        writer.set_epoch(2)
        writer.append_put(b"a", b"2" * 3000)
        writer.append_commit({})
        end = writer.position
    path = tmp_path / writer.segment
    if how == "sector":
        lose_a_sector(path, b"2")
    else:
        path.write_bytes(path.read_bytes()[: good + 1000])
    torn = path.read_bytes()
    for beyond in (good + 64, end):
        with pytest.raises(Refused):
            CoreWalWriter.open_at(0, disk, beyond, home=HOME)
    assert path.read_bytes() == torn
    with CoreWalWriter.open_at(0, disk, good, home=HOME) as again:
        assert (again.segment, again.position) == (writer.segment, good)
        (kept,) = tmp_path.glob(f"{writer.segment}.cut-{good}-*")
        assert kept.read_bytes() == torn[good:]
        assert again.head is not None
        assert again.head.epoch == 1
        commit_epoch(again, 3, {b"b": b"3"})
    assert segments_of(disk, 0) == (writer.segment,)
    assert [c.epoch for c in replay_core(disk, 0, HOME).commits] == [1, 3]


def test_open_at_without_the_lock_made_a_segment(disk: LocalDisk) -> None:
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        with pytest.raises(Refused, match="lock"):
            CoreWalWriter.open_at(0, disk, 64, home=HOME)
        assert segments_of(disk, 0) == (writer.segment,)
