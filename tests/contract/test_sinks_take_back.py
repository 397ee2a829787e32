"""What a sink promises that can be as it was at an earlier epoch, whatever it writes to."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from lamina.engine.ports import Beyond, Sink, Truncating
from lamina.errors import Fenced, Refused
from lamina.format.commit import Point
from lamina.testing.faulty import Killed
from tests.contract.sinks import LATER, PIPELINE, ROWS, SHOWN, Output, Shown, World
from tests.contract.worlds import WORLDS, MakeWorld, params

ABLE = ["memory", "parquet", "parquet on a disk", "parquet in a store"]


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path / "home")


@pytest.fixture(params=params(ABLE))
def make(request: pytest.FixtureRequest, tmp_path: Path) -> MakeWorld:
    return WORLDS[request.param].make(request, tmp_path)


@pytest.fixture
def world(make: MakeWorld) -> World:
    return make()


def able(sink: Sink) -> Truncating:
    assert isinstance(sink, Truncating)
    return sink


def at(epoch: int) -> Point:
    return Point(epoch, f"{epoch:064x}")


def filled(world: World, output: Output) -> Sink:
    """Epochs 1 to 4, by generation 1."""
    sink = world.open()
    sink.fence(1, PIPELINE)
    for epoch, rows in ROWS.items():
        sink.publish(output.publication(epoch, rows))
    return sink


def of(*epochs: int) -> Shown:
    return {epoch: (SHOWN | LATER)[epoch] for epoch in epochs}


def test_it_is_again_as_it_was_and_the_position_is_the_rewinds(
    world: World, output: Output
) -> None:
    sink = filled(world, output)
    able(sink).truncate(output.publication(5), at(1))
    assert world.shown() == of(1)
    for each in (sink, world.open()):
        assert each.position().point == at(5)
        assert (each.position().pipeline, each.position().generation) == (PIPELINE, 1)
    sink.publish(output.publication(6, [[8]]))
    assert world.shown() == of(1, 6)


def test_an_epoch_that_was_left_behind_can_be_gone_back_to(world: World, output: Output) -> None:
    sink = filled(world, output)
    able(sink).truncate(output.publication(5), at(1))
    sink.publish(output.publication(6, [[8]]))
    able(sink).truncate(output.publication(7), at(3))
    assert world.shown() == of(1, 3)
    able(sink).truncate(output.publication(8), at(6))
    assert world.shown() == of(1, 6)
    able(sink).truncate(output.publication(10), at(4))
    assert world.shown() == SHOWN


def test_it_says_before_what_would_go_and_what_would_come_back(
    world: World, output: Output
) -> None:
    sink = filled(world, output)
    found = able(sink).beyond(at(1))
    assert (found.epochs, found.rows, found.missing) == (2, 4, 0)
    assert able(sink).beyond(at(4)) == Beyond()
    assert world.shown() == SHOWN
    able(sink).truncate(output.publication(5), at(1))
    sink.publish(output.publication(6, [[8]]))
    back = able(sink).beyond(at(3))
    assert (back.epochs, back.rows, back.missing) == (1, 1, 1)


def test_the_same_rewind_twice_is_one(world: World, output: Output) -> None:
    sink = filled(world, output)
    for _ in range(2):
        able(sink).truncate(output.publication(5), at(3))
    sink.publish(output.publication(6, [[8]]))
    assert world.shown() == of(1, 3, 6)


def test_an_older_process_takes_nothing_back(world: World, output: Output) -> None:
    old = filled(world, output)
    world.open().fence(2, PIPELINE)
    with pytest.raises(Fenced):
        able(old).truncate(output.publication(5), at(1))
    assert world.shown() == SHOWN
    assert world.open().position().point == at(4)


def test_a_rewind_that_comes_late_is_refused(world: World, output: Output) -> None:
    sink = filled(world, output)
    with pytest.raises(Refused):
        able(sink).truncate(output.publication(3, digest="3" * 64), at(1))
    assert world.shown() == SHOWN


class CutAt:
    """Raises at the nth call."""

    def __init__(self, nth: int) -> None:
        self.nth, self.seen = nth, 0

    def __call__(self, call: str) -> None:
        self.seen += 1
        if self.seen == self.nth:
            raise Killed(call)


def is_whole(found: Shown) -> bool:
    """As the sink was at some epoch."""
    return found in (of(), of(1), of(1, 3), SHOWN)


def rewound(sink: Sink, output: Output, *, generation: int) -> None:
    """As the engine does: claim, and give what is not there yet."""
    here = sink.fence(generation, PIPELINE).point
    if here is None or here.epoch < 5:
        able(sink).truncate(output.publication(5, generation=generation), at(1))


def test_killed_at_any_call_it_is_as_before_or_as_then(make: MakeWorld, output: Output) -> None:
    whole, world = CutAt(0), make()
    filled(world, output)
    rewound(world.open(whole), output, generation=2)
    assert whole.seen >= 2
    for nth in range(1, whole.seen + 1):
        world = make()
        filled(world, output)
        with pytest.raises(Killed):
            rewound(world.open(CutAt(nth)), output, generation=2)
        assert is_whole(world.shown()), f"a mixture after call {nth}"
        rewound(world.open(), output, generation=3)
        assert world.shown() == of(1), f"killed at call {nth}"
        world.open().publish(output.publication(6, [[8]], generation=3))
        assert world.shown() == of(1, 6)


def test_a_process_that_was_paused_in_the_middle_changes_nothing_any_more(
    make: MakeWorld, output: Output
) -> None:
    """Meanwhile newer ones have finished the rewind, gone on, and rewound twice more."""

    def newer(world: World) -> None:
        sink = world.open()
        rewound(sink, output, generation=3)
        sink.publish(output.publication(6, [[8]], generation=3))
        able(sink).truncate(output.publication(7, generation=3), at(3))
        sink.publish(output.publication(9, [[9]], generation=3))
        able(sink).truncate(output.publication(10, generation=3), at(4))
        able(sink).truncate(output.publication(11, generation=3), at(6))
        sink.publish(output.publication(12, [[10, 11]], generation=3))

    class Pause(CutAt):
        def __call__(self, call: str) -> None:
            self.seen += 1
            if self.seen == self.nth:
                newer(world)

    whole, world = CutAt(0), make()
    filled(world, output)
    rewound(world.open(whole), output, generation=2)
    for nth in range(1, whole.seen + 1):
        world = make()
        filled(world, output)
        with suppress(Fenced, Refused):
            rewound(world.open(Pause(nth)), output, generation=2)
        assert world.shown() == of(1, 6, 12), f"paused at call {nth}"
        assert world.open().position().point == at(12)


def test_a_process_that_was_paused_while_it_showed_rows_again_shows_no_more(
    make: MakeWorld, output: Output
) -> None:
    """Meanwhile a newer one has finished that, and has taken the rows back once more."""

    def forward(sink: Sink, *, generation: int) -> None:
        here = sink.fence(generation, PIPELINE).point
        if here is None or here.epoch < 6:
            able(sink).truncate(output.publication(6, generation=generation), at(4))

    class Pause(CutAt):
        def __call__(self, call: str) -> None:
            self.seen += 1
            if self.seen == self.nth:
                sink = world.open()
                forward(sink, generation=3)
                able(sink).truncate(output.publication(7, generation=3), at(1))
                sink.publish(output.publication(8, generation=3))
                sink.publish(output.publication(9, [[9]], generation=3))

    def begun() -> World:
        made = make()
        able(filled(made, output)).truncate(output.publication(5), at(1))
        return made

    whole, world = CutAt(0), begun()
    forward(world.open(whole), generation=2)
    for nth in range(1, whole.seen + 1):
        world = begun()
        with suppress(Fenced, Refused):
            forward(world.open(Pause(nth)), generation=2)
        assert world.shown() == of(1, 9), f"paused at call {nth}"


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_epochs_and_rewinds(seed: int, world: World, output: Output) -> None:
    """Against a plain list of what was shown at each epoch."""
    chance = random.Random(seed)
    sink, then, now = world.open(), dict[int, list[int]](), list[int]()
    sink.fence(1, PIPELINE)
    for epoch in range(1, 13):
        if then and chance.random() < 0.4:
            to = chance.choice(sorted(then))
            able(sink).truncate(output.publication(epoch), at(to))
            now = then[to]
        else:
            rows = (SHOWN | LATER).get(epoch, [])
            sink.publish(output.publication(epoch, [rows] if rows else []))
            now = [*now, *rows]
        then[epoch] = now
        assert sorted(v for rows in world.shown().values() for v in rows) == sorted(now)
