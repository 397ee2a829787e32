"""Power loss over all files at once, after kills and after errors of the disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from lamina.errors import LaminaError, StoreError, StoreFull
from lamina.store import MemoryStore
from lamina.wal.standalone.writer import OPERATOR
from tests.crash.disk import Call, Hook, Image, Platter, PowerCut, RecordingDisk
from tests.crash.pipeline import COUNTS, Broken, Changes, Ledger, Process, Truth

STATES_AT_A_CUT = 24


def changes(number: int) -> Changes:
    value = f"v{number}".encode()
    return {
        (OPERATOR, 0): {b"a": value, f"k{number}".encode(): None},
        (OPERATOR, 1): {b"b": value},
        (COUNTS, 0): {b"n": value * 100},
    }


def by_cores(process: Process, number: int) -> None:
    process.epoch(changes(number))


def by_driver_log(process: Process, number: int) -> None:
    process.small_epoch({b"a": f"v{number}".encode(), f"k{number}".encode(): b""})


Epoch = Callable[[Process, int], None]
EPOCHS = pytest.mark.parametrize("epoch", [by_cores, by_driver_log])


@dataclass
class Machine:
    """One computer, one store and one sink elsewhere; processes come and go."""

    scratch: Path
    platter: Platter = field(default_factory=Platter)
    objects: MemoryStore = field(default_factory=MemoryStore)
    ledger: Ledger = field(default_factory=Ledger)
    truth: Truth = field(default_factory=Truth)
    started: int = 0

    def process(self, hook: Hook | None = None) -> Process:
        self.started += 1
        disk = RecordingDisk(self.platter, name=f"process {self.started}")
        disk.hook = hook or disk.hook
        return Process(
            disk,
            self.objects,
            self.truth,
            self.scratch,
            seed=self.started,
            sink=self.ledger,
            segment_bytes=4096,
        )

    def after_power_loss(self, image: Image) -> Machine:
        """The same world, the disk as the power cut left it."""
        store = MemoryStore()
        for info in self.objects.list():
            store.put(info.key, self.objects.get(info.key))
        ledger = Ledger(applied=list(self.ledger.applied), at=self.ledger.at)
        truth = Truth(dict(self.truth.meant), list(self.truth.acked))
        return Machine(self.scratch, Platter.of(image), store, ledger, truth, self.started)

    def cut_power(self, random: Random, at_most: int = STATES_AT_A_CUT) -> int:
        """States the cut may leave: recovery is exact, nothing published is lost."""
        count = 0
        images = [*self.platter.crash_images(random, at_most=at_most)]
        for image in random.sample(images, min(len(images), at_most)):
            after = self.after_power_loss(image)
            process = after.process()
            process.start()
            after.check_sink()
            if count == 0:
                process.epoch(changes(90))
                after.check_sink()
            count += 1
        return count

    def check_sink(self) -> None:
        """The sink has every epoch of the history once, in order."""
        history = self.truth.chain(self.truth.acked[-1] if self.truth.acked else None)
        if self.ledger.applied[: len(history)] != history:
            raise Broken(f"the sink has {self.ledger.applied}, the history is {history}")


@EPOCHS
def test_power_loss_after_every_commit_loses_nothing(scratch: Path, epoch: Epoch) -> None:
    machine = Machine(scratch)
    process = machine.process()
    process.start()
    for number in range(1, 7):
        epoch(process, number)
        machine.cut_power(Random(number), at_most=4)
        if number == 3:
            process.checkpoint()
            process.rotate()
        if number == 5:
            process.trim()
    assert len(machine.ledger.applied) == 6


@EPOCHS
def test_kill_before_the_sync_of_a_commit_then_publish_then_power_loss(
    scratch: Path, epoch: Epoch
) -> None:
    """R5: what recovery read from the page cache is on disk before anybody hears of it."""
    calls = states = 0
    while True:
        machine = Machine(scratch)
        first = machine.process()
        first.start()
        epoch(first, 1)
        if not killed_in(first, calls, lambda: epoch(first, 2)):  # noqa: B023
            break
        second = machine.process()
        found = second.start()
        machine.truth.acked[:] = machine.truth.chain(found.head)  # the sink has heard of it
        machine.check_sink()
        states += machine.cut_power(Random(calls))
        calls += 1
    print(f"{calls} kills, {states} states")
    assert calls >= 6


def killed_in(process: Process, call: int, work: Callable[[], object]) -> bool:
    """Kill the process at the given change of the disk; False if the work was done before."""
    left = call

    def hook(at: Call) -> None:
        nonlocal left
        if at.changes:
            if left == 0:
                process.disk.kill()
            left -= 1

    process.disk.hook = hook
    try:
        work()
    except PowerCut:
        return True
    return False


@dataclass
class Fault:
    """Fails the n-th write or sync, and sees to it that the same file is never tried again."""

    at: int
    error: Callable[[], LaminaError]
    lasting: bool = False  # a full disk stays full
    armed: bool = True
    seen: int = 0
    hit: Call | None = None

    def hook(self, call: Call) -> None:
        if not self.armed or not call.changes or call.moment == "after":
            return
        again = self.hit is not None and call.path == self.hit.path
        if again and self.hit.operation in ("append", "sync") and call.operation != "unlink":
            raise Broken(f"after it failed {self.hit}, the file was used again: {call}")
        self.seen += 1
        if self.seen == self.at + 1 or (self.lasting and self.hit is not None):
            self.hit = self.hit or call
            raise self.error()


@pytest.mark.parametrize(
    ("error", "lasting"),
    [
        (lambda: StoreFull("No space left on device"), False),
        (lambda: StoreFull("No space left on device"), True),
        (lambda: StoreError("Input/output error (errno 5, EIO)"), False),
    ],
    ids=["full once", "full from then on", "EIO"],
)
@EPOCHS
def test_a_write_or_sync_that_fails_anywhere_poisons_and_loses_nothing(
    scratch: Path, error: Callable[[], LaminaError], lasting: bool, epoch: Epoch
) -> None:
    """A failed sync may take its bytes out of every later one, as Linux does.

    Not so where the run is in the driver log: recovery reads it from the page cache and syncs it
    again, and has to believe that sync.
    """
    places = states = 0
    while True:
        machine = Machine(scratch, Platter(forgetful=epoch is by_cores))
        fault = Fault(places, error, lasting, armed=False)
        process = machine.process(fault.hook)
        process.start()
        epoch(process, 1)
        fault.armed = True
        if not fails(lambda: busy(process, epoch)):  # noqa: B023
            break
        assert fault.hit is not None
        try:
            fails(lambda: epoch(process, 7))  # noqa: B023  whoever failed must not come back
            fault.armed = False
            states += machine.cut_power(Random(places), at_most=6)
            process.close()
            after = machine.process()
            after.start(list(machine.truth.acked))
            machine.truth.acked[:] = machine.truth.chain(after.head)
            epoch(after, 8)
            states += machine.cut_power(Random(places), at_most=6)
        except BaseException as wrong:
            wrong.add_note(f"after it failed {fault.hit}")
            raise
        places += 1
    print(f"{places} places, {states} states")
    assert places > 15


def busy(process: Process, epoch: Epoch) -> None:
    """Whatever writes: epochs, a checkpoint, rotation, dropped segments."""
    epoch(process, 2)
    process.checkpoint()
    epoch(process, 3)
    process.rotate()
    epoch(process, 4)
    process.trim()


def fails(work: Callable[[], object]) -> bool:
    try:
        work()
    except StoreError:
        return True
    return False
