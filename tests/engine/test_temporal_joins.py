"""Rows that meet what another side has in their epoch: a plain model, killed and rescaled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings

from lamina.engine.engine import EnginePlan, EngineSettings, StreamPlan
from lamina.engine.joins import TemporalJoin
from lamina.engine.model import Offset, OperatorPlan, SourceRange
from lamina.engine.ports import Limits, Source, SourceMemory
from lamina.engine.temporal_joins import columns_of_state
from lamina.errors import Refused, StateChanged
from lamina.pipeline.model import Emit, JoinKind
from lamina.state.partition import StatePartition
from tests.engine.pipelines import Bomb, Killed, ListSource, Row, World, kill, run_out
from tests.engine.test_change_joins import (
    DRAWN,
    NEW,
    PLACES,
    SIDES,
    TAKEN_BACK,
    Drawn,
    Pair,
    left_of,
    live,
    random_changes,
    tagged_by,
)
from tests.support.examples import IS_LONG
from tests.support.in_process import LocalStream

KINDS = (JoinKind.INNER, JoinKind.LEFT)
COLUMNS = tuple(field.name for field in SIDES)


def plan_of(step: TemporalJoin) -> OperatorPlan:
    lefts, rights = SIDES[:2], SIDES[2:]
    keys, values, rows, output = columns_of_state([pa.field("k0", pa.string())], lefts, rights)
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


def world_of(
    root: Path, kind: JoinKind, data: tuple[Sequence[Row], Sequence[Row]], *, limit: int
) -> World:
    step = TemporalJoin(kind, COLUMNS, 2)
    stream = StreamPlan(
        "joined",
        ("left", "right"),
        frozenset({"left"}),
        {"joined": plan_of(step)},
        looks_up=frozenset({"right"}),
    )
    return World(
        root,
        data={"left": data[0], "right": data[1]},
        plan=EnginePlan("p", "ab" * 32, (stream,), {"joined": "joined"}, {}),
        streams={"joined": tagged_by(plan_of(step))},
        settings=EngineSettings(partitions=2, limits=Limits(rows=limit), checkpoint_epochs=3),
    )


def random_rows(seed: int, count: int, keys: int) -> list[Row]:
    """Many of them again; some keys are null."""
    draw = Random(seed)
    named = (None if draw.random() < 0.1 else f"k{draw.randrange(keys)}" for _ in range(count))
    return [(key, draw.randrange(6), NEW) for key in named]  # type: ignore[misc]


def expected(
    kind: JoinKind,
    data: tuple[Sequence[Row], Sequence[Row]],
    *,
    limit: int,
    alone: Collection[int] = (),
) -> dict[int, Counter[Pair]]:
    """By epoch: each new row of the left side with each row that is there, in plain Python."""
    found: dict[int, Counter[Pair]] = {}
    for epoch, first in enumerate(range(0, max(map(len, data)), limit), 1):
        there, rows = left_of(data[1][: first + limit]), Counter[Pair]()
        for key, amount, _ in data[0][first : first + limit]:
            may_meet = key is not None and amount not in alone
            partners = [y for y in there if may_meet and y[0] == key]
            if not partners and kind is JoinKind.LEFT:
                rows[_row((key, amount, None, None))] += 1
            rows.update(_row((key, amount, *y)) for y in partners)
        if rows:
            found[epoch] = rows
    return found


def _row(values: Sequence[object]) -> Pair:
    return tuple(None if value is None else str(value) for value in values)


def got(world: World) -> dict[int, Counter[Pair]]:
    return {
        epoch: rows
        for epoch, tables in world.tables["joined"].epochs.items()
        if (rows := Counter(_row(tuple(r.values())) for t in tables for r in t.to_pylist()))
    }


@pytest.mark.parametrize("kind", KINDS)
@given(drawn=DRAWN)
@settings(
    max_examples=60 if IS_LONG else 8,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
def test_each_row_meets_the_rows_that_are_there_in_its_epoch(
    kind: JoinKind, drawn: Drawn, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = random_rows(drawn.seed, 60, drawn.keys), random_changes(drawn.seed, 90, drawn.keys)
    limit = -(-90 // drawn.cuts)
    world = world_of(tmp_path_factory.mktemp("join"), kind, data, limit=limit)
    engine = world.open(partitions=drawn.partitions)
    run_out(engine)
    kill(engine)
    assert got(world) == expected(kind, data, limit=limit)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS if IS_LONG else [JoinKind.LEFT])
def test_killed_and_rescaled_every_row_meets_what_its_epoch_has(
    kind: JoinKind, place: str, tmp_path: Path
) -> None:
    data = random_rows(7, 300, 9), random_changes(8, 300, 9)
    world = world_of(tmp_path, kind, data, limit=15)
    for nth, partitions in ((2, 1), (3, 4), (4, 2), (5, 1), (2, 16)):
        times = nth if "COMMIT" in place else nth * partitions
        engine = world.open(Bomb(place, times), partitions=partitions)
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
    world.finish(partitions=2)
    assert got(world) == expected(kind, data, limit=15)


def test_a_row_that_fails_the_condition_of_its_side_has_no_partner(tmp_path: Path) -> None:
    data, alone = (random_rows(5, 120, 4), random_changes(6, 120, 4)), (1, 4)
    world = world_of(tmp_path, JoinKind.LEFT, data, limit=40)
    plan = plan_of(TemporalJoin(JoinKind.LEFT, COLUMNS, 2))
    world.streams = {"joined": tagged_by(plan, alone)}
    world.finish()
    assert got(world) == expected(JoinKind.LEFT, data, limit=40, alone=alone)


def test_only_rows_that_are_there_are_kept(tmp_path: Path) -> None:
    """None of the left side, and none that was taken back."""
    came = random_changes(3, 80, 4)
    gone: list[Row] = [(key, amount, TAKEN_BACK) for key, amount in left_of(came)]  # type: ignore[misc]
    world = world_of(tmp_path, JoinKind.INNER, (random_rows(3, 80, 4), came + gone), limit=80)
    engine = world.open()
    run_out(engine, epochs=1)
    assert live(engine) == len({row for row in left_of(came) if row[0] is not None})
    run_out(engine)
    assert live(engine) == 0
    kill(engine)


def test_an_epoch_reads_the_rows_of_its_own_join_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five thousand customers: the orders of three of them meet these three."""
    met, real = list[int](), StatePartition.groups

    def groups(self: StatePartition, keys: Sequence[pa.Array]) -> pa.RecordBatch:
        found = real(self, keys)
        met.append(found.num_rows)
        return found

    customers: list[Row] = [(f"c{i}", 0, NEW) for i in range(5000)]
    others: list[Row] = [("nobody", i, NEW) for i in range(5000)]
    orders: list[Row] = [(f"c{i % 3}", i, NEW) for i in range(50)]
    world = world_of(tmp_path, JoinKind.INNER, ([*others, *orders], customers), limit=5000)
    engine = world.open(partitions=1)
    run_out(engine, epochs=1)
    monkeypatch.setattr(StatePartition, "groups", groups)
    run_out(engine, epochs=1)
    kill(engine)
    assert sum(met) == 3
    assert sum(got(world)[2].values()) == 50


def test_pairs_come_out_in_batches_of_a_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with rows that are there many times, and of rows without a partner."""
    monkeypatch.setattr("lamina.engine.change_joins.PAIRS_MAX", 100)
    monkeypatch.setattr("lamina.engine.temporal_joins.PAIRS_MAX", 100)
    sizes: list[int] = []
    left: list[Row] = [("k", i % 7, NEW) for i in range(60)] + [("z", i, NEW) for i in range(250)]
    right: list[Row] = [("k", i % 7, NEW) for i in range(60)]
    world = world_of(tmp_path, JoinKind.LEFT, (left, right), limit=1000)

    def measured(table: pa.Table) -> pa.Table:
        sizes.extend(batch.num_rows for batch in table.to_batches())
        return table

    streams: Mapping[str, LocalStream] = world.streams
    world.streams = {"joined": replace(streams["joined"], final=measured)}
    world.finish(partitions=1)
    assert sum(sizes) == 3600 + 250
    assert max(sizes) == 100


def test_rows_that_never_were_cannot_be_taken_back(tmp_path: Path) -> None:
    changes: list[Row] = [("k", 1, NEW), ("k", 2, TAKEN_BACK)]
    world = world_of(tmp_path, JoinKind.INNER, ([], changes), limit=1)
    engine = world.open()
    with pytest.raises(Refused, match="taken back that this join has never had"):
        run_out(engine)
    kill(engine)


def test_other_columns_of_the_right_side_are_another_state(tmp_path: Path) -> None:
    """Those of the left side are not kept, so they may change."""
    data = (random_rows(3, 60, 5), random_changes(4, 60, 5))
    step = TemporalJoin(JoinKind.INNER, COLUMNS, 2)
    assert step.definition("x") == replace(step, kind=JoinKind.LEFT).definition("x")
    assert step.definition("x") == replace(step, columns=COLUMNS[1:], left=1).definition("x")
    assert step.definition("x") != replace(step, columns=COLUMNS[:3]).definition("x")
    world = world_of(tmp_path, JoinKind.INNER, data, limit=20)
    engine = world.open()
    run_out(engine, epochs=1)
    engine.close()
    (stream,) = world.plan.streams
    changed = replace(stream.operators["joined"], definition="other rows")
    streams = (replace(stream, operators={"joined": changed}),)
    world.plan = replace(world.plan, streams=streams)
    with pytest.raises(StateChanged, match="has changed since its state was computed"):
        world.open()


class Ordered(ListSource):
    """Writes down when it is asked what an epoch reads."""

    asked: list[str]

    def plan(self, start: Offset, limits: Limits, memory: SourceMemory | None) -> SourceRange:
        self.asked.append(self.name)
        return super().plan(start, limits, memory)


class OrderedWorld(World):
    asked: list[str]

    def sources(self) -> dict[str, Source]:
        found: dict[str, Source] = {}
        for name, rows in self.data.items():
            found[name] = source = Ordered(name, rows)
            source.asked = self.asked
        return found


def test_the_side_that_rows_are_looked_up_in_is_planned_last(tmp_path: Path) -> None:
    """What was in the table before an event was written is then there with the event."""
    usual = world_of(tmp_path, JoinKind.INNER, ([("k", 1, NEW)], [("k", 2, NEW)]), limit=9)
    (stream,) = usual.plan.streams
    stream = replace(stream, sources=frozenset({"z"}), inputs=("z", "a"), looks_up=frozenset({"a"}))
    world = OrderedWorld(
        tmp_path,
        data={"a": usual.data["right"], "z": usual.data["left"]},
        plan=replace(usual.plan, streams=(stream,)),
        streams=usual.streams,
    )
    world.asked = []
    engine = world.open()
    run_out(engine, epochs=1)
    kill(engine)
    assert world.asked[:2] == ["z", "a"]
    assert got(world) == {1: Counter({("k", "1", "k", "2"): 1})}
