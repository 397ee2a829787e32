"""Every state that a crash may leave, at every call of a scripted life: recovery is exact."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from lamina.errors import LaminaError
from lamina.format.commit import Point
from lamina.format.manifest_model import ConnectorCheckpoint
from lamina.store import MemoryStore
from lamina.wal.standalone import CoreWalWriter, replay_core
from lamina.wal.standalone.writer import OPERATOR
from tests.crash.disk import Call, Image, Platter, RecordingDisk
from tests.crash.pipeline import (
    COUNTS,
    Broken,
    Changes,
    Process,
    Truth,
    applied,
    batch_of,
    entries_of,
    write_entries,
)

STATES_AT_A_CALL = 160
"""Where the unsynced parts of several files give more combinations, a sample of them is tried."""


@dataclass(frozen=True)
class Crash:
    """A moment at which the power may go: what is on disk and in the store, what was promised."""

    call: str
    images: tuple[Image, ...]
    objects: dict[str, bytes]
    acked: tuple[Point, ...]


@dataclass
class Recorder:
    """Looks at the platter after every call that changes something."""

    truth: Truth
    store: MemoryStore
    random: Random
    platter: Platter = field(default_factory=Platter)
    crashes: list[Crash] = field(default_factory=list)
    seen: set[bytes] = field(default_factory=set)

    def hook(self, call: Call) -> None:
        if call.changes:
            self.look(str(call))

    def look(self, what: str) -> None:
        """Keep the states that were not seen with these promises before."""
        objects = dict(self.store._objects)
        acked = tuple(self.truth.acked)
        found = (self.platter.image(), *self._cut())
        new = tuple(image for image in found if self._is_new(image, objects, acked))
        if new:
            self.crashes.append(Crash(what, new, objects, acked))

    def _cut(self) -> Iterator[Image]:
        return self.platter.crash_images(self.random, at_most=STATES_AT_A_CALL)

    def _is_new(self, image: Image, objects: dict[str, bytes], acked: tuple[Point, ...]) -> bool:
        digest = hashlib.sha256(repr((sorted(image.items()), [*objects], len(acked))).encode())
        new = digest.digest() not in self.seen
        self.seen.add(digest.digest())
        return new

    @property
    def states(self) -> int:
        return sum(len(crash.images) for crash in self.crashes)


class WatchedMemory(MemoryStore):
    """Tells when an object has come: a crash may fall between two of them."""

    watch: Callable[[str], None] = staticmethod(lambda _: None)

    def put_if_absent(self, key: str, data: object) -> None:
        super().put_if_absent(key, data)  # type: ignore[arg-type]
        self.watch(f"put {key}")


def changes(number: int) -> Changes:
    """Puts, an overwrite, a delete, and a batch of the second operator on one of the cores."""
    key = f"k{number % 3}".encode()
    gone = f"k{(number + 1) % 3}".encode()
    return {
        (OPERATOR, 0): {key: f"v{number}".encode(), gone: None},
        (OPERATOR, 1): {b"only": f"v{number}".encode()},
        (COUNTS, number % 2): {b"n": str(number).encode(), key: b"x" * (300 * (number % 4))},
    }


def life(recorder: Recorder, scratch: Path, *, segment_bytes: int) -> None:
    """Two processes: epochs, a barrier, rotation, checkpoints, dropped segments, a take-over."""

    def process(name: str, seed: int) -> Process:
        disk = RecordingDisk(recorder.platter, name=name, hook=recorder.hook)
        return Process(
            disk, recorder.store, recorder.truth, scratch, seed=seed, segment_bytes=segment_bytes
        )

    first = process("first", 1)
    first.start()
    first.epoch(changes(1))
    first.epoch(changes(2), barrier=True)
    first.checkpoint()
    first.epoch(changes(3))
    first.rotate()
    first.small_epoch({b"k0": b"in the driver log" * 300, b"k1": None})
    first.epoch(changes(5))
    first.trim()
    first.disk.kill()
    second = process("second", 2)
    second.start()
    second.epoch(changes(6))
    second.checkpoint()
    second.trim()
    second.rotate()
    second.epoch(changes(7))
    second.close()
    recorder.look("at the end")


@pytest.mark.parametrize("segment_bytes", [1024, 16 * 1024])
def test_every_state_after_a_crash_recovers_to_what_was_acknowledged(
    scratch: Path, segment_bytes: int
) -> None:
    truth = Truth()
    store = WatchedMemory()
    recorder = Recorder(truth, store, Random(11))
    store.watch = recorder.look
    life(recorder, scratch, segment_bytes=segment_bytes)
    assert len(truth.acked) == 7
    for crash in recorder.crashes:
        for number, image in enumerate(crash.images):
            check_recovery(crash, image, truth, scratch, number=number)
    print(f"{recorder.states} states at {len(recorder.crashes)} calls")
    assert len(recorder.crashes) > 100
    assert recorder.states > 1000


def check_recovery(
    crash: Crash, image: Image, truth: Truth, scratch: Path, *, number: int = 0
) -> None:
    """Recover; of every sixth state also go on for an epoch and start again: exact both times."""
    store = MemoryStore()
    for key, data in crash.objects.items():
        store.put(key, data)
    after = Truth(dict(truth.meant), list(crash.acked))
    platter = Platter.of(image)
    try:
        again = Process(RecordingDisk(platter, name="again"), store, after, scratch, seed=1000)
        after.check(again.recover(), crash.acked)
        if number % 6 == 0:
            go_on(again, trim=number % 12 == 0)
    except BaseException as error:
        error.add_note(f"after a crash {crash.call}: {describe(image)}")
        raise


def go_on(process: Process, *, trim: bool) -> None:
    process.go_on()
    if trim:
        process.trim()
    process.epoch(changes(9))
    process.close()
    disk = process.disk.process("last")
    last = Process(disk, process.store, process.truth, process.scratch, seed=2000)
    last.start()
    last.close()


def describe(image: Image) -> str:
    return ", ".join(f"{path} ({len(data)})" for path, data in sorted(image.items()))


def test_without_a_sync_of_the_commit_an_acknowledged_epoch_is_lost(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: the states tell a log that syncs from one that does not."""
    monkeypatch.setattr("lamina.wal.segment.SegmentWriter.sync", lambda self: None)
    truth = Truth()
    store = MemoryStore()
    recorder = Recorder(truth, store, Random(1))
    process = Process(RecordingDisk(recorder.platter), store, truth, scratch, segment_bytes=1 << 20)
    process.start()
    process.epoch(changes(1))
    recorder.look("after the epoch")

    def failure(image: Image) -> str:
        try:
            check_recovery(recorder.crashes[0], image, truth, scratch)
        except (Broken, LaminaError) as error:
            return str(error)
        return ""

    caught = [why for image in recorder.crashes[0].images if (why := failure(image))]
    assert any("acknowledged" in why for why in caught)


# one core's log by itself

HOME = bytes(range(16))


@dataclass
class CoreTruth:
    """What a core's own log was told, and what it has acknowledged."""

    meant: dict[str, tuple[int, dict[bytes, bytes]]] = field(default_factory=dict)
    acked: int = 0  # the epoch


def core_life(disk: RecordingDisk, truth: CoreTruth) -> None:
    """Commits with and without entries, a rotation, a second writer that goes on in the log."""
    with open_core(disk) as writer:
        core_epoch(writer, truth, 1, {b"a": b"1", b"b": b"2"})
        core_epoch(writer, truth, 2, {b"a": None, b"c": b"3" * 700})
        core_epoch(writer, truth, 3, {b"e": b"more than two pages" * 500})
        writer.rotate()
        core_epoch(writer, truth, 4, {})
        writer.append_put(b"never committed", b"")
        writer.sync()
    with open_core(disk) as writer:
        core_epoch(writer, truth, 5, {b"d": b"4"}, batch={b"b": b"5" * 300})
        writer.append_epoch_barrier()
        core_epoch(writer, truth, 6, {b"a": b"6"})


def open_core(disk: RecordingDisk) -> CoreWalWriter:
    return CoreWalWriter(0, disk, home=HOME, segment_bytes=4096)


def core_epoch(
    writer: CoreWalWriter,
    truth: CoreTruth,
    epoch: int,
    entries: dict[bytes, bytes | None],
    *,
    batch: dict[bytes, bytes | None] | None = None,
) -> None:
    before = truth.meant[writer.head.digest][1] if writer.head else {}
    writer.set_epoch(epoch)
    write_entries(writer, OPERATOR, entries)
    if batch:
        writer.append_batch(batch_of(batch))
    place = (OPERATOR, 0)
    after = applied({place: before}, {place: {**entries, **(batch or {})}})
    point = writer.append_commit({"s": ConnectorCheckpoint({"0": str(epoch)}, epoch)}, epoch * 10)
    truth.meant[point.digest] = (epoch, after.get(place, {}))
    writer.sync()
    truth.acked = epoch


def check_core(disk: RecordingDisk, truth: CoreTruth, acked: int) -> int:
    """What replay gives back is one epoch that was committed, none below the acknowledged."""
    replay = replay_core(disk, 0, HOME)
    state: dict[bytes, bytes] = {}
    for _, batch in replay.batches():
        state = applied({("", 0): state}, {("", 0): entries_of(batch)}).get(("", 0), {})
    if not replay.commits:
        assert (acked, state) == (0, {})
        return 0
    last = replay.commits[-1]
    epoch, expected = truth.meant[last.digest]
    assert epoch >= acked
    assert state == expected
    assert last.source_offsets["s"].offsets == {"0": str(epoch)}
    assert last.watermark == epoch * 10
    return epoch


def test_one_core_by_itself_replays_exactly_after_every_crash() -> None:
    truth = CoreTruth()
    platter = Platter()
    random = Random(5)
    crashes: dict[tuple[tuple[str, bytes], ...], tuple[int, str]] = {}

    def look(call: Call) -> None:
        if call.changes:
            for image in (platter.image(), *platter.crash_images(random, at_most=200)):
                crashes[tuple(image.items())] = (truth.acked, str(call))

    core_life(RecordingDisk(platter, hook=look), truth)
    assert truth.acked == 6
    for image, (acked, call) in crashes.items():
        try:
            check_core_goes_on(Platter.of(dict(image)), truth, acked)
        except BaseException as error:
            error.add_note(f"after a crash {call}: {describe(dict(image))}")
            raise
    print(f"{len(crashes)} states")
    assert len(crashes) > 300


def check_core_goes_on(platter: Platter, truth: CoreTruth, acked: int) -> None:
    """Replay, go on with one more epoch, replay again, and once more after another crash."""
    epoch = check_core(RecordingDisk(platter), truth, acked)
    after = CoreTruth(dict(truth.meant), acked)
    if not any(folder == "core-0" for folder in platter.folders):
        return
    with open_core(RecordingDisk(platter)) as writer:
        assert (writer.head.epoch if writer.head else 0) == epoch
        core_epoch(writer, after, 9, {b"z": b"9", b"b": None})
    lost = next(platter.crash_images(Random(0), at_most=1))
    assert check_core(RecordingDisk(platter), after, 9) == 9
    assert check_core(RecordingDisk(Platter.of(lost)), after, 9) == 9
