"""Two copies of one Spark task are alive, and the later one is the loser (R1).

One copy is held at each of its disk calls; its twin runs to the end and is committed; then the
first is let go or killed. What COMMIT names reads back with its checksum, whatever the first does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from greenlet import getcurrent, greenlet

from lamina.errors import NotFound, WalDamaged
from lamina.format.commit import WalRange
from lamina.store import MemoryStore
from lamina.wal import SegmentReader
from lamina.wal.scan import segments_of
from lamina.wal.standalone import CoreWalWriter
from lamina.wal.standalone.writer import OPERATOR
from tests.crash.disk import Call, Platter, PowerCut, RecordingDisk
from tests.crash.pipeline import CORES, COUNTS, Changes, Process, Truth, batch_of

SEGMENT_BYTES = 1 << 20
EPOCH = 2
RANDOM = Random(3)
Open = Callable[..., CoreWalWriter]


def changes_of(who: str) -> Changes:
    """Both copies compute the same keys; here they differ, so that a mix-up shows."""
    long = who.encode() * 150
    return {(OPERATOR, 0): {b"who": who.encode(), b"long": long}, (COUNTS, 0): {b"n": long}}


@dataclass
class Task:
    """One copy: opens the core's log under its own tag, appends for two operators, syncs."""

    disk: RecordingDisk
    process: Process
    who: str
    open_writer: Open = CoreWalWriter
    ranges: tuple[WalRange, ...] | None = None

    def run(self) -> None:
        writer = self.open_writer(
            0,
            self.disk,
            home=self.process.home.identity,
            generation=self.process.driver.generation,
            partitions=CORES,
            epoch=EPOCH,
            tag=f"run-{self.who}",
            segment_bytes=SEGMENT_BYTES,
            commits_here=False,
        )
        for (operator, _), entries in changes_of(self.who).items():
            writer.append_batch(batch_of(entries), operator=operator)
        writer.sync()
        self.ranges = writer.take_ranges()
        writer.close()


class Held:
    """A task in a greenlet that stops at its n-th look at the disk, until it is let go."""

    def __init__(self, task: Task, stop_at: int) -> None:
        self._stop_at = stop_at
        self._looks = 0
        self._main = getcurrent()
        self._task = task
        self._green = greenlet(task.run)
        self.at: Call | None = None
        task.disk.hook = self._hook

    def start(self) -> bool:
        """False if the task came to its end before."""
        self._green.switch()
        return not self._green.dead

    def let_go(self) -> None:
        self._green.switch()

    def kill(self) -> None:
        self._task.disk.kill()
        with pytest.raises(PowerCut):
            self._green.throw(PowerCut())

    def _hook(self, call: Call) -> None:
        if self._looks == self._stop_at:
            self.at = call
            self._main.switch()
        self._looks += 1


@dataclass
class Scene:
    """A home with one epoch of both cores; the tasks of the next epoch are about to run."""

    scratch: Path
    open_writer: Open = CoreWalWriter

    def __post_init__(self) -> None:
        self.truth = Truth()
        self.store = MemoryStore()
        self.platter = Platter()
        self.driver = Process(self._disk("driver"), self.store, self.truth, self.scratch)
        self.driver.recover()
        task = Task(self._disk("before"), self.driver, "before")
        task.run()
        self._commit(task)

    def play(self, stop_at: int, *, kill: bool) -> Call | None:
        """Hold, let the twin finish, COMMIT, release or kill; None if there was no such call."""
        held = Held(Task(self._disk("held"), self.driver, "held", self.open_writer), stop_at)
        if not held.start():
            return None
        twin = Task(self._disk("twin"), self.driver, "twin", self.open_writer)
        twin.run()
        self._commit(twin)
        self.check(f"while one is held {held.at}")
        if kill:
            held.kill()
        else:
            held.let_go()
        self.check(f"after one was held {held.at}")
        return held.at

    def check(self, when: str) -> None:
        """Every committed range, then a recovery from the disk as it is and after a power cut."""
        try:
            for meant in self.truth.meant.values():
                for place in meant.commit.ranges:
                    reader = SegmentReader(self._disk("reader"), place.segment)
                    reader.at(place.offset, place.size, place.crc)
                    reader.at(place.offset, place.size, place.crc, mapped=True)
            for image in (self.platter.image(), *self.platter.crash_images(RANDOM, at_most=4)):
                disk = RecordingDisk(Platter.of(image), name="recovery")
                store = MemoryStore()
                for info in self.store.list():
                    store.put(info.key, self.store.get(info.key))
                found = Process(disk, store, self.truth, self.scratch, seed=9).start()
                assert found.head == self.truth.acked[-1], "neither more nor less"
        except BaseException as error:
            error.add_note(when)
            raise

    def _commit(self, task: Task) -> None:
        assert task.ranges is not None
        assert {(r.operator, r.core) for r in task.ranges} == {(OPERATOR, 0), (COUNTS, 0)}
        epoch = self.driver.next_epoch
        self.driver.next_epoch += 1
        self.driver.commit(epoch, changes_of(task.who), task.ranges)

    def _disk(self, name: str) -> RecordingDisk:
        return RecordingDisk(self.platter, name=name)


@pytest.mark.parametrize("kill", [False, True], ids=["released", "killed"])
def test_a_late_twin_touches_nothing_that_was_committed(scratch: Path, kill: bool) -> None:
    seen = play_all(scratch, kill=kill)
    moments = {(call.operation, call.moment) for call in seen}
    assert moments >= {
        ("try_lock", "before"),
        ("try_lock", "after"),
        ("append", "before"),
        ("append", "mid"),
        ("append", "after"),
        ("sync", "before"),
        ("sync", "after"),
    }
    print(f"{len(seen)} places")


def test_a_task_that_finished_first_but_is_not_the_committed_one_does_no_harm(
    scratch: Path,
) -> None:
    """Its bytes stand in the log, before the twin's; nothing names them."""
    scene = Scene(scratch)
    Task(scene._disk("loser"), scene.driver, "loser").run()
    assert scene.play(10**9, kill=False) is None
    twin = Task(scene._disk("twin"), scene.driver, "twin")
    twin.run()
    scene._commit(twin)
    scene.check("both finished")


class Cutter(CoreWalWriter):
    """What R1 forbids: everything behind the committed end is cut off before appending."""

    def __init__(self, core_id: int, disk: RecordingDisk, **settings: object) -> None:
        committed = self._committed_end(disk)
        super().__init__(core_id, disk, **settings)  # type: ignore[arg-type]
        if committed < self.position:
            self._chain._open.truncate(committed)

    @staticmethod
    def _committed_end(disk: RecordingDisk) -> int:
        """As a task knows it: from what stood in the newest segment when it began."""
        try:
            return disk.size(segments_of(disk, 0)[-1])
        except (IndexError, NotFound):
            return 0


def test_a_writer_that_cuts_to_the_committed_end_is_caught(scratch: Path) -> None:
    """The negative control: the same walk, and some place destroys what was committed."""
    with pytest.raises(WalDamaged, match=r"are named|checksum"):
        play_all(scratch, kill=False, open_writer=Cutter)


def play_all(scratch: Path, *, kill: bool, open_writer: Open = CoreWalWriter) -> list[Call]:
    """Hold the first copy at every call there is."""
    seen: list[Call] = []
    while (call := Scene(scratch, open_writer).play(len(seen), kill=kill)) is not None:
        seen.append(call)
    return seen
