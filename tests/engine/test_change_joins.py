"""Joins of rows that are taken back, without Spark: against a plain model, killed and rescaled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lamina.engine.change_joins import columns_of_state
from lamina.engine.engine import Engine, EnginePlan, EngineSettings, StreamPlan
from lamina.engine.joins import ChangeJoin
from lamina.engine.model import OperatorPlan
from lamina.engine.ports import CHANGE, OLD, Limits
from lamina.errors import Refused, StateChanged
from lamina.pipeline.model import Emit, JoinKind
from lamina.state.partition import StatePartition
from tests.engine.pipelines import Bomb, Killed, Row, World, kill, run_out
from tests.support.examples import IS_LONG
from tests.support.in_process import LocalStream

KINDS = tuple(JoinKind)
SIDES = [
    pa.field("l0", pa.string()),
    pa.field("l1", pa.int64()),
    pa.field("r0", pa.string()),
    pa.field("r1", pa.int64()),
]
COLUMNS = tuple(field.name for field in SIDES)
PLACES = ("before append", "after append", "after stage", "before COMMIT", "after COMMIT")
Pair = tuple[str | None, ...]
NEW, TAKEN_BACK = 1, 0
"""The time of a row says what it does: lists of rows have nothing else to say it."""


def step_of(kind: JoinKind) -> ChangeJoin:
    return ChangeJoin(kind, COLUMNS if kind.has_pairs else COLUMNS[:2], 2)


def plan_of(step: ChangeJoin) -> OperatorPlan:
    sides = [field for field in SIDES if field.name in step.columns]
    keys, values, rows, output = columns_of_state([pa.field("k0", pa.string())], sides)
    return OperatorPlan(
        keys.serialize().to_pybytes(),
        values.serialize().to_pybytes(),
        step,
        None,
        Emit.ON_UPDATE,
        definition="rows",
        rows_schema=rows.serialize().to_pybytes(),
        output_schema=output.serialize().to_pybytes(),
        takes_back=True,
        group=1,
    )


def tagged_for(step: ChangeJoin, alone: Collection[int] = ()) -> LocalStream:
    return tagged_by(plan_of(step), alone)


def tagged_by(plan: OperatorPlan, alone: Collection[int] = ()) -> LocalStream:
    """Both sides as one table, as Spark makes it; left rows with an amount of *alone* say so."""
    schema = pa.ipc.read_schema(pa.py_buffer(plan.rows_schema))
    sides = [name for name in schema.names if name in COLUMNS]

    def tagged(left: pa.Table | None, right: pa.Table | None) -> pa.Table:
        tables = []
        for table, is_right in ((left, False), (right, True)):
            if table is None:
                continue
            names = ("r0", "r1") if is_right else ("l0", "l1")
            mine = dict(zip(names, (table["key"], table["amount"]), strict=True))
            taken_back = pc.equal(table["ts"].cast(pa.int64()), TAKEN_BACK)
            flags = pa.array([is_right] * table.num_rows, pa.bool_())
            refused = pa.array(() if is_right else alone, pa.int64())
            is_alone = pc.is_in(table["amount"], refused)
            columns = [table["key"], flags, taken_back, is_alone] + [
                mine.get(name, pa.nulls(table.num_rows, schema.field(name).type)) for name in sides
            ]
            tables.append(pa.Table.from_arrays(columns, schema=schema))
        return pa.concat_tables(tables)

    return LocalStream(tagged)


def world_of(
    root: Path, step: ChangeJoin, data: tuple[Sequence[Row], Sequence[Row]], *, limit: int
) -> World:
    sources = frozenset({"left", "right"})
    stream = StreamPlan("joined", ("left", "right"), sources, {"joined": plan_of(step)})
    return World(
        root,
        data={"left": data[0], "right": data[1]},
        plan=EnginePlan("p", "ab" * 32, (stream,), {"joined": "joined"}, {}),
        streams={"joined": tagged_for(step)},
        settings=EngineSettings(partitions=2, limits=Limits(rows=limit), checkpoint_epochs=3),
    )


def random_changes(seed: int, count: int, keys: int) -> list[Row]:
    """Rows that come, many of them again, and rows that go; some keys are null."""
    draw, found, there = Random(seed), list[Row](), list[tuple[str | None, int]]()
    for _ in range(count):
        if there and draw.random() < 0.4:
            key, amount = there.pop(draw.randrange(len(there)))
            found.append((key, amount, TAKEN_BACK))  # type: ignore[arg-type]
            continue
        key = None if draw.random() < 0.1 else f"k{draw.randrange(keys)}"
        amount = draw.randrange(6)
        there.append((key, amount))
        found.append((key, amount, NEW))  # type: ignore[arg-type]
    return found


def left_of(changes: Sequence[Row]) -> list[tuple[str | None, int]]:
    """The rows that are there in the end."""
    counts = Counter[tuple[str | None, int]]()
    for key, amount, at in changes:
        counts[key, amount] += 1 if at == NEW else -1
    return list(counts.elements())


def expected(
    kind: JoinKind, data: tuple[Sequence[Row], Sequence[Row]], alone: Collection[int] = ()
) -> Counter[Pair]:
    """The join of the rows that are there, row by row in plain Python."""
    left, right = map(left_of, data)
    found = Counter[Pair]()
    for x in left:
        may_meet = x[0] is not None and x[1] not in alone
        partners = [y for y in right if may_meet and x[0] == y[0]]
        if kind.has_pairs:
            found.update(map(_row, [(*x, *y) for y in partners]))
        if kind is JoinKind.SEMI and partners:
            found[_row(x)] += 1
        if kind in (JoinKind.LEFT, JoinKind.FULL) and not partners:
            found[_row((*x, None, None))] += 1
        if kind is JoinKind.ANTI and not partners:
            found[_row(x)] += 1
    if kind in (JoinKind.RIGHT, JoinKind.FULL):
        known = {x[0] for x in left if x[0] is not None and x[1] not in alone}
        found.update(_row((None, None, *y)) for y in right if y[0] not in known)
    return found


def _row(values: Sequence[object]) -> Pair:
    return tuple(None if value is None else str(value) for value in values)


def got(world: World) -> Counter[Pair]:
    """What a reader has that applies all changes; at no time is anything there less than never."""
    found = Counter[Pair]()
    for _, tables in sorted(world.tables["joined"].epochs.items()):
        seen = dict[Pair, set[bool]]()
        for row in (row for table in tables for row in table.to_pylist()):
            is_old = row.pop(CHANGE) in OLD
            values = _row(tuple(row.values()))
            found[values] += -1 if is_old else 1
            seen.setdefault(values, set()).add(is_old)
        assert min(found.values(), default=0) >= 0
        assert all(len(each) == 1 for each in seen.values()), "what comes and goes never was"
    return +found


def live(engine: Engine) -> int:
    partitions = engine._states.operators["joined"].partitions
    return sum(partition.statistics(count=True).live or 0 for partition in partitions)


@dataclass(frozen=True)
class Drawn:
    seed: int
    keys: int
    cuts: int
    partitions: int


DRAWN = st.builds(
    Drawn,
    seed=st.integers(0, 1 << 30),
    keys=st.integers(1, 12),
    cuts=st.integers(1, 5),
    partitions=st.sampled_from([1, 2, 8]),
)


@pytest.mark.parametrize("kind", KINDS)
@given(drawn=DRAWN)
@settings(
    max_examples=30 if IS_LONG else 5,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
def test_what_comes_out_is_the_join_of_the_rows_that_are_there(
    kind: JoinKind, drawn: Drawn, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sides = (drawn.seed, 60), (drawn.seed + 1, 90)
    left, right = (random_changes(seed, count, drawn.keys) for seed, count in sides)
    world = world_of(
        tmp_path_factory.mktemp("join"), step_of(kind), (left, right), limit=-(-90 // drawn.cuts)
    )
    engine = world.open(partitions=drawn.partitions)
    for done in range(1, drawn.cuts + 1):
        run_out(engine, epochs=1)
        limit = done * -(-90 // drawn.cuts)
        assert got(world) == expected(kind, (left[:limit], right[:limit]))
    kill(engine)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS if IS_LONG else [JoinKind.FULL])
def test_killed_and_rescaled_no_change_is_lost_or_comes_twice(
    kind: JoinKind, place: str, tmp_path: Path
) -> None:
    data = (random_changes(7, 300, 9), random_changes(8, 300, 9))
    world = world_of(tmp_path, step_of(kind), data, limit=15)
    for nth, partitions in ((2, 2), (3, 8), (4, 4), (5, 1), (2, 16)):
        times = nth if "COMMIT" in place else nth * partitions
        engine = world.open(Bomb(place, times), partitions=partitions)
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
    world.finish(partitions=2)
    assert got(world) == expected(kind, data)


@pytest.mark.parametrize("kind", [JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI])
def test_a_row_that_fails_the_condition_of_its_side_has_no_partner(
    kind: JoinKind, tmp_path: Path
) -> None:
    """But it comes out, and goes when it is taken back; it is not kept."""
    data, step = (random_changes(5, 120, 4), random_changes(6, 120, 4)), step_of(kind)
    world = world_of(tmp_path, step, data, limit=40)
    world.streams = {"joined": tagged_for(step, alone=(1, 4))}
    engine = world.open()
    run_out(engine)
    assert got(world) == expected(kind, data, alone=(1, 4))
    left, right = (set(left_of(side)) for side in data)
    kept = {x for x in left if x[0] is not None and x[1] not in (1, 4)}
    assert live(engine) == len(kept) + len({y if kind.has_pairs else y[0] for y in right if y[0]})
    kill(engine)


def test_nothing_is_kept_of_rows_that_are_taken_back(tmp_path: Path) -> None:
    came = random_changes(3, 80, 4)
    gone: list[Row] = [(key, amount, TAKEN_BACK) for key, amount in left_of(came)]  # type: ignore[misc]
    world = world_of(tmp_path, step_of(JoinKind.FULL), (came + gone, came + gone), limit=20)
    engine = world.open()
    run_out(engine, epochs=3)
    assert live(engine)
    run_out(engine)
    assert live(engine) == 0
    assert got(world) == Counter()
    kill(engine)


def test_an_epoch_reads_the_rows_of_its_own_join_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five thousand orders of five hundred customers: a change of one customer meets his ten."""
    met, real = list[int](), StatePartition.groups

    def counted(self: StatePartition, keys: Sequence[pa.Array]) -> pa.RecordBatch:
        found = real(self, keys)
        met.append(found.num_rows)
        return found

    orders: list[Row] = [(f"c{i % 500}", i, NEW) for i in range(5000)]
    customers: list[Row] = [(f"c{i}", 0, NEW) for i in range(500)]
    others: list[Row] = [("nobody", i, NEW) for i in range(4500)]
    changed: list[Row] = [("c7", 0, TAKEN_BACK), ("c7", 1, NEW)]
    data = (orders, [*customers, *others, *changed])
    world = world_of(tmp_path, step_of(JoinKind.INNER), data, limit=5000)
    engine = world.open(partitions=1)
    run_out(engine, epochs=1)
    monkeypatch.setattr(StatePartition, "groups", counted)
    run_out(engine, epochs=1)
    kill(engine)
    assert sum(met) == 11
    epochs = world.tables["joined"].epochs
    rows = [row for table in epochs[max(epochs)] for row in table.to_pylist()]
    assert Counter(row[CHANGE] for row in rows) == {"+I": 10, "-D": 10}


def test_pairs_come_out_in_batches_of_a_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of rows that are there many times."""
    monkeypatch.setattr("lamina.engine.change_joins.PAIRS_MAX", 100)
    sizes: list[int] = []
    step = step_of(JoinKind.INNER)
    rows: list[Row] = [("k", i % 7, NEW) for i in range(60)]
    world = world_of(tmp_path, step, (rows, rows), limit=60)

    def measured(table: pa.Table) -> pa.Table:
        sizes.extend(batch.num_rows for batch in table.to_batches())
        return table

    world.streams = {"joined": replace(tagged_for(step), final=measured)}
    world.finish(partitions=1)
    assert sum(sizes) == 3600
    assert max(sizes) == 100


def test_rows_that_never_were_cannot_be_taken_back(tmp_path: Path) -> None:
    """Then the state is of other rows, and what came out of them would stay."""
    world = world_of(
        tmp_path, step_of(JoinKind.LEFT), ([("k", 1, NEW), ("k", 2, TAKEN_BACK)], []), limit=1
    )
    engine = world.open()
    with pytest.raises(Refused, match="taken back that this join has never had"):
        run_out(engine)
    kill(engine)


def test_a_join_of_another_kind_asks_before_it_goes_on_with_the_state(tmp_path: Path) -> None:
    """What came out so far is not what the other kind would take back."""
    step = step_of(JoinKind.INNER)
    data = (random_changes(3, 60, 5), random_changes(4, 60, 5))
    world = world_of(tmp_path, step, data, limit=20)
    engine = world.open()
    run_out(engine, epochs=1)
    engine.close()
    world.plan = world_of(tmp_path, replace(step, kind=JoinKind.LEFT), data, limit=20).plan
    with pytest.raises(StateChanged, match="has changed since its state was computed"):
        world.open()


def test_a_join_that_begins_after_its_inputs_is_refused(tmp_path: Path) -> None:
    """It would take back rows that it has never had."""
    data = (random_changes(3, 60, 5), random_changes(4, 60, 5))
    world = world_of(tmp_path, step_of(JoinKind.INNER), data, limit=20)
    joined = replace(world.plan, changing=frozenset(world.data))
    sources = frozenset(world.data)
    copies = StreamPlan("copies", ("left", "right"), sources)
    world.plan = replace(joined, streams=(copies,), sinks={"copies": "copies"})
    world.streams = {**world.streams, "copies": LocalStream(lambda left, _: left)}
    engine = world.open()
    run_out(engine, epochs=1)
    engine.close()
    world.plan = replace(world.plan, streams=(copies, *joined.streams))
    with pytest.raises(StateChanged, match="'joined' begins now, and reads the changes of 'left'"):
        world.open()
