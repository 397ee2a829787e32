"""Which offsets an epoch reads: shares, new partitions, and what is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.connectors.kafka.planning import (
    Bounds,
    Position,
    Slice,
    Starting,
    Topic,
    after,
    begin,
    lost_rows,
    lost_topic,
    share,
    slices,
)
from lamina.errors import Refused

T0, T1 = ("t", 0), ("t", 1)
TOPICS = {"t": Topic("id-1", (0, 1))}
KNOWN = Position("earliest", {"t": "id-1"}, {T0: 5, T1: 7})


def test_a_position_is_written_as_texts_and_read_again() -> None:
    known = Position("latest", {"a-1": "x", "a": "y"}, {("a-1", 0): 3, ("a", 1): 0, ("a", 10): 4})
    written = known.written()
    assert written == {
        "a-1/0": "3",
        "a-1/id": "x",
        "a/1": "0",
        "a/10": "4",
        "a/id": "y",
        "started": "latest",
    }
    assert Position.read(written) == known
    assert Position.read({}) == Position()


@pytest.mark.parametrize(
    ("starting", "found"),
    [
        (Starting("earliest"), {T0: 2, T1: 4}),
        (Starting("latest"), {T0: 10, T1: 20}),
        (Starting("given", {T0: 5, T1: -2}), {T0: 5, T1: 4}),
        (Starting("given", {T0: 5, T1: -1}), {T0: 5, T1: 20}),
    ],
)
def test_a_new_pipeline_begins_where_it_was_told_to(
    starting: Starting, found: dict[tuple[str, int], int]
) -> None:
    bounds = {T0: Bounds(2, 10), T1: Bounds(4, 20)}
    begun = begin(Position(), TOPICS, bounds, starting)
    assert (begun.started, begun.ids, begun.next) == (starting.word, {"t": "id-1"}, found)


def test_an_offset_that_is_not_given_is_asked_for() -> None:
    with pytest.raises(Refused, match="partition 1 of the topic 't'"):
        begin(Position(), TOPICS, {T0: Bounds(0, 1), T1: Bounds(0, 1)}, Starting("given", {T0: 0}))


def test_what_is_new_later_is_read_from_its_beginning_whatever_the_start_was() -> None:
    topics = {"t": Topic("id-1", (0, 1, 2)), "u": Topic("id-2", (0,))}
    bounds = {T0: Bounds(0, 9), T1: Bounds(0, 9), ("t", 2): Bounds(0, 9), ("u", 0): Bounds(3, 9)}
    begun = begin(KNOWN, topics, bounds, Starting("latest"))
    assert begun.next == {T0: 5, T1: 7, ("t", 2): 0, ("u", 0): 3}
    assert begun.started == "earliest"


def test_topics_that_are_not_wanted_any_more_keep_their_place() -> None:
    known = Position("earliest", {"t": "id-1", "old": "id-9"}, {T0: 5, T1: 7, ("old", 0): 3})
    bounds = {T0: Bounds(0, 6), T1: Bounds(0, 7)}
    begun = begin(known, TOPICS, bounds, Starting())
    read = slices(begun, bounds, None)
    assert read == (Slice("t", 0, 5, 6),)
    assert after(begun, read).next == {T0: 6, T1: 7, ("old", 0): 3}
    assert lost_rows(begun, bounds) is None


def test_a_topic_that_is_gone_or_made_again_is_named_with_what_was_read() -> None:
    gone = lost_topic(KNOWN, {}, ["t"])
    assert gone is not None
    assert "'t' is gone; it was read: partition 0 up to offset 5, partition 1 up to" in gone.message
    assert gone.skipped == Position("earliest")
    other = lost_topic(KNOWN, {"t": Topic("id-2", (0,))}, ["t"])
    assert other is not None
    assert "its id was id-1 and is id-2" in other.message
    assert lost_topic(KNOWN, TOPICS, ["t"]) is None
    assert lost_topic(KNOWN, {}, []) is None, "nobody wants it"


def test_offsets_that_are_lost_are_named_with_the_numbers() -> None:
    lost = lost_rows(KNOWN, {T0: Bounds(5, 5), T1: Bounds(10, 30)})
    assert lost is not None
    assert "partition 1 of the topic 't' has lost 3 offsets" in lost.message
    assert "is 7" in lost.message
    assert "is 10" in lost.message
    assert lost.skipped.next == {T0: 5, T1: 10}


def test_an_offset_beyond_the_end_is_named_with_the_numbers() -> None:
    lost = lost_rows(KNOWN, {T0: Bounds(0, 4), T1: Bounds(0, 7)})
    assert lost is not None
    assert "the next offset is 5, and the partition ends at 4" in lost.message
    assert lost.skipped.next == {T0: 4, T1: 7}


def test_the_ends_are_within_bounds() -> None:
    assert lost_rows(KNOWN, {T0: Bounds(5, 5), T1: Bounds(0, 7)}) is None


LAGS = st.dictionaries(st.tuples(st.just("t"), st.integers(0, 9)), st.integers(0, 1000))


@given(LAGS, st.integers(1, 3000), st.integers(0, 10_000))
def test_shares_are_exact_and_nobody_starves(
    lags: dict[tuple[str, int], int], limit: int, turn: int
) -> None:
    shares = share(lags, limit, turn=turn)
    waiting = {part for part, lag in lags.items() if lag}
    assert sum(shares.values()) == min(limit, sum(lags.values()))
    assert all(0 < count <= lags[part] for part, count in shares.items())
    if limit >= len(waiting):
        assert set(shares) == waiting


def test_shares_are_in_proportion_to_what_waits() -> None:
    assert share({T0: 1000, T1: 100}, 110) == {T0: 100, T1: 10}
    assert share({T0: 1000, T1: 100}, None) == {T0: 1000, T1: 100}


def test_with_fewer_rows_than_partitions_each_has_its_turn() -> None:
    lags = {("t", number): 10 for number in range(3)}
    assert [list(share(lags, 1, turn=turn)) for turn in range(3)] == [
        [("t", 0)],
        [("t", 1)],
        [("t", 2)],
    ]
