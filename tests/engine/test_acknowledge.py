"""Sources are told what no recovery will ask for again: after checkpoints, never too early."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from lamina.checkpoint import Checkpointer
from lamina.engine.model import Offset
from lamina.engine.ports import Source
from lamina.errors import StoreError
from lamina.store import MemoryStore
from tests.engine.pipelines import ListSource, World, kill, run_out

RETAIN = 2


@dataclass
class Telling(ListSource):
    """Keeps what it was told."""

    told: list[int] = field(default_factory=list)
    fails: bool = False

    def acknowledge(self, offset: Offset) -> None:
        if self.fails:
            raise StoreError("it cannot be reached")
        self.told.append(int(offset["row"]))


@dataclass
class TellingWorld(World):
    opened: dict[str, Telling] = field(default_factory=dict)

    def sources(self) -> dict[str, Source]:
        self.opened = {name: Telling(name, rows) for name, rows in self.data.items()}
        return dict(self.opened)

    def kept(self, source: str) -> list[int]:
        """Where a source stood in each checkpoint that exists, oldest first."""
        checkpointer = Checkpointer(self.store)
        manifests = [checkpointer.load_manifest(c.id) for c in checkpointer.list_checkpoints()]
        return sorted(int(each.source_offsets[source].offsets["row"]) for each in manifests)


def world_in(root: Path) -> TellingWorld:
    world = TellingWorld(root)
    world.settings = replace(world.settings, checkpoint_epochs=1, retain=RETAIN)
    return world


def test_a_source_is_told_where_the_oldest_checkpoint_kept_for_fallback_stands(
    tmp_path: Path,
) -> None:
    world = world_in(tmp_path)
    engine = world.open()
    for _ in range(5):
        run_out(engine, epochs=1)
        trades = world.opened["trades"]
        assert trades.told[-1] == world.kept("trades")[0]
        assert trades.told == sorted(trades.told)
    assert trades.told[-1] < world.kept("trades")[-1], "the newest may turn out to be damaged"
    engine.close()


def test_nothing_is_told_before_a_checkpoint(tmp_path: Path) -> None:
    """What is only in the log is lost with the machine: it may have to be read again."""
    world = world_in(tmp_path)
    world.settings = replace(world.settings, checkpoint_epochs=0)
    engine = world.open()
    run_out(engine, epochs=4)
    assert world.opened["trades"].told == []
    engine.checkpoint()
    kill(engine)
    engine = world.open()
    run_out(engine, epochs=1)
    assert world.opened["trades"].told == [], "the process before has made it"
    engine.close()


def test_a_source_that_cannot_be_told_is_told_after_the_next_checkpoint(tmp_path: Path) -> None:
    world = world_in(tmp_path)
    engine = world.open()
    world.opened["orders"].fails = True
    run_out(engine, epochs=1)
    assert "cannot be reached" in engine.trouble
    world.opened["orders"].fails = False
    run_out(engine, epochs=1)
    assert engine.trouble == ""
    assert world.opened["orders"].told == [world.kept("orders")[0]]
    engine.close()


def test_a_source_that_is_new_is_not_told_of_a_time_before_it(tmp_path: Path) -> None:
    world = world_in(tmp_path)
    world.store = MemoryStore()
    engine = world.open()
    run_out(engine, epochs=1)
    engine.close()
    assert world.opened["trades"].told == [15]
