"""Starts that fail again and again: each used to leave its output, its log and its claim behind."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from lamina.disk import LocalDisk
from lamina.format.commit import CommitRecord
from lamina.format.home_names import STAGED
from lamina.recovery import RecoveryConfig
from lamina.testing.faulty import Killed
from lamina.wal.driver_log import read_driver_log
from lamina.wal.home import read_home
from lamina.wal.leftovers import drop_leftovers
from lamina.workspace import local
from lamina.workspace.staging import drop_undecided
from tests.engine.pipelines import LIMITS, ORDERS, TRADES, Bomb, World, expected, kill, run_out

assert LIMITS.rows is not None
EXPECTED = expected({"trades": TRADES, "orders": ORDERS}, LIMITS.rows)


def files_of(world: World) -> dict[str, int]:
    found = (path for path in world.home.rglob("*") if path.is_file())
    return {str(path.relative_to(world.home)): path.stat().st_size for path in found}


def fail_at(world: World, place: str) -> None:
    engine = world.open(Bomb(place, 1))
    with pytest.raises(Killed):
        run_out(engine)
    kill(engine)


@pytest.mark.parametrize("place", ["before COMMIT", "after totals", "before vwap"])
@pytest.mark.parametrize("epochs", [0, 2, 5])
def test_failing_starts_leave_no_more_than_one_does(
    place: str, epochs: int, tmp_path: Path
) -> None:
    world = World(tmp_path)
    if epochs:
        engine = world.open()
        run_out(engine, epochs=epochs)
        kill(engine)
    for _ in range(3):
        fail_at(world, place)
    before = files_of(world)
    for _ in range(12):
        fail_at(world, place)
    after = files_of(world)
    assert len(after) <= len(before)
    assert sum(after.values()) <= sum(before.values()) + 4096  # generations take more digits
    world.finish()
    assert world.outcome() == EXPECTED


def test_output_of_decided_epochs_stays_when_undecided_output_goes(tmp_path: Path) -> None:
    for epoch in (3, 4, 5):
        (tmp_path / STAGED / f"{epoch:020d}").mkdir(parents=True)
    drop_undecided(tmp_path, 4)
    assert sorted(int(path.name) for path in (tmp_path / STAGED).iterdir()) == [3, 4]


def test_a_late_task_that_still_writes_does_not_stop_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes a file while its folder is being removed: once only, so the folder goes."""
    folder = tmp_path / STAGED / f"{5:020d}"
    folder.mkdir(parents=True)
    (folder / "of-s-00000-early.parquet").touch()
    late, rmdir = ["of-s-00000-late.parquet"], os.rmdir

    def racing(path: str, **more: int) -> None:
        if late:
            (folder / late.pop()).touch()
        rmdir(path, **more)

    monkeypatch.setattr(os, "rmdir", racing)
    drop_undecided(tmp_path, 4)
    assert not folder.exists()


def committed(world: World) -> dict[str, CommitRecord]:
    disk = LocalDisk(world.home)
    identity = read_home(disk).identity
    return {d: c for part in read_driver_log(disk, identity) for d, c in part.known().items()}


class Dying(LocalDisk):
    """Killed before the nth file is removed."""

    left = 0

    def unlink(self, path: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed(path)
        super().unlink(path)


def test_killed_while_leftovers_go_nothing_that_was_decided_is_lost(tmp_path: Path) -> None:
    for left in range(20):
        world = World(tmp_path / str(left))
        world.settings = replace(world.settings, checkpoint_epochs=0)
        engine = world.open()
        run_out(engine, epochs=3)
        kill(engine)
        known = committed(world)
        _leave_behind(world)
        disk = Dying(world.home)
        disk.left = left
        try:
            drop_leftovers(read_home(disk), 3)
        except Killed:
            assert set(known) <= set(committed(world))
        else:
            break
        world.finish()
        assert world.outcome() == EXPECTED
    assert left > 3, "there was something to drop"


def _leave_behind(world: World) -> None:
    """Three failed starts, none of which sweeps after the others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "drop_undecided", lambda *_: None)
        patch.setattr(local, "drop_leftovers", lambda *_: None)
        for _ in range(3):
            fail_at(world, "before COMMIT")


def test_segments_of_epochs_that_a_person_gave_up_stay_until_a_checkpoint(tmp_path: Path) -> None:
    """They are named by COMMITs that are still in the log, though nobody goes back to them."""
    world = World(tmp_path)
    world.settings = replace(world.settings, checkpoint_epochs=0)
    for _ in range(4):  # each begins segments of its own
        engine = world.open()
        run_out(engine, epochs=2)
        kill(engine)
    named = {place.segment for c in committed(world).values() for place in c.ranges}
    engine = world.open(recovery=RecoveryConfig(lose_after=3))
    kill(engine)
    assert named <= set(files_of(world))
