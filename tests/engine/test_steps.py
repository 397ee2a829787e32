"""A Python function between the look-up and the new run: whole new values, whatever is killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lamina.engine.engine import EnginePlan, EngineSettings, StreamPlan
from lamina.engine.model import OperatorPlan
from lamina.engine.ports import Limits
from lamina.engine.steps import PythonStep, Stepped, Stepping
from lamina.errors import Refused, StateChanged, UsageError
from lamina.pipeline.model import Emit
from tests.engine.pipelines import (
    FROM_ORDERS,
    KEY,
    ORDERS,
    Bomb,
    Killed,
    Row,
    World,
    kill,
    run_out,
)
from tests.support.in_process import LocalStream

VALUES = pa.schema([("last", pa.list_(pa.int64())), ("seen", pa.int64())])
KEEP = 4
STEP = PythonStep(__name__, "last_amounts", "1")


def last_amounts(given: Stepping) -> Stepped:
    """The last amounts of each key, and how many there were: no merge function could say it."""
    lists = given.old.column("last").to_pylist()
    seen = np.nan_to_num(given.old.column("seen").to_numpy(zero_copy_only=False)).astype(np.int64)
    kept = [list(each or ()) for each in lists]
    for key, amount in zip(given.key_of, given.rows.column("amount").to_pylist(), strict=True):
        kept[key].append(amount)
        seen[key] += 1
    columns = [pa.array([each[-KEEP:] for each in kept], VALUES.field(0).type), pa.array(seen)]
    return Stepped(pa.RecordBatch.from_arrays(columns, schema=VALUES))


def too_short(given: Stepping) -> Stepped:
    return Stepped(last_amounts(given).values.slice(1))


def plan_of(step: PythonStep) -> EnginePlan:
    keys, values = KEY.serialize().to_pybytes(), VALUES.serialize().to_pybytes()
    operator = OperatorPlan(keys, values, step, None, Emit.ON_UPDATE, definition="rows")
    stream = StreamPlan("lasts", ("orders",), FROM_ORDERS, {"lasts": operator})
    return EnginePlan("p", "ab" * 32, (stream,), {"lasts": "lasts"}, {})


def world_of(root: Path, step: PythonStep = STEP) -> World:
    return World(
        root,
        data={"orders": ORDERS},
        plan=plan_of(step),
        streams={"lasts": LocalStream(lambda table: table)},  # rows, not partials
        settings=EngineSettings(partitions=2, limits=Limits(rows=15), checkpoint_epochs=3),
    )


def expected(rows: list[Row]) -> dict[str, tuple[list[int], int]]:
    found: dict[str, tuple[list[int], int]] = {}
    for key, amount, _ in rows:
        last, seen = found.get(key, ([], 0))
        found[key] = ([*last, amount][-KEEP:], seen + 1)
    return found


def newest(world: World) -> dict[object, tuple[object, object]]:
    return {row[0]: (row[1], row[2]) for epoch in world.got("lasts") for row in epoch}


@pytest.mark.parametrize("partitions", [1, 2, 8])
def test_a_step_keeps_a_list_of_every_key(partitions: int, tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.finish(partitions=partitions)
    assert newest(world) == expected(ORDERS)


@pytest.mark.parametrize(
    "place", ["after append", "before COMMIT", "after COMMIT", "before publish", "after publish"]
)
def test_killed_and_replayed_a_step_comes_to_the_same(place: str, tmp_path: Path) -> None:
    whole, cut = world_of(tmp_path / "whole"), world_of(tmp_path / "cut")
    whole.finish()
    for nth in (1, 2, 1):
        engine = cut.open(Bomb(place, nth))
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
    cut.finish(partitions=4)
    assert cut.outcome() == whole.outcome()


def test_another_version_of_a_step_is_a_persons_decision(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    engine = world.open()
    run_out(engine, epochs=3)
    kill(engine)
    world.plan = plan_of(replace(STEP, version="2"))
    with pytest.raises(StateChanged, match="--reuse-state"):
        world.open()
    world.settings = replace(world.settings, reuse_state=frozenset({"lasts"}))
    world.finish()
    assert newest(world) == expected(ORDERS)


def test_a_step_that_gives_something_else_stops_the_epoch(tmp_path: Path) -> None:
    engine = world_of(tmp_path, replace(STEP, name="too_short")).open()
    with pytest.raises(Refused, match=r"too_short has given \d rows of last list.* for \d keys"):
        engine.step()
    kill(engine)


def test_a_step_that_is_not_there_is_named(tmp_path: Path) -> None:
    for step in (replace(STEP, name="nothing"), replace(STEP, module="lamina.nowhere")):
        engine = world_of(tmp_path / step.name, step).open()
        with pytest.raises(UsageError, match=f"{step.module}.{step.name} cannot be imported"):
            engine.step()
        kill(engine)
