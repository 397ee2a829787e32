"""What is on disk at each step of an epoch: what a COMMIT names, before it; the COMMIT, after it.

These lines could be deleted and no test failed: a kill leaves the page cache, and only a power cut
takes what was not synced.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.format.home_names import STAGED
from tests.engine.pipelines import World, kill, run_out
from tests.engine.test_parquet_sink import ParquetWorld
from tests.support.syncs import Syncs, record_syncs


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return record_syncs(monkeypatch)


def lost_at(place: str, root: Path, syncs: Syncs, below: str) -> list[str]:
    """What a power cut at *place* could take of a folder of the home; over all epochs."""
    world, lost, passed = World(root), list[str](), 0

    def look(at: str) -> None:
        nonlocal passed
        if at == place:
            passed += 1
            folders = sorted(world.home.glob(below))
            assert folders, f"there is no {below} at {place}"
            for folder in folders:
                lost.extend(each for each in syncs.lost(folder) if not each.endswith("/lock"))

    engine = world.open(look)
    run_out(engine, epochs=4)
    kill(engine)
    assert passed >= 4
    return lost


def test_the_runs_of_an_epoch_are_on_disk_before_its_commit(tmp_path: Path, syncs: Syncs) -> None:
    assert lost_at("before COMMIT", tmp_path, syncs, "core-*") == []


def test_the_output_of_an_epoch_is_on_disk_before_its_commit(tmp_path: Path, syncs: Syncs) -> None:
    """The files, their names, and the name of their folder."""
    assert lost_at("before COMMIT", tmp_path, syncs, STAGED) == []


def test_a_commit_is_on_disk_before_anything_follows_from_it(tmp_path: Path, syncs: Syncs) -> None:
    assert lost_at("after COMMIT", tmp_path, syncs, "driver") == []


def test_what_a_new_process_accepts_is_on_disk_before_it_is_ready(
    tmp_path: Path, syncs: Syncs
) -> None:
    """Its ADOPT is the truth from then on: without it a power cut goes back to the one before."""
    world = World(tmp_path)
    engine = world.open()
    run_out(engine, epochs=2)
    kill(engine)
    kill(world.open())
    assert syncs.lost(world.home / "driver") == []


def test_what_a_sink_has_published_is_on_disk(tmp_path: Path, syncs: Syncs) -> None:
    """The real calls; what they must be is tried at every one of them in tests/crash."""
    world = ParquetWorld(tmp_path)
    engine = world.open()
    run_out(engine, epochs=4)
    kill(engine)
    assert syncs.lost(tmp_path / "out") == []
