"""Which driver segments of failed starts may go: those that say nothing the others do not."""

from __future__ import annotations

from dataclasses import replace

from lamina.format.commit import AdoptRecord, CheckpointRecord, CommitRecord, Point, WalRange
from lamina.ids import CheckpointId
from lamina.wal.driver_log import DriverSegmentContent
from lamina.wal.leftovers import superseded_segments
from lamina.wal.reader import Clean


def commit(epoch: int, parent: CommitRecord | None, segment: str = "core-0/x.wal") -> CommitRecord:
    at = parent.point if parent else None
    place = WalRange("s", 0, segment, 0, 8, 0, 1)
    return CommitRecord(
        epoch=epoch, generation=1, parent=at, follows=at, partitions=1, ranges=(place,)
    )


ONE = commit(1, None)
TWO = commit(2, ONE)


def part(generation: int, *adopted: CommitRecord, head: Point | None) -> DriverSegmentContent:
    """A process that claimed the home and decided nothing."""
    path = f"driver/{generation}"
    adopt = AdoptRecord(head, adopted)
    return DriverSegmentContent(path, generation, 0, adopt, (), (), Clean(64), 2, 64)


FIRST = replace(part(1, head=None), commits=(ONE, TWO))
FAILED = part(2, ONE, TWO, head=TWO.point)
NEWEST = part(9, ONE, TWO, head=TWO.point)


def test_a_claim_that_decided_nothing_goes() -> None:
    failed = [replace(FAILED, path=f"driver/{n}", generation=n) for n in (2, 3, 4)]
    found = superseded_segments((FIRST, *failed, NEWEST), set())
    assert found == ("driver/2", "driver/3", "driver/4")


def test_a_segment_with_a_decision_stays() -> None:
    marker = CheckpointRecord(CheckpointId.from_parts(1, 1), 2, "c" * 64)
    for kept in (
        replace(FAILED, commits=(commit(3, TWO),)),
        replace(FAILED, checkpoints=(marker,)),
    ):
        assert superseded_segments((FIRST, kept, NEWEST), set()) == ()


def test_a_segment_with_runs_that_a_commit_names_stays() -> None:
    assert superseded_segments((FIRST, FAILED, NEWEST), {FAILED.path}) == ()


def test_a_segment_that_alone_knows_a_commit_stays_and_of_two_one() -> None:
    """The newest one starts from a newer checkpoint, and copies less."""
    newest = part(9, TWO, head=TWO.point)
    assert superseded_segments((FAILED, newest), set()) == ()
    again = replace(FAILED, path="driver/3", generation=3)
    assert superseded_segments((FAILED, again, newest), set()) == (FAILED.path,)


def test_the_truth_and_what_came_after_it_stay() -> None:
    after = replace(FAILED, path="driver/10", generation=10, adopt=None)
    assert superseded_segments((FIRST, NEWEST, after), set()) == ()
    assert superseded_segments((after,), set()) == ()
