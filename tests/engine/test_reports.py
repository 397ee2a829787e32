"""What an engine tells of an epoch, and what the history of a run has of it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from lamina.engine.phases import PHASES
from lamina.format.home_names import HISTORY
from lamina.running.loop import Loop, Until, Watcher
from lamina.running.presence import present
from lamina.running.recorder import recorded
from lamina.store import MemoryStore
from lamina.testing import FaultyStore, ManualClock
from lamina.workspace.history import read_history
from lamina.workspace.remote.notes import RemoteNotes
from tests.engine.pipelines import World, kill
from tests.engine.test_remote_homes import Machines


class Ticking(ManualClock):
    """A second passes whenever somebody looks."""

    def monotonic(self) -> float:
        self.wait(1.0)
        return super().monotonic()


def test_a_report_says_how_long_each_phase_took_and_how_things_stand(tmp_path: Path) -> None:
    world = World(tmp_path)
    engine = world.open()
    first = engine.step()
    assert first is not None
    engine.checkpoint()
    report = engine.step()
    assert report is not None
    engine.close()
    assert set(report.phases) == set(PHASES)
    assert set(report.streams) == {"vwap", "large", "totals", "busiest"}
    assert sum(report.phases.values()) <= report.seconds
    assert sum(report.streams.values()) <= report.phases["run"]
    assert report.generation == 1
    assert (first.saved_epoch, first.saved_id) == (0, "")
    assert report.saved_epoch == 1
    assert report.saved_id == str(engine._saves.base)
    assert set(report.watermarks) == {"trades", "orders"}
    assert report.sinks == {"vwap": 2, "totals": 2, "busiest": 2}
    assert report.sink_errors == {}
    assert report.state_runs == sum(len(o.runs()) for o in engine._states.operators.values())
    assert report.state_bytes > 0
    assert report.wal_bytes > 0


def test_time_is_counted_in_one_phase_of_one_epoch(tmp_path: Path) -> None:
    """Also if the next epoch runs while a COMMIT is on its way: that is time of the next one."""
    clock = Ticking()
    settings = replace(World(tmp_path).settings, looks_ahead=True)
    world = Machines(tmp_path, settings=settings)
    began = clock.monotonic()
    engine = world.open(clock=clock)
    reports = [report for report in (engine.step() for _ in range(4)) if report]
    spent = clock.monotonic() - began
    kill(engine)
    assert len(reports) == 4
    assert sum(sum(report.phases.values()) for report in reports) < spent
    for report in reports:
        assert all(seconds > 0 for seconds in report.phases.values())
        assert sum(report.streams.values()) <= report.phases["run"]


def test_a_small_epoch_of_a_remote_home_is_one_request_with_its_history_too(
    tmp_path: Path,
) -> None:
    counted = FaultyStore(MemoryStore())
    settings = replace(World(tmp_path).settings, checkpoint_epochs=0)
    world = Machines(tmp_path, objects=counted, settings=settings)
    engine = world.open()
    clock, scratch = ManualClock(), tmp_path / "scratch"
    asked: list[dict[str, int]] = []

    def note(_: object) -> None:
        asked.append(dict(counted.calls))
        counted.calls.clear()

    with (
        present(scratch, "orders", clock=clock) as here,
        recorded(Watcher(epoch=note), here, RemoteNotes(counted), clock) as watcher,
    ):
        Loop(
            engine,
            here=here,
            clock=clock,
            stop=threading.Event(),
            watcher=watcher,
            until=Until(epoch=5),
        ).run()
    kill(engine)
    assert len(asked) == 5
    assert asked[1:] == [{"put_if_absent": 1}] * 4
    found = read_history([RemoteNotes(counted)])
    assert [row.epoch for row in found.rows] == [5, 4, 3, 2, 1]
    assert len(RemoteNotes(counted).names(HISTORY)) == 1
