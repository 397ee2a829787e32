"""Joins whose condition compares both sides: what it says is known only behind the task."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import Phase, given, settings

from lamina.engine.join_asking import ASKS, answered
from lamina.engine.joins import Join
from lamina.pipeline.model import JoinKind
from tests.engine.pipelines import SECOND, Bomb, Killed, Row, World, kill, run_out
from tests.engine.test_joins import (
    COLUMNS,
    DRAWN,
    OUTPUT,
    PLACES,
    Drawn,
    Model,
    got,
    random_rows,
    tagged,
    world_of,
)
from tests.support.in_process import LocalStream

JUDGING = tuple(kind for kind in JoinKind if kind.judges)


def is_alone(amount: int) -> bool:
    """Rows that do not meet what the join asks of their side."""
    return amount % 11 == 3


def is_met(x: Row, y: Row) -> bool:
    """The condition on both sides, and what is asked of one side."""
    return (x[1] + y[1]) % 3 == 0 and not is_alone(x[1]) and not is_alone(y[1])


def asking_world(root: Path, step: Join, data: tuple[list[Row], list[Row]], *, limit: int) -> World:
    """As on Spark: pairs that do not meet the condition are left out between two steps."""

    def final(table: pa.Table) -> pa.Table:
        batches = []
        for batch in table.to_batches(max_chunksize=50):
            asks, sums = batch.column(ASKS), pc.add(batch.column("l1"), batch.column("r1"))
            met = [each is not None and each % 3 == 0 for each in sums.to_pylist()]
            is_pair = pc.fill_null(pc.greater_equal(asks, 0), fill_value=True)
            batches.append(batch.filter(pc.or_(pc.invert(is_pair), pa.array(met, pa.bool_()))))
        return pa.Table.from_batches(
            answered(batches, is_semi=step.kind is JoinKind.SEMI), schema=OUTPUT
        )

    world = world_of(root, step, data, limit=limit)
    rows = LocalStream(lambda left, right: tagged(left, right, is_alone), final)
    world.streams = {"joined": rows}
    return world


@pytest.mark.parametrize("kind", JUDGING)
@given(drawn=DRAWN)
@settings(max_examples=3, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_a_condition_on_both_sides_says_who_has_a_partner(
    kind: JoinKind, drawn: Drawn, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bounds = drawn.low * SECOND, (drawn.low + drawn.length) * SECOND
    step = Join(kind, *bounds, COLUMNS, 2, asks=True)
    data = (random_rows(drawn.seed, 120, drawn.keys), random_rows(drawn.seed + 1, 120, drawn.keys))
    world = asking_world(tmp_path_factory.mktemp("join"), step, data, limit=drawn.limit)
    world.finish(partitions=drawn.partitions)
    assert got(world) == Model(step, drawn.limit, is_met).expected(data)


@pytest.mark.parametrize("place", PLACES[1:4:2])
@pytest.mark.parametrize("kind", [JoinKind.FULL, JoinKind.SEMI])
def test_killed_and_rescaled_a_row_is_judged_once(
    kind: JoinKind, place: str, tmp_path: Path
) -> None:
    step = Join(kind, -20 * SECOND, 40 * SECOND, COLUMNS, 2, asks=True)
    data = (random_rows(7, 200, 9), random_rows(8, 200, 9))
    world = asking_world(tmp_path, step, data, limit=15)
    for nth, partitions in ((2, 1), (3, 4), (4, 2)):
        times = nth if "COMMIT" in place else nth * partitions
        engine = world.open(Bomb(place, times), partitions=partitions)
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
    world.finish(partitions=2)
    assert got(world) == Model(step, 15, is_met).expected(data)
