"""A keyed step with timers: called when the watermark says so, whatever is killed or rescaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lamina.engine.engine import Engine, EnginePlan, EngineSettings, StreamPlan
from lamina.engine.model import OperatorPlan
from lamina.engine.ports import Limits
from lamina.engine.steps import PythonStep, Stepped, Stepping
from lamina.engine.timers import timers_name, with_timers
from lamina.inspect import open_view
from lamina.pipeline.model import Emit
from lamina.state.schema import time_values
from lamina.store.local import LocalStore
from tests.engine.pipelines import (
    DELAY,
    FROM_TRADES,
    KEY,
    MINUTE,
    ROW,
    SECOND,
    TIME,
    Bomb,
    Epochs,
    Killed,
    Row,
    World,
    kill,
    run_out,
)
from tests.support.in_process import LocalStream

GAP = 40 * SECOND
LIMIT = 15
VALUES = pa.schema([("rows", pa.int64()), ("last", TIME)])
SILENT = pa.schema([("key", pa.string()), ("rows", pa.int64()), ("last", TIME)])
STEP = PythonStep(__name__, "silences", "1")
NAME = timers_name("silent")
PLACES = ("before append", "after append", "after stage", "before COMMIT", "after COMMIT")


def silences(given: Stepping) -> Stepped:
    """How many rows a key had, once it was silent for GAP; then it is forgotten."""
    last = np.where(given.found, time_values(given.old.column("last")), np.iinfo(np.int64).min)
    rows = np.where(given.found, np.nan_to_num(given.old.column("rows").to_numpy(False)), 0)
    np.add.at(rows, given.key_of, 1)
    np.maximum.at(last, given.key_of, time_values(given.rows.column("ts")))
    over = last + GAP < (-(1 << 62) if given.floor is None else given.floor)
    assert not (given.due & ~over)[_without_rows(given)].any(), "called too early"
    assert (given.due | ~_without_rows(given)).all(), "called for nothing"
    columns = [pa.array(rows.astype(np.int64)), pa.array(last).cast(TIME)]
    values = pa.RecordBatch.from_arrays(columns, schema=VALUES)
    silent = [column.filter(pa.array(over)) for column in (*given.keys.columns, *columns)]
    return Stepped(
        values,
        gone=over,
        output=pa.RecordBatch.from_arrays(silent, schema=SILENT),
        timers=pa.array(last + GAP).cast(TIME),
    )


def _without_rows(given: Stepping) -> np.ndarray:
    found = np.ones(given.keys.num_rows, np.bool_)
    found[given.key_of] = False
    return found


def world_of(root: Path, data: Sequence[Row], *, limit: int = LIMIT) -> World:
    operator = OperatorPlan(
        KEY.serialize().to_pybytes(),
        VALUES.serialize().to_pybytes(),
        STEP,
        None,
        Emit.ON_WINDOW_CLOSE,
        definition="rows",
        late_by="ts",
        rows_schema=ROW.serialize().to_pybytes(),
        output_schema=SILENT.serialize().to_pybytes(),
        has_timers=True,
    )
    stream = StreamPlan("silent", ("trades",), FROM_TRADES, with_timers("silent", operator))
    return World(
        root,
        data={"trades": data},
        plan=EnginePlan("p", "ab" * 32, (stream,), {"silent": "silent"}, {"trades": DELAY}),
        streams={"silent": LocalStream(lambda table: table)},
        settings=EngineSettings(partitions=2, limits=Limits(rows=limit), checkpoint_epochs=3),
    )


def rows_with_pauses(count: int, keys: int) -> list[Row]:
    """Keys come and go; rows are out of order within the delay, and some are late."""
    found: list[Row] = []
    for i in range(count):
        at = i * 2 * SECOND - (i * 7 % 9) * SECOND + 10 * MINUTE
        if i % 17 == 16:
            at -= 2 * MINUTE
        found.append((f"k{(i // 15 * 7 + i % 5 * (i % 3)) % keys}", 1, at))
    return found


DATA = rows_with_pauses(400, 41)


def expected(rows: Sequence[Row], limit: int = LIMIT) -> Epochs:
    """Row by row in plain Python: a timer is due at the watermark or before it."""
    chunks = [rows[at : at + limit] for at in range(0, len(rows), limit)]
    state: dict[str, tuple[int, int]] = {}
    watermark: int | None = None
    found: Epochs = []
    for chunk in (*chunks, []):
        after = watermark
        for key, _, at in chunk:
            assert at is not None
            after = at - DELAY if after is None else max(after, at - DELAY)
            if watermark is None or at > watermark:
                count, last = state.get(key, (0, at))
                state[key] = (count + 1, max(last, at))
        due = [k for k, (_, at) in state.items() if watermark is not None and at + GAP <= watermark]
        silent = sorted((key, *state.pop(key)) for key in due)
        if silent:
            times = pa.array([row[2] for row in silent], TIME).to_pylist()
            found.append([(*row[:2], at) for row, at in zip(silent, times, strict=True)])
        watermark = after
    return found


def timers_in(engine: Engine) -> int:
    operator = engine._states.operators[NAME]
    return sum(partition.statistics(count=True).live or 0 for partition in operator.partitions)


@pytest.mark.parametrize("partitions", [1, 2, 8])
def test_keys_are_called_when_their_timer_is_due(partitions: int, tmp_path: Path) -> None:
    world = world_of(tmp_path, DATA)
    world.finish(partitions=partitions)
    assert len(expected(DATA)) > 10
    assert world.got("silent") == expected(DATA)


@pytest.mark.parametrize("place", PLACES)
def test_killed_and_rescaled_no_timer_is_lost_or_fires_twice(place: str, tmp_path: Path) -> None:
    world = world_of(tmp_path, DATA)
    for nth, partitions in ((2, 2), (3, 8), (4, 4), (5, 1), (2, 16)):
        times = nth if "COMMIT" in place else nth * partitions
        engine = world.open(Bomb(place, times), partitions=partitions)
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
    world.finish(partitions=2)
    assert world.got("silent") == expected(DATA)


@pytest.mark.parametrize("checkpoint_epochs", [0, 1, 4])
def test_rescaled_after_every_few_epochs_timers_are_where_their_keys_are(
    checkpoint_epochs: int, tmp_path: Path
) -> None:
    world = world_of(tmp_path, DATA)
    world.settings = replace(world.settings, checkpoint_epochs=checkpoint_epochs)
    for partitions in (1, 4, 2, 16, 1, 8):
        engine = world.open(partitions=partitions)
        run_out(engine, epochs=4)
        kill(engine)
    world.finish()
    assert world.got("silent") == expected(DATA)


@pytest.mark.parametrize(("last", "fires"), [(0, True), (-1, False)])
def test_a_timer_at_the_watermark_is_due(last: int, fires: bool, tmp_path: Path) -> None:
    at = 10 * MINUTE
    rows: list[Row] = [("a", 1, at), ("b", 1, at + GAP + DELAY + last)]
    world = world_of(tmp_path, rows, limit=1)
    world.finish()
    assert [row[0] for epoch in world.got("silent") for row in epoch] == (["a"] if fires else [])


def test_a_timer_that_moves_on_with_every_epoch_is_written_once_for_each_gap(
    tmp_path: Path,
) -> None:
    rows: list[Row] = [("a", 1, 10 * MINUTE + i * SECOND) for i in range(100)]
    world = world_of(tmp_path, rows, limit=1)
    engine = world.open(partitions=1)
    written = 0
    for _ in rows:
        report = engine.step()
        assert report is not None
        (partition,) = engine._states.operators[NAME].partitions
        newest = partition.runs[-1] if partition.runs else None
        written += newest is not None and newest.last_epoch == report.epoch and newest.rows > 0
        assert timers_in(engine) == 1
    assert written <= 1 + (100 * SECOND) // GAP
    kill(engine)
    assert world.got("silent") == []


def test_nothing_is_left_of_keys_and_timers_when_all_is_drained(tmp_path: Path) -> None:
    world = world_of(tmp_path, DATA)
    world.settings = replace(world.settings, drain=True)
    engine = world.open()
    run_out(engine)
    assert timers_in(engine) == 0
    operator = engine._states.operators["silent"]
    assert sum(each.statistics(count=True).live or 0 for each in operator.partitions) == 0
    kill(engine)


def test_timers_are_state_like_any_other_for_people(tmp_path: Path) -> None:
    world = world_of(tmp_path, DATA)
    engine = world.open(store=LocalStore(tmp_path / "store"))
    run_out(engine, epochs=6)
    engine.checkpoint()
    waiting = timers_in(engine)
    engine.close()
    assert waiting
    with open_view(str(tmp_path / "store")) as view:
        assert set(view.operators) == {"silent", NAME}
        timers = view.to_arrow(NAME)
        assert timers.schema.names == ["time", "key"]
        assert timers.num_rows == waiting
        last = timers.slice(waiting - 1).to_pylist()[0]
        assert view.count(NAME, last) == 1


def test_state_that_is_dropped_takes_its_timers_along(tmp_path: Path) -> None:
    world = world_of(tmp_path, DATA)
    engine = world.open()
    run_out(engine, epochs=6)
    assert timers_in(engine)
    engine.close()
    gone = replace(world.plan, streams=(), sinks={})
    settings = replace(world.settings, drop_state=frozenset({"silent"}))
    world.plan, world.settings = gone, settings
    engine = world.open(partitions=4)
    assert timers_in(engine) == 0
    engine.close()
