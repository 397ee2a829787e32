"""Every state that a crash may leave of an embedded store's log: the store opens at an exact epoch.

Local run files are no part of it: they are made again, and nothing of an earlier process is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from lamina.checkpoint import Checkpointer
from lamina.embedded import EmbeddedStore
from lamina.embedded.opening import open_home
from lamina.errors import LaminaError
from lamina.recovery import RecoveryConfig
from lamina.store import MemoryStore
from lamina.testing import ManualClock
from tests.crash.disk import Call, Image, Platter, RecordingDisk
from tests.crash.test_crash_states import WatchedMemory, describe
from tests.support.embedded_stores import KEY, SUM, VALUE, as_dict, kill, rows
from tests.support.workspaces import workspace

STATES_AT_A_CALL = 60
"""Where the unsynced parts give more combinations, a sample of them is tried."""
CONFIG = RecoveryConfig(max_concurrent=1)


@dataclass(frozen=True)
class Content:
    """What a program sees of its store at one epoch."""

    epoch: int
    state: dict[bytes, bytes]
    sums: dict[int, int]
    offset: str | None
    watermark: int | None


def content_of(store: EmbeddedStore) -> Content:
    source = store.offsets.get("s")
    return Content(
        store.epoch,
        dict(store.scan()),
        as_dict(store.table("sums", KEY, VALUE)),
        source.offsets["at"] if source else None,
        store.watermark,
    )


@dataclass
class Truth:
    """What every epoch means, told before its commit; and which were acknowledged."""

    meant: dict[int, Content] = field(default_factory=lambda: {0: Content(0, {}, {}, None, None)})
    acked: int = 0
    head: int = 0  # what the next epoch is made from

    def tell(self, epoch: int, content: Content) -> None:
        self.meant[epoch] = content

    def acknowledge(self, epoch: int) -> None:
        self.acked = self.head = epoch


@dataclass(frozen=True)
class Crash:
    call: str
    images: tuple[Image, ...]
    objects: dict[str, bytes]
    acked: int


@dataclass
class Recorder:
    """Looks at the platter after every call that changes something."""

    truth: Truth
    store: WatchedMemory
    random: Random
    platter: Platter = field(default_factory=Platter)
    crashes: list[Crash] = field(default_factory=list)
    seen: set[bytes] = field(default_factory=set)

    def hook(self, call: Call) -> None:
        if call.changes:
            self.look(str(call))

    def look(self, what: str) -> None:
        objects = dict(self.store._objects)
        new = tuple(image for image in self._images() if self._is_new(image, objects))
        if new:
            self.crashes.append(Crash(what, new, objects, self.truth.acked))

    def _images(self) -> Iterator[Image]:
        yield self.platter.image()
        yield from self.platter.crash_images(self.random, at_most=STATES_AT_A_CALL)

    def _is_new(self, image: Image, objects: dict[str, bytes]) -> bool:
        text = repr((sorted(image.items()), [*objects], self.truth.acked))
        digest = hashlib.sha256(text.encode()).digest()
        new = digest not in self.seen
        self.seen.add(digest)
        return new


def open_on(
    disk: RecordingDisk,
    objects: MemoryStore,
    scratch: Path,
    *,
    seed: int,
    partitions: int | None = None,
) -> EmbeddedStore:
    checkpointer = Checkpointer(objects, max_concurrent_uploads=1, clock=ManualClock(seed))
    space = workspace(disk, scratch)
    return open_home(space, checkpointer, config=CONFIG, partitions=partitions, retain=1)


def epoch(store: EmbeddedStore, truth: Truth, number: int) -> None:
    """Puts, an overwrite, a delete, a sum; the model is told first."""
    before = truth.meant[truth.head]
    key, gone = b"k%d" % (number % 3), b"k%d" % ((number + 1) % 3)
    state = {**before.state, key: b"v%d" % number * (1 + 40 * (number % 3))}
    state.pop(gone, None)
    sums = before.sums | {n: before.sums.get(n, 0) + number for n in (number % 4, 9)}
    next_epoch = store._next_epoch
    truth.tell(next_epoch, Content(next_epoch, state, sums, str(number), number * 10))
    store.put(key, state[key])
    store.delete(gone)
    table = store.table("sums", KEY, VALUE, merges=SUM)
    table.write(rows(dict.fromkeys({number % 4, 9}, number)))
    assert store.commit(offsets={"s": {"at": str(number)}}, watermark=number * 10) == next_epoch
    truth.acknowledge(next_epoch)


def rewind(store: EmbeddedStore, truth: Truth, to: int) -> None:
    there, number = truth.meant[to], store._next_epoch
    truth.tell(number, Content(number, there.state, there.sums, there.offset, there.watermark))
    assert store.rewind(to) == number
    truth.acknowledge(number)


def life(recorder: Recorder, scratch: Path) -> None:
    """Two processes: epochs, merges, checkpoints, dropped segments, a rewind, another P."""
    truth = recorder.truth

    def process(name: str, seed: int, partitions: int) -> EmbeddedStore:
        disk = RecordingDisk(recorder.platter, name=name, hook=recorder.hook)
        return open_on(disk, recorder.store, scratch, seed=seed, partitions=partitions)

    first = process("first", 1, partitions=2)
    for number in (1, 2):
        epoch(first, truth, number)
    first.checkpoint()
    for number in (3, 4, 5):
        epoch(first, truth, number)
    first.checkpoint()
    epoch(first, truth, 6)
    kill(first)
    second = process("second", 2, partitions=1)
    epoch(second, truth, 7)
    rewind(second, truth, 5)
    epoch(second, truth, 8)
    second.checkpoint()
    second.close()
    recorder.look("at the end")


def check(crash: Crash, image: Image, truth: Truth, scratch: Path, *, go_on: bool) -> None:
    """The store opens at what was acknowledged, or at the one epoch that was on its way."""
    objects = MemoryStore()
    for key, data in crash.objects.items():
        objects.put(key, data)
    platter = Platter.of(image)
    store = open_on(RecordingDisk(platter, name="again"), objects, scratch, seed=1000)
    found = content_of(store)
    assert found.epoch in (crash.acked, crash.acked + 1)
    assert found == truth.meant[found.epoch]
    assert store.report.complete
    if go_on:
        after = Truth(dict(truth.meant), found.epoch, found.epoch)
        epoch(store, after, 9)
        store.checkpoint()
        epoch(store, after, 10)
        kill(store)
        last = RecordingDisk(platter, name="last")
        store = open_on(last, objects, scratch, seed=2000, partitions=4)
        assert content_of(store) == after.meant[after.acked]
    store.close()


def test_every_state_after_a_crash_opens_at_what_was_acknowledged(scratch: Path) -> None:
    truth, store = Truth(), WatchedMemory()
    recorder = Recorder(truth, store, Random(3))
    store.watch = recorder.look
    life(recorder, scratch)
    assert truth.acked == 9
    states = 0
    for crash in recorder.crashes:
        for image in crash.images:
            states += 1
            try:
                check(crash, image, truth, scratch, go_on=states % 8 == 0)
            except BaseException as error:
                error.add_note(f"after a crash {crash.call}: {describe(image)}")
                raise
    print(f"{states} states at {len(recorder.crashes)} calls")
    assert len(recorder.crashes) > 60
    assert states > 500


def test_without_a_sync_of_the_commit_the_states_tell(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control."""
    monkeypatch.setattr("lamina.wal.segment.SegmentWriter.sync", lambda self: None)
    truth, store = Truth(), WatchedMemory()
    recorder = Recorder(truth, store, Random(3))
    opened = open_on(RecordingDisk(recorder.platter), store, scratch, seed=1)
    epoch(opened, truth, 1)
    recorder.look("after the epoch")

    def is_lost(image: Image) -> bool:
        try:
            check(recorder.crashes[0], image, truth, scratch, go_on=False)
        except (AssertionError, LaminaError):
            return True
        return False

    assert any(is_lost(image) for image in recorder.crashes[0].images)
