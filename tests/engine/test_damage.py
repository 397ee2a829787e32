"""Damaged files: a clear error that names them, nothing committed, and a way on if there is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lamina.errors import Corrupt, RunDamaged, WalDamaged
from tests.engine.pipelines import LIMITS, ORDERS, TRADES, World, expected, kill, run_out
from tests.support.embedded_stores import flip
from tests.support.embedded_stores import replace as damaged

assert LIMITS.rows is not None
EXPECTED = expected({"trades": TRADES, "orders": ORDERS}, LIMITS.rows)


def world_of(root: Path, checkpoint_epochs: int) -> World:
    world = World(root)
    world.settings = replace(world.settings, checkpoint_epochs=checkpoint_epochs)
    return world


def test_a_damaged_run_file_stops_the_epoch_and_a_restart_makes_it_again(tmp_path: Path) -> None:
    world = world_of(tmp_path, checkpoint_epochs=0)
    engine = world.open()
    run_out(engine, epochs=5)
    runs = list((world.home / "state").rglob("*.run"))
    assert runs
    for run in runs:
        damaged(run)
    with pytest.raises(RunDamaged, match="open the state again"):
        run_out(engine)
    assert engine.epoch == 5
    engine.close()
    world.finish()
    assert world.outcome() == EXPECTED


def test_a_damaged_run_file_is_not_uploaded(tmp_path: Path) -> None:
    world = world_of(tmp_path, checkpoint_epochs=0)
    engine = world.open()
    run_out(engine, epochs=5)
    for run in (world.home / "state").rglob("*.run"):
        damaged(run)
    with pytest.raises(RunDamaged):
        engine.checkpoint()
    engine.close()
    world.finish()
    assert world.outcome() == EXPECTED


def test_damage_of_committed_wal_stops_the_epoch_that_reads_it(tmp_path: Path) -> None:
    world = world_of(tmp_path, checkpoint_epochs=0)
    engine = world.open()
    run_out(engine, epochs=2)
    for segment in world.home.glob("core-*/*.wal"):
        flip(segment)
    with pytest.raises(WalDamaged):
        run_out(engine)
    assert engine.epoch == 2
    engine.close()


@pytest.mark.parametrize("part", ["core-*", "driver"])
def test_damage_of_wal_that_is_needed_stops_recovery(part: str, tmp_path: Path) -> None:
    world = world_of(tmp_path, checkpoint_epochs=0)
    engine = world.open()
    run_out(engine, epochs=4)
    kill(engine)
    kept = {path: path.read_bytes() for path in world.home.glob(f"{part}/*.wal")}
    assert kept
    for path in kept:
        flip(path)
    for _ in range(2):
        with pytest.raises(Corrupt):
            world.open()
    for path, data in kept.items():
        path.write_bytes(data)
    world.finish()
    assert world.outcome() == EXPECTED


def test_damage_of_wal_that_a_checkpoint_has_does_no_harm(tmp_path: Path) -> None:
    world = world_of(tmp_path, checkpoint_epochs=3)
    engine = world.open()
    run_out(engine, epochs=3)
    kill(engine)
    for segment in world.home.glob("core-*/*.wal"):
        flip(segment)
    world.finish()
    assert world.outcome() == EXPECTED


def test_a_damaged_checkpoint_is_passed_over_while_the_wal_reaches_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.settings = replace(world.settings, retain=2)
    engine = world.open()
    run_out(engine, epochs=7)
    kill(engine)
    newest = max(info.key for info in world.store.list() if info.key.endswith("manifest.json"))
    world.store.put(newest, b"{}")
    world.finish()
    assert world.outcome() == EXPECTED
