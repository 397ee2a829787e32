"""A stream with two inputs and a keyed state for each: both move in one epoch, or neither does.

both: trades and orders, each summed by key in a state of its own; every change comes out with the
      side it is of.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lamina.engine.engine import StreamPlan
from lamina.testing.faulty import Killed
from tests.engine.pipelines import (
    CLOSING,
    DELAY,
    LARGE,
    LIMITS,
    MINUTE,
    ORDERS,
    PLAN,
    TRADES,
    UPDATING,
    Bomb,
    Epochs,
    Row,
    World,
    by_key,
    by_window,
    kill,
    large,
    run_out,
)
from tests.support.in_process import LocalStream

BOTH = frozenset({"trades", "orders"})
OPERATORS = {"both left": UPDATING, "both right": UPDATING}
PLACES = (
    "before both",
    "before append",
    "after append",
    "before stage",
    "after stage",
    "after both",
    "before COMMIT",
    "after COMMIT",
    "before publish",
    "after publish",
    "before rotate",
    "dropped staged",
)


def sides(left: pa.Table | None, right: pa.Table | None) -> tuple[pa.Table | None, ...]:
    return tuple(None if table is None else by_key(table) for table in (left, right))


def labelled(left: pa.Table | None, right: pa.Table | None) -> pa.Table:
    tables = [
        table.add_column(0, "side", pa.array([side] * table.num_rows))
        for side, table in (("left", left), ("right", right))
        if table is not None
    ]
    return pa.concat_tables(tables)


def world_of(root: Path, *, first: str = "trades") -> World:
    """The stream `both` over *first* (trades, or the stream `large` of them) and orders."""
    both = StreamPlan("both", (first, "orders"), BOTH, OPERATORS)
    streams = (StreamPlan("large", ("trades",), frozenset({"trades"})), both)
    plan = replace(PLAN, streams=streams, sinks={"both": "both", "large": "large"})
    local = {"large": LocalStream(large), "both": LocalStream(sides, labelled)}
    return World(root, plan=plan, streams=local)


def expected(trades: list[Row], orders: list[Row]) -> Epochs:
    """Row by row: what changes of each side in each epoch."""
    limit = LIMITS.rows
    assert limit is not None
    sums: dict[tuple[str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    found: Epochs = []
    for at in range(0, max(len(trades), len(orders)), limit):
        changed = set[tuple[str, str]]()
        for side, rows in (("left", trades), ("right", orders)):
            for key, amount, _ in rows[at : at + limit]:
                total, count = sums[side, key]
                sums[side, key] = (total + amount, count + 1)
                changed.add((side, key))
        found.append(sorted((*each, *sums[each]) for each in changed))
    return found


def test_without_a_kill_each_side_has_its_own_sums(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.finish()
    assert world.got("both") == expected(TRADES, ORDERS)


@pytest.mark.parametrize("place", PLACES)
def test_killed_anywhere_no_side_moves_without_the_other(place: str, tmp_path: Path) -> None:
    """Twice: the first time that it gets there, and after that recovery the second time."""
    world = world_of(tmp_path)
    for nth in (1, 2):
        engine = world.open(Bomb(place, nth))
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
    world.finish()
    assert world.got("both") == expected(TRADES, ORDERS)


def test_both_states_are_in_every_checkpoint_and_open_with_another_parallelism(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path)
    for partitions in (2, 8, 1, 4):
        engine = world.open(partitions=partitions)
        run_out(engine, epochs=2)
        engine.checkpoint()
        engine.close()
    world.finish()
    assert world.got("both") == expected(TRADES, ORDERS)


def test_a_stream_may_read_a_source_and_a_stream(tmp_path: Path) -> None:
    world = world_of(tmp_path, first="large")
    world.finish()
    newest = {row[:2]: row[2:] for epoch in world.got("both") for row in epoch}
    selected = [row for row in TRADES if row[1] >= LARGE]
    assert newest == {r[:2]: r[2:] for epoch in expected(selected, ORDERS) for r in epoch}


def test_windows_over_two_inputs_close_by_the_slower_one(tmp_path: Path) -> None:
    both = StreamPlan("both", ("trades", "orders"), BOTH, {"both": CLOSING})
    plan = replace(PLAN, streams=(both,), sinks={"both": "both"})
    local = {"both": LocalStream(lambda *tables: by_window(pa.concat_tables(tables)))}
    orders: list[Row] = [("o", 1, 10 * MINUTE)]
    trades: list[Row] = [("t", 1, 10 * MINUTE), ("t", 1, 30 * MINUTE)]
    world = World(tmp_path, plan=plan, streams=local, data={"trades": trades, "orders": orders})
    engine = world.open()
    reports = run_out(engine)
    assert reports[-1].watermark == 10 * MINUTE - DELAY
    assert world.got("both") == []
    orders.append(("o", 1, 20 * MINUTE))
    run_out(engine)
    engine.close()
    assert [row[0] for epoch in world.got("both") for row in epoch] == ["o", "t"]
