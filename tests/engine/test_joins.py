"""Joins of two streams without Spark: against a plain model, killed and rescaled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lamina.engine.engine import Engine, EnginePlan, EngineSettings, StreamPlan
from lamina.engine.join_rows import columns_of_state, columns_that_come_out
from lamina.engine.joins import Join
from lamina.engine.model import OperatorPlan
from lamina.engine.ports import Limits
from lamina.engine.timers import timers_name, with_timers
from lamina.errors import StateChanged
from lamina.pipeline.model import Emit, JoinKind
from tests.engine.pipelines import (
    DELAY,
    MINUTE,
    SECOND,
    Bomb,
    Killed,
    Row,
    World,
    kill,
    run_out,
)
from tests.support.in_process import LocalStream

KINDS = tuple(JoinKind)
SIDES = [
    pa.field("l0", pa.string()),
    pa.field("l1", pa.int64()),
    pa.field("r0", pa.string()),
    pa.field("r1", pa.int64()),
]
KEYS, VALUES, ROWS = columns_of_state([pa.field("k0", pa.string())], SIDES)
OUTPUT = pa.schema(SIDES)
COLUMNS = tuple(OUTPUT.names)
PLACES = ("before append", "after append", "after stage", "before COMMIT", "after COMMIT")
Pair = tuple[int | None, int | None]


def operator(step: Join) -> OperatorPlan:
    kind = step.kind
    return OperatorPlan(
        KEYS.serialize().to_pybytes(),
        VALUES.serialize().to_pybytes(),
        step,
        "_until",
        Emit.ON_WINDOW_CLOSE if kind.judges else Emit.ON_UPDATE,
        definition="rows",
        rows_schema=ROWS.serialize().to_pybytes(),
        output_schema=columns_that_come_out(SIDES, asks=step.asks).serialize().to_pybytes(),
        has_timers=kind.judges,
        group=1,
    )


def tagged(
    left: pa.Table | None, right: pa.Table | None, is_alone: Callable[[int], bool] = lambda _: False
) -> pa.Table:
    """Both sides as one table, as Spark makes it; rows that are *alone* meet no condition."""
    tables = []
    for table, is_right in ((left, False), (right, True)):
        if table is None:
            continue
        rows = table.num_rows
        mine, nothing = [table["key"], table["amount"]], [pa.nulls(rows, f.type) for f in SIDES[:2]]
        sides = [*nothing, *mine] if is_right else [*mine, *nothing]
        flags = pa.array([is_right] * rows, pa.bool_())
        alone = pa.array([is_alone(each) for each in table["amount"].to_pylist()], pa.bool_())
        columns = [table["key"], flags, table["ts"], alone, *sides]
        tables.append(pa.Table.from_arrays(columns, schema=ROWS))
    return pa.concat_tables(tables)


def world_of(
    root: Path, step: Join, data: tuple[Sequence[Row], Sequence[Row]], *, limit: int
) -> World:
    sources = frozenset({"left", "right"})
    stream = StreamPlan("joined", ("left", "right"), sources, with_timers("joined", operator(step)))
    delays = {"left": DELAY, "right": DELAY}
    return World(
        root,
        data={"left": data[0], "right": data[1]},
        plan=EnginePlan("p", "ab" * 32, (stream,), {"joined": "joined"}, delays),
        streams={"joined": LocalStream(tagged)},
        settings=EngineSettings(
            partitions=2, limits=Limits(rows=limit), checkpoint_epochs=3, drain=True
        ),
    )


def random_rows(seed: int, count: int, keys: int) -> list[Row]:
    """Out of order, now and then late; `amount` is the number of the row; some keys are null."""
    draw, found = Random(seed), list[Row]()
    for i in range(count):
        at = 10 * MINUTE + i * SECOND - draw.randrange(15) * SECOND
        if draw.random() < 0.05:
            at -= 3 * MINUTE
        key = None if draw.random() < 0.05 else f"k{draw.randrange(keys)}"
        found.append((key, i, at))  # type: ignore[arg-type]
    return found


@dataclass
class Model:
    """What comes out, row by row in plain Python: rows that are not late, and all their pairs."""

    step: Join
    limit: int
    is_met: Callable[[Row, Row], bool] = lambda _, __: True

    def expected(self, data: tuple[Sequence[Row], Sequence[Row]]) -> Counter[Pair]:
        left, right = self._on_time(*data)
        pairs = [
            (x, y)
            for x in left
            for y in right
            if x[0] is not None and x[0] == y[0] and self._is_within(x, y) and self.is_met(x, y)
        ]
        kind = self.step.kind
        with_left, with_right = {x[1] for x, _ in pairs}, {y[1] for _, y in pairs}
        found = Counter[Pair]((x[1], y[1]) for x, y in pairs if kind.has_pairs)
        if kind.judges_left:
            is_semi = kind is JoinKind.SEMI
            found.update((x[1], None) for x in left if (x[1] in with_left) == is_semi)
        if kind.judges_right:
            found.update((None, y[1]) for y in right if y[1] not in with_right)
        return found

    def _is_within(self, x: Row, y: Row) -> bool:
        assert x[2] is not None
        assert y[2] is not None
        return x[2] + self.step.low <= y[2] <= x[2] + self.step.high

    def _on_time(self, *sides: Sequence[Row]) -> list[list[Row]]:
        """By the watermark of the epoch before, which is that of the slower source."""
        kept: list[list[Row]] = [[], []]
        latest: list[int | None] = [None, None]
        watermark: int | None = None
        for at in range(0, max(map(len, sides)), self.limit):
            for number, rows in enumerate(sides):
                for row in rows[at : at + self.limit]:
                    assert row[2] is not None
                    if watermark is None or row[2] >= watermark:
                        kept[number].append(row)
                    seen = latest[number]
                    latest[number] = row[2] if seen is None else max(seen, row[2])
            known = [each - DELAY for each in latest if each is not None]
            if len(known) == len(latest):
                watermark = min(known) if watermark is None else max(watermark, min(known))
        return kept


def got(world: World) -> Counter[Pair]:
    tables = [table for epoch in world.tables["joined"].epochs.values() for table in epoch]
    return Counter(
        pair
        for table in tables
        for pair in zip(table["l1"].to_pylist(), table["r1"].to_pylist(), strict=True)
    )


def live(engine: Engine, name: str) -> int:
    partitions = engine._states.operators[name].partitions
    return sum(partition.statistics(count=True).live or 0 for partition in partitions)


@dataclass(frozen=True)
class Drawn:
    seed: int
    keys: int
    limit: int
    low: int
    length: int
    partitions: int


DRAWN = st.builds(
    Drawn,
    seed=st.integers(0, 1 << 30),
    keys=st.integers(1, 12),
    limit=st.integers(5, 70),
    low=st.integers(-90, 60),
    length=st.integers(0, 120),
    partitions=st.sampled_from([1, 2, 8]),
)


@pytest.mark.parametrize("kind", KINDS)
@given(drawn=DRAWN)
@settings(max_examples=10, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_every_join_has_the_rows_of_a_plain_model(
    kind: JoinKind, drawn: Drawn, tmp_path_factory: pytest.TempPathFactory
) -> None:
    step = Join(kind, drawn.low * SECOND, (drawn.low + drawn.length) * SECOND, COLUMNS, 2)
    data = (random_rows(drawn.seed, 140, drawn.keys), random_rows(drawn.seed + 1, 140, drawn.keys))
    world = world_of(tmp_path_factory.mktemp("join"), step, data, limit=drawn.limit)
    world.finish(partitions=drawn.partitions)
    assert got(world) == Model(step, drawn.limit).expected(data)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.FULL])
def test_killed_and_rescaled_no_row_is_lost_or_comes_twice(
    kind: JoinKind, place: str, tmp_path: Path
) -> None:
    step = Join(kind, -20 * SECOND, 40 * SECOND, COLUMNS, 2)
    data = (random_rows(7, 300, 9), random_rows(8, 300, 9))
    world = world_of(tmp_path, step, data, limit=15)
    for nth, partitions in ((2, 2), (3, 8), (4, 4), (5, 1), (2, 16)):
        times = nth if "COMMIT" in place else nth * partitions
        engine = world.open(Bomb(place, times), partitions=partitions)
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
    world.finish(partitions=2)
    assert got(world) == Model(step, 15).expected(data)


def test_a_partner_at_the_watermark_still_comes(tmp_path: Path) -> None:
    """The watermark stands at the end of the bounds for two epochs; then the partner comes."""
    step = Join(JoinKind.LEFT, 0, MINUTE, COLUMNS, 2)
    begin, end = 10 * MINUTE, 11 * MINUTE
    left: list[Row] = [("k", 0, begin), ("y", 1, end + DELAY), ("y", 2, end), ("y", 3, end)]
    right: list[Row] = [("x", 0, begin), ("x", 1, end + DELAY), ("x", 2, end), ("k", 3, end)]
    world = world_of(tmp_path, step, (left, right), limit=1)
    world.finish()
    assert got(world) == Counter([(0, 3), (1, None), (2, None), (3, None)])


def test_late_rows_are_counted_for_each_side(tmp_path: Path) -> None:
    step = Join(JoinKind.LEFT, 0, MINUTE, COLUMNS, 2)
    begin, end = 10 * MINUTE, 20 * MINUTE
    left: list[Row] = [("k", 0, end), ("k", 1, begin), ("k", 2, begin), ("k", 3, end)]
    right: list[Row] = [("k", 0, end), ("k", 1, end), ("k", 2, begin), ("k", 3, begin)]
    world = world_of(tmp_path, step, (left, [*right, ("k", 4, begin)]), limit=1)
    engine = world.open(partitions=2)
    reports = [report for report in iter(engine.step, None) if report is not None]
    found = [report.late_sides["joined"] for report in reports]
    assert sum(sides["left"] for sides in found) == 2
    assert sum(sides["right"] for sides in found) == 3
    assert sum(report.late for report in reports) == 5
    kill(engine)


def test_nothing_is_kept_of_a_join_that_is_drained(tmp_path: Path) -> None:
    step = Join(JoinKind.FULL, 0, 60 * SECOND, COLUMNS, 2)
    data = (random_rows(3, 100, 5), random_rows(4, 100, 5))
    world = world_of(tmp_path, step, data, limit=20)
    engine = world.open()
    run_out(engine, epochs=4)
    assert live(engine, "joined")
    assert live(engine, timers_name("joined"))
    run_out(engine)
    assert live(engine, timers_name("joined")) == 0
    kill(engine)


def test_rows_are_kept_only_while_a_partner_can_come(tmp_path: Path) -> None:
    """A right row is of no use once the watermark has passed it; a left one for a minute more."""
    step = Join(JoinKind.INNER, 0, 60 * SECOND, COLUMNS, 2)
    rows: list[Row] = [("k", i, 10 * MINUTE + i * SECOND) for i in range(400)]
    world = world_of(tmp_path, step, (rows, rows), limit=10)
    world.settings = replace(world.settings, drain=False)
    engine = world.open(partitions=1)
    run_out(engine)
    kept = live(engine, "joined")
    seconds = DELAY // SECOND
    assert (60 + 2 * seconds) <= kept <= (60 + 2 * seconds) + 3 * 10
    kill(engine)


def test_a_key_with_many_rows_comes_out_in_batches_of_a_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lamina.engine.joining.PAIRS_MAX", 100)
    sizes: list[int] = []
    step = Join(JoinKind.INNER, -MINUTE, MINUTE, COLUMNS, 2)
    rows: list[Row] = [("k", i, 10 * MINUTE + i) for i in range(60)]
    world = world_of(tmp_path, step, (rows, rows), limit=60)

    def measured(table: pa.Table) -> pa.Table:
        sizes.extend(batch.num_rows for batch in table.to_batches())
        return table

    world.streams = {"joined": LocalStream(tagged, measured)}
    world.finish(partitions=1)
    assert sum(sizes) == 3600
    assert max(sizes) == 100


def test_rows_that_were_kept_without_a_column_are_not_joined_as_if_they_had_it(
    tmp_path: Path,
) -> None:
    """A SELECT that mentions one more column asks whether the state still means the same."""
    step = Join(JoinKind.INNER, 0, MINUTE, COLUMNS, 2)
    data = (random_rows(3, 60, 5), random_rows(4, 60, 5))
    world = world_of(tmp_path, step, data, limit=20)
    engine = world.open()
    run_out(engine, epochs=1)
    engine.close()
    more = replace(step, columns=(*COLUMNS, "r2"))
    world.plan = world_of(tmp_path, more, data, limit=20).plan
    with pytest.raises(StateChanged, match="has changed since its state was computed"):
        world.open()
