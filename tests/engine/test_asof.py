"""ASOF joins without Spark: against a plain model, killed and rescaled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lamina.engine.asof import Asof
from lamina.engine.engine import EnginePlan, StreamPlan
from lamina.engine.joins import Join
from lamina.engine.model import OperatorPlan
from lamina.engine.timers import timers_name, with_timers
from lamina.errors import StateChanged
from lamina.pipeline.model import Emit, JoinKind
from tests.engine.pipelines import DELAY, MINUTE, SECOND, Bomb, Killed, Row, World, kill, run_out
from tests.engine.test_joins import (
    COLUMNS,
    KEYS,
    OUTPUT,
    PLACES,
    ROWS,
    VALUES,
    Pair,
    got,
    live,
    random_rows,
)
from tests.engine.test_joins import world_of as world_of_join

Sides = tuple[Sequence[Row], Sequence[Row]]


def operator(step: Asof) -> OperatorPlan:
    return OperatorPlan(
        KEYS.serialize().to_pybytes(),
        VALUES.serialize().to_pybytes(),
        step,
        "_until",
        Emit.ON_WINDOW_CLOSE,
        definition="rows",
        rows_schema=ROWS.serialize().to_pybytes(),
        output_schema=OUTPUT.serialize().to_pybytes(),
        has_timers=True,
        group=1,
    )


def world_of(root: Path, step: Asof, data: Sides, *, limit: int) -> World:
    world = world_of_join(root, Join(JoinKind.INNER, 0, 0, COLUMNS, 2), data, limit=limit)
    operators = with_timers("joined", operator(step))
    stream = StreamPlan("joined", ("left", "right"), frozenset({"left", "right"}), operators)
    delays = {"left": DELAY, "right": DELAY}
    world.plan = EnginePlan("p", "ab" * 32, (stream,), {"joined": "joined"}, delays)
    return world


@dataclass
class Model:
    """What comes out, row by row in plain Python; it knows nothing of epochs but the late rows."""

    step: Asof
    limit: int

    def expected(self, data: Sides) -> Counter[Pair]:
        left, right = self._on_time(*data)
        found = Counter[Pair]()
        for x in left:
            y = self._version(x, right)
            if y is not None or self.step.kind is JoinKind.LEFT:
                found[x[1], y] += 1
        return found

    def _version(self, x: Row, right: Sequence[Row]) -> int | None:
        step, at = self.step, x[2]
        assert at is not None
        fits = [
            (y[2], y[1])
            for y in right
            if x[0] is not None
            and x[0] == y[0]
            and y[2] is not None
            and (step.low is None or at + step.low <= y[2])
            and y[2] <= at + step.high
        ]
        if not fits:
            return None
        when = min(fits)[0] if step.looks_ahead else max(fits)[0]
        return max(amount for time, amount in fits if time == when)

    def _on_time(self, *sides: Sequence[Row]) -> list[list[Row]]:
        """By the watermark of the epoch before, which is that of the slower source."""
        kept: list[list[Row]] = [[], []]
        latest: list[int | None] = [None, None]
        watermark: int | None = None
        for begin in range(0, max(map(len, sides)), self.limit):
            for number, rows in enumerate(sides):
                for row in rows[begin : begin + self.limit]:
                    assert row[2] is not None
                    if watermark is None or row[2] >= watermark:
                        kept[number].append(row)
                    latest[number] = max(row[2], latest[number] or row[2])
            known = [each - DELAY for each in latest if each is not None]
            if len(known) == 2:
                watermark = max(min(known), watermark or min(known))
        return kept


@dataclass(frozen=True)
class Drawn:
    seed: int
    keys: int
    limit: int
    strict: bool
    ttl: int | None
    looks_ahead: bool
    kind: JoinKind
    rights: int
    partitions: int

    @property
    def step(self) -> Asof:
        nearest = int(self.strict)
        if self.looks_ahead:
            high = (self.ttl or 30) * SECOND
            return Asof(self.kind, nearest, high, COLUMNS, 2, looks_ahead=True)
        low = None if self.ttl is None else -self.ttl * SECOND
        return Asof(self.kind, low, -nearest, COLUMNS, 2)


DRAWN = st.builds(
    Drawn,
    seed=st.integers(0, 1 << 30),
    keys=st.sampled_from([1, 3, 12, 40]),
    limit=st.integers(5, 70),
    strict=st.booleans(),
    ttl=st.sampled_from([None, None, 5, 60]),
    looks_ahead=st.sampled_from([False, False, True]),
    kind=st.sampled_from([JoinKind.INNER, JoinKind.LEFT]),
    rights=st.sampled_from([0, 60, 140]),
    partitions=st.sampled_from([1, 2, 8]),
)


@given(drawn=DRAWN)
@settings(max_examples=24, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_every_row_gets_the_version_of_a_plain_model(
    drawn: Drawn, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = (
        random_rows(drawn.seed, 140, drawn.keys),
        random_rows(drawn.seed + 1, drawn.rights, drawn.keys),
    )
    world = world_of(tmp_path_factory.mktemp("asof"), drawn.step, data, limit=drawn.limit)
    world.finish(partitions=drawn.partitions)
    assert got(world) == Model(drawn.step, drawn.limit).expected(data)


UNBOUNDED = Asof(JoinKind.LEFT, None, 0, COLUMNS, 2)


@pytest.mark.parametrize("place", PLACES)
def test_killed_and_rescaled_no_row_is_lost_or_gets_another_version(
    place: str, tmp_path: Path
) -> None:
    data = (random_rows(7, 300, 9), random_rows(8, 300, 9))
    world = world_of(tmp_path, UNBOUNDED, data, limit=15)
    for nth, partitions in ((2, 1), (3, 4), (4, 2), (5, 8), (2, 16)):
        times = nth if "COMMIT" in place else nth * partitions
        engine = world.open(Bomb(place, times), partitions=partitions)
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
    world.finish(partitions=2)
    assert got(world) == Model(UNBOUNDED, 15).expected(data)


def test_of_versions_below_the_watermark_the_last_one_of_each_key_is_kept(tmp_path: Path) -> None:
    rights: list[Row] = [(f"k{i % 10}", i, 10 * MINUTE + i * SECOND) for i in range(400)]
    left: list[Row] = [("x", i, at) for _, i, at in rights]
    world = world_of(tmp_path, UNBOUNDED, (left, rights), limit=10)
    world.settings = replace(world.settings, drain=False)
    engine = world.open(partitions=2)
    run_out(engine)
    above = DELAY // SECOND
    waiting = live(engine, "joined") - 10
    assert 2 * above - 10 <= waiting <= 2 * above + 3 * 10
    run_rows = [r.rows for p in engine._states.operators["joined"].partitions for r in p.runs]
    assert sum(run_rows) < 400
    kill(engine)


def test_a_key_that_has_been_silent_for_long_still_has_its_version(tmp_path: Path) -> None:
    left: list[Row] = [("x", i, 10 * MINUTE + i * MINUTE) for i in range(300)] + [
        ("k", 999, 309 * MINUTE)
    ]
    rights: list[Row] = [("k", 7, 10 * MINUTE)] + [("y", i, i * MINUTE) for i in range(11, 310)]
    for step, version in ((UNBOUNDED, 7), (replace(UNBOUNDED, low=-MINUTE), None)):
        world = world_of(tmp_path / str(version), step, (left, rights), limit=7)
        world.finish()
        assert got(world)[999, version] == 1


def test_of_versions_with_one_time_the_greatest_counts_in_whichever_order_they_come(
    tmp_path: Path,
) -> None:
    at = 10 * MINUTE
    left: list[Row] = [("k", 1, at + SECOND)]
    for number, amounts in enumerate([(1, 3, 2), (3, 2, 1), (2, 1, 3)]):
        rights: list[Row] = [("k", amount, at) for amount in amounts]
        for limit in (1, 3):
            world = world_of(tmp_path / f"{number} {limit}", UNBOUNDED, (left, rights), limit=limit)
            world.finish()
            assert got(world) == Counter([(1, 3)])


def test_a_version_at_the_watermark_still_comes(tmp_path: Path) -> None:
    """The watermark stands at the time of a row for two epochs; then its version comes."""
    begin, end = 10 * MINUTE, 11 * MINUTE
    left: list[Row] = [("k", 0, end), ("y", 1, end + DELAY), ("y", 2, end), ("y", 3, end)]
    rights: list[Row] = [("k", 0, begin), ("x", 1, end + DELAY), ("x", 2, end), ("k", 3, end)]
    world = world_of(tmp_path, UNBOUNDED, (left, rights), limit=1)
    world.finish()
    assert got(world) == Counter([(0, 3), (1, None), (2, None), (3, None)])


def test_nothing_waits_when_an_asof_join_is_drained(tmp_path: Path) -> None:
    data = (random_rows(3, 100, 5), random_rows(4, 100, 5))
    world = world_of(tmp_path, UNBOUNDED, data, limit=20)
    engine = world.open()
    run_out(engine, epochs=4)
    assert live(engine, timers_name("joined"))
    run_out(engine)
    assert live(engine, timers_name("joined")) == 0
    kill(engine)


def test_versions_that_were_kept_without_a_column_are_not_joined_as_if_they_had_it(
    tmp_path: Path,
) -> None:
    data = (random_rows(3, 60, 5), random_rows(4, 60, 5))
    world = world_of(tmp_path, UNBOUNDED, data, limit=20)
    engine = world.open()
    run_out(engine, epochs=1)
    engine.close()
    more = replace(UNBOUNDED, columns=(*COLUMNS, "r2"))
    world.plan = world_of(tmp_path, more, data, limit=20).plan
    with pytest.raises(StateChanged, match="has changed since its state was computed"):
        world.open()
