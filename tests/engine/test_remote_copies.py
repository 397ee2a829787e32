"""A home in an object store as commands see it that only look: a copy, and nothing changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lamina.checkpoint import Checkpointer
from lamina.errors import NotFound
from lamina.inspect import HomeReport, verify_pipeline
from lamina.store import MemoryStore, ReadOnlyStore, Store
from lamina.wal.home import read_home
from lamina.wal.scan import all_segments
from lamina.workspace.remote.copying import HomeCopy, copy_home
from tests.engine.pipelines import kill, run_out
from tests.engine.test_remote_homes import HUGE, Machines


def copy_of(store: Store, folder: Path) -> HomeCopy:
    copy_home(ReadOnlyStore(store), folder)
    return HomeCopy(folder, "s3://bucket/home")


def contents(store: Store) -> dict[str, bytes]:
    return {info.key: store.get(info.key) for info in store.list()}


def look(world: Machines, disk: HomeCopy) -> HomeReport:
    sinks = list(world.sinks().values())
    found = verify_pipeline(disk, Checkpointer(world.store), sinks=sinks)
    assert found.store is not None
    assert found.store.ok
    assert found.home is not None
    return found.home


@pytest.mark.parametrize("carried", [0, HUGE])
def test_a_copy_has_all_that_a_start_would_read(carried: int, tmp_path: Path) -> None:
    """Runs and output as objects, or in the log."""
    world = Machines(tmp_path, carried=carried)
    world.settings = replace(world.settings, checkpoint_epochs=0)
    engine = world.open()
    run_out(engine, epochs=4)
    kill(engine)
    before = contents(world.objects)
    disk = copy_of(world.objects, tmp_path / "copy")
    assert disk.root == "s3://bucket/home"
    assert len(list(all_segments(disk))) > (1 if carried == 0 else 0)
    report = look(world, disk)
    assert not report.troubles
    assert report.start_epoch == 4
    assert report.staged_files
    assert contents(world.objects) == before
    with pytest.raises(NotFound):
        copy_home(MemoryStore(), tmp_path / "nothing")


@pytest.mark.parametrize("carried", [0, HUGE])
def test_output_that_a_sink_lacks_is_proven(carried: int, tmp_path: Path) -> None:
    """It is an object, or a record of the log."""
    world = Machines(tmp_path, carried=carried)
    world.settings = replace(world.settings, checkpoint_epochs=0)
    engine = world.open()
    run_out(engine, epochs=2)
    kill(engine)
    world.tables.clear()  # a sink that has lost everything needs all of it
    disk = copy_of(world.objects, tmp_path / "copy")
    report = look(world, disk)
    assert report.staged_files
    assert not [each for each in report.troubles if "staged" in each.message]
    if carried:
        return
    for file in (tmp_path / "copy" / "staged").rglob("*.parquet"):
        data = file.read_bytes()
        file.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    assert [each for each in look(world, disk).troubles if "SHA-256" in each.message]


class Busy:
    """A store whose pipeline goes on while its home is copied."""

    def __init__(self, inner: Store, then: list[object]) -> None:
        self._inner, self._then = inner, then

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def get(self, key: str) -> bytes:
        found = self._inner.get(key)
        if key.startswith("epochs/") and self._then:
            self._then.pop()()  # type: ignore[operator]
        return found


def test_what_is_dropped_while_it_is_copied_is_not_missed(tmp_path: Path) -> None:
    world = Machines(tmp_path, carried=0)
    world.settings = replace(world.settings, checkpoint_epochs=0)
    engine = world.open()
    run_out(engine, epochs=4)

    def save() -> None:
        run_out(engine, epochs=2)
        engine.checkpoint()

    store: Store = Busy(world.objects, [save])  # type: ignore[assignment]
    disk = copy_of(store, tmp_path / "copy")
    assert read_home(disk).name
    assert not look(world, disk).troubles
    kill(engine)
