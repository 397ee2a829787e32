"""What `lamina check` says that a million rows of a join take, beside the run files they are in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lamina.engine.asof import Asof
from lamina.engine.joins import Join
from lamina.engine.task_state import schema_of
from lamina.pipeline.model import JoinKind
from lamina.state.sizes import bytes_of_row
from tests.engine import test_asof, test_change_joins, test_joins, test_temporal_joins
from tests.engine.pipelines import MINUTE, Row, World, kill, run_out

ROWS = 4000
SECOND = MINUTE // 60
NEAR = (0, 2 * ROWS * SECOND)


def rows(time: Callable[[int], int]) -> list[Row]:
    """Keys of 16 letters, as long as texts are taken to be."""
    return [(f"key {number:012d}", number, time(number)) for number in range(ROWS)]


def of_events(root: Path, kind: JoinKind) -> World:
    side = rows(lambda number: 10 * MINUTE + number * SECOND)
    join = Join(kind, *NEAR, test_joins.COLUMNS, 2)
    return test_joins.world_of(root, join, (side, side), limit=ROWS)


def of_versions(root: Path, kind: JoinKind) -> World:
    side = rows(lambda number: 10 * MINUTE + number * SECOND)
    asof = Asof(kind, None, 0, test_asof.COLUMNS, 2)
    return test_asof.world_of(root, asof, (side, side), limit=ROWS)


def of_changes(root: Path, kind: JoinKind) -> World:
    side = rows(lambda _: test_change_joins.NEW)
    join = test_change_joins.step_of(kind)
    return test_change_joins.world_of(root, join, (side, side), limit=ROWS)


def of_epochs(root: Path, kind: JoinKind) -> World:
    side = rows(lambda _: test_change_joins.NEW)
    return test_temporal_joins.world_of(root, kind, (side, side), limit=ROWS)


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        *((of_events, kind) for kind in JoinKind),
        (of_versions, JoinKind.INNER),
        (of_versions, JoinKind.LEFT),
        *((of_changes, kind) for kind in JoinKind),
        (of_epochs, JoinKind.INNER),
        (of_epochs, JoinKind.LEFT),
    ],
)
def test_a_row_takes_on_disk_what_check_says(
    made: Callable[[Path, JoinKind], World], kind: JoinKind, tmp_path: Path
) -> None:
    world = made(tmp_path, kind)
    world.settings = world.settings.__class__(
        partitions=1, limits=world.settings.limits, checkpoint_epochs=0
    )
    engine = world.open()
    run_out(engine, epochs=1)
    engine.checkpoint()
    runs = engine._states.operators["joined"].runs()
    kept, size = sum(run.rows for run in runs), sum(run.size for run in runs)
    kill(engine)
    assert kept >= ROWS, "the rows of at least one side"
    said = bytes_of_row(schema_of(world.plan.streams[0].operators["joined"]).row)
    assert 0.8 < size / kept / said < 1.1
