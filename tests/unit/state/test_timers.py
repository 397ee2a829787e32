"""State in the order of time: where timers live, and how those that are due are found."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lamina.errors import Corrupt, UsageError
from lamina.state.changes import changes, slots_in, slots_of_keys, split
from lamina.state.operator import ranges_of
from lamina.state.partition import StatePartition
from lamina.state.run import run_of_batch, slots_of_batch
from lamina.state.schema import SLOTS_META, StateSchema, schema_of_run, time_values
from lamina.state.vnodes import vnodes_of_slots

TIME = pa.timestamp("us", "UTC")
SCHEMA = StateSchema(
    pa.schema([("time", TIME), ("user", pa.string())]), pa.schema([]), "time", by_time=True
)
FAR = 1 << 62


def timers(times: np.ndarray, users: int = 500) -> pa.RecordBatch:
    rng = np.random.default_rng(7)
    names = pa.array([f"u{i}" for i in rng.integers(0, users, len(times))])
    return pa.RecordBatch.from_arrays([pa.array(times).cast(TIME), names], schema=SCHEMA.key)


def some_times(count: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    spread = [rng.integers(-(10**width), 10**width, count // 6) for width in (6, 8, 12, 15, 17)]
    return np.unique(np.concatenate([*spread, [-FAR, FAR, 0, 1, -1]]))


def test_a_timer_is_where_its_keys_are_and_in_the_order_of_time() -> None:
    batch = timers(some_times(6000))
    slots = slots_in(SCHEMA, batch.columns)
    keys = slots_of_keys([batch.column("user")])
    assert (vnodes_of_slots(slots) == vnodes_of_slots(keys)).all()
    inner = slots & np.uint64((1 << 56) - 1)
    steps = inner >> np.uint64(20)
    assert (np.diff(steps.astype(np.int64)) >= 0).all(), "the times are sorted"
    assert len(np.unique(steps)) > 1000


@pytest.mark.parametrize("partitions", [1, 4, 256])
def test_all_that_is_due_is_found_and_nothing_else(partitions: int) -> None:
    old, new = (changes(SCHEMA, timers(some_times(size))) for size in (4000, 5000))
    for since, before in ((None, 0), (-5, 10**7), (10**7 + 1, 10**12), (None, FAR + 1)):
        found = []
        for within, *runs in zip(
            ranges_of(partitions),
            *(split(each, ranges_of(partitions)) for each in (old, new)),
            strict=True,
        ):
            listed = [run_of_batch(run) for run in runs if run.num_rows]
            state = StatePartition(SCHEMA, listed, within=within, floor=since)
            found += [row for batch in state.expire(before)[0] for row in rows_of(batch)]
        wanted = {
            row
            for batch in (old, new)
            for row in rows_of(batch)
            if (since is None or row[0] >= since) and row[0] < before
        }
        assert len(found) == len(set(found))
        assert set(found) == wanted


def rows_of(batch: pa.RecordBatch) -> list[tuple[int, str]]:
    users = batch.column("user").to_pylist()
    return list(zip(time_values(batch.column("time")).tolist(), users, strict=True))


def test_timers_of_many_keys_at_one_time_stand_apart() -> None:
    same = np.full(20_000, 1_700_000_000_000_000)
    users = pa.array([f"u{i}" for i in range(len(same))])
    batch = pa.RecordBatch.from_arrays([pa.array(same).cast(TIME), users], schema=SCHEMA.key)
    slots = slots_of_batch(changes(SCHEMA, batch))
    assert len(np.unique(slots)) > 19_900


def test_a_run_says_that_it_is_in_the_order_of_time() -> None:
    run = changes(SCHEMA, timers(some_times(60)))
    assert schema_of_run(run.schema) == SCHEMA
    odd = run.schema.with_metadata({**run.schema.metadata, SLOTS_META: b"colour"})
    with pytest.raises(Corrupt, match="unknown order"):
        schema_of_run(odd)


def test_the_order_of_time_needs_a_time_and_keys() -> None:
    with pytest.raises(UsageError, match="the time and another column"):
        StateSchema(pa.schema([("time", TIME)]), pa.schema([]), "time", by_time=True)
