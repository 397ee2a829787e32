"""Repair is a person's verb: it says what it would cut, keeps what it cuts, and cuts no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.disk import LocalDisk
from lamina.errors import Fenced, Refused, StoreError
from lamina.format.wal import HEADER_SIZE, Kind
from lamina.wal import Clean, Repair, SegmentReader, check_segment, plan_repair, repair
from lamina.wal.standalone import replay_core
from tests.support.wal_logs import (
    HOME,
    PATH,
    FailingDisk,
    add_to,
    all_records,
    commit_epoch,
    everything_below,
    open_writer,
    segment_bytes,
    write_file,
)

FULL = bytes(range(1, 255))


def torn_log(tmp_path: Path) -> tuple[LocalDisk, str, int]:
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
        end = writer.position
        commit_epoch(writer, 2, {b"a": b"2"})
    path = tmp_path / writer.segment
    path.write_bytes(path.read_bytes()[: end + 333])
    return disk, writer.segment, end


def damaged_log(tmp_path: Path) -> tuple[LocalDisk, str]:
    """The first of three records is damaged."""
    data = bytearray(segment_bytes([(Kind.RUN, FULL)] * 3))
    data[200] ^= 1
    (tmp_path / "lock").touch()  # every home has it
    return write_file(tmp_path, PATH, bytes(data)), PATH


def test_a_check_reads_every_byte_and_changes_nothing(tmp_path: Path) -> None:
    disk, path, end = torn_log(tmp_path)
    before = everything_below(tmp_path)
    found = check_segment(disk, path)
    assert (found.ok, found.records, found.size) == (True, 2, end + 333)
    assert everything_below(tmp_path) == before


def test_a_plan_says_what_a_repair_does_and_changes_nothing(tmp_path: Path) -> None:
    disk, path, end = torn_log(tmp_path)
    before = everything_below(tmp_path)
    plan = plan_repair(disk, path)
    assert plan is not None
    assert (plan.offset, plan.bytes, plan.kept) == (end, 333, f"{path}.cut-{end}")
    assert "ends inside a record" in plan.reason
    assert everything_below(tmp_path) == before
    assert repair(disk, path) == plan


def test_a_repair_keeps_what_it_cuts_and_leaves_a_clean_log(tmp_path: Path) -> None:
    disk, path, end = torn_log(tmp_path)
    before = (tmp_path / path).read_bytes()
    done = repair(disk, path)
    assert done is not None
    assert (tmp_path / path).read_bytes() == before[:end]
    assert (tmp_path / done.kept).read_bytes() == before[end:]
    assert replay_core(disk, 0, HOME).torn == ()
    with open_writer(disk) as writer:
        assert writer.segment == path


def test_a_second_repair_has_nothing_to_do(tmp_path: Path) -> None:
    disk, path, _ = torn_log(tmp_path)
    repair(disk, path)
    before = everything_below(tmp_path)
    assert repair(disk, path) is None
    assert plan_repair(disk, path) is None
    assert everything_below(tmp_path) == before


def test_a_copy_that_is_already_there_is_not_overwritten(tmp_path: Path) -> None:
    disk, path, end = torn_log(tmp_path)
    write_file(tmp_path, f"{path}.cut-{end}", b"from an earlier repair")
    done = repair(disk, path)
    assert done is not None
    assert done.kept == f"{path}.cut-{end}+"
    assert (tmp_path / f"{path}.cut-{end}").read_bytes() == b"from an earlier repair"


def test_damage_is_not_cut_unless_a_person_says_so(tmp_path: Path) -> None:
    disk, path = damaged_log(tmp_path)
    before = everything_below(tmp_path)
    for verb in (plan_repair, repair):
        with pytest.raises(Refused, match="this is damage") as caught:
            verb(disk, path)
        assert "--damage" in caught.value.advice
        assert "byte 64" in caught.value.message
    assert everything_below(tmp_path) == before


def test_cut_damage_keeps_the_header_and_everything_behind_is_in_the_copy(tmp_path: Path) -> None:
    disk, path = damaged_log(tmp_path)
    before = (tmp_path / path).read_bytes()
    done = repair(disk, path, damage=True)
    assert done is not None
    assert done.offset == HEADER_SIZE
    assert (tmp_path / done.kept).read_bytes() == before[HEADER_SIZE:]
    reader = SegmentReader(disk, path)
    assert list(reader.records()) == []
    assert reader.end == Clean(HEADER_SIZE)
    assert repair(disk, path, damage=True) is None


def test_damage_behind_good_records_is_cut_behind_them(tmp_path: Path) -> None:
    data = bytearray(segment_bytes([(Kind.RUN, FULL), (99, FULL), (Kind.RUN, FULL)], optional=True))
    data[-100] ^= 1
    disk = write_file(tmp_path, PATH, bytes(data))
    done = repair(disk, PATH, damage=True)
    assert done is not None
    assert done.offset == len(data) - 320, "an optional record of an unknown kind is good, too"
    assert len(all_records(disk, PATH)) == 1


def test_a_file_without_a_whole_header_is_cut_to_nothing(tmp_path: Path) -> None:
    disk = write_file(tmp_path, PATH, segment_bytes([])[:30])
    done = repair(disk, PATH)
    assert done is not None
    assert (done.offset, done.bytes) == (0, 30)
    assert repair(disk, PATH) is None


@pytest.mark.parametrize("operation", ["create", "append", "sync", "sync_folder", "truncate"])
def test_a_repair_that_fails_has_lost_nothing_and_can_be_done_again(
    tmp_path: Path, operation: str
) -> None:
    disk, path, end = torn_log(tmp_path)
    before = (tmp_path / path).read_bytes()
    failing = FailingDisk(disk)
    failing.fail[operation] = 0
    with pytest.raises(StoreError):
        repair(failing, path)
    assert (tmp_path / path).read_bytes() == before
    done = repair(disk, path)
    assert done is not None
    assert (tmp_path / done.kept).read_bytes() == before[end:]


def test_the_copy_is_durable_before_the_cut(tmp_path: Path) -> None:
    disk, path, _ = torn_log(tmp_path)
    failing = FailingDisk(disk)
    repair(failing, path)
    assert failing.calls == ["create", "append", "sync", "sync_folder", "truncate"]


def test_a_clean_log_is_left_alone(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        commit_epoch(writer, 1, {b"a": b"1"})
    (tmp_path / "lock").touch()
    before = everything_below(tmp_path)
    assert repair(disk, writer.segment) is None
    assert everything_below(tmp_path) == before
    add_to(tmp_path / writer.segment, b"")
    assert plan_repair(disk, writer.segment, damage=True) is None


def test_a_log_that_somebody_writes_to_is_not_cut(tmp_path: Path) -> None:
    """Only the command took the locks; the library call cut under the feet of a writer."""
    disk, path, _ = torn_log(tmp_path)
    for name in ("lock", "core-0/lock"):
        lock = disk.try_lock(name)
        assert lock is not None
        before = everything_below(tmp_path)
        with pytest.raises(Fenced) as raised:
            repair(disk, path)
        assert raised.value.where.endswith(name)
        assert everything_below(tmp_path) == before
        lock.release()
    assert repair(disk, path) is not None


def test_a_repair_that_nobody_agrees_to_changes_nothing_and_keeps_no_lock(tmp_path: Path) -> None:
    disk, path, _ = torn_log(tmp_path)
    before = (tmp_path / path).read_bytes()
    asked = []

    def no(plan: Repair) -> None:
        asked.append(plan)
        raise Refused("no")

    with pytest.raises(Refused):
        repair(disk, path, agree=no)
    assert (tmp_path / path).read_bytes() == before
    assert repair(disk, path) == asked[0]
