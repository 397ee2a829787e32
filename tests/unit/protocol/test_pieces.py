"""The driver log as numbered objects: who has a number, what a listing holds, what may go."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from lamina.errors import WalDamaged
from lamina.format.home_names import DriverSegment
from lamina.protocol.pieces import (
    Restorable,
    Slot,
    Verdict,
    claim_counts,
    droppable,
    is_leftover,
    is_outdone,
    judge_slot,
    plan_restore,
)


class Scribe:
    """Writes a log as its processes do: a claim, an ADOPT, an epoch after the other."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []

    def begin(self, generation: int, number: int = 0) -> Scribe:
        return self._append(DriverSegment(generation, number), 0)

    def adopt(self) -> Scribe:
        return self.commit(adopts=True)

    def commit(self, *, adopts: bool = False) -> Scribe:
        last = self.slots[-1]
        return self._append(last.segment, last.end, adopts=adopts)

    def _append(self, segment: DriverSegment, offset: int, *, adopts: bool = False) -> Scribe:
        self.slots.append(Slot(len(self.slots) + 1, segment, offset, 100, adopts))
        return self

    def without(self, *gone: int) -> list[Slot]:
        return [slot for slot in self.slots if slot.sequence not in gone]


def restored(slots: list[Slot]) -> Restorable:
    return plan_restore(slots, lambda sequence: f"epochs/{sequence}")


def sequences(found: Restorable) -> list[list[int]]:
    return [[slot.sequence for slot in part] for part in found.segments]


def three_parts() -> Scribe:
    """1 to 4 of generation 1; 5 to 7 its second part; 8 to 10 of generation 2."""
    scribe = Scribe().begin(1).adopt().commit().commit()
    scribe.begin(1, 1).adopt().commit()
    return scribe.begin(2).adopt().commit()


def slot(generation: int) -> Slot:
    return Slot(6, DriverSegment(generation), 0, 100)


@pytest.mark.parametrize("claiming", [True, False])
def test_a_writer_that_meets_its_own_bytes_has_written_them(claiming: bool) -> None:
    assert judge_slot(3, claiming=claiming, mine=True, theirs=slot(3)) is Verdict.DONE


def test_a_claimer_takes_over_what_older_ones_wrote_and_goes_on() -> None:
    assert judge_slot(3, claiming=True, mine=False, theirs=slot(2)) is Verdict.NEXT


@pytest.mark.parametrize("other", [3, 4])
def test_a_claimer_that_meets_an_equal_or_higher_generation_takes_a_higher_one(other: int) -> None:
    verdict = judge_slot(3, claiming=True, mine=False, theirs=slot(other))
    assert verdict is Verdict.RAISE_GENERATION


def test_a_claimer_looks_again_if_the_piece_in_its_way_was_dropped() -> None:
    assert judge_slot(3, claiming=True, mine=False, theirs=None) is Verdict.LOOK_AGAIN


@pytest.mark.parametrize("theirs", [slot(2), slot(3), slot(4), None])
def test_after_the_claim_a_number_that_is_taken_means_fenced(theirs: Slot | None) -> None:
    assert judge_slot(3, claiming=False, mine=False, theirs=theirs) is Verdict.FENCED


def test_a_generation_that_claims_is_above_all_that_are_there() -> None:
    assert not is_outdone(3, [])
    assert not is_outdone(3, [1, 2])
    assert is_outdone(3, [1, 3])
    assert is_outdone(3, [4, 2])


def test_a_claim_counts_if_nothing_lies_behind_it() -> None:
    assert claim_counts(6, [4, 5, 6])
    assert claim_counts(6, [])
    assert not claim_counts(6, [4, 6, 9])


def test_an_empty_log_holds_nothing() -> None:
    assert restored([]) == Restorable(0, (), frozenset(), ())


def test_a_whole_log_is_restored_segment_by_segment_in_any_order_of_listing() -> None:
    slots = three_parts().slots
    random.Random(1).shuffle(slots)
    found = restored(slots)
    assert sequences(found) == [[1, 2, 3, 4], [5, 6, 7], [8, 9, 10]]
    assert (found.head, found.generations, found.passed_over) == (10, {1, 2}, ())


def test_claims_without_an_adopt_are_restored_from_the_first_piece_on() -> None:
    scribe = Scribe().begin(1).begin(2).begin(4)
    assert sequences(restored(scribe.slots)) == [[1], [2], [3]]


@pytest.mark.parametrize("gone", [(2,), (2, 3), (1, 2, 3)])
def test_an_older_segment_that_is_half_dropped_is_passed_over(gone: tuple[int, ...]) -> None:
    found = restored(three_parts().without(*gone))
    assert sequences(found) == [[5, 6, 7], [8, 9, 10]]
    assert found.passed_over == tuple(s for s in (1, 2, 3, 4) if s not in gone)
    assert found.generations == {1, 2}


def test_a_claim_whose_others_were_dropped_is_no_segment_and_its_generation_counts() -> None:
    scribe = three_parts().begin(3).adopt()
    found = restored(scribe.without(2, 3, 4, 5, 6, 7, 9, 10))
    assert sequences(found) == [[11, 12]]
    assert found.passed_over == (1, 8)
    assert found.generations == {1, 2, 3}


@pytest.mark.parametrize("gone", [8, 9])
def test_from_the_newest_adopt_on_a_missing_piece_is_damage_and_named(gone: int) -> None:
    with pytest.raises(WalDamaged, match=f"piece {gone} of the log is missing") as caught:
        restored(three_parts().without(gone))
    assert caught.value.where == f"epochs/{gone}"


def test_the_first_of_several_missing_pieces_is_named() -> None:
    scribe = three_parts().commit().begin(3)
    with pytest.raises(WalDamaged, match="piece 9 "):
        restored(scribe.without(9, 11))


def test_a_missing_adopt_is_damage_even_if_an_older_segment_has_one() -> None:
    with pytest.raises(WalDamaged, match="piece 9 "):
        restored(three_parts().without(1, 2, 3, 4, 9))


def test_a_log_without_any_adopt_has_lost_its_beginning_if_it_does_not_start_at_one() -> None:
    with pytest.raises(WalDamaged, match="piece 1 "):
        restored(three_parts().without(1, 2, 3, 4, 5, 6, 7, 8, 9))


def test_a_piece_that_does_not_continue_the_one_before_it_is_damage() -> None:
    slots = three_parts().slots
    for wrong in (
        replace(slots[9], offset=100),
        replace(slots[9], segment=DriverSegment(1, 1), offset=0),
    ):
        with pytest.raises(WalDamaged, match="piece 10 of the log does not continue"):
            restored([*slots[:9], wrong])


def test_a_claim_in_a_hole_is_passed_over_and_its_generation_counts() -> None:
    late = Slot(3, DriverSegment(7), 0, 100)
    found = restored([*three_parts().without(2, 3, 4), late])
    assert sequences(found) == [[5, 6, 7], [8, 9, 10]]
    assert 7 in found.generations


@pytest.mark.parametrize("generation", [1, 2])
def test_a_claim_in_a_hole_was_taken_for_the_beginning_of_a_segment(generation: int) -> None:
    """Its maker had looked before the other process of this generation claimed."""
    scribe = Scribe().begin(7).adopt().commit()  # of a home where numbers began higher
    scribe.slots = [replace(slot, segment=DriverSegment(0)) for slot in scribe.slots]
    scribe.begin(1).adopt().commit().begin(2).adopt().commit()
    late = Slot(2, DriverSegment(generation), 0, 100)
    found = restored([*scribe.without(2, 3), late])
    assert sequences(found) == [[4, 5, 6], [7, 8, 9]]
    assert found.passed_over == (1, 2)


def test_a_segment_whose_real_claim_is_gone_does_not_begin_with_one_in_a_hole() -> None:
    late = Slot(2, DriverSegment(1, 1), 0, 100)
    found = restored([*three_parts().without(2, 3, 4, 5), late])
    assert sequences(found) == [[8, 9, 10]]


def test_dropped_segments_go_oldest_first_and_their_claims_stay() -> None:
    slots = three_parts().slots
    assert droppable(slots[::-1], kept=[DriverSegment(2)]) == (2, 3, 4, 5, 6, 7)
    assert droppable(slots, kept=[DriverSegment(1, 1), DriverSegment(2)]) == (2, 3, 4)


def test_nothing_goes_from_the_newest_adopt_on_whatever_is_kept() -> None:
    slots = three_parts().begin(3).slots
    assert max(droppable(slots, kept=())) == 7
    assert droppable(Scribe().begin(1).begin(2).slots, kept=()) == ()


def test_a_log_that_is_dropped_piece_by_piece_can_be_restored_at_every_step() -> None:
    slots = three_parts().slots
    whole = restored(slots).segments[1:]
    gone: set[int] = set()
    for sequence in droppable(slots, kept=[DriverSegment(1, 1), DriverSegment(2)]):
        gone.add(sequence)
        found = restored([slot for slot in slots if slot.sequence not in gone])
        assert found.segments == whole


def test_a_leftover_is_of_an_older_generation_and_above_its_head() -> None:
    assert is_leftover(2, 11, own=3, head=10)
    assert not is_leftover(2, 10, own=3, head=10)
    assert not is_leftover(3, 11, own=3, head=10)
    assert not is_leftover(4, 11, own=3, head=10)
