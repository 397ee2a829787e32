"""Homes in an object store that lose what they had, and logs that change while they are read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import StoreUnavailable, UnsafeStore, WouldLose
from lamina.format.piece import decode_piece, encode_piece
from lamina.format.remote_names import EPOCHS, parse_piece_key, piece_key
from lamina.store import MemoryStore
from lamina.testing import ManualClock
from tests.engine.pipelines import kill, run_out
from tests.engine.test_kills import EXPECTED
from tests.engine.test_remote_homes import Machines


class Unsafe(MemoryStore):
    """Takes a create-only put for a put."""

    def put_if_absent(self, key: str, data: Any) -> None:
        self.put(key, data)


class Racing(MemoryStore):
    """Another process drops pieces of the log between the listing and their turn."""

    vanish: tuple[str, ...] = ()

    def get(self, key: str) -> bytes:
        for gone in self.vanish:
            self.delete(gone)
        return super().get(key)


def test_a_home_whose_log_was_deleted_has_lost_it_however_often_it_is_started(
    tmp_path: Path,
) -> None:
    """There was no checkpoint, and the identity is still there: it looked like a new home."""
    world = Machines(tmp_path)
    engine = world.open()
    run_out(engine, epochs=1)
    kill(engine)
    world.tables.clear()  # nobody outside says what is missing
    for info in list(world.objects.list(EPOCHS)):
        world.objects.delete(info.key)
    for _ in range(2):
        with pytest.raises(WouldLose, match="driver log of this home holds no epoch"):
            world.open()


def test_a_claim_in_a_hole_was_taken_for_the_beginning_of_a_segment(tmp_path: Path) -> None:
    """Two processes of one generation: one had looked long ago, and its claim did not count."""
    world = Machines(tmp_path)
    first = world.open()
    run_out(first, epochs=2)
    kill(first)
    second = world.open()
    run_out(second, epochs=4)
    second.checkpoint()
    run_out(second, epochs=1)
    kill(second)
    where = [info.key for info in world.objects.list(EPOCHS)]
    pieces = [decode_piece(world.objects.get(key), key) for key in where]
    hole = next(n for n in range(2, 99) if n not in {piece.sequence for piece in pieces})
    claim = pieces[-1]
    claim = next(p for p in pieces if p.segment.generation == claim.segment.generation)
    assert hole < claim.sequence, "the log of the first process is gone"
    late = replace(claim, sequence=hole, writer=bytes(16))
    world.objects.put_if_absent(piece_key(hole), encode_piece(late))
    world.finish()
    assert world.outcome() == EXPECTED


def test_a_store_that_ignores_create_only_puts_is_no_place_for_a_home(tmp_path: Path) -> None:
    world = Machines(tmp_path, objects=Unsafe())
    with pytest.raises(UnsafeStore):
        world.open()
    assert not list(world.objects.list("")), "nothing was claimed"


def test_a_log_is_read_again_if_pieces_of_it_were_dropped_meanwhile(tmp_path: Path) -> None:
    """What was read is of two moments: it may look like a log that nobody has ever written."""
    store = Racing()
    world = Machines(tmp_path, objects=store)
    engine = world.open()
    run_out(engine, epochs=3)
    kill(engine)
    pieces = [info.key for info in store.list(EPOCHS)]
    behind = max(sequence for key in pieces if (sequence := parse_piece_key(key)))
    space: Any = world.space(ManualClock(1), world.store)
    store.vanish = tuple(pieces[1:])  # all but the claim
    space._remote.make_folder("")
    space._remote.restore()
    assert space._log.slots[-1].sequence < behind
    assert not space._log.has_vanished


def test_a_log_that_never_rests_is_not_guessed(tmp_path: Path) -> None:
    store = MemoryStore()
    world = Machines(tmp_path, objects=store)
    engine = world.open()
    run_out(engine, epochs=2)
    kill(engine)
    last = [info.key for info in store.list(EPOCHS)][-1]

    class Ghost(MemoryStore):
        def list(self, prefix: str = "", *, after: str = "") -> Any:
            found = list(store.list(prefix, after=after))
            if prefix == EPOCHS:
                sequence = (parse_piece_key(last) or 0) + 1
                found.append(type(found[-1])(f"{EPOCHS}/{sequence:020d}.wal", 1))
            return iter(found)

        def get(self, key: str) -> bytes:
            return store.get(key)

    world.objects = Ghost()
    space: Any = world.space(ManualClock(1), world.store)
    space._remote.make_folder("")
    with pytest.raises(StoreUnavailable, match="faster than they can be read"):
        space._remote.restore()
