"""Which rows are late, when windows close, and what a restart must not change about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lamina.engine.engine import EnginePlan, EngineSettings, StreamPlan
from lamina.engine.ports import Limits
from lamina.pipeline.model import Emit
from tests.engine.pipelines import (
    CLOSING,
    DELAY,
    FROM_TRADES,
    MINUTE,
    SECOND,
    WINDOW,
    Row,
    World,
    by_window,
    kill,
    large,
    operator,
    run_out,
)
from tests.support.in_process import LocalStream

BOTH = frozenset({"trades", "orders"})
VWAP = EnginePlan(
    "p",
    "ab" * 32,
    (StreamPlan("vwap", ("trades",), FROM_TRADES, {"vwap": CLOSING}),),
    {"vwap": "vwap"},
    {"trades": DELAY},
)


def world_of(
    root: Path, trades: Sequence[Row], *, limit: int = 1, plan: EnginePlan = VWAP
) -> World:
    """An epoch takes *limit* rows: with late rows the result depends on where epochs end."""
    settings = EngineSettings(limits=Limits(rows=limit), checkpoint_epochs=0)
    data = {"trades": list(trades)}
    return World(
        root, data=data, plan=plan, settings=settings, streams={"vwap": LocalStream(by_window)}
    )


def trade(minute: float, amount: int = 1) -> Row:
    return ("k", amount, round(minute * MINUTE))


def closed(world: World) -> list[tuple[float, int]]:
    """The minute and the total of every window that has closed, in order."""
    rows = [row for epoch in world.got("vwap") for row in epoch]
    return [(row[1].timestamp() / 60, row[3]) for row in rows]  # type: ignore[attr-defined,misc]


def test_an_epoch_drops_by_the_watermark_of_its_parent_not_by_its_own_rows(tmp_path: Path) -> None:
    """Both rows in one epoch: the second does not make the first one late."""
    world = world_of(tmp_path, [trade(1), trade(9), trade(1.1), trade(9.1)], limit=2)
    engine = world.open()
    first, second, last = run_out(engine)
    engine.close()
    assert (first.late, second.late, last.late) == (0, 1, 0)
    assert closed(world) == [(1, 1)]


def test_late_is_a_window_that_ends_at_the_watermark_not_one_after_it(tmp_path: Path) -> None:
    delay = DELAY / MINUTE
    before = trade(2 + delay - 1 / MINUTE)  # by the smallest step that there is
    on_time = world_of(tmp_path / "a", [before, trade(1.5), trade(30)])
    late = world_of(tmp_path / "b", [trade(2 + delay), trade(1.5), trade(30)])
    for world, expected in ((on_time, [0, 0, 0, 0]), (late, [0, 1, 0, 0])):
        engine = world.open()
        assert [report.late for report in run_out(engine)] == expected
        engine.close()


def test_a_watermark_does_not_fall_with_rows_that_are_older(tmp_path: Path) -> None:
    """It would take a third row for one that is on time, though its window has closed."""
    world = world_of(tmp_path, [trade(30), trade(1), trade(1.5)])
    engine = world.open()
    assert [report.late for report in run_out(engine)][:3] == [0, 1, 1]
    engine.close()


def test_after_the_last_data_one_more_epoch_closes_windows_and_then_there_is_none(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path, [trade(1), trade(5)], limit=9)
    engine = world.open()
    data, closing = run_out(engine)
    assert (data.rows, closing.rows) == ({"trades": 2}, {"trades": 0})
    assert (data.rows_out, closing.rows_out) == ({"vwap": 0}, {"vwap": 1})
    for _ in range(3):
        assert engine.step() is None
    engine.close()
    assert closed(world) == [(1, 1)]


def test_a_restart_makes_no_epoch_of_its_own(tmp_path: Path) -> None:
    world = world_of(tmp_path, [trade(1), trade(5)])
    epochs = []
    for _ in range(4):
        engine = world.open()
        epochs.append(len(run_out(engine)))
        kill(engine)
    assert epochs == [3, 0, 0, 0]
    assert closed(world) == [(1, 1)]


@pytest.mark.parametrize("saved", [False, True])
def test_a_restart_after_any_epoch_changes_nothing_about_lateness(
    saved: bool, tmp_path: Path
) -> None:
    trades = [trade(minute) for minute in (1, 4, 2.9, 3.1, 9, 5, 8, 9.5, 8.9, 12, 7, 12.1, 11.5)]
    whole = world_of(tmp_path / "whole", trades)
    engine = whole.open()
    late = [report.late for report in run_out(engine) if any(report.rows.values())]
    engine.close()
    assert sum(late) > 2
    cut = world_of(tmp_path / "cut", trades)
    again: list[int] = []
    for _ in trades:
        engine = cut.open()
        again += [report.late for report in run_out(engine, epochs=1)]
        if saved:
            engine.checkpoint()
        kill(engine)
    cut.finish()
    assert again == late
    assert closed(cut) == closed(whole)


def test_rows_without_event_time_are_counted_and_dropped(tmp_path: Path) -> None:
    world = world_of(tmp_path, [("k", 1, None), trade(1), ("k", 1, None), trade(9)], limit=2)
    engine = world.open()
    reports = run_out(engine)
    engine.close()
    assert [report.without_time for report in reports] == [1, 1, 0]
    assert closed(world) == [(1, 1)]


def test_an_epoch_of_rows_without_event_time_moves_nothing(tmp_path: Path) -> None:
    world = world_of(tmp_path, [("k", 1, None)] * 3)
    engine = world.open()
    reports = run_out(engine)
    engine.close()
    assert [report.watermark for report in reports] == [None] * 3


def test_a_row_far_ahead_does_not_move_the_watermark_but_the_others_do(tmp_path: Path) -> None:
    """Once one such row in an epoch kept all others from moving it."""
    world = world_of(
        tmp_path, [trade(1), trade(1), trade(5000), trade(3), trade(2), trade(4)], limit=2
    )
    world.settings = replace(world.settings, max_ahead_us=10 * MINUTE)
    engine = world.open()
    reports = run_out(engine)
    engine.close()
    marks = [report.watermark for report in reports]
    assert marks == [minute * MINUTE - DELAY for minute in (1, 3, 4, 4)]
    assert closed(world) == [(1, 2), (2, 1)], "and it is in no window that closes"


def bounded(root: Path, trades: Sequence[Row], *, limit: int = 1) -> World:
    """With `max_ahead` of ten minutes."""
    world = world_of(root, trades, limit=limit)
    world.settings = replace(world.settings, max_ahead_us=10 * MINUTE)
    return world


def marks(world: World) -> list[float | None]:
    """The watermark after each epoch with rows, in minutes, the delay added."""
    engine = world.open()
    reports = [report for report in run_out(engine) if any(report.rows.values())]
    engine.close()
    times = (report.watermark for report in reports)
    return [None if time is None else (time + DELAY) / MINUTE for time in times]


def test_a_gap_longer_than_max_ahead_stopped_the_watermark_for_good(tmp_path: Path) -> None:
    """Every row after it was too far ahead, and no window closed any more, in silence."""
    world = bounded(tmp_path, [trade(minute) for minute in (1, 2, 130, 131, 132)])
    engine = world.open()
    reports = [report for report in run_out(engine) if any(report.rows.values())]
    engine.close()
    times = [report.watermark for report in reports]
    assert times == [minute * MINUTE - DELAY for minute in (1, 2, 2, 130, 132)]
    assert [report.ahead for report in reports] == [0, 0, 1, 1, 0]
    assert [report.gaps_us for report in reports] == [{}, {}, {}, {"trades": 128 * MINUTE}, {}]
    assert [minute for minute, _ in closed(world)] == [1, 2, 130]
    assert sum(report.late for report in reports) == 0


def test_one_wrong_clock_in_an_epoch_of_its_own_is_no_gap(tmp_path: Path) -> None:
    world = bounded(tmp_path, [trade(minute) for minute in (1, 5000, 2, 7000, 3, 4)])
    assert marks(world) == [1, 1, 2, 2, 3, 4]


def test_a_gap_is_jumped_to_its_earliest_row(tmp_path: Path) -> None:
    """Wrong clocks among the rows after a gap do not decide where it ends."""
    rows = [trade(minute) for minute in (1, 1, 9000, 131, 9000, 130, 132, 133)]
    assert marks(bounded(tmp_path, rows, limit=2)) == [1, 1, 130, 133]


def test_epochs_without_event_times_do_not_make_a_gap(tmp_path: Path) -> None:
    rows = [trade(1), trade(130), ("k", 1, None), trade(2), trade(131), trade(3)]
    assert marks(bounded(tmp_path, rows)) == [1, 1, 1, 2, 2, 3]


def test_a_wrong_clock_in_the_first_epoch_closed_every_window(tmp_path: Path) -> None:
    """There was no watermark yet that a row could be ahead of."""
    rows = [trade(1), trade(5000), trade(2), trade(3)]
    assert marks(bounded(tmp_path, rows, limit=2)) == [1, 3]
    within = [trade(1), trade(4), trade(5), trade(6)]
    assert marks(bounded(tmp_path / "within", within, limit=2)) == [4, 6]


@pytest.mark.parametrize("saved", [False, True])
def test_a_restart_before_a_gap_is_jumped_changes_nothing(saved: bool, tmp_path: Path) -> None:
    """What an epoch has seen ahead is committed with it."""
    rows = [trade(minute) for minute in (1, 2, 130, 131, 132)]
    cut = bounded(tmp_path, rows)
    found: list[float] = []
    for _ in rows:
        engine = cut.open()
        for report in run_out(engine, epochs=1):
            assert report.watermark is not None
            found.append((report.watermark + DELAY) / MINUTE)
        if saved:
            engine.checkpoint()
        kill(engine)
    assert found == [1, 2, 2, 130, 132]


def test_the_slowest_source_holds_a_stream_that_reads_both(tmp_path: Path) -> None:
    stream = StreamPlan("vwap", ("trades",), BOTH, {"vwap": CLOSING})
    plan = replace(VWAP, streams=(stream,), delays_us={"trades": DELAY, "orders": DELAY})
    watch = StreamPlan("watch", ("orders",), frozenset({"orders"}))
    plan = replace(plan, streams=(stream, watch))
    world = world_of(tmp_path, [trade(1), trade(30)], limit=9, plan=plan)
    world.streams = {**world.streams, "watch": LocalStream(large)}
    orders: list[Row] = []
    world.data = {**world.data, "orders": orders}
    engine = world.open()
    assert [report.watermark for report in run_out(engine)] == [None, None]
    orders.append(("o", 1, 1 * MINUTE))
    assert [r.watermark for r in run_out(engine)] == [1 * MINUTE - DELAY] * 2
    assert closed(world) == []
    orders.append(("o", 1, 3 * MINUTE))
    run_out(engine)
    engine.close()
    assert closed(world) == [(1, 1)]


def test_windows_that_are_put_out_on_update_are_forgotten_when_they_close(tmp_path: Path) -> None:
    """Once their state stayed for ever."""
    updating = StreamPlan(
        "vwap", ("trades",), FROM_TRADES, {"vwap": operator(WINDOW, Emit.ON_UPDATE, "end")}
    )
    plan = replace(VWAP, streams=(updating,))
    trades = [trade(minute, minute) for minute in range(1, 60)]
    world = world_of(tmp_path, [*trades, trade(3)], plan=plan)
    engine = world.open()
    late = [report.late for report in run_out(engine)]
    assert sum(late) == 1
    state = engine._states.operators["vwap"]
    assert sum(p.statistics(count=True).live or 0 for p in state.partitions) < 5
    engine.checkpoint()
    kill(engine)
    world.finish()
    assert closed(world) == [(minute, minute) for minute in range(1, 60)]


def test_a_partition_in_which_nothing_happens_writes_nothing(tmp_path: Path) -> None:
    """A floor is written when windows close, not in every epoch that has a watermark."""
    trades = [("k", 1, 10 * MINUTE + second * SECOND) for second in range(0, 40, 10)]
    world = world_of(tmp_path, trades)
    engine = world.open(partitions=8)
    run_out(engine)
    kill(engine)
    written = [core for core in world.home.glob("core-*") if len(list(core.iterdir())) > 1]
    assert len(written) == 1
