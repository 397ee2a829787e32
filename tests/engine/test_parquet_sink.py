"""Parquet files as a sink: an epoch is visible as a whole or not at all, and only once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lamina.connectors.parquet import ParquetSink
from lamina.engine.ports import Publication, Sink
from lamina.errors import Diverged, Fenced
from lamina.format.commit import Point
from lamina.testing.faulty import Killed
from tests.engine.pipelines import LIMITS, ORDERS, TRADES, Epochs, World, expected, kill, run_out

assert LIMITS.rows is not None
EXPECTED = expected({"trades": TRADES, "orders": ORDERS}, LIMITS.rows)
STEPS = ("before", "copied", "shown", "noted")


@dataclass
class ParquetWorld(World):
    """Every sink is a folder."""

    def folder(self, sink: str) -> Path:
        return self.root / "out" / sink

    def sinks(self) -> dict[str, Sink]:
        return {name: ParquetSink(name, self.folder(name)) for name in self.plan.sinks}

    def got(self, sink: str) -> Epochs:
        """As a reader sees it who knows nothing of the sink."""
        found: Epochs = []
        for epoch in sorted(self.folder(sink).glob("epoch-*")):
            rows = [
                row for file in epoch.glob("*.parquet") for row in pq.read_table(file).to_pylist()
            ]
            found.append(sorted(tuple(row.values()) for row in rows))
        return found


class DyingSink(ParquetSink):
    """Killed in the middle of publishing its third epoch with rows."""

    def __init__(self, name: str, folder: Path, step: str) -> None:
        super().__init__(name, folder)
        self._step = step
        self._shown = 0

    def publish(self, publication: Publication) -> None:
        if publication.files:
            self._shown += 1
        self._die_at("before")
        super().publish(publication)
        self._die_at("noted")

    def _show(self, target: Path, publication: Publication, entry: bytes) -> None:
        if self._shown == 3 and self._step == "copied":
            hidden = self._folder / f".{target.name}-{publication.generation:020d}"
            hidden.mkdir()
            (hidden / "part-00000.parquet").write_bytes(b"half of it")
        self._die_at("copied")
        super()._show(target, publication, entry)
        self._die_at("shown")

    def _die_at(self, step: str) -> None:
        if self._shown == 3 and self._step == step:
            raise Killed(step)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("sink", ["vwap", "totals"])
def test_killed_while_an_epoch_is_published_it_is_there_once(
    sink: str, step: str, tmp_path: Path
) -> None:
    world = ParquetWorld(tmp_path)
    dying = DyingSink(sink, world.folder(sink), step)
    engine = world.open(sinks={**world.sinks(), sink: dying})
    with pytest.raises(Killed):
        run_out(engine)
    kill(engine)
    world.finish()
    assert world.outcome() == EXPECTED
    assert not list(world.folder(sink).glob(".epoch-*")), "what was left is swept"


def test_an_entry_of_another_history_is_never_written_over(tmp_path: Path) -> None:
    """Once a publication without rows did."""
    sink = ParquetSink("out", tmp_path)
    sink.fence(1)
    first = Publication("p", 1, Point(1, "ab" * 32), (), tmp_path)
    for _ in range(2):
        sink.publish(first)
    with pytest.raises(Diverged, match="another history"):
        sink.publish(replace(first, point=Point(1, "cd" * 32)))
    assert sink.position().point == first.point


def test_who_was_fenced_publishes_nothing(tmp_path: Path) -> None:
    old, new = ParquetSink("out", tmp_path), ParquetSink("out", tmp_path)
    old.fence(1)
    new.fence(2)
    with pytest.raises(Fenced):
        old.publish(Publication("p", 1, Point(1, "ab" * 32), (), tmp_path))
    with pytest.raises(Fenced):
        old.fence(1)
    assert new.position().point is None
