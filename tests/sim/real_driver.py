"""A process of the pipeline on the real code: recover, then epoch after epoch, until it ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from lamina.checkpoint import Checkpointer, run_gc
from lamina.errors import LaminaError, StoreUnavailable
from lamina.format.commit import WalRange
from lamina.testing.clock import ManualClock
from lamina.wal.standalone import CoreWalWriter
from lamina.wal.standalone.writer import OPERATOR
from tests.crash.disk import PowerCut
from tests.crash.pipeline import CONFIG, CORES, COUNTS, Changes, Process, write_entries
from tests.sim.real_world import RETAIN, Ack, Loss, PausingDisk, RealWorld

SEGMENT_BYTES = 4096


class SimProcess(Process):
    """Appends through its own writers, or through tasks that may have twins and outlive it."""

    world: RealWorld
    task_disk: str = ""

    def append(
        self, epoch: int, changes: Changes, *, barrier: bool = False
    ) -> tuple[WalRange, ...]:
        if self.logs is not None:
            return super().append(epoch, changes, barrier=barrier)
        sets = [self._start(epoch, core, changes) for core in range(CORES)]
        scheduler = self.world.scheduler
        while not all(results for results in sets):
            scheduler.pause(f"waiting for the tasks of epoch {epoch}")
            if scheduler.chance(0.003) or any(None in results for results in sets):
                raise StoreUnavailable("a task was lost: the epoch is abandoned")
        return tuple(place for results in sets for place in results[0] or ())

    def _start(self, epoch: int, core: int, changes: Changes) -> list[tuple[WalRange, ...] | None]:
        """The copies of one task; the first that returns is the one Spark's action reports."""
        results: list[tuple[WalRange, ...] | None] = []
        scheduler = self.world.scheduler
        for copy in range(2 if scheduler.chance(0.3) else 1):
            name = f"task {epoch}.{copy} of core {core} by g{self.driver.generation}"
            task = Task(self, name, epoch, core, changes, results)
            actor = scheduler.spawn(name, self.task_disk, task.run)
            actor.held = scheduler.random.randrange(80) if copy else 0
        return results


@dataclass
class Task:
    """One copy of the task of one core."""

    process: SimProcess
    name: str
    epoch: int
    core: int
    changes: Changes
    results: list[tuple[WalRange, ...] | None]

    def run(self) -> None:
        world = self.process.world
        disk = PausingDisk(world.scheduler, self.process.disk.platter, self.name)
        try:
            self.results.append(self._append(disk))
        except PowerCut:
            pass
        except LaminaError as error:
            world.stopped(disk, error, flagged=False)
            self.results.append(None)
        finally:
            disk.kill()

    def _append(self, disk: PausingDisk) -> tuple[WalRange, ...]:
        writer = CoreWalWriter(
            self.core,
            disk,
            home=self.process.home.identity,
            generation=self.process.driver.generation,
            partitions=CORES,
            epoch=self.epoch,
            tag=self.name.partition(" of ")[0],
            segment_bytes=SEGMENT_BYTES,
        )
        with writer:
            for (operator, core), entries in self.changes.items():
                if core == self.core:
                    write_entries(writer, operator, entries)
            writer.sync()
            return writer.take_ranges()


class RealDriver:
    """What an operator starts: it claims the pipeline and runs it until it is stopped."""

    def __init__(
        self,
        world: RealWorld,
        home: str,
        *,
        other_home: bool = False,
        lose_after: int | None = None,
    ) -> None:
        self.world = world
        self.home = home
        self.flagged = other_home or lose_after is not None
        self.recovered = False
        self.epochs = 0
        self.error: LaminaError | None = None
        name = f"driver in {home}{' --take-over-home' if other_home else ''}"
        name += f" --lose-after {lose_after}" if lose_after is not None else ""
        self.disk = PausingDisk(world.scheduler, world.platters[home], name)
        if lose_after is not None:
            world.losses.append(Loss(self.disk, lose_after))
        self.process = SimProcess(
            self.disk,
            world.open_store(),
            world.truth,
            world.scratch,
            seed=world.draw(),
            segment_bytes=SEGMENT_BYTES,
            sink=world.ledger,
            acknowledge=world.acked,
            config=replace(CONFIG, take_over_home=other_home, lose_after=lose_after),
        )
        self.process.world = world
        self.process.task_disk = home

    def run(self) -> None:
        try:
            self._recover()
            while not (self.world.scheduler.calm and self.epochs >= 2):
                self._epoch()
                self.epochs += 1
        except PowerCut:
            pass
        except LaminaError as error:
            self.error = error
            self.world.stopped(self.disk, error, flagged=self.flagged)
        finally:
            self.disk.kill()

    def _recover(self) -> None:
        world, process = self.world, self.process
        before = world.history().home
        found = process.recover()
        name = process.home.name
        history = world.history()
        moved = before not in ("", name)
        since = history.home_since if history.home == name else found.generation
        world.check_recovered(found, home_since=found.generation if moved else since)
        if moved:
            world.moves += 1
            if found.head is not None:
                world.acks.append(Ack(found.head, found.generation))  # the new home's own promise
        self.recovered = True
        if world.scheduler.random.random() < 0.5:
            process.go_on()
        else:
            process.publish()

    def _epoch(self) -> None:
        random, process = self.world.scheduler.random, self.process
        if random.random() < 0.15:
            process.small_epoch({b"k": str(random.random()).encode()})
        else:
            process.epoch(some_changes(random), barrier=random.random() < 0.2)
        if random.random() < 0.25:
            process.checkpoint()
            self.world.checkpoints += 1
        if random.random() < 0.1 and process.logs is not None:
            process.rotate()
        if random.random() < 0.25:
            self.world.dropped += len(process.trim(RETAIN))


def some_changes(random: Random) -> Changes:
    """A few keys of both operators on both cores; a third of them deleted."""
    places = [(operator, core) for operator in (OPERATOR, COUNTS) for core in range(CORES)]
    return {
        place: {
            f"k{random.randrange(6)}".encode(): (
                None if random.random() < 0.3 else random.randbytes(random.choice((4, 40, 700)))
            )
            for _ in range(random.randint(1, 3))
        }
        for place in places
    }


def collect_garbage(world: RealWorld) -> None:
    """A person with `lamina gc`, next to a running pipeline."""
    store, clock = world.open_store(), ManualClock(world.draw())
    disk = PausingDisk(world.scheduler, world.platters["home-a"], "gc")
    checkpointer = Checkpointer(store, world.paths, max_concurrent_uploads=1, clock=clock)
    try:
        world.forgotten += len(run_gc(checkpointer, retain=RETAIN).forget)
    except LaminaError as error:
        world.stopped(disk, error, flagged=False)
