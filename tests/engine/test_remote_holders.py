"""Who has a home in an object store, as people are told: who has it, or had it, and has ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lamina.errors import Fenced, Refused, StoreUnavailable
from lamina.format.holder import decode_holder, encode_holder
from lamina.format.remote_names import HOLDERS, OLD_HOLDER, note_key
from lamina.store import MemoryStore, Store
from lamina.testing import ManualClock
from lamina.testing.faulty import Fault, FaultKind, FaultyStore
from lamina.workspace.remote.holders import newest_holder
from lamina.workspace.remote.notes import RemoteNotes
from tests.engine.pipelines import ListSource, run_out
from tests.engine.test_kills import EXPECTED
from tests.engine.test_remote_homes import Machines


@pytest.mark.parametrize("has_ended", [False, True])
def test_who_was_fenced_and_ends_says_nothing_about_who_has_the_home_now(
    has_ended: bool, tmp_path: Path
) -> None:
    """Its "ended in order" was taken for that of the other one, and a third started unasked."""
    world = Machines(tmp_path)
    asleep = world.open()
    run_out(asleep, epochs=1)
    other = world.open()
    run_out(other, epochs=1)
    if has_ended:
        other.close()
    with pytest.raises(Fenced):
        run_out(asleep)
    asleep.close()
    holder = newest_holder(RemoteNotes(world.objects))
    assert holder is not None
    assert (Path(holder.scratch).name, holder.has_ended) == ("machine-2", has_ended)
    world.take_over = False
    if has_ended:
        world.finish()
        return
    with pytest.raises(Refused, match="--take-over"):
        world.open()
    run_out(other)
    other.close()
    world.open().close()
    assert len(keys(world.objects, note_key(HOLDERS))) == 1, "those before it are dropped"


def test_what_an_older_release_said_of_who_has_the_home_counts(tmp_path: Path) -> None:
    world = Machines(tmp_path)
    world.open().close()
    said = keys(world.objects, note_key(HOLDERS))[0]
    old = replace(decode_holder(world.objects.get(said), said), has_ended=False)
    world.objects.delete(said)
    world.objects.put(note_key(OLD_HOLDER), encode_holder(old))
    world.take_over = False
    with pytest.raises(Refused, match="--take-over"):
        world.open()
    world.take_over = True
    world.open().close()
    world.take_over = False
    world.open().close()


def test_a_store_that_is_away_when_a_run_ends_keeps_nothing_open(tmp_path: Path) -> None:
    """Neither does a source that cannot be closed."""
    inner = MemoryStore()
    world = Machines(tmp_path, objects=inner)
    engine = world.open()
    run_out(engine, epochs=1)
    world.objects = FaultyStore(inner, 5, [Fault("put", FaultKind.UNAVAILABLE, probability=1)])
    engine._space = world.space(ManualClock(1), world.store)
    engine._space._generation = 1  # type: ignore[attr-defined]
    source = Unclosable()
    engine.sources = {"a": source, "b": source}
    with pytest.raises(StoreUnavailable, match="a source"):
        engine.close()
    assert source.closed == 2
    world.objects = inner
    world.finish()
    assert world.outcome() == EXPECTED


class Unclosable(ListSource):
    """A source with a connection that is broken."""

    def __init__(self) -> None:
        super().__init__("trades", ())
        self.closed = 0

    def close(self) -> None:
        self.closed += 1
        raise StoreUnavailable("a source")


def keys(store: Store, folder: str) -> list[str]:
    return [info.key for info in store.list(folder)]
