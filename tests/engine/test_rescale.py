"""Another P from one process to the next: the same files, other slices."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from lamina.checkpoint import state as checkpoint_state
from lamina.engine.engine import EngineSettings
from lamina.engine.ports import Limits
from lamina.state.hashing import vnodes_of
from lamina.testing.faulty import Killed
from tests.engine.pipelines import (
    DELAY,
    MINUTE,
    Bomb,
    Row,
    World,
    expected,
    kill,
    rows_of,
    run_out,
    table_of,
)

LIMIT = 20
DATA = {
    "trades": rows_of(480, keys=40, step_s=2),
    "orders": rows_of(480, keys=60, step_s=2),
}


def world_of(root: Path, *, checkpoint_epochs: int = 3) -> World:
    world = World(root, data=DATA)
    world.settings = replace(
        world.settings, limits=Limits(rows=LIMIT), checkpoint_epochs=checkpoint_epochs
    )
    return world


@pytest.mark.parametrize(
    ("checkpoint_epochs", "inline"), [(0, True), (2, True), (2, False), (5, True), (5, False)]
)
def test_rescaled_down_and_up_in_mid_stream_nothing_is_lost_or_doubled(
    checkpoint_epochs: int, inline: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not inline:
        monkeypatch.setattr(checkpoint_state, "INLINE_BYTES_MAX", -1)
    world = world_of(tmp_path, checkpoint_epochs=checkpoint_epochs)
    for partitions in (2, 8, 4, 1):
        engine = world.open(partitions=partitions)
        run_out(engine, epochs=5)
        kill(engine)
    world.finish(partitions=2)
    assert world.outcome() == expected(DATA, LIMIT)


def test_the_lists_of_a_rescaled_state_do_not_grow_for_ever(tmp_path: Path) -> None:
    """What a task has merged is found in the driver's list, also if that is made of layers."""
    world = world_of(tmp_path, checkpoint_epochs=0)
    for partitions in (8, 2):
        engine = world.open(partitions=partitions)
        run_out(engine, epochs=12)
        lists = [
            len(partition.runs)
            for operator in engine._states.operators.values()
            for partition in operator.partitions
        ]
        assert max(lists) <= 9
        kill(engine)


def test_a_merge_after_a_rescale_takes_in_more_runs_than_were_chosen(tmp_path: Path) -> None:
    """Once a task then named another run as the one it had made, or none at all.

    One half of the keys has merged down to its oldest run, the other has not: side by side they
    overlap in epochs, and what is merged above must take the oldest in.
    """
    orders: list[Row] = []
    world = World(tmp_path, data={"trades": [], "orders": orders})
    world.settings = EngineSettings(checkpoint_epochs=0)
    keys = [f"key-{number}" for number in range(20_000)]
    halves = vnodes_of([pa.array(keys)]) % 2
    left, right = ([k for k, h in zip(keys, halves, strict=True) if h == half] for half in (0, 1))
    steps = [keys, *[left[:4000] + right[:9]] * 3, right[:9], right[:9]]
    engine = world.open(partitions=2)
    for step in steps:
        orders += [(key, 1, MINUTE) for key in step]
        assert engine.step() is not None
    shapes = [[len(p.runs) for p in o.partitions] for o in engine._states.operators.values()]
    assert [1, 4] in shapes, "this is what it takes"
    engine.checkpoint()
    kill(engine)
    engine = world.open(partitions=1)
    for _ in range(3):
        orders += [(key, 1, MINUTE) for key in right[:9]]
        assert engine.step() is not None
    kill(engine)
    newest = {row[0]: row for epoch in world.got("totals") for row in epoch}
    counted = Counter(row[0] for row in orders)
    assert newest == {key: (key, count, count) for key, count in counted.items()}


def test_killed_while_the_first_epoch_with_another_p_is_decided(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    for partitions, place in ((2, "after COMMIT"), (8, "before COMMIT"), (4, "after COMMIT")):
        engine = world.open(Bomb(place, 4), partitions=partitions)
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
        engine = world.open(Bomb("before COMMIT", 1), partitions=partitions * 2)
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
    world.finish(partitions=1)
    assert world.outcome() == expected(DATA, LIMIT)


def test_the_result_is_also_what_a_database_says(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.finish()
    trades, orders = (table_of(DATA[name]) for name in ("trades", "orders"))
    latest = max(row[2] or 0 for row in DATA["trades"])
    with duckdb.connect() as database:
        database.register("trades", trades)
        database.register("orders", orders)
        windows = database.execute(
            f"""WITH timed AS (SELECT key, amount, epoch_us(ts) // {MINUTE} * {MINUTE} AS start
            FROM trades) SELECT key, start, sum(amount), count(*) FROM timed
            WHERE start + {MINUTE} <= {latest - DELAY} GROUP BY ALL ORDER BY ALL"""
        ).fetchall()
        totals = database.execute(
            "SELECT key, sum(amount), count(*) FROM orders GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    got = sorted(row for epoch in world.got("vwap") for row in epoch)
    assert [(k, round(s.timestamp() * 1e6), t, n) for k, s, _, t, n in got] == windows
    newest = {row[0]: row for epoch in world.got("totals") for row in epoch}
    assert sorted(newest.values()) == totals
