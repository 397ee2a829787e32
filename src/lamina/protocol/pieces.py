"""The driver log of a home in an object store: numbered, create-only pieces of its segments.

A driver segment is the concatenation of its pieces. Whoever creates the object of the next number
has written to the log, and nobody else can have: the create is the sync, and the look for a newer
process (R5). Two things keep that true although old pieces are deleted:

- A *claim*, the first piece of a process, is never deleted. So what a paused process would write
  next is taken for ever by whoever came after it.
- A claim counts if nothing lies behind it. Somebody who looked long ago may have created a number
  that was taken and deleted meanwhile: a hole, which is in nobody's way.

Before the newest segment with an ADOPT, pieces may be missing: somebody has dropped them, or was
killed while doing it. From there on a missing piece is damage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby, pairwise

from lamina.errors import WalDamaged
from lamina.format.home_names import DriverSegment


@dataclass(frozen=True, slots=True)
class Slot:
    """A number of the log and the piece that has it, as far as the rules need it."""

    sequence: int
    segment: DriverSegment
    offset: int
    size: int
    adopts: bool = False  # an ADOPT is in it: one sync writes all records of one

    @property
    def end(self) -> int:
        return self.offset + self.size

    @property
    def is_claim(self) -> bool:
        """Whether a process begins with it; that of a later part is a piece like any other."""
        return self.offset == 0 and self.segment.number == 0


class Verdict(Enum):
    """What a writer does whose number is taken."""

    DONE = "done"  # an answer was lost: it has written this itself
    NEXT = "next"  # claiming: take that piece over, try the number behind it
    RAISE_GENERATION = "raise generation"  # claiming: look again, and claim with a higher one
    LOOK_AGAIN = "look again"  # claiming: the piece was dropped since, so the end is elsewhere
    FENCED = "fenced"  # somebody has claimed the home since: stop, before any effect


@dataclass(frozen=True, slots=True)
class Restorable:
    """What a listing holds."""

    head: int  # the highest number; 0: there is none
    segments: tuple[tuple[Slot, ...], ...]  # the pieces of each, in order; oldest segment first
    generations: frozenset[int]  # of everybody who ever claimed the home
    passed_over: tuple[int, ...]  # of segments that were dropped, whole or in part


def judge_slot(generation: int, *, claiming: bool, mine: bool, theirs: Slot | None) -> Verdict:
    """What it means for *generation* that the number is taken, by *theirs*.

    *mine*: it has the writer's own bytes. None: what was there is gone.
    """
    if mine:
        return Verdict.DONE
    if not claiming:
        return Verdict.FENCED
    if theirs is None:
        return Verdict.LOOK_AGAIN
    return Verdict.NEXT if theirs.segment.generation < generation else Verdict.RAISE_GENERATION


def is_outdone(generation: int, known: Iterable[int]) -> bool:
    """Before a claim, and whenever the log was looked at again: is a higher generation needed?"""
    return max(known, default=0) >= generation


def claim_counts(sequence: int, listed: Iterable[int]) -> bool:
    """After the claim: by a new listing, is it the last piece? If not, look again and claim again.

    A claim that does not count stays, too. Its maker cannot tell a hole from the end of the log
    behind which somebody has claimed since: there, it is what a paused process would write next.
    """
    return max(listed, default=sequence) <= sequence


def plan_restore(slots: Iterable[Slot], where: Callable[[int], str]) -> Restorable:
    """Which segments to take over; WalDamaged names the first piece that is missing.

    *where* is where the piece of a number is, or should be.
    """
    ordered = sorted(slots, key=lambda slot: slot.sequence)
    first = _truth(ordered)
    since = [slot for slot in ordered if slot.sequence >= first]
    _check_dense(first, since, where)
    older = [slot for slot in ordered if slot.sequence < first]
    parts = [*filter(_is_whole, _parts(older)), *_parts(since)]
    taken = {slot.sequence for part in parts for slot in part}
    return Restorable(
        head=ordered[-1].sequence if ordered else 0,
        segments=tuple(parts),
        generations=frozenset(slot.segment.generation for slot in ordered),
        passed_over=tuple(slot.sequence for slot in older if slot.sequence not in taken),
    )


def droppable(slots: Iterable[Slot], kept: Collection[DriverSegment]) -> tuple[int, ...]:
    """The pieces to delete when only the segments *kept* are still needed, in this order.

    Never a claim, and nothing from the newest segment with an ADOPT on. Oldest first: what an
    interruption leaves begins with a hole, and cannot be taken for a segment that is whole.
    """
    ordered = sorted(slots, key=lambda slot: slot.sequence)
    first = _truth(ordered)
    return tuple(
        slot.sequence
        for slot in ordered
        if slot.sequence < first and not slot.is_claim and slot.segment not in kept
    )


def is_leftover(generation: int, epoch: int, *, own: int, head: int) -> bool:
    """Whether an object that a task put is of an epoch that nobody will decide any more.

    Asked by generation *own* after its ADOPT of *head*, for what older ones were about to decide.
    It may have been fenced without having noticed: objects of later generations above its head
    are acknowledged epochs of theirs. So the name of every object says its generation.
    """
    return generation < own and epoch > head


def _truth(ordered: Sequence[Slot]) -> int:
    """The first number of the newest segment with an ADOPT; without any, that of the log."""
    adopted = [slot.segment for slot in ordered if slot.adopts]
    if not adopted:
        return 1
    newest = max(adopted, key=_age)
    own = [slot for slot in ordered if slot.segment == newest]
    return max((s.sequence for s in own if s.offset == 0), default=own[0].sequence - 1)


def _check_dense(first: int, since: Sequence[Slot], where: Callable[[int], str]) -> None:
    present = {slot.sequence for slot in since}
    for sequence in range(first, max(present, default=0) + 1):
        if sequence not in present:
            raise _missing(sequence, where)
    for before, slot in pairwise(since):
        same = slot.segment == before.segment and slot.offset == before.end
        if not same and (slot.offset != 0 or _age(slot.segment) <= _age(before.segment)):
            message = f"piece {slot.sequence} of the log does not continue the one before it"
            raise WalDamaged(message, where=where(slot.sequence))


def _missing(sequence: int, where: Callable[[int], str]) -> WalDamaged:
    return WalDamaged(
        f"piece {sequence} of the log is missing, and later ones are there",
        where=where(sequence),
        advice="If a lifecycle rule of the bucket deletes objects of this home, turn it off. "
        "Restore the object, from an earlier version of it or from a copy. If it is lost, start "
        "with a new --home and --take-over-home: that continues from the newest checkpoint",
    )


def _parts(ordered: Sequence[Slot]) -> list[tuple[Slot, ...]]:
    """The pieces by segment, oldest segment first."""
    by_segment = sorted(ordered, key=lambda slot: (_age(slot.segment), slot.sequence))
    return [_begun(tuple(part)) for _, part in groupby(by_segment, key=lambda slot: slot.segment)]


def _begun(part: tuple[Slot, ...]) -> tuple[Slot, ...]:
    """From its last beginning on: an earlier one is a claim in a hole, which did not count.

    Its maker had looked before the other one claimed, with the same generation; and a later hole
    it would have looked for with that claim in sight.
    """
    first = max((slot.sequence for slot in part if slot.offset == 0), default=0)
    return tuple(slot for slot in part if slot.sequence >= first)


def _is_whole(part: tuple[Slot, ...]) -> bool:
    """Of an older segment: a claim alone is what stays when the others are dropped."""
    follows = ((b.sequence, b.offset) == (a.sequence + 1, a.end) for a, b in pairwise(part))
    alone = len(part) == 1 and part[0].is_claim
    return part[0].offset == 0 and all(follows) and not alone


def _age(segment: DriverSegment) -> tuple[int, int]:
    return segment.generation, segment.number
