"""A source that has fallen silent does not hold what it is joined with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lamina.engine.joins import Join
from lamina.engine.model import Offset, SourceRange
from lamina.engine.planning import END_US, Timing, Watermarks
from lamina.engine.ports import Limits, Source, SourceMemory
from lamina.pipeline.model import JoinKind
from tests.engine.pipelines import (
    MINUTE,
    ListSource,
    Row,
    World,
    kill,
    run_out,
)
from tests.engine.test_asof import UNBOUNDED
from tests.engine.test_asof import world_of as world_of_asof
from tests.engine.test_joins import COLUMNS, got, world_of
from tests.support import in_process

BEGIN = 10 * MINUTE
LEFT: list[Row] = [("k", i, BEGIN + i * MINUTE) for i in range(20)]
RIGHT: list[Row] = [("k", 100, BEGIN)]
TIMING = Timing({"a": 5, "b": 5, "c": 5}, (frozenset({"a", "b"}), frozenset({"c"})))


@dataclass
class Partitioned(ListSource):
    """A source of one part, which is silent or not as the test says."""

    silent: set[str] = field(default_factory=set)

    def plan(self, start: Offset, limits: Limits, memory: SourceMemory | None) -> SourceRange:
        planned = super().plan(start, limits, memory)
        heard = start != planned.end or self.name not in self.silent
        return replace(planned, holding=("part",) if heard else ())


@dataclass
class Quiet(World):
    silent: set[str] = field(default_factory=set)

    def sources(self) -> dict[str, Source]:
        return {
            name: Partitioned(name, rows, silent=self.silent) for name, rows in self.data.items()
        }


def quiet(world: World) -> Quiet:
    """The same, with sources that can fall silent; nothing is drained."""
    settings = replace(world.settings, drain=False)
    return Quiet(
        world.root, data=world.data, plan=world.plan, streams=world.streams, settings=settings
    )


def left_join(root: Path, right: Sequence[Row] = RIGHT) -> Quiet:
    step = Join(JoinKind.LEFT, 0, MINUTE, COLUMNS, 2)
    return quiet(world_of(root, step, (LEFT, right), limit=4))


def asof_join(root: Path, right: Sequence[Row] = RIGHT) -> Quiet:
    return quiet(world_of_asof(root, UNBOUNDED, (LEFT, right), limit=4))


def out(world: Quiet) -> int:
    return sum(got(world).values())


def parts(rows: int, table: pa.Table) -> dict[str, int]:
    times = table["ts"].cast(pa.int64()).to_pylist()
    return {"part": max(times)} if rows and times else {}


@pytest.fixture(autouse=True)
def _measured_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner says the latest time of the only part of each source."""
    plain = in_process.InProcessRunner._timed

    def timed(self: Any, source: str, table: pa.Table, work: Any) -> Any:
        kept, seen = plain(self, source, table, work)
        return kept, replace(seen, parts=parts(kept.num_rows, kept))

    monkeypatch.setattr(in_process.InProcessRunner, "_timed", timed)


@pytest.mark.parametrize("joined", [left_join, asof_join])
def test_a_side_that_has_rows_no_more_does_not_hold_the_other_for_ever(
    joined: Any, tmp_path: Path
) -> None:
    world = joined(tmp_path)
    engine = world.open()
    run_out(engine)
    held = out(world)
    assert held <= 2, "the right side may still bring rows"
    assert engine.step() is None
    world.silent.add("right")
    run_out(engine)
    assert out(world) >= len(LEFT) - 2, "all but what waits for the left side itself"
    assert engine.step() is None
    kill(engine)


def test_a_side_that_never_spoke_does_not_hold_the_other(tmp_path: Path) -> None:
    world = left_join(tmp_path, right=())
    world.silent.add("right")
    engine = world.open()
    run_out(engine)
    assert got(world) == Counter({(i, None): 1 for i in range(len(LEFT) - 2)})
    kill(engine)


def test_with_all_sides_silent_the_latest_of_them_counts(tmp_path: Path) -> None:
    world = left_join(tmp_path)
    engine = world.open()
    run_out(engine)
    world.silent.update(("left", "right"))
    run_out(engine)
    assert out(world) >= len(LEFT) - 2
    kill(engine)


def test_killed_after_the_silence_it_goes_on_where_it_was(tmp_path: Path) -> None:
    world = left_join(tmp_path)
    world.silent.add("right")
    first = world.open()
    run_out(first, epochs=7)
    kill(first)
    world.silent.clear()  # the clock of the next process begins anew
    second = world.open(partitions=4)
    run_out(second)
    before = out(world)
    world.silent.add("right")
    run_out(second)
    assert before <= out(world) == len(LEFT) - 2
    kill(second)


def test_what_a_silent_side_brings_later_may_be_late_and_is_counted(tmp_path: Path) -> None:
    for joined in (left_join, asof_join):
        right = list(RIGHT)
        world = joined(tmp_path / joined.__name__, right)
        world.silent.add("right")
        engine = world.open()
        run_out(engine)
        before = got(world)
        world.data["right"].append(("k", 101, BEGIN + MINUTE))  # type: ignore[attr-defined]
        (report,) = run_out(engine)
        assert report.late_sides["joined"] == {"left": 0, "right": 1}
        assert got(world) == before
        kill(engine)


def advanced(marks: dict[str, int], **holding: tuple[str, ...]) -> dict[str, int]:
    after = Watermarks(marks).advanced({}, TIMING, None, holding)
    return dict(after.by_source)


def test_a_silent_source_follows_only_what_it_is_read_with() -> None:
    assert advanced({"a": 9, "b": 3, "c": 1}, b=()) == {"a": 9, "b": 9, "c": 1}
    assert advanced({"a": 9, "b": 3, "c": 1}, c=()) == {"a": 9, "b": 3, "c": 1}
    assert advanced({"b": 3}, b=()) == {"b": 3}, "the other has no watermark yet"
    assert advanced({"a": 9}, b=()) == {"a": 9, "b": 9}
    assert advanced({"a": 9, "b": 30}, b=()) == {"a": 9, "b": 30}, "it never falls"
    assert advanced({"a": 9, "b": 30}, a=(), b=()) == {"a": 30, "b": 30}
    assert advanced({"a": END_US, "b": 3}, b=()) == {"a": END_US, "b": 3}, "rows may come of it"
    assert advanced({"a": 9, "b": 3}, b=("part",)) == {"a": 9, "b": 3}
