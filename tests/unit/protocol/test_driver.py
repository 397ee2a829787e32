"""R4 and R5: which COMMITs of a driver log count, and who may go on."""

from __future__ import annotations

import pytest

from lamina.errors import Fenced, LogDamaged
from lamina.protocol.driver import (
    Adopt,
    Commit,
    Point,
    Segment,
    accepted_head,
    by_digest,
    check_not_superseded,
    line,
    next_epoch,
    next_generation,
    publish_line,
)


def point(epoch: int, line: str = "a") -> Point:
    return Point(epoch, f"{line}{epoch}")


def commit(
    epoch: int, parent: Point | None, *, follows: Point | None = None, line: str = "a"
) -> Commit:
    return Commit(point(epoch, line), parent, follows or parent, 1)


ONE = commit(1, None)
TWO = commit(2, point(1))
THREE = commit(3, point(2))
FIRST = Segment(1, Adopt(None, ()), (ONE, TWO))


def test_a_home_without_segments_has_no_head() -> None:
    assert accepted_head([]) is None


def test_a_segment_that_adopted_nothing_and_committed_nothing_has_no_head() -> None:
    assert accepted_head([Segment(1, Adopt(None, ()))]) is None


def test_the_head_is_the_last_commit_of_the_newest_adopted_segment() -> None:
    assert accepted_head([FIRST]) == point(2)
    second = Segment(2, Adopt(point(2), (TWO,)), (THREE,))
    assert accepted_head([second, FIRST]) == accepted_head([FIRST, second]) == point(3)


def test_a_segment_that_only_adopted_hands_its_head_on() -> None:
    assert accepted_head([FIRST, Segment(2, Adopt(point(2), (TWO,)))]) == point(2)


def test_what_an_older_segment_gained_after_it_was_adopted_does_not_count() -> None:
    late = Segment(1, Adopt(None, ()), (ONE, TWO, THREE))
    assert accepted_head([late, Segment(2, Adopt(point(2), ()))]) == point(2)


def test_a_segment_that_was_opened_and_never_adopted_is_passed_over() -> None:
    assert accepted_head([FIRST, Segment(2, None), Segment(3, None)]) == point(2)


def test_commits_are_found_by_digest_in_every_segment_and_in_what_was_copied() -> None:
    second = Segment(2, Adopt(point(2), (TWO,)), (THREE,))
    assert by_digest([second]) == {"a2": TWO, "a3": THREE}
    assert by_digest([FIRST, second]).keys() == {"a1", "a2", "a3"}
    assert by_digest([Segment(4, None)]) == {}


def test_the_line_goes_back_along_parents_as_far_as_it_is_known() -> None:
    commits = by_digest([Segment(1, Adopt(None, ()), (ONE, TWO, THREE))])
    assert line(point(3), commits) == (THREE, TWO, ONE)
    assert line(point(3), {"a3": THREE}) == (THREE,)
    assert line(point(9), commits) == ()
    assert line(None, commits) == ()


def test_a_rewind_continues_an_old_epoch_and_is_published_after_the_newest() -> None:
    rewind = commit(4, point(1), follows=point(3))
    commits = by_digest([Segment(1, Adopt(None, ()), (ONE, TWO, THREE, rewind))])
    assert line(point(4), commits) == (rewind, ONE)
    assert publish_line(point(4), commits) == (rewind, THREE, TWO, ONE)


@pytest.mark.parametrize(
    ("head", "commits"),
    [
        (Point(5, "a3"), {"a3": THREE}),  # the digest is of another epoch
        (point(3), {"a3": commit(3, point(3, "b"))}),  # a parent of the same epoch
        (point(3), {"a3": commit(3, point(4))}),  # a parent from the future
    ],
)
def test_a_line_that_does_not_fall_is_damage(head: Point, commits: dict[str, Commit]) -> None:
    with pytest.raises(LogDamaged):
        line(head, commits)


@pytest.mark.parametrize(
    ("generation", "seen", "fenced"),
    [(1, (), False), (1, (1,), False), (2, (1, 2), False), (1, (1, 2), True), (3, (9, 1), True)],
)
def test_a_newer_segment_means_stop(generation: int, seen: tuple[int, ...], fenced: bool) -> None:
    if not fenced:
        check_not_superseded(generation, seen)
        return
    with pytest.raises(Fenced):
        check_not_superseded(generation, seen)


def test_generations_and_epochs_are_one_above_everything_seen() -> None:
    assert (next_generation(()), next_epoch(())) == (1, 1)
    assert next_generation((3, 7, 5)) == 8
    assert next_epoch((3, 7, 5)) == 8
