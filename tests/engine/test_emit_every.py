"""EMIT EVERY without Spark, beside a plain model: killed at every step, rescaled, changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lamina.engine.engine import EngineSettings
from lamina.engine.model import OperatorPlan
from lamina.engine.pending import emits_now, pending_name, with_pending
from lamina.engine.plans import EnginePlan
from lamina.engine.ports import CHANGE, Change, Output
from lamina.errors import StateChanged
from lamina.pipeline.model import Emit
from lamina.testing.faulty import Killed
from tests.engine.pipelines import (
    DELAY,
    FROM_TRADES,
    KEY,
    LIMITS,
    MINUTE,
    PLAN,
    SECOND,
    TIME,
    WINDOW,
    Bomb,
    Row,
    StreamPlan,
    World,
    by_key,
    by_window,
    kill,
    operator,
    rows_of,
    run_out,
)
from tests.support.in_process import LocalStream

TRADES = rows_of(120, keys=9, step_s=6, late_every=13)
EVERY = 400 * SECOND
"""Some epochs, in which rows change again; not a multiple of a window, so some close in it."""
STREAMS = {
    "totals": operator(KEY, Emit.ON_UPDATE),
    "changes": operator(KEY, Emit.CHANGES),
    "windows": operator(WINDOW, Emit.ON_UPDATE, "end"),
    "window_changes": operator(WINDOW, Emit.CHANGES, "end"),
}


def plan_of(every_us: int | None = EVERY, **others: OperatorPlan) -> EnginePlan:
    streams = []
    for name, plan in {**STREAMS, **others}.items():
        operators = with_pending(name, replace(plan, every_us=every_us))
        change = Change.CHANGES if plan.emit is Emit.CHANGES else Change.UPSERT
        output = Output(change=change)
        streams.append(StreamPlan(name, ("trades",), FROM_TRADES, operators, output))
    sinks = {name: name for name in STREAMS}
    return replace(PLAN, streams=tuple(streams), sinks=sinks, delays_us={"trades": DELAY})


def world_of(root: Path, every_us: int | None = EVERY) -> World:
    local = {name: LocalStream(by_window if "window" in name else by_key) for name in STREAMS}
    settings = EngineSettings(
        partitions=2, limits=LIMITS, checkpoint_epochs=3, retain=1, drain=True
    )
    world = World(root, data={"trades": TRADES}, plan=plan_of(every_us), streams=local)
    world.settings = settings
    return world


Key = tuple[Any, ...]


def chunks() -> list[Sequence[Row]]:
    size = LIMITS.rows
    assert size is not None
    return [TRADES[at : at + size] for at in range(0, len(TRADES), size)]


def expected(stream: str, every_us: int = EVERY) -> list[list[tuple[Any, ...]]]:
    """What comes out, epoch by epoch, in plain Python."""
    table: dict[Key, tuple[int, int]] = {}
    shown: dict[Key, tuple[int, int]] = {}
    waits: set[Key] = set()
    before: int | None = None
    mark: int | None = None
    found = []
    steps: list[tuple[Sequence[Row], int | None]] = [(chunk, None) for chunk in chunks()]
    for chunk, end in (*steps, ([], None), ([], 1 << 62)):
        mark = end or mark
        latest = mark
        for key, amount, at in chunk:
            assert at is not None
            latest = at - DELAY if latest is None else max(latest, at - DELAY)
            start = at // MINUTE * MINUTE
            if "window" in stream and mark is not None and start + MINUTE <= mark:
                continue
            named = (key, start, start + MINUTE) if "window" in stream else (key,)
            total, rows = table.get(named, (0, 0))
            table[named] = (total + amount, rows + 1)
            waits.add(named)
        is_over = mark is not None and (before is None or mark // every_us > before // every_us)
        due = {k for k in waits if is_over or (len(k) > 1 and mark is not None and k[2] <= mark)}
        out: list[tuple[Any, ...]] = []
        for named in due:
            if "changes" not in stream:
                out.append((*named, *table[named]))
            elif named not in shown:
                out.append((*named, *table[named], "+I"))
            elif shown[named] != table[named]:
                out.append((*named, *shown[named], "-U"))
                out.append((*named, *table[named], "+U"))
            shown[named] = table[named]
        waits -= due
        if out:
            found.append(sorted(out))
        before, mark = mark, latest
    assert not waits, "all that waits comes out in the end"
    return found


def got(world: World, stream: str) -> list[list[tuple[Any, ...]]]:
    def plain(value: Any) -> Any:
        return pa.scalar(value, TIME).value if hasattr(value, "tzinfo") else value

    return [sorted(tuple(map(plain, row)) for row in epoch) for epoch in world.got(stream)]


@pytest.mark.parametrize("stream", STREAMS)
def test_what_has_changed_comes_out_once_in_an_interval(stream: str, tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.finish()
    wanted = expected(stream)
    assert got(world, stream) == wanted
    assert "window" in stream or 2 < len(wanted) < len(chunks()), "not with every epoch"


@pytest.mark.parametrize(
    "place",
    ["after append", "before COMMIT", "after COMMIT"],
)  # fmt: skip
def test_a_kill_at_any_step_changes_nothing(place: str, tmp_path: Path) -> None:
    """At the first time that it gets there, then a few epochs further; rescaled as well."""
    world = world_of(tmp_path)
    for nth, partitions in ((1, 2), (2, 4), (4, 1)):
        engine = world.open(Bomb(place, nth), partitions=partitions)
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
    world.finish(partitions=8)
    for stream in STREAMS:
        assert got(world, stream) == expected(stream), stream


def test_what_is_left_waiting_comes_out_when_a_stream_no_longer_waits(tmp_path: Path) -> None:
    """The interval was taken out of the file: the rows that waited came out with their next change
    only, or never."""
    world = world_of(tmp_path, 10_000 * MINUTE)
    engine = world.open()
    run_out(engine, epochs=4)
    kill(engine)
    assert not any("k" in str(row) for row in got(world, "totals")[1:])
    world.plan = plan_of(None)
    world.data = {"trades": TRADES[: 4 * (LIMITS.rows or 0) + 1]}
    engine = world.open()
    run_out(engine, epochs=1)
    kill(engine)
    for stream in ("totals", "changes"):
        last = {
            row[0]: row[1:3] for epoch in got(world, stream) for row in epoch if "-U" not in row
        }
        table = by_key(pa.Table.from_pylist([dict(zip(("key", "amount"), row, strict=False))
                                             for row in world.data["trades"]]))  # fmt: skip
        assert last == {row["key"]: (row["total"], row["rows"]) for row in table.to_pylist()}
    world.data = {"trades": TRADES}
    world.finish()


def test_changes_that_wait_are_not_given_up_for_updates(tmp_path: Path) -> None:
    world = world_of(tmp_path, 10_000 * MINUTE)
    engine = world.open()
    run_out(engine, epochs=4)
    kill(engine)
    world.plan = plan_of(10_000 * MINUTE, changes=operator(KEY, Emit.ON_UPDATE))
    with pytest.raises(StateChanged, match="'changes' still wait to come out as EMIT CHANGES"):
        world.open()
    world.plan = plan_of(None)  # the advice: once more, without EVERY
    engine = world.open()
    run_out(engine, epochs=1)
    kill(engine)
    world.plan = plan_of(10_000 * MINUTE, changes=operator(KEY, Emit.ON_UPDATE))
    world.open().close()


def test_only_what_has_changed_is_kept(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    engine = world.open()
    run_out(engine)
    for name in ("totals", "windows"):
        waiting = engine._states.operators[pending_name(name, Emit.ON_UPDATE)]
        assert sum(batch.num_rows for part in waiting.partitions for batch in part.scan()) == 0
    engine.close()


def test_an_interval_is_over_when_the_watermark_reaches_its_end() -> None:
    assert not emits_now(10, None, None)
    assert emits_now(10, None, 5)
    assert not emits_now(10, 5, 10)  # a watermark of 9
    assert emits_now(10, 10, 11)
    assert not emits_now(10, 11, 20)
    assert emits_now(10, -5, 1)
    assert emits_now(0, 5, 5)


def test_changes_of_one_interval_are_one_change(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.finish()
    for epoch in world.got("changes"):
        rows = [row[0] for row in epoch if row[-1] in ("+I", "+U")]
        assert len(rows) == len(set(rows))
    assert {row[CHANGE] for row in world.tables["changes"].rows()} == {"+I", "-U", "+U"}
