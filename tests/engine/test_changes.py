"""Streams of changes without Spark: killed at every step and rescaled, they are what they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lamina.engine.changing import PAIR, changes_of
from lamina.engine.ports import CHANGE, NEW
from lamina.pipeline.model import Emit
from lamina.testing.faulty import Killed
from tests.engine.pipelines import (
    FROM_ORDERS,
    KEY,
    LIMITS,
    ORDERS,
    PLAN,
    Bomb,
    StreamPlan,
    World,
    by_key,
    kill,
    operator,
    run_out,
)
from tests.support.in_process import LocalStream

LEAST = 100
STREAMS = (StreamPlan("totals", ("orders",), FROM_ORDERS, {"totals": operator(KEY, Emit.CHANGES)}),)


def small(rows: pa.Table) -> pa.Table:
    """HAVING total < LEAST OR total % 2 = 0."""
    odd = pc.bit_wise_and(rows["total"], 1)
    return rows.filter(pc.or_(pc.less(rows["total"], LEAST), pc.equal(odd, 0)))


def world_of(root: Path) -> World:
    plan = replace(PLAN, streams=STREAMS, sinks={"totals": "totals"})
    return World(
        root, data={"orders": ORDERS}, plan=plan, streams={"totals": LocalStream(by_key, small)}
    )


def expected() -> dict[str, tuple[int, int]]:
    sums: dict[str, tuple[int, int]] = {}
    for key, amount, _ in ORDERS:
        total, rows = sums.get(key, (0, 0))
        sums[key] = (total + amount, rows + 1)
    return {key: sums for key, sums in sums.items() if sums[0] < LEAST or sums[0] % 2 == 0}


def applied(world: World) -> Mapping[str, tuple[int, int]]:
    """What a table has that follows all changes; each must fit what is there."""
    left: dict[str, tuple[int, int]] = {}
    for _, tables in sorted(world.tables["totals"].epochs.items()):
        rows = [row for table in tables for row in table.to_pylist()]
        for row in sorted(rows, key=lambda each: each[CHANGE] in NEW):
            key, values = str(row["key"]), (row["total"], row["rows"])
            if row[CHANGE] not in NEW:
                assert left.pop(key) == values, "what is taken back is what is there"
            else:
                assert key not in left
                left[key] = values
    return left


def test_all_changes_together_are_what_is_left(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.finish()
    assert applied(world) == expected()
    kinds = {row[CHANGE] for row in world.tables["totals"].rows()}
    assert kinds == {"+I", "-U", "+U", "-D"}


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize(
    "place",
    ["before append", "after append", "before stage", "after stage", "before COMMIT",
     "after COMMIT", "before publish", "after publish", "before rotate", "after sweep"],
)  # fmt: skip
def test_a_kill_at_any_step_takes_nothing_back_twice(place: str, nth: int, tmp_path: Path) -> None:
    world = world_of(tmp_path)
    engine = world.open(Bomb(place, nth))
    with pytest.raises(Killed):
        run_out(engine)
    kill(engine)
    world.finish()
    whole = world_of(tmp_path / "whole")
    whole.finish()
    assert applied(world) == expected()
    assert world.outcome() == whole.outcome()


def test_rescaled_in_mid_stream_changes_fit_what_was_there(tmp_path: Path) -> None:
    assert LIMITS.rows is not None
    world = world_of(tmp_path)
    for partitions in (2, 8, 1):
        engine = world.open(partitions=partitions)
        run_out(engine, epochs=2)
        kill(engine)
    world.finish(partitions=4)
    assert applied(world) == expected()


def test_versions_are_matched_by_their_numbers_wherever_they_stand() -> None:
    """0 has both, 1 and 4 only one, 2 is as it was, 3 has other types of values."""
    nan = float("nan")
    versions = pa.record_batch(
        {
            "k": ["new", "same", "old", "gone", "same", "came", None, None],
            "x": [2.0, nan, 1.0, 4.0, nan, 5.0, None, -0.0],
            PAIR: [0, 2, ~0, ~1, ~2, 4, ~3, 3],
        }
    )
    found = changes_of(versions)
    assert found.drop_columns(["x"]).to_pylist() == [
        {"k": "old", CHANGE: "-U"},
        {"k": "new", CHANGE: "+U"},
        {"k": "gone", CHANGE: "-D"},
        {"k": None, CHANGE: "-U"},
        {"k": None, CHANGE: "+U"},
        {"k": "came", CHANGE: "+I"},
    ]


def test_values_that_cannot_be_compared_count_as_changed() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    versions = pa.record_batch(
        [pa.array([[("a", 1)], [("a", 1)]], kind), pa.array([~0, 0])], names=["m", PAIR]
    )
    assert changes_of(versions)[CHANGE].to_pylist() == ["-U", "+U"]
