"""The first row of each key in epochs, as a plain model has it; killed anywhere, and rescaled."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lamina.engine.engine import EnginePlan, EngineSettings, StreamPlan
from lamina.engine.first_rows import EXPIRES, FirstRows
from lamina.engine.model import OperatorPlan
from lamina.engine.planning import END_US
from lamina.engine.ports import Limits
from lamina.engine.steps import Stepped, Stepping
from lamina.pipeline.model import Emit
from tests.engine.pipelines import (
    DELAY,
    FROM_TRADES,
    KEY,
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

STEP = FirstRows("ts", DELAY, ("key", "ts", "amount"))
LIMIT = 17


def rows_of(seed: int, count: int) -> list[Row]:
    """Some are late, some come twice; most keys come again before and after they are forgotten."""
    rng, found = random.Random(seed), list[Row]()
    for number in range(count):
        if found and rng.random() < 0.2:
            found.append(rng.choice(found[-20:]))
            continue
        at = (number - rng.randint(0, 30)) * SECOND
        found.append((rng.choice([f"k{i}" for i in range(12)]), rng.randint(0, 3), at))
    return found


def world_of(root: Path, rows: list[Row]) -> World:
    keys, row = (each.serialize().to_pybytes() for each in (KEY, ROW))
    values = pa.schema([(EXPIRES, TIME)]).serialize().to_pybytes()
    operator = OperatorPlan(
        keys, values, STEP, EXPIRES, Emit.ON_UPDATE,
        late_by="ts", rows_schema=row, output_schema=row,
    )  # fmt: skip
    stream = StreamPlan("first", ("trades",), FROM_TRADES, {"first": operator})
    return World(
        root,
        data={"trades": rows},
        plan=EnginePlan("p", "ab" * 32, (stream,), {"first": "first"}, {"trades": DELAY}),
        streams={"first": LocalStream(lambda table: table)},
        settings=EngineSettings(partitions=2, limits=Limits(rows=LIMIT), checkpoint_epochs=3),
    )


def model(rows: list[Row]) -> tuple[list[list[tuple[str, int]]], int]:
    """Keys and times that come out of each epoch; and how many rows are late."""
    mark, late, expires = -(1 << 62), 0, dict[str, int]()
    epochs: list[list[tuple[str, int]]] = []
    for start in range(0, len(rows), LIMIT):
        chunk = [(key, at) for key, _, at in rows[start : start + LIMIT] if at is not None]
        on_time = [each for each in chunk if each[1] > mark]
        late += len(chunk) - len(on_time)
        new = dict[str, int]()
        for key, at in on_time:
            if expires.get(key, mark) <= mark:
                new[key] = min(at, new.get(key, at))
        expires |= {key: at + DELAY for key, at in new.items()}
        epochs += [sorted(new.items())] if new else []
        mark = max([mark, *(at - DELAY for _, at in chunk)])
    return epochs, late


def keys_and_times(epochs: Epochs) -> list[list[tuple[object, int]]]:
    def micros(at: object) -> int:
        return int(pa.scalar(at, TIME).cast(pa.int64()).as_py())

    return [sorted((row[0], micros(row[2])) for row in epoch) for epoch in epochs]


@pytest.mark.parametrize("seed", range(8))
def test_first_rows_are_those_of_a_model(seed: int, tmp_path: Path) -> None:
    rows = rows_of(seed, 300)
    world = world_of(tmp_path, rows)
    reports = run_out(engine := world.open(partitions=1 << seed % 4))
    engine.close()
    wanted, late = model(rows)
    assert keys_and_times(world.got("first")) == wanted
    assert sum(report.late for report in reports) == late > 0
    assert 30 < sum(map(len, wanted)) < 200


@pytest.mark.parametrize(
    "place", ["after append", "before COMMIT", "after COMMIT", "after publish"]
)
def test_killed_and_rescaled_the_first_rows_are_the_same(place: str, tmp_path: Path) -> None:
    rows = rows_of(3, 300)
    whole, cut = world_of(tmp_path / "whole", rows), world_of(tmp_path / "cut", rows)
    whole.finish()
    for nth, partitions in ((1, 2), (5, 8), (3, 1)):
        engine = cut.open(Bomb(place, nth), partitions=partitions)
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
    cut.finish(partitions=4)
    assert cut.outcome() == whole.outcome()


def test_a_known_key_writes_nothing(tmp_path: Path) -> None:
    """All rows of the second epoch are copies of the first one's: there is no run of it."""
    rows: list[Row] = [(f"k{i}", 1, i * SECOND) for i in range(LIMIT)]
    world = world_of(tmp_path, [*rows, *rows, ("new", 1, SECOND * LIMIT)])
    engine = world.open()
    assert [report.keys for report in run_out(engine)][:3] == [LIMIT, LIMIT, LIMIT + 1]
    assert [len(epoch) for epoch in world.got("first")] == [LIMIT, 1]
    engine.close()


# the step


def stepped(rows: list[tuple[str, object, int]], known: tuple[str, ...] = ()) -> Stepped:
    keys = sorted({row[0] for row in rows})
    batch = pa.RecordBatch.from_arrays(
        [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(ROW)], schema=ROW
    )
    return STEP.step(
        Stepping(
            pa.record_batch({"key": pa.array(keys)}),
            pa.record_batch({EXPIRES: pa.nulls(len(keys), TIME)}),
            np.array([key in known for key in keys]),
            batch,
            np.array([keys.index(row[0]) for row in rows], np.int64),
            np.zeros(len(keys), np.bool_),
        )
    )


def out_of(made: Stepped) -> list[tuple[object, ...]]:
    assert made.output is not None
    listed = [column.to_pylist() for column in made.output.columns[:2]]
    times = made.output.column(2).cast(pa.int64()).to_pylist()
    return sorted(zip(*listed, times, strict=True))


def test_of_rows_with_one_time_the_same_one_comes_out_in_any_order() -> None:
    """A task that is tried again gets its rows in another order."""
    rng = random.Random(5)
    rows = [
        (rng.choice("abc"), rng.choice([None, *range(40)]), rng.randint(0, 1)) for _ in range(90)
    ]
    found = out_of(stepped(rows))
    assert len(found) == 3
    for _ in range(20):
        rng.shuffle(rows)
        assert out_of(stepped(rows)) == found


def test_a_key_that_is_known_stays_as_it_is() -> None:
    made = stepped([("a", 1, 5), ("b", 2, 7), ("b", 3, 6), ("b", 3, 6)], known=("a",))
    assert out_of(made) == [("b", 3, 6)]
    assert made.same is not None
    assert made.same.tolist() == [True, False]
    assert made.values.column(0).cast(pa.int64()).to_pylist()[1] == 6 + DELAY


def test_a_time_at_the_end_of_all_times_is_forgotten_with_the_last_watermark() -> None:
    made = stepped([("a", 1, (1 << 63) - 1)])
    assert made.values.column(0).cast(pa.int64()).to_pylist() == [END_US]
