"""The Parquet sink killed, cut off and paused at every call: nothing lost, doubled or late."""

from __future__ import annotations

import copy
import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pytest

from lamina.connectors.sink_log import DROP_EVERY, KEPT
from lamina.engine.ports import Sink
from lamina.errors import Diverged, Fenced, NotFound, Refused, StoreFull
from lamina.format.pipeline_record import Owner
from lamina.format.sink_log import encode_marker
from lamina.testing.faulty import Killed
from tests.contract.crash_files import CrashFiles, Platter
from tests.contract.sinks import PIPELINE, ROOT, Output, ParquetWorld, Shown
from tests.contract.test_sink_contract import ROWS, SHOWN, CutAt, publish_rest


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path / "home")


@dataclass
class At:
    """Does something at the nth call, once."""

    nth: int
    act: Callable[[], None]
    seen: int = 0

    def __call__(self, call: str) -> None:
        self.seen += 1
        if self.seen == self.nth:
            self.act()


def seen_by_reader(platter: Platter) -> Shown:
    return ParquetWorld(platter).shown()


def publish_noting(sink: Sink, output: Output, acked: list[int]) -> None:
    sink.fence(1, PIPELINE)
    for epoch, rows in ROWS.items():
        sink.publish(output.publication(epoch, rows))
        acked.append(epoch)


def test_a_power_cut_at_any_call_leaves_whole_epochs_and_all_that_were_published(
    output: Output,
) -> None:
    """Killed between rename and sync, the folder stayed unsynced for good."""
    whole = CutAt(0)
    publish_noting(ParquetWorld().open(whole), output, [])
    for nth in range(1, whole.seen + 1):
        world, acked = ParquetWorld(), list[int]()
        with pytest.raises(Killed):
            publish_noting(world.open(CutAt(nth)), output, acked)
        for state in world.platter.cut_states():
            after, seen = ParquetWorld(state), seen_by_reader(state)
            assert all(seen[e] == SHOWN[e] for e in seen), f"half an epoch after call {nth}"
            assert {e for e in acked if ROWS[e]} <= set(seen), f"epoch lost after call {nth}"
            publish_rest(after.open(), output, generation=2)
            assert after.shown() == SHOWN
            assert seen_by_reader(state.synced()) == SHOWN, f"not durable after call {nth}"


def test_killed_at_any_call_and_recovered_everything_is_durable(output: Output) -> None:
    """Without a power cut in between: names that the first process never synced are synced."""
    whole = CutAt(0)
    publish_noting(ParquetWorld().open(whole), output, [])
    for nth in range(1, whole.seen + 1):
        world = ParquetWorld()
        with pytest.raises(Killed):
            publish_noting(world.open(CutAt(nth)), output, [])
        position = world.open().fence(2, PIPELINE)
        wanted = {e: r for e, r in SHOWN.items() if position.point and e <= position.point.epoch}
        durable = world.platter.synced()
        assert seen_by_reader(durable) == wanted, f"after call {nth}"
        assert ParquetWorld(durable).open().position() == position


def test_recovery_killed_at_any_call_is_recovered(output: Output) -> None:
    for nth in range(1, 60):
        world = ParquetWorld()
        with pytest.raises(Killed):
            publish_noting(world.open(CutAt(40)), output, [])
        with pytest.raises(Killed):
            publish_rest(world.open(CutAt(nth)), output, generation=2)
        publish_rest(world.open(), output, generation=3)
        assert seen_by_reader(world.platter.synced()) == SHOWN


def test_a_process_paused_at_any_call_shows_nothing_after_a_newer_one_has_claimed(
    output: Output,
) -> None:
    """It had looked for fences, was paused, and then renamed."""
    whole = At(0, lambda: None)
    _publish_third(ParquetWorld(), whole, output)
    for nth in range(1, whole.seen + 1):
        world, at_claim = ParquetWorld(), list[Shown]()

        def newer(world: ParquetWorld = world, at_claim: list[Shown] = at_claim) -> None:
            sink = world.open()
            at = sink.fence(2, PIPELINE).point
            at_claim.append(world.shown())
            assert at is not None
            assert (3 in at_claim[0]) == (at.epoch == 3), "the position is what readers see"

        _publish_third(world, At(nth, newer), output)
        assert [world.shown()] == at_claim, f"paused at call {nth}"
        publish_rest(world.open(), output, generation=3)
        assert world.shown() == SHOWN


@pytest.mark.parametrize("epochs", [1, DROP_EVERY + KEPT + 1])
def test_a_process_paused_while_the_log_went_on_shows_nothing(epochs: int, output: Output) -> None:
    """Also if the number that it was about to take was used and dropped meanwhile."""
    whole = At(0, lambda: None)
    _publish_third(ParquetWorld(), whole, output)
    for nth in range(1, whole.seen + 1):
        world = ParquetWorld()

        def newer(world: ParquetWorld = world) -> None:
            sink = world.open()
            at = sink.fence(2, PIPELINE).point
            assert at is not None
            for epoch in range(at.epoch + 1, at.epoch + 1 + epochs):
                sink.publish(output.publication(epoch, [[epoch]], generation=2, digest="f" * 64))

        _publish_third(world, At(nth, newer), output)
        shown = world.shown()
        assert shown[1] == [1, 2, 3]
        decided = world.open().position().point
        assert decided is not None
        assert max(shown) == decided.epoch
        assert all(rows == [e] for e, rows in shown.items() if e > 3), f"paused at call {nth}"
        assert shown[3] in ([3], [4]), "one of both histories, not both"


def _publish_third(world: ParquetWorld, hook: At, output: Output) -> None:
    """Epochs 1 and 2, then the third one with *hook*; the process may find itself fenced."""
    first = world.open()
    first.fence(1, PIPELINE)
    first.publish(output.publication(1, ROWS[1]))
    first.publish(output.publication(2))
    files = first._files  # type: ignore[attr-defined]
    files._hook = hook
    try:
        first.publish(output.publication(3, ROWS[3]))
    except Fenced:
        return
    if hook.nth:
        with pytest.raises(Fenced):
            first.publish(output.publication(4, ROWS[4]))


def test_a_claim_paused_at_any_call_takes_nothing_from_a_newer_one(output: Output) -> None:
    """It would sweep what the newer one prepares, or has decided and not shown yet."""
    whole, last = At(0, lambda: None), At(0, lambda: None)
    _old_epoch(ParquetWorld(), output).open(whole).fence(2, PIPELINE)
    _publish_third(ParquetWorld(), last, output)
    for nth in range(1, whole.seen + 1):
        for stop in range(1, last.seen + 2):
            world = _old_epoch(ParquetWorld(), output)

            def newest(world: ParquetWorld = world, stop: int = stop) -> None:
                sink = world.open()
                sink.fence(3, PIPELINE)
                cut = CutAt(stop)
                sink._files._hook = cut  # type: ignore[attr-defined]
                try:
                    sink.publish(output.publication(3, ROWS[3], generation=3))
                except Killed:
                    return

            with suppress(Fenced):
                world.open(At(nth, newest)).fence(2, PIPELINE)
            publish_rest(world.open(), output, generation=4)
            assert world.shown() == SHOWN, f"claim paused at {nth}, the newer one killed at {stop}"


def _old_epoch(world: ParquetWorld, output: Output) -> ParquetWorld:
    sink = world.open()
    sink.fence(1, PIPELINE)
    sink.publish(output.publication(1, ROWS[1]))
    return world


def test_a_publication_during_a_claim_counts_or_is_fenced(output: Output) -> None:
    whole = At(0, lambda: None)
    _old_epoch(ParquetWorld(), output).open(whole).fence(2, PIPELINE)
    for nth in range(1, whole.seen + 1):
        world = ParquetWorld()
        old = world.open()
        old.fence(1, PIPELINE)
        old.publish(output.publication(1, ROWS[1]))
        done: list[bool] = []

        def publish(old: Sink = old, done: list[bool] = done) -> None:
            try:
                old.publish(output.publication(3, ROWS[3]))
            except Fenced:
                done.append(False)
            else:
                done.append(True)

        at = world.open(At(nth, publish)).fence(2, PIPELINE).point
        assert at is not None
        assert done == [at.epoch == 3]
        assert (3 in world.shown()) == done[0]


def test_the_log_stays_small_however_many_epochs_there_are(output: Output) -> None:
    world = ParquetWorld()
    sink = world.open()
    sink.fence(1, PIPELINE)
    most = 0
    for epoch in range(1, 1000):
        sink.publish(output.publication(epoch))
        most = max(most, len(world.platter.tree(ROOT)))
    assert most <= DROP_EVERY + KEPT + 4
    for generation in range(2, 300):
        world.open().fence(generation, PIPELINE)
    assert len(world.platter.tree(ROOT)) <= KEPT + 4
    assert world.open().position().point == output.publication(999).point


def test_dropping_old_entries_killed_at_any_call_loses_no_position(output: Output) -> None:
    first = ParquetWorld()
    sink = first.open()
    sink.fence(1, PIPELINE)
    last = DROP_EVERY - 2
    for epoch in range(1, last + 1):
        sink.publish(output.publication(epoch))
    whole = CutAt(0)
    _publish_on(copy.deepcopy(first), whole, output, last + 1)
    for nth in range(1, whole.seen + 1):
        world = copy.deepcopy(first)
        with pytest.raises(Killed):
            _publish_on(world, CutAt(nth), output, last + 1)
        for state in (world.platter.synced(), world.platter):
            point = ParquetWorld(state).open().fence(3, PIPELINE).point
            assert point is not None
            assert point.epoch in (last, last + 1)
            assert len(state.tree(ROOT)) <= KEPT + 4


def _publish_on(world: ParquetWorld, hook: CutAt, output: Output, epoch: int) -> None:
    sink = world.open(hook)
    sink.publish(output.publication(epoch, [[1]]))


@pytest.mark.parametrize("call", ["create", "link", "rename", "sync", "mkdir"])
def test_a_disk_that_is_full_at_any_call_shows_nothing_by_half_and_is_tried_again(
    call: str, output: Output
) -> None:
    """The same process tries again, as the engine lets it; nobody calls fence in between."""

    class Full:
        def __init__(self, nth: int) -> None:
            self.nth, self.seen = nth, 0

        def __call__(self, told: str) -> None:
            self.seen += told.split(maxsplit=1)[0] == call
            if self.seen == self.nth:
                self.nth = 0
                raise OSError(errno.ENOSPC, "no space left")

    hits = 0
    for nth in range(1, 80):
        world, full = ParquetWorld(), Full(nth)
        sink = world.open(full)
        try:
            sink.fence(1, PIPELINE)
        except StoreFull:
            sink.fence(1, PIPELINE)
        for epoch, rows in ROWS.items():
            for _ in range(2):
                try:
                    if sink.position().point != output.publication(epoch).point:
                        sink.publish(output.publication(epoch, rows))
                except StoreFull:
                    hits += 1
                    seen = world.shown()
                    assert all(seen[e] == SHOWN[e] for e in seen)
                    assert len(undecided(world)) <= 1
                    continue
                break
            assert not undecided(world), "what could not be decided takes no room"
        durable = world.platter.synced()
        assert seen_by_reader(durable) == SHOWN
        assert ParquetWorld(durable).open().position() == sink.position()
    assert hits or call == "mkdir"


def undecided(world: ParquetWorld) -> set[str]:
    """Prepared folders with something in them."""
    return {path.split("/")[0] for path in world.platter.tree(ROOT) if path.startswith(".epoch-")}


def test_what_was_prepared_in_vain_takes_no_room(output: Output) -> None:
    def full(told: str) -> None:
        if told == "half _lamina.json":
            raise OSError(errno.ENOSPC, "no space left")

    world = ParquetWorld()
    sink = world.open(full)
    sink.fence(1, PIPELINE)
    with pytest.raises(StoreFull):
        sink.publish(output.publication(1, ROWS[1]))
    assert not undecided(world)


def test_output_that_somebody_removed_before_it_was_shown_is_missed(output: Output) -> None:
    world = ParquetWorld()
    other = CrashFiles(world.platter, "other")

    def removing(told: str) -> None:
        if told.startswith("rename .epoch"):
            other.remove(ROOT / told.split()[1])

    sink = world.open(removing)
    sink.fence(1, PIPELINE)
    with pytest.raises(NotFound, match="prepared output of an epoch is gone"):
        sink.publish(output.publication(1, ROWS[1]))


def test_output_that_an_older_release_renamed_and_did_not_sync_becomes_durable(
    output: Output,
) -> None:
    world, publication = ParquetWorld(), output.publication(1, [[1]])
    sink, files = world.open(), CrashFiles(world.platter, "other")
    sink.fence(1, PIPELINE)
    hidden = ROOT / f".epoch-{1:020d}-{1:020d}"
    files.mkdir(hidden)
    files.link(output.home / publication.files[0].path, hidden / "part-00000.parquet")
    marker = encode_marker("p", publication.point, 1)
    files.create(hidden / "_lamina.json", BytesIO(marker))
    files.sync(hidden)
    files.rename(hidden, ROOT / f"epoch-{1:020d}")
    sink.publish(publication)
    assert seen_by_reader(world.platter.synced()) == {1: [1]}


def test_a_folder_in_the_way_is_never_taken_for_output(output: Output) -> None:
    world = ParquetWorld()
    sink = world.open()
    sink.fence(1, PIPELINE)
    files = CrashFiles(world.platter, "other")
    for name in ("epoch-00000000000000000001", "epoch-00000000000000000003"):
        files.mkdir(ROOT / name)
        files.create(ROOT / name / "notes.txt", BytesIO(b"mine"))
    with pytest.raises(Diverged, match="another folder is") as raised:
        sink.publish(output.publication(1, ROWS[1]))
    assert raised.value.where == str(ROOT / "epoch-00000000000000000001")
    assert sink.position().point is None
    files.remove(ROOT / "epoch-00000000000000000001")
    sink.publish(output.publication(1, ROWS[1]))
    assert world.shown() == {1: [1, 2, 3]}


def test_a_folder_that_comes_in_the_way_after_the_decision_stops_and_loses_nothing(
    output: Output,
) -> None:
    target, world = ROOT / "epoch-00000000000000000001", ParquetWorld()
    files = CrashFiles(world.platter, "other")

    def in_the_way(told: str) -> None:
        if told.startswith("rename ."):
            files.mkdir(target)
            if not files.exists(target / "notes.txt"):
                files.create(target / "notes.txt", BytesIO(b"mine"))

    sink = world.open(in_the_way)
    sink.fence(1, PIPELINE)
    with pytest.raises(Diverged, match="another folder is"):
        sink.publish(output.publication(1, ROWS[1]))
    with pytest.raises(Diverged):
        world.open().fence(2, PIPELINE)
    files.remove(target)
    assert world.open().fence(3, PIPELINE).point == output.publication(1).point
    assert world.shown() == {1: [1, 2, 3]}


def test_a_claim_paused_at_any_call_takes_no_sink_that_became_another_pipelines() -> None:
    """Both are new, so that no generation tells them apart."""
    other = Owner("ff" * 16, "another")
    calls = At(0, lambda: None)
    ParquetWorld().open(calls).fence(1, PIPELINE)
    for nth in range(1, calls.seen + 1):
        world, got = ParquetWorld(), list[Owner]()

        def come_in_between(world: ParquetWorld = world, got: list[Owner] = got) -> None:
            with suppress(Refused):
                got.append(world.open().fence(1, other).pipeline)

        with suppress(Refused):
            got.append(world.open(At(nth, come_in_between)).fence(1, PIPELINE).pipeline)
        assert len(got) == 1, f"both have the sink, paused at call {nth}"
        assert world.open().position().pipeline == got[0]
