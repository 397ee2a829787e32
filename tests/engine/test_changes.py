"""Streams of changes without Spark: killed at every step and rescaled, they are what they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lamina.engine.changing import PAIR, changes_of
from lamina.engine.model import OperatorPlan
from lamina.engine.ports import CHANGE, NEW, Change, Output
from lamina.engine.steps import Merges
from lamina.engine.taking_back import TAKEN_BACK, turned
from lamina.errors import Refused, StateChanged
from lamina.pipeline.model import Emit
from lamina.state.merge import Merge
from lamina.state.schema import StateSchema
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

LEAST, SIZE = 100, 4
BY_ROWS = pa.schema([("rows", pa.int64())])
BAG = pa.list_(pa.struct([("v", pa.int64()), ("n", pa.int64())]))
KEPT = pa.schema([("keys", pa.int64()), ("total", pa.int64()), ("bag", BAG)])
SIZES = OperatorPlan(
    BY_ROWS.serialize().to_pybytes(),
    KEPT.serialize().to_pybytes(),
    Merges((Merge("count", ("keys",)), Merge("sum", ("total",)), Merge("bag", ("bag",)))),
    None,
    Emit.CHANGES,
    takes_back=True,
    live="keys",
)
TOTALS = operator(KEY, Emit.CHANGES)
CHANGES = Output(change=Change.CHANGES)
STREAMS = (
    StreamPlan("totals", ("orders",), FROM_ORDERS, {"totals": TOTALS}, CHANGES),
    StreamPlan("sizes", ("totals",), FROM_ORDERS, {"sizes": SIZES}),
)


def small(rows: pa.Table) -> pa.Table:
    """HAVING total < LEAST OR total % 2 = 0."""
    odd = pc.bit_wise_and(rows["total"], 1)
    return rows.filter(pc.or_(pc.less(rows["total"], LEAST), pc.equal(odd, 0)))


def by_rows(changes: pa.Table) -> pa.Table:
    """SELECT rows div SIZE, count(*), sum(total), a bag of totals: of each row alone."""
    totals = changes["total"].to_pylist()
    columns = {
        "rows": pc.divide(changes["rows"], SIZE),
        "keys": pa.array([1] * len(totals), pa.int64()),
        "total": changes["total"],
        "bag": pa.array([[{"v": each, "n": 1}] for each in totals], BAG),
        TAKEN_BACK: pc.invert(pc.is_in(changes[CHANGE], pa.array(NEW))),
    }
    return pa.table(columns)


def with_max(rows: pa.Table) -> pa.Table:
    """SELECT rows, keys, total, max(total)."""
    greatest = [bag[-1]["v"] for bag in rows["bag"].to_pylist()]
    made = rows.select(["rows", "keys", "total"])
    return made.append_column("most", pa.array(greatest)).append_column(PAIR, rows[PAIR])


def world_of(root: Path) -> World:
    plan = replace(PLAN, streams=STREAMS, sinks={"totals": "totals", "sizes": "sizes"})
    streams = {
        "totals": LocalStream(by_key, small),
        "sizes": LocalStream(by_rows, with_max),
    }
    return World(root, data={"orders": ORDERS}, plan=plan, streams=streams)


def expected() -> dict[str, tuple[int, int]]:
    sums: dict[str, tuple[int, int]] = {}
    for key, amount, _ in ORDERS:
        total, rows = sums.get(key, (0, 0))
        sums[key] = (total + amount, rows + 1)
    return {key: sums for key, sums in sums.items() if sums[0] < LEAST or sums[0] % 2 == 0}


def sizes_of(totals: Mapping[Any, tuple[Any, ...]]) -> dict[Any, tuple[Any, ...]]:
    """The second stream over what is left of the first."""
    by_size: dict[Any, list[int]] = {}
    for total, rows in totals.values():
        by_size.setdefault(rows // SIZE, []).append(total)
    return {rows: (len(each), sum(each), max(each)) for rows, each in by_size.items()}


def applied(world: World, sink: str = "totals") -> Mapping[Any, tuple[Any, ...]]:
    """What a table has that follows all changes; each must fit what is there."""
    left: dict[Any, tuple[Any, ...]] = {}
    for _, tables in sorted(world.tables[sink].epochs.items()):
        found = [row for table in tables for row in table.to_pylist()]
        for row in sorted(found, key=lambda each: each[CHANGE] in NEW):
            key, *rest = (value for name, value in row.items() if name != CHANGE)
            values = tuple(rest)
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
    assert applied(world, "sizes") == sizes_of(expected())
    for table in world.tables.values():
        assert {row[CHANGE] for row in table.rows()} == {"+I", "-U", "+U", "-D"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What comes out, epoch by epoch, if nobody is killed."""
    world = world_of(tmp_path_factory.mktemp("whole"))
    world.finish()
    return world.outcome()


@pytest.mark.parametrize(
    "place",
    ["before append", "after append", "before stage", "after stage", "before COMMIT",
     "after COMMIT", "before publish", "after publish", "before rotate", "after sweep"],
)  # fmt: skip
def test_a_kill_at_any_step_takes_nothing_back_twice(
    place: str, whole: Any, tmp_path: Path
) -> None:
    """Twice: the first time that it gets there, and after that recovery the next or second one."""
    world = world_of(tmp_path)
    for nth in (1, 1 if place in ("before rotate", "after sweep") else 2):
        engine = world.open(Bomb(place, nth))
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
    world.finish()
    assert applied(world) == expected()
    assert applied(world, "sizes") == sizes_of(expected())
    assert world.outcome() == whole


def test_rescaled_in_mid_stream_changes_fit_what_was_there(tmp_path: Path) -> None:
    assert LIMITS.rows is not None
    world = world_of(tmp_path)
    for partitions in (2, 8, 1):
        engine = world.open(partitions=partitions)
        run_out(engine, epochs=2)
        kill(engine)
    world.finish(partitions=4)
    assert applied(world) == expected()
    assert applied(world, "sizes") == sizes_of(expected())


def test_what_was_never_counted_is_not_taken_back(tmp_path: Path) -> None:
    """The state is of another SELECT: one that had no condition, say."""
    world = world_of(tmp_path)
    turned_around = LocalStream(lambda rows: _all_taken_back(by_rows(rows)), with_max)
    world.streams = {**world.streams, "sizes": turned_around}
    engine = world.open()
    with pytest.raises(Refused, match="never counted"):
        run_out(engine)
    kill(engine)


def test_groups_that_begin_after_what_they_read_are_refused(tmp_path: Path) -> None:
    """A sum got -5 and +6 of a row that it had never seen: 1."""
    world = world_of(tmp_path)
    whole = world.plan
    world.plan = replace(whole, streams=whole.streams[:1], sinks={"totals": "totals"})
    engine = world.open()
    run_out(engine, epochs=2)
    kill(engine)
    world.plan = replace(whole, sinks={"totals": "totals"})
    with pytest.raises(StateChanged, match="'sizes' begins now, and reads the changes of 'totals'"):
        world.open()
    renamed = replace(whole.streams[0], name="anew", operators={"anew": TOTALS})
    sizes = replace(whole.streams[1], inputs=("anew",))
    world.plan = replace(whole, streams=(renamed, sizes), sinks={"totals": "anew"})
    world.streams = {**world.streams, "anew": world.streams["totals"]}
    engine = world.open()
    run_out(engine)
    kill(engine)


def test_a_stream_that_begins_late_over_a_source_of_changes_is_refused(tmp_path: Path) -> None:
    """Directly, and through a stream that passes changes on; not where the source is new, too."""
    world = world_of(tmp_path)
    whole = world.plan
    world.plan = replace(whole, streams=whole.streams[:1], sinks={"totals": "totals"})
    engine = world.open()
    run_out(engine, epochs=2)
    kill(engine)
    late = replace(whole.streams[1], inputs=("passed",))
    passed = StreamPlan("passed", ("orders",), frozenset({"orders"}))
    changing = frozenset({"orders"})
    for streams in ((passed, late), (replace(late, inputs=("orders",)),)):
        world.plan = replace(
            whole,
            streams=(whole.streams[0], *streams),
            sinks={"totals": "totals"},
            changing=changing,
        )
        said = "'sizes' begins now, and reads the changes of 'orders', which has rows already"
        with pytest.raises(StateChanged, match=said):
            world.open()


def _all_taken_back(partials: pa.Table) -> pa.Table:
    at = partials.schema.get_field_index(TAKEN_BACK)
    every = pa.array([True] * partials.num_rows)
    return partials.set_column(at, TAKEN_BACK, every)


@pytest.mark.parametrize("kind", [pa.int64(), pa.decimal128(38, 10), pa.duration("us")])
def test_sums_are_turned_around_to_the_last_digit(kind: pa.DataType) -> None:
    """Spark's minus has 34 digits of a decimal."""
    most: Any = (1 << 63) - 1
    if pa.types.is_decimal(kind):
        most = Decimal("9" * 28 + "." + "9" * 10)
    values = pa.array([most, most, None], kind)
    schema = StateSchema(KEY, pa.schema([("x", kind)]), None, (Merge("sum", ("x",)),))
    keys = pa.array(["a", "b", "c"])
    _, found = turned(schema, [keys, values], pa.array([False, True, True]))
    minus = most.copy_negate() if isinstance(most, Decimal) else -most
    assert found.equals(pa.array([most, minus, None], kind))


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
