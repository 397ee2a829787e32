"""A folder or a bucket without new files does not hold what it is joined with, after a time."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamina.connectors.files import FilesSource
from lamina.connectors.objects import ObjectsSource
from lamina.engine.joins import Join
from lamina.engine.model import SourceRange
from lamina.engine.plans import EngineSettings
from lamina.engine.ports import Limits, Source
from lamina.pipeline.model import JoinKind
from lamina.testing.clock import ManualClock
from tests.engine.pipelines import MINUTE, Row, World, kill, run_out, table_of
from tests.engine.test_joins import COLUMNS, got, world_of

BEGIN, IDLE_S = 10 * MINUTE, 30
STEP = Join(JoinKind.LEFT, 0, MINUTE, COLUMNS, 2)


@dataclass
class Folders(World):
    """Both sides are folders of Parquet files, a file an epoch."""

    clock: ManualClock = field(default_factory=ManualClock)
    idle_after_us: int | None = IDLE_S * 1_000_000

    def put(self, side: str, number: int, rows: list[Row]) -> None:
        folder = self.root / side
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table_of(rows), folder / f"{number:03d}.parquet")
        os.utime(folder / f"{number:03d}.parquet", (1_000 + number, 1_000 + number))

    def sources(self) -> dict[str, Source]:
        return {side: self._source(side) for side in ("left", "right")}

    def _source(self, side: str) -> Source:
        folder = self.root / side
        return FilesSource(side, folder, idle_after_us=self.idle_after_us, clock=self.clock)

    def read(self, wanted: SourceRange) -> pa.Table:
        return pa.concat_tables([table_of([]), *map(pq.read_table, wanted.data.paths)])


def folders(root: Path, **given: Any) -> Folders:
    """Left rows of twenty minutes, and a right side that has said one thing."""
    plain = world_of(root, STEP, ((), ()), limit=4)
    settings = EngineSettings(partitions=2, limits=Limits(files=1), checkpoint_epochs=3)
    made = Folders(root, plan=plain.plan, streams=plain.streams, settings=settings, **given)
    for number in range(5):
        rows = [("k", number * 4 + i, BEGIN + (number * 4 + i) * MINUTE) for i in range(4)]
        made.put("left", number, rows)
    made.put("right", 0, [("k", 100, BEGIN)])
    return made


def out(world: World) -> int:
    return sum(got(world).values())


def test_a_folder_without_new_files_goes_along_after_a_time(tmp_path: Path) -> None:
    world = folders(tmp_path)
    engine = world.open()
    run_out(engine)
    assert out(world) <= 2, "the right side may still bring rows"
    world.clock.advance(IDLE_S - 1)
    assert engine.step() is None, "not yet"
    world.clock.advance(1)
    run_out(engine)
    assert out(world) == 18, "all but the last two, which wait for the left side itself"
    kill(engine)


def test_a_folder_that_speaks_again_holds_again(tmp_path: Path) -> None:
    world = folders(tmp_path)
    engine = world.open()
    run_out(engine)
    world.clock.advance(IDLE_S - 1)
    world.put("right", 1, [("k", 101, BEGIN + 3 * MINUTE)])
    run_out(engine)
    before = out(world)
    assert before < 10
    world.clock.advance(IDLE_S - 1)
    assert engine.step() is None, "counted from its last file, not from the start"
    kill(engine)
    again = world.open(partitions=4)
    assert again.step() is None, "and anew from a start"
    world.clock.advance(IDLE_S)
    run_out(again)
    assert out(world) == 18
    assert got(world)[3, 101] == 1
    kill(again)


def test_without_idle_after_it_holds_for_ever(tmp_path: Path) -> None:
    world = folders(tmp_path, idle_after_us=None)
    engine = world.open()
    run_out(engine)
    before = Counter(got(world))
    world.clock.advance(1_000_000)
    assert engine.step() is None
    assert got(world) == before
    kill(engine)


@pytest.mark.parametrize("idle_after_us", [None, 1])
def test_a_bucket_is_silent_like_a_folder(
    idle_after_us: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    source = ObjectsSource("right", "s3://bucket/x", {}, idle_after_us=idle_after_us, clock=clock)
    assert source._silent.holding(has_more=False) is None
    clock.advance(1)
    assert source._silent.holding(has_more=False) == (None if idle_after_us is None else ())
