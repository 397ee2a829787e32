"""Windows over the rows of windows, and sources that are drained: every row is counted once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lamina.engine.engine import EnginePlan, EngineSettings, StreamPlan
from lamina.engine.model import SourceRange
from lamina.engine.planning import DRAINED, END_US, EpochPlan, Watermarks, check_not_drained
from lamina.engine.ports import Limits
from lamina.errors import Refused
from tests.engine.pipelines import (
    CLOSING,
    DELAY,
    FROM_TRADES,
    LIMITS,
    MINUTE,
    TIME,
    TRADES,
    Bomb,
    Killed,
    Row,
    World,
    by_window,
    kill,
    run_out,
)
from tests.support.in_process import LocalStream

TEN = 10 * MINUTE


def by_ten_minutes(table: pa.Table) -> pa.Table:
    """Minutes summed up: what `SELECT ... FROM minutes GROUP BY key, window(start, ...)` does."""
    start = pc.multiply(pc.divide(table["start"].cast(pa.int64()), TEN), TEN)
    table = table.drop_columns(["start", "end"])
    table = table.append_column("start", start.cast(TIME))
    table = table.append_column("end", pc.add(start, TEN).cast(TIME))
    grouped = table.group_by(["key", "start", "end"]).aggregate([("total", "sum"), ("rows", "sum")])
    columns = ["key", "start", "end", "total_sum", "rows_sum"]
    return grouped.select(columns).rename_columns(["key", "start", "end", "total", "rows"])


PLAN = EnginePlan(
    "p",
    "ab" * 32,
    (
        StreamPlan("minutes", ("trades",), FROM_TRADES, {"minutes": CLOSING}),
        StreamPlan("kept", ("minutes",), FROM_TRADES),
        StreamPlan("tens", ("kept",), FROM_TRADES, {"tens": CLOSING}),
    ),
    {"minutes": "minutes", "tens": "tens"},
    {"trades": DELAY},
)
STREAMS = {
    "minutes": LocalStream(by_window),
    "kept": LocalStream(lambda table: table),
    "tens": LocalStream(by_ten_minutes),
}


def world_of(root: Path, rows: list[Row], *, limit: int = 7, drain: bool = True) -> World:
    settings = EngineSettings(
        partitions=2, limits=Limits(rows=limit), checkpoint_epochs=3, drain=drain
    )
    return World(root, data={"trades": rows}, plan=PLAN, streams=STREAMS, settings=settings)


def rows_by_start(world: World, sink: str) -> Counter[tuple[object, object]]:
    found: Counter[tuple[object, object]] = Counter()
    for epoch in world.got(sink):
        for key, start, _, _, rows in epoch:
            assert isinstance(rows, int)
            found[key, start] += rows
    return found


def test_the_last_minute_of_ten_closes_with_them_and_is_not_late_for_them(tmp_path: Path) -> None:
    """It was: both streams dropped by the watermark that closes them in one and the same epoch."""
    rows: list[Row] = [("k", 1, minute * MINUTE) for minute in range(45)]
    world = world_of(tmp_path, rows, limit=3, drain=False)
    world.finish()
    tens = [row for epoch in world.got("tens") for row in epoch]
    assert [row[4] for row in tens] == [10, 10, 10, 10]


@pytest.mark.parametrize("limit", [1, 4, 50, 1000])
def test_drained_every_row_that_was_not_late_is_in_one_window_of_each_stream(
    limit: int, tmp_path: Path
) -> None:
    rows = [row for i, row in enumerate(TRADES) if i % 13 != 12]  # those that come in time
    world = world_of(tmp_path, rows, limit=limit)
    engine = world.open()
    reports = run_out(engine)
    engine.close()
    assert sum(report.late for report in reports) == 0
    wanted: Counter[tuple[object, object]] = Counter()
    for key, _, at in rows:
        assert at is not None
        wanted[key, pa.scalar(at // TEN * TEN, TIME).as_py()] += 1
    assert rows_by_start(world, "tens") == wanted
    assert sum(rows_by_start(world, "minutes").values()) == len(rows)


@pytest.mark.parametrize("place", ["before COMMIT", "after COMMIT", "after publish", "before note"])
def test_killed_anywhere_chained_windows_come_out_as_in_one_go(place: str, tmp_path: Path) -> None:
    whole = world_of(tmp_path / "whole", TRADES)
    whole.finish()
    cut = world_of(tmp_path / "cut", TRADES)
    for nth in (1, 2, 2, 1, 1, 1):
        engine = cut.open(Bomb(place, nth))
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
    cut.finish(partitions=4)
    assert cut.outcome() == whole.outcome()


def test_a_drained_pipeline_is_at_its_end_and_a_restart_makes_no_epoch(tmp_path: Path) -> None:
    world = world_of(tmp_path, TRADES)
    engine = world.open()
    last = run_out(engine)[-1]
    engine.checkpoint()
    engine.close()
    assert last.watermark == END_US
    for drain in (True, False):
        world.settings = replace(world.settings, drain=drain)
        engine = world.open()
        assert engine.step() is None
        engine.close()


def test_rows_after_the_end_are_refused_before_any_of_them_is_late(tmp_path: Path) -> None:
    world = world_of(tmp_path, TRADES[:50])
    world.finish()
    world.data = {"trades": TRADES}
    engine = world.open()
    with pytest.raises(Refused, match="'trades' was drained"):
        engine.step()
    engine.close()


def test_without_drain_open_windows_stay_open(tmp_path: Path) -> None:
    world = world_of(tmp_path, TRADES, limit=LIMITS.rows or 1, drain=False)
    world.finish()
    assert sum(rows_by_start(world, "minutes").values()) < len(TRADES)


FAR = 8_999_999_999_999_000_000  # in the year 287168, which Spark can read


def test_a_window_in_a_far_year_stayed_open_when_its_source_was_drained(tmp_path: Path) -> None:
    rows: list[Row] = [("k", 1, 10 * MINUTE), ("far", 1, FAR)]
    world = world_of(tmp_path, rows)
    engine = world.open()
    assert run_out(engine)[-1].watermark == END_US
    left = [p.statistics(count=True).live for p in engine._states.operators["minutes"].partitions]
    assert left == [0] * len(left)
    engine.close()
    published = [t for epoch in world.tables["minutes"].epochs.values() for t in epoch]
    assert sum(table.num_rows for table in published) == len(rows)


def test_a_source_that_was_drained_by_an_older_release_is_still_drained() -> None:
    moved = {"s": SourceRange("s", {"row": "1"}, {"row": "2"})}
    for end in DRAINED:
        committed = Watermarks({"s": end})
        with pytest.raises(Refused, match="was drained"):
            check_not_drained(EpochPlan(2, moved, committed), committed, ["s"])
