"""Checkpoints beside epochs; and nothing of a home, or of the process, grows with the epochs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lamina.checkpoint import state as checkpoint_state
from lamina.engine.engine import Engine, EngineSettings
from lamina.errors import StoreUnavailable, UploadFailed
from lamina.testing import ManualClock
from tests.engine.pipelines import (
    LIMITS,
    ORDERS,
    TRADES,
    Row,
    World,
    expected,
    kill,
    rows_of,
    run_out,
)
from tests.support.embedded_stores import GatedStore

assert LIMITS.rows is not None
EXPECTED = expected({"trades": TRADES, "orders": ORDERS}, LIMITS.rows)


@pytest.fixture(autouse=True)
def every_run_is_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_state, "INLINE_BYTES_MAX", -1)


def test_epochs_go_on_while_a_checkpoint_is_made(tmp_path: Path) -> None:
    store = GatedStore()
    world = World(tmp_path, store=store)
    engine = world.open()
    for _ in range(3):
        store.may_go_on.clear()
        store.reached.clear()
        while engine._saves._saving is None:
            assert engine.step() is not None
        assert store.reached.wait(60), "it waits in its first upload"
        for _ in range(2):
            assert engine.step() is not None
        store.may_go_on.set()
        engine.finish_checkpoint()
        assert_mapped_files_are_there(engine, world)
    run_out(engine)
    engine.close()
    assert world.outcome() == EXPECTED


def test_wal_that_a_list_still_maps_stays_when_a_merge_has_overtaken_the_checkpoint(
    tmp_path: Path,
) -> None:
    """The checkpoint has made one file of a large run and a small one, the epochs meanwhile one of
    the small run and newer ones: so the large one is still read from the WAL, which once was gone.
    """
    store, orders = GatedStore(), list[Row]()
    world = World(tmp_path, store=store, data={"trades": [], "orders": orders})
    world.settings = EngineSettings(checkpoint_epochs=0, retain=1)

    def step(engine: Engine, keys: int) -> None:
        orders.extend((f"key-{number}", 1, 0) for number in range(keys))
        assert engine.step() is not None

    engine = world.open()
    step(engine, 9_000)
    step(engine, 5)
    kill(engine)  # a new process begins a new segment: the old one has these two epochs only
    world.settings = EngineSettings(checkpoint_epochs=2, retain=1)
    engine = world.open()
    store.may_go_on.clear()
    step(engine, 5)
    assert store.reached.wait(60), "the two epochs are being saved"
    step(engine, 5)
    step(engine, 5)
    store.may_go_on.set()
    engine.finish_checkpoint()
    assert_mapped_files_are_there(engine, world)
    step(engine, 9_000)
    kill(engine)
    newest = {row[0]: row[2] for epoch in world.got("totals") for row in epoch}
    assert newest == Counter(row[0] for row in orders)


def assert_mapped_files_are_there(engine: Engine, world: World) -> None:
    for stream in world.plan.streams:
        for operator in stream.operators:
            for refs in engine._states.refs(operator):
                for ref in refs:
                    assert (world.home / ref.path).exists(), ref


def test_a_store_that_is_away_stops_no_epoch_and_is_tried_again(tmp_path: Path) -> None:
    store, clock = GatedStore(), ManualClock()
    world = World(tmp_path, store=store)
    store.failure = StoreUnavailable("away")
    engine = world.open(clock=clock)
    for _ in range(6):
        assert engine.step() is not None
        engine._saves.abandon()  # let it fail before the next epoch looks
    assert engine._saves.base is None
    assert "away" in engine._saves.error
    store.failure = None
    clock.advance(60)
    run_out(engine)
    assert engine._saves.base is not None
    assert engine._saves.error == ""
    engine.close()
    assert world.outcome() == EXPECTED


def test_a_checkpoint_that_is_long_overdue_holds_the_pipeline(tmp_path: Path) -> None:
    store, clock = GatedStore(), ManualClock()
    world = World(tmp_path, store=store)
    world.settings = replace(world.settings, unsaved_max=2)
    store.failure = StoreUnavailable("away")
    engine = world.open(clock=clock)
    for _ in range(9):
        engine.step()
        engine._saves.abandon()
    assert engine.epoch == 5
    assert "away" in engine.held
    store.failure = None
    clock.advance(60)
    assert engine.step() is None
    engine.finish_checkpoint()
    run_out(engine)
    assert engine.held == ""
    engine.close()
    assert world.outcome() == EXPECTED


def test_a_checkpoint_that_was_asked_for_says_why_there_is_none(tmp_path: Path) -> None:
    store = GatedStore()
    world = World(tmp_path, store=store)
    engine = world.open()
    assert engine.checkpoint() is None
    run_out(engine, epochs=1)
    store.failure = StoreUnavailable("away")
    with pytest.raises(UploadFailed, match="away"):
        engine.checkpoint()
    store.failure = None
    made = engine.checkpoint()
    assert made is not None
    assert engine.checkpoint() == made
    engine.close()


def test_an_engine_closed_in_mid_checkpoint_leaves_it_to_the_next_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    engine = world.open()
    while engine._saves._saving is None:
        engine.step()
    engine.close()
    engine = world.open()
    assert engine.report.checkpoint_epoch == 3
    engine.close()
    world.finish()
    assert world.outcome() == EXPECTED


def test_nothing_grows_with_the_epochs(tmp_path: Path) -> None:
    """A short soak: 200 epochs, a checkpoint every five, three of them kept."""
    data = {
        "trades": rows_of(200 * 8, keys=5, step_s=5, late_every=13),
        "orders": rows_of(200 * 8, keys=7, step_s=3),
    }
    world = World(tmp_path, data=data)
    world.settings = replace(
        world.settings, limits=replace(LIMITS, rows=8), checkpoint_epochs=5, retain=3
    )
    engine = world.open()
    samples: list[dict[str, int]] = []
    while run_out(engine, epochs=1):
        samples.append(sizes(world.home))
    engine.close()
    assert len(samples) == 201
    early, late = samples[40:100], samples[140:]
    for what in early[0]:
        most = max(sample[what] for sample in early)
        assert max(sample[what] for sample in late) <= most * 1.2 + 5, what
    assert world.outcome() == expected(data, 8)


def sizes(home: Path) -> dict[str, int]:
    """Files and bytes of each part of a home, and what the process holds."""
    found: dict[str, int] = {}
    process = Path("/proc/self")
    if process.exists():
        found["open files"] = len(list((process / "fd").iterdir()))
        maps = (process / "maps").read_text().splitlines()
        found["mappings"] = sum(str(home) in line for line in maps)
    for part in ("driver", "core-0", "core-1", "staged", "state"):
        files = [path for path in (home / part).rglob("*") if path.is_file()]
        found[f"files of {part}"] = len(files)
        found[f"KiB of {part}"] = sum(path.stat().st_size for path in files) // 1024
    return found


def test_what_no_process_needs_is_gone_after_a_restart_too(tmp_path: Path) -> None:
    """Run files of dead processes, their segments, and what killed epochs have staged."""
    world = World(tmp_path)
    for _ in range(6):
        engine = world.open()
        run_out(engine, epochs=1)
        kill(engine)
    world.finish()
    assert len(list((world.home / "state").iterdir())) == 1
    assert len(list((world.home / "staged").iterdir())) <= 1
    assert len(list((world.home / "driver").iterdir())) <= 3
    assert world.outcome() == EXPECTED


def test_a_checkpoint_by_time_comes_when_the_last_one_is_old_and_holds_when_it_cannot(
    tmp_path: Path,
) -> None:
    store, clock = GatedStore(), ManualClock()
    world = World(tmp_path, store=store)
    world.settings = replace(
        world.settings, checkpoint_epochs=0, checkpoint_s=30.0, unsaved_max=2, limits=LIMITS
    )
    engine = world.open(clock=clock)
    run_out(engine, epochs=2)
    assert engine.saved_epoch == 0
    clock.advance(31)
    run_out(engine, epochs=1)
    assert engine.saved_epoch == 2  # as of the epoch before: it was begun when that was all
    store.failure = StoreUnavailable("away")
    clock.advance(31)
    while (report := engine.step()) is not None:
        assert report.epoch < 8
        engine._saves.abandon()
        clock.advance(120)
    assert "away" in engine.held
    assert "away" in engine.trouble
    store.failure = None
    clock.advance(120)
    engine.step()
    engine.finish_checkpoint()
    run_out(engine)
    engine.close()
    assert world.outcome() == EXPECTED


def test_a_checkpoint_by_time_that_failed_is_tried_again_soon_not_after_its_interval(
    tmp_path: Path,
) -> None:
    store, clock = GatedStore(), ManualClock()
    world = World(tmp_path, store=store)
    world.settings = replace(world.settings, checkpoint_epochs=0, checkpoint_s=3600.0)
    engine = world.open(clock=clock)
    run_out(engine, epochs=1)
    clock.advance(3600)
    store.failure = StoreUnavailable("away")
    engine.step()
    engine._saves.abandon()
    engine.step()
    assert "away" in engine.trouble
    store.failure = None
    clock.advance(5)
    engine.step()
    engine.finish_checkpoint()
    assert engine.saved_epoch
    engine.close()


def test_a_damaged_old_checkpoint_keeps_old_ones_and_stops_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.settings = replace(world.settings, checkpoint_epochs=0, retain=3)
    engine = world.open()
    made = []
    for _ in range(4):
        run_out(engine, epochs=1)
        made.append(engine.checkpoint())
        if len(made) == 3:
            world.store.delete(f"{made[1]}/manifest.json")
    assert "old checkpoints stay" in engine.trouble
    assert made[-1] is not None
    run_out(engine)
    engine.checkpoint()
    engine.close()
    assert world.outcome() == EXPECTED
