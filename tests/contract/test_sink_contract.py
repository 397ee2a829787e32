"""What every sink promises, whatever it writes to (R6)."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lamina.connectors.registry import SINKS
from lamina.engine.ports import Change, Publication, Sink
from lamina.errors import (
    Corrupt,
    Diverged,
    Fenced,
    NotFound,
    Refused,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from lamina.testing.faulty import Killed
from tests.contract.sinks import (
    ANOTHER,
    PIPELINE,
    ROWS,
    SHOWN,
    Output,
    ServerWorld,
    Shown,
    World,
)
from tests.contract.worlds import SERVERS, WORLDS, MakeWorld, params


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path / "home")


@pytest.fixture(params=params(list(WORLDS)))
def make(request: pytest.FixtureRequest, tmp_path: Path) -> MakeWorld:
    return WORLDS[request.param].make(request, tmp_path)


@pytest.fixture
def calls(request: pytest.FixtureRequest) -> Callable[[int], range]:
    """The numbers of the calls to cut off at, of so many."""
    return WORLDS[request.node.callspec.params["make"]].calls


@pytest.fixture
def world(make: MakeWorld) -> World:
    return make()


@dataclass
class CutAt:
    """Raises at the nth call."""

    nth: int
    seen: int = 0

    def __call__(self, call: str) -> None:
        self.seen += 1
        if self.seen == self.nth:
            raise Killed(call)


def publish_rest(sink: Sink, output: Output, *, generation: int) -> None:
    """As the engine does: from where the sink says it is, in order."""
    at = sink.fence(generation, PIPELINE).point
    for epoch, rows in ROWS.items():
        if at is None or epoch > at.epoch:
            sink.publish(output.publication(epoch, rows, generation=generation))


def test_rows_and_position_arrive_together(world: World, output: Output) -> None:
    sink = world.open()
    assert sink.fence(1, PIPELINE).point is None
    publish_rest(sink, output, generation=1)
    assert world.shown() == SHOWN
    for each in (sink, world.open()):
        position = each.position()
        assert (position.pipeline, position.generation) == (PIPELINE, 1)
        assert position.point == output.publication(4).point


def test_it_says_what_it_promises_and_which_changes_it_takes(world: World) -> None:
    sink = world.open()
    said = "exactly once" if world.exactly_once else "at least once"
    assert sink.delivery.startswith(said)
    assert Change.APPEND in sink.takes


def test_the_same_publication_twice_is_one(world: World, output: Output) -> None:
    sink = world.open()
    sink.fence(1, PIPELINE)
    for epoch in (1, 3):
        for _ in range(2):
            sink.publish(output.publication(epoch, ROWS[epoch]))
    assert world.shown() == {1: [1, 2, 3], 3: [4]}


def test_an_epoch_that_comes_late_is_refused(world: World, output: Output) -> None:
    sink = world.open()
    sink.fence(1, PIPELINE)
    sink.publish(output.publication(3, ROWS[3]))
    with pytest.raises(Refused):
        sink.publish(output.publication(1, ROWS[1]))
    assert world.shown() == {3: [4]}
    assert sink.position().point == output.publication(3).point


def test_another_history_of_an_epoch_diverges(world: World, output: Output) -> None:
    sink = world.open()
    sink.fence(1, PIPELINE)
    sink.publish(output.publication(1, ROWS[1]))
    with pytest.raises(Diverged):
        sink.publish(output.publication(1, [[9]], digest="ab" * 32))
    assert world.shown() == {1: [1, 2, 3]}
    assert sink.position().point == output.publication(1).point


def test_another_pipelines_rows_are_refused(world: World, output: Output) -> None:
    sink = world.open()
    sink.fence(1, PIPELINE)
    sink.publish(output.publication(1, ROWS[1]))
    with pytest.raises(Refused):
        sink.publish(output.publication(3, ROWS[3], pipeline=ANOTHER))
    assert world.shown() == {1: [1, 2, 3]}


def test_a_claim_of_another_pipeline_is_refused_with_nothing_changed(
    world: World, output: Output
) -> None:
    """It fenced the sinks of the pipeline that ran, which died."""
    sink = world.open()
    sink.fence(1, PIPELINE)
    before = world.open().position()
    with pytest.raises(Refused):
        world.open().fence(5, ANOTHER)
    assert world.open().position() == before
    sink.publish(output.publication(1, ROWS[1]))
    assert world.shown() == {1: [1, 2, 3]}


def test_a_lower_generation_is_fenced_before_any_effect(world: World, output: Output) -> None:
    old, new = world.open(), world.open()
    old.fence(1, PIPELINE)
    old.publish(output.publication(1, ROWS[1]))
    assert new.fence(7, PIPELINE).point == output.publication(1).point
    before = world.shown(), world.open().position()
    for attempt in (
        lambda: old.publish(output.publication(3, ROWS[3])),
        lambda: old.publish(output.publication(1, ROWS[1])),
        lambda: old.fence(6, PIPELINE),
    ):
        with pytest.raises(Fenced):
            attempt()
        assert (world.shown(), world.open().position()) == before
    new.publish(output.publication(3, ROWS[3], generation=7))
    assert world.shown() == {1: [1, 2, 3], 3: [4]}


def test_a_claim_of_its_own_generation_may_be_repeated(world: World, output: Output) -> None:
    sink = world.open()
    sink.fence(3, PIPELINE)
    sink.publish(output.publication(1, ROWS[1], generation=3))
    assert sink.fence(3, PIPELINE) == sink.position()
    assert world.shown() == {1: [1, 2, 3]}


def test_a_publication_of_a_higher_generation_fences_too(world: World, output: Output) -> None:
    """A process that takes a home over goes on one generation above its fence."""
    old, new = world.open(), world.open()
    old.fence(1, PIPELINE)
    new.fence(2, PIPELINE)
    new.publish(output.publication(1, ROWS[1], generation=3))
    with pytest.raises(Fenced):
        world.open().fence(2, PIPELINE)
    assert world.open().position().generation == 3


def test_killed_at_any_call_and_started_again_every_epoch_is_there_once(
    make: MakeWorld, output: Output, calls: Callable[[int], range]
) -> None:
    whole = CutAt(0)
    publish_rest(make().open(whole), output, generation=1)
    assert whole.seen >= 2
    for nth in calls(whole.seen):
        world = make()
        with pytest.raises(Killed):
            publish_rest(world.open(CutAt(nth)), output, generation=1)
        for epoch, rows in world.shown().items():
            assert rows == SHOWN[epoch], f"a reader sees half an epoch after call {nth}"
        again = world.open()
        publish_rest(again, output, generation=2)
        assert world.shown() == SHOWN, f"killed at call {nth}"
        assert world.open().position() == again.position()


def test_a_full_disk_at_any_call_is_tried_again_by_the_same_process(
    make: MakeWorld, output: Output, calls: Callable[[int], range]
) -> None:
    class Full:
        def __init__(self, nth: int) -> None:
            self.nth, self.seen = nth, 0

        def __call__(self, call: str) -> None:
            self.seen += 1
            if self.seen == self.nth:
                raise OSError(errno.ENOSPC, "no space left")

    whole = Full(0)
    publish_rest(make().open(whole), output, generation=1)
    for nth in calls(whole.seen):
        world = make()
        sink = world.open(Full(nth))
        for _ in range(2):
            with suppress(StoreFull, OSError):
                publish_rest(sink, output, generation=1)
                break
            for epoch, rows in world.shown().items():
                assert rows == SHOWN[epoch], f"half an epoch after call {nth}"
        assert world.shown() == SHOWN, f"the disk was full at call {nth}"


def test_staged_output_that_is_gone_or_damaged_is_not_shown(world: World, output: Output) -> None:
    sink = world.open()
    sink.fence(1, PIPELINE)
    publication = output.publication(1, ROWS[1])
    path = output.home / publication.files[1].path
    whole = path.read_bytes()
    damaged = (whole[:-1], bytes([whole[0] ^ 1]) + whole[1:], whole + b"x")
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(Corrupt) as raised:
            sink.publish(publication)
        assert raised.value.where == str(path)
    path.unlink()
    with pytest.raises(NotFound):
        sink.publish(publication)
    assert world.shown() == {}
    assert sink.position().point is None
    path.write_bytes(whole)
    sink.publish(publication)
    assert world.shown() == {1: [1, 2, 3]}


def test_an_epoch_without_rows_moves_the_position(world: World, output: Output) -> None:
    sink = world.open()
    sink.fence(1, PIPELINE)
    sink.publish(output.publication(2))
    assert world.shown() == {}
    assert world.open().position().point == output.publication(2).point


def test_an_epoch_with_a_column_of_an_older_stream_is_shown_or_refused(
    world: World, output: Output
) -> None:
    """It was decided before the SELECT dropped the column, and is published by the next start."""
    sink = world.open()
    sink.fence(1, PIPELINE)
    sink.publish(output.publication(1, ROWS[1]))
    older, said = output.publication(3, ROWS[3], also="gone"), ""
    try:
        sink.publish(older)
    except Refused as refused:
        said = str(refused)
    if said:
        assert "gone" in said
        assert world.shown() == {1: SHOWN[1]}
        assert sink.position().point == output.publication(1).point
    else:
        assert world.shown() == {1: SHOWN[1], 3: SHOWN[3]}
        assert sink.position().point == older.point


def test_output_of_a_place_that_is_no_folder_here_is_copied(world: World, output: Output) -> None:
    """Staged files need not be files of this machine."""

    class Elsewhere:
        def __init__(self, publication: Publication) -> None:
            self._staged = publication.staged
            self.open, self.where = self._staged.open, self._staged.where

        def local_path(self, file: object) -> None:
            return None

    sink = world.open()
    sink.fence(1, PIPELINE)
    publication = output.publication(1, ROWS[1])
    sink.publish(replace(publication, staged=Elsewhere(publication)))
    assert world.shown() == {1: [1, 2, 3]}


def test_every_kind_of_sink_is_asked() -> None:
    assert {row.kind for row in WORLDS.values()} - {None} == set(SINKS)


def test_a_reader_never_sees_half_an_epoch(world: World, output: Output) -> None:
    """It looks again and again while epochs are published."""
    sink, seen, done = world.open(), list[Shown](), threading.Event()
    sink.fence(1, PIPELINE)

    def read() -> None:
        while not done.is_set():
            seen.append(world.shown())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for epoch, rows in ROWS.items():
            sink.publish(output.publication(epoch, rows))
    finally:
        done.set()
        reader.join()
    for shown in (*seen, world.shown()):
        assert shown == {epoch: SHOWN[epoch] for epoch in shown}
    sink.close()


def test_of_two_processes_at_once_one_goes_on_and_nothing_is_doubled(
    world: World, output: Output
) -> None:
    if not world.exactly_once:
        pytest.skip("its position is in the home, whose lock lets one process in")
    ended: dict[int, BaseException | None] = {}

    def run(generation: int) -> None:
        sink = world.open()
        try:
            publish_rest(sink, output, generation=generation)
            ended[generation] = None
        except BaseException as error:  # noqa: BLE001  looked at below
            ended[generation] = error
        finally:
            sink.close()

    for epoch, rows in ROWS.items():
        output.publication(epoch, rows)  # both get the same staged files
    threads = [threading.Thread(target=run, args=(generation,)) for generation in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert isinstance(ended[1], Fenced | Refused | None), ended[1]
    assert ended[2] is None, ended[2]
    assert world.shown() == SHOWN
    assert world.open().position().generation == 2


UP_AGAIN_S = 60.0


@pytest.mark.parametrize("name", params(SERVERS))
def test_while_the_outside_system_is_down_it_says_so_and_goes_on_after_that(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, output: Output
) -> None:
    world = WORLDS[name].make(request, tmp_path)()
    assert isinstance(world, ServerWorld)
    sink = world.open()
    sink.fence(1, PIPELINE)
    sink.publish(output.publication(1, ROWS[1]))
    with world.down():
        with pytest.raises(StoreError):
            sink.publish(output.publication(2))
        with pytest.raises(StoreError):
            world.open().position()
    started = time.monotonic()
    for epoch in (2, 3, 4):
        while True:  # a server that has just started may need a moment, and says so
            try:
                sink.publish(output.publication(epoch, ROWS[epoch]))
                break
            except StoreUnavailable:
                if time.monotonic() - started > UP_AGAIN_S:
                    raise
                time.sleep(0.2)
    assert world.shown() == SHOWN
    sink.close()
