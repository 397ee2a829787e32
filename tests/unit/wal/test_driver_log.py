"""The log of decisions: who claims, who is fenced, what is accepted, what may be dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.errors import (
    AlreadyExists,
    Fenced,
    LaminaError,
    Refused,
    StoreError,
    UsageError,
    WalDamaged,
)
from lamina.format import commit as format_commit
from lamina.format.commit import (
    AdoptRecord,
    CheckpointRecord,
    CommitRecord,
    Point,
    SinkAhead,
    decode_adopt,
    encode_adopt,
    encode_commit,
)
from lamina.format.home_names import DriverSegment, segment_path
from lamina.format.wal import Kind
from lamina.protocol.driver import accepted_head, accepted_sinks
from lamina.wal import (
    DriverLog,
    Home,
    SegmentReader,
    Torn,
    drop_driver_segments,
    read_driver_log,
)
from tests.support.checkpoints import cid
from tests.support.wal_logs import (
    HOME,
    FailingDisk,
    add_to,
    batch_of,
    driver_commit,
    entries_of,
    home_at,
)

NOTHING = AdoptRecord(None, ())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return home_at(tmp_path)


def opened(home: Home, generation: int, adopt: AdoptRecord = NOTHING) -> DriverLog:
    driver = DriverLog(home, generation)
    driver.adopt(adopt)
    return driver


def commit(driver: DriverLog, epoch: int, **more: object) -> CommitRecord:
    record = driver_commit(driver, epoch, **more)  # type: ignore[arg-type]
    driver.commit(record)
    return record


def head_epoch(home: Home) -> int:
    head = accepted_head(s.rules() for s in read_driver_log(home.disk, home.identity))
    return head.epoch if head else 0


# claim and commit


def test_a_claim_is_a_new_segment_and_a_number_is_claimed_once(home: Home) -> None:
    DriverLog(home, 3).close()
    with pytest.raises(AlreadyExists):
        DriverLog(home, 3)
    [segment] = read_driver_log(home.disk, HOME)
    assert (segment.generation, segment.number, segment.records) == (3, 0, 1)
    assert segment.adopt is None


def test_a_claim_is_durable_with_its_name_before_it_is_made(tmp_path: Path) -> None:
    failing = FailingDisk(home_at(tmp_path).disk)
    DriverLog(Home(failing, HOME), 1).close()
    assert failing.calls == ["create", "append", "sync", "sync_folder", "append", "sync"]


def test_commits_are_read_back_in_order_with_their_parents(home: Home) -> None:
    driver = opened(home, 1)
    made = [commit(driver, epoch, watermark=epoch) for epoch in (1, 2, 5)]
    driver.close()
    [segment] = read_driver_log(home.disk, HOME)
    assert segment.commits == tuple(made)
    assert [c.parent for c in segment.commits] == [None, made[0].point, made[1].point]
    assert driver.head == made[-1].point
    assert head_epoch(home) == 5


def test_a_commit_costs_one_sync(tmp_path: Path) -> None:
    failing = FailingDisk(home_at(tmp_path).disk)
    driver = opened(Home(failing, HOME), 1)
    failing.calls.clear()
    place = driver.append_run(batch_of({b"k": b"v"}), epoch=1)
    commit(driver, 1, ranges=(place,))
    assert failing.calls == ["append", "append", "sync"]


def test_a_run_in_the_driver_log_is_read_back_by_its_range(home: Home) -> None:
    driver = opened(home, 1)
    place = driver.append_run(batch_of({b"k": b"v", b"x": None}), epoch=1)
    commit(driver, 1, ranges=(place,))
    found = SegmentReader(home.disk, place.segment).at(place.offset, place.size, place.crc)
    assert entries_of(found.batch()) == [(b"k", b"v"), (b"x", None)]
    assert place.entries == 2


def test_a_failed_commit_acknowledges_nothing_and_ends_the_log(tmp_path: Path) -> None:
    failing = FailingDisk(home_at(tmp_path).disk)
    driver = opened(Home(failing, HOME), 1)
    first = commit(driver, 1)
    for operation in ("append", "sync"):
        failing.fail[operation] = 0
        with pytest.raises(StoreError):
            commit(driver, 2)
        assert driver.head == first.point
        with pytest.raises(StoreError, match="earlier write or sync failed"):
            commit(driver, 3)
    assert head_epoch(Home(failing, HOME)) == 1


def test_nothing_is_committed_before_older_segments_were_adopted(home: Home) -> None:
    """Recovery does not count such a segment: it must not acknowledge either."""
    first = opened(home, 1)
    commit(first, 1)
    second = DriverLog(home, 2)
    with pytest.raises(UsageError, match="adopt"):
        commit(second, 2)
    assert read_driver_log(home.disk, HOME)[1].commits == ()
    second.adopt(NOTHING)
    second.rotate(NOTHING)
    commit(second, 2)


def test_the_first_log_of_a_home_has_nothing_to_adopt_and_counts(home: Home) -> None:
    driver = DriverLog(home, 1)
    place = driver.append_run(batch_of({b"k": b"v"}), epoch=1)
    commit(driver, 1, ranges=(place,))
    commit(driver, 2)
    assert head_epoch(home) == 2
    assert read_driver_log(home.disk, HOME)[0].adopt == NOTHING


def test_epochs_of_a_driver_log_only_rise(home: Home) -> None:
    driver = opened(home, 1)
    commit(driver, 5)
    for epoch in (4, 5):
        with pytest.raises(Refused, match="epochs only rise"):
            commit(driver, epoch)
    assert [c.epoch for c in read_driver_log(home.disk, HOME)[0].commits] == [5]


# two drivers


def test_a_driver_that_sees_a_newer_segment_after_its_commit_is_fenced(home: Home) -> None:
    first = opened(home, 1)
    commit(first, 1)
    second = DriverLog(home, 2)
    with pytest.raises(Fenced, match="generation 2"):
        commit(first, 2)
    third = opened(home, 3)
    commit(third, 1)
    with pytest.raises(Fenced, match="generation 3"):
        second.adopt(NOTHING)


def test_what_a_fenced_driver_wrote_after_the_adoption_does_not_count(home: Home) -> None:
    first = opened(home, 1)
    one = commit(first, 1)
    second = opened(home, 2, AdoptRecord(one.point, (one,)))
    with pytest.raises(Fenced):
        commit(first, 2, watermark=-1)
    assert head_epoch(home) == 1
    commit(second, 2)
    newest = read_driver_log(home.disk, HOME)[-1]
    assert newest.known().keys() == {one.digest, newest.commits[0].digest}
    head = accepted_head(s.rules() for s in read_driver_log(home.disk, HOME))
    assert head == newest.commits[0].point


def test_a_claim_without_an_adoption_changes_nothing(home: Home) -> None:
    first = opened(home, 1)
    commit(first, 1)
    DriverLog(home, 2).close()
    assert head_epoch(home) == 1


def test_an_adoption_is_one_record_at_the_beginning(home: Home) -> None:
    driver = opened(home, 1)
    commit(driver, 1)
    driver._append(6, b'{"commits":[],"head":null}', 0)  # type: ignore[arg-type]
    with pytest.raises(WalDamaged, match="not the first") as caught:
        read_driver_log(home.disk, HOME)
    assert ", byte " in caught.value.where


# an ADOPT of several records


def adopted(home: Home, monkeypatch: pytest.MonkeyPatch, size: int = 700) -> list[CommitRecord]:
    """Five COMMITs of a first process, adopted by a second one in records of *size* bytes."""
    first = opened(home, 1)
    commits = [commit(first, epoch) for epoch in range(1, 6)]
    first.close()
    monkeypatch.setattr(format_commit, "ADOPT_BYTES_MAX", size)
    opened(home, 2, AdoptRecord(commits[-1].point, tuple(commits), SINKS)).close()
    return commits


SINKS = {"out": SinkAhead(Point(9, "f" * 64), None)}


def test_an_adopt_larger_than_a_record_may_be_was_refused(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = adopted(home, monkeypatch)
    second = read_driver_log(home.disk, HOME)[1]
    assert second.records > 3  # TAKEOVER and several of the ADOPT
    assert second.adopt == AdoptRecord(commits[-1].point, tuple(commits), SINKS)
    assert second.rules().adopt is not None
    assert accepted_sinks([second.rules()]) == SINKS


def test_a_commit_larger_than_a_part_is_a_part_of_its_own(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = adopted(home, monkeypatch, size=1)
    second = read_driver_log(home.disk, HOME)[1]
    assert second.records == 1 + len(commits)
    assert second.adopt is not None
    assert second.adopt.commits == tuple(commits)


def test_a_segment_torn_in_the_middle_of_an_adopt_has_none(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = adopted(home, monkeypatch)
    path = tmp_path / segment_path(DriverSegment(2, 0))
    data = path.read_bytes()
    reader = SegmentReader(home.disk, segment_path(DriverSegment(2, 0)))
    *starts, last = [r.offset for r in reader.records() if r.kind is Kind.ADOPT]
    assert starts
    for end in (*starts, *(start + 100 for start in starts), last, len(data) - 1):
        path.write_bytes(data[:end])
        first, second = read_driver_log(home.disk, HOME)
        assert second.adopt is None
        assert second.known() == {}
        assert accepted_head([first.rules(), second.rules()]) == commits[-1].point


def test_a_commit_between_the_records_of_an_adopt_is_damage(home: Home) -> None:
    driver = DriverLog(home, 1)
    part = AdoptRecord(None, (), more=True)
    driver._append(Kind.ADOPT, encode_adopt(part), 0)
    driver._append(Kind.COMMIT, encode_commit(CommitRecord(epoch=1, generation=1)), 1)
    with pytest.raises(WalDamaged, match="a COMMIT in the middle of an ADOPT"):
        read_driver_log(home.disk, HOME)


def test_records_of_two_adopts_are_damage(home: Home) -> None:
    driver = DriverLog(home, 1)
    for head in (Point(1, "1" * 64), Point(2, "2" * 64)):
        driver._append(Kind.ADOPT, encode_adopt(AdoptRecord(head, (), more=True)), 0)
    with pytest.raises(WalDamaged, match="in the middle of another"):
        read_driver_log(home.disk, HOME)


def test_only_the_last_record_of_an_adopt_names_sinks() -> None:
    early = encode_adopt(AdoptRecord(None, (), SINKS, more=True))
    with pytest.raises(WalDamaged, match="only the last"):
        decode_adopt(early, "f")
    nowhere = b'{"commits":[],"head":null,"sinks":{"out":{"at":null,"counts_as":null}}}'
    with pytest.raises(WalDamaged, match="without a point"):
        decode_adopt(nowhere, "f")


def test_a_rotated_log_forgot_what_its_sinks_count_as(home: Home) -> None:
    driver = opened(home, 1, AdoptRecord(None, (), SINKS))
    one = commit(driver, 1)
    driver.rotate(AdoptRecord(one.point, (one,)))
    assert driver.sinks == SINKS
    contents = read_driver_log(home.disk, HOME)
    assert accepted_sinks([each.rules() for each in contents]) == SINKS


# markers, rotation, torn


def test_checkpoint_markers_are_kept(home: Home) -> None:
    driver = opened(home, 1)
    commit(driver, 1)
    marker = CheckpointRecord(cid(3), 1, "a" * 64)
    driver.note_checkpoint(marker)
    assert read_driver_log(home.disk, HOME)[0].checkpoints == (marker,)


def test_a_rotated_log_goes_on_with_what_still_matters(home: Home) -> None:
    driver = opened(home, 1)
    commits = [commit(driver, epoch) for epoch in (1, 2, 3)]
    old = driver.segment
    driver.rotate(AdoptRecord(commits[-1].point, tuple(commits[1:])))
    assert driver.segment == segment_path(DriverSegment(1, 1))
    assert driver.head == commits[-1].point
    four = commit(driver, 4)
    assert four.parent == commits[-1].point
    assert head_epoch(home) == 4
    assert drop_driver_segments(home, 3) == (old,)
    assert head_epoch(home) == 4
    [left] = read_driver_log(home.disk, HOME)
    assert set(left.known()) == {c.digest for c in (*commits[1:], four)}


def test_a_torn_tail_is_left_aside_and_reported(home: Home, tmp_path: Path) -> None:
    driver = opened(home, 1)
    one = commit(driver, 1)
    end = driver.size
    commit(driver, 2)
    driver.close()
    path = tmp_path / driver.segment
    path.write_bytes(path.read_bytes()[: end + 100])
    [segment] = read_driver_log(home.disk, HOME)
    assert segment.commits == (one,)
    assert isinstance(segment.end, Torn)
    assert (segment.end.end, segment.end.bytes) == (end, 100)


def test_damage_in_a_driver_segment_stops(home: Home, tmp_path: Path) -> None:
    driver = opened(home, 1)
    commit(driver, 1)
    driver.close()
    path = tmp_path / driver.segment
    data = bytearray(path.read_bytes())
    for offset in (5, 70, 140, 300, len(data) - 100):
        damaged = bytearray(data)
        damaged[offset] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(LaminaError) as caught:
            read_driver_log(home.disk, HOME)
        assert ", byte " in caught.value.where


def test_a_driver_segment_that_lost_its_first_sector_is_damage_not_a_new_beginning(
    home: Home, tmp_path: Path
) -> None:
    driver = opened(home, 1)
    for epoch in range(1, 6):
        commit(driver, epoch)
    driver.close()
    path = tmp_path / driver.segment
    path.write_bytes(bytes(512) + path.read_bytes()[512:])
    with pytest.raises(WalDamaged):
        read_driver_log(home.disk, HOME)


# dropping


def test_only_segments_before_the_truth_and_below_the_floor_are_dropped(home: Home) -> None:
    first = opened(home, 1)
    one = commit(first, 1)
    two = commit(first, 2)
    second = opened(home, 2, AdoptRecord(two.point, (two,)))
    three = commit(second, 3)
    third = DriverLog(home, 3)  # has claimed, has not adopted yet
    assert drop_driver_segments(home, 1) == ()
    assert drop_driver_segments(home, 2) == (first.segment,)
    assert drop_driver_segments(home, 99) == ()
    third.adopt(AdoptRecord(three.point, (three,)))
    assert drop_driver_segments(home, 2) == ()
    assert drop_driver_segments(home, 3) == (second.segment,)
    assert head_epoch(home) == 3
    del one


def test_a_segment_with_a_run_above_the_floor_stays(home: Home) -> None:
    """The log was rotated between a RUN and the COMMIT that names it."""
    driver = opened(home, 1)
    four = commit(driver, 4)
    place = driver.append_run(batch_of({b"k": b"v"}), epoch=5)
    driver.rotate(AdoptRecord(four.point, (four,)))
    assert drop_driver_segments(home, 4) == ()
    commit(driver, 5, ranges=(place,))
    assert drop_driver_segments(home, 4) == ()
    SegmentReader(home.disk, place.segment).at(place.offset, place.size, place.crc)
    assert drop_driver_segments(home, 5) == (place.segment,)


def test_a_log_that_was_never_adopted_is_not_dropped(home: Home, tmp_path: Path) -> None:
    DriverLog(home, 1).close()
    DriverLog(home, 2).close()
    assert drop_driver_segments(home, 99) == ()
    add_to(tmp_path / segment_path(DriverSegment(3)), b"")
    assert drop_driver_segments(home, 99) == ()
