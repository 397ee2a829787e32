"""The driver log of a remote home, as one process knows it: pieces, one object after another.

What a number that is taken means, what a listing means, and which pieces may go is decided in
lamina.protocol.pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from lamina.clock import Clock, new_writer_id
from lamina.errors import AlreadyExists, Fenced, NotFound, StoreUnavailable, WalDamaged
from lamina.format.home_names import DriverSegment
from lamina.format.piece import Piece, decode_piece, encode_piece, has_adopt
from lamina.format.remote_names import EPOCHS, parse_piece_key, piece_key
from lamina.protocol.pieces import Slot, Verdict, claim_counts, droppable, judge_slot
from lamina.store.base import Store

PIECE_BYTES_MAX = 32 * 1024 * 1024
"""More is written as several pieces; only the last one can hold a COMMIT of what is in them."""

PATIENCE_S = 600.0
"""So long a store that is not there is tried again: the epoch waits, and nothing is given up."""

_PAUSE_S, _PAUSE_MAX_S = 0.5, 30.0
_READ_AT_ONCE, _READ_BYTES_MAX = 64, 256 * 1024 * 1024


class PieceLog:
    """Not shared between threads."""

    def __init__(self, store: Store, clock: Clock, *, patience_s: float = PATIENCE_S) -> None:
        self._store = store
        self._clock = clock
        self._patience_s = patience_s
        self._next = 1
        self.is_stale = False  # others have gone on: load it again before the next claim
        self.has_vanished = False  # a piece was deleted between the listing and its turn
        self.slots: list[Slot] = []  # in the order of their sequence
        self.taken_over: Callable[[Piece], None] = lambda _: None
        """Told of what others have written between our look and our claim."""

    def listed(self) -> list[int]:
        """The sequences of all pieces that are there."""
        return [sequence for sequence, _ in self._sizes()]

    def load(self) -> Iterator[Piece]:
        """Every piece that is there, in order; what was known before is forgotten."""
        sizes = self._sizes()
        self.slots.clear()
        self._next, self.is_stale, self.has_vanished = 1, False, False
        with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
            for together in _batches(sizes):
                for piece in pool.map(self._find, together):
                    if piece is None:
                        self.has_vanished = True
                    else:
                        self._note(piece)
                        yield piece

    def write(
        self, home: bytes, segment: DriverSegment, header: bytes, offset: int, data: bytes
    ) -> None:
        """Append some bytes of a segment of ours; when it returns they are durable.

        AlreadyExists if they are a claim that does not count; Fenced if somebody has claimed the
        home after us.
        """
        adopts = has_adopt(data, offset)
        for start in range(0, len(data), PIECE_BYTES_MAX):
            part = data[start : start + PIECE_BYTES_MAX]
            writer = bytes.fromhex(new_writer_id(self._clock))
            is_last = start + PIECE_BYTES_MAX >= len(data)
            self._append(
                Piece(
                    self._next,
                    home,
                    segment,
                    offset + start,
                    header,
                    part,
                    writer,
                    adopts and is_last,
                )
            )

    def drop(self, kept: Collection[DriverSegment]) -> None:
        """Delete the pieces of segments that are not *kept*, but for claims."""
        for sequence in droppable(self.slots, kept):
            self._store.delete(piece_key(sequence))
            self.slots = [slot for slot in self.slots if slot.sequence != sequence]

    def slot_of(self, segment: DriverSegment, offset: int, size: int) -> Slot | None:
        """The piece that holds these bytes; None if they are in several."""
        for slot in reversed(self.slots):
            if slot.segment == segment and slot.offset <= offset and offset + size <= slot.end:
                return slot
        return None

    def where(self, sequence: int) -> str:
        return f"{self._store.url.rstrip('/')}/{piece_key(sequence)}"

    # steps

    def _sizes(self) -> list[tuple[int, int]]:
        """Sequence and size of all pieces that are there."""
        found = ((parse_piece_key(info.key), info.size) for info in self._store.list(EPOCHS))
        return sorted((sequence, size) for sequence, size in found if sequence is not None)

    def _append(self, piece: Piece) -> None:
        generation = piece.segment.generation
        while not self._created(piece):
            theirs = self._find(piece.sequence)
            slot = None if theirs is None else _slot(theirs)
            mine = theirs == piece
            match judge_slot(generation, claiming=piece.is_claim, mine=mine, theirs=slot):
                case Verdict.DONE:
                    break
                case Verdict.NEXT:
                    assert theirs is not None, "it has been judged"
                    self._note(theirs)
                    self.taken_over(theirs)
                    piece = replace(piece, sequence=self._next)
                case Verdict.FENCED:
                    raise Fenced(
                        f"another process has taken over from generation {generation}",
                        where=self.where(piece.sequence),
                    )
                case _:
                    self._look_again(piece.sequence)
        if piece.is_claim and not claim_counts(piece.sequence, self.listed()):
            self._look_again(piece.sequence)
        self._note(piece)

    def _look_again(self, sequence: int) -> None:
        self.is_stale = True
        raise AlreadyExists("another process has gone on since then", where=self.where(sequence))

    def _created(self, piece: Piece) -> bool:
        """Whether it is there now, however often it takes; False if another one is.

        A store that does not answer is asked again: the same bytes twice are one piece.
        """
        data, waited, pause = encode_piece(piece), 0.0, _PAUSE_S
        while True:
            try:
                self._store.put_if_absent(piece_key(piece.sequence), data)
            except AlreadyExists:
                return False
            except StoreUnavailable:
                if waited >= self._patience_s:
                    raise
                self._clock.wait(pause)
                waited, pause = waited + pause, min(2 * pause, _PAUSE_MAX_S)
            else:
                return True

    def _find(self, sequence: int) -> Piece | None:
        """None if its process has deleted it since it was listed."""
        try:
            data = self._store.get(piece_key(sequence))
        except NotFound:
            return None
        piece = decode_piece(data, self.where(sequence))
        if piece.sequence != sequence:
            message = f"this is piece {piece.sequence} of the log"
            raise WalDamaged(message, where=self.where(sequence))
        return piece

    def _note(self, piece: Piece) -> None:
        self.slots.append(_slot(piece))
        self._next = piece.sequence + 1


def _batches(sizes: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Pieces to be read at once: many claims, which are small, and few large ones."""
    together: list[int] = []
    total = 0
    for sequence, size in sizes:
        if together and (len(together) == _READ_AT_ONCE or total + size > _READ_BYTES_MAX):
            yield together
            together, total = [], 0
        together.append(sequence)
        total += size
    if together:
        yield together


def _slot(piece: Piece) -> Slot:
    """What the rules need of it."""
    return Slot(piece.sequence, piece.segment, piece.offset, len(piece.data), piece.adopts)
