"""A process whose home is in a bucket: the driver of tests.sim.driver on a RemoteDisk."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lamina.errors import Fenced, StoreUnavailable, WalDamaged, WouldLose
from lamina.format.home_names import DriverSegment
from lamina.protocol import pieces
from lamina.protocol.driver import Adopt, Point, Segment
from lamina.protocol.recovery import Plan, has_lost_its_log
from lamina.protocol.retention import wal_floor
from lamina.store.base import Store
from tests.sim.driver import CORES, Driver
from tests.sim.remote_disk import RemoteDisk, path_of, segment_of
from tests.sim.tasks import Range, Run
from tests.sim.world import RETAIN, Broken, Record

if TYPE_CHECKING:
    from tests.sim.remote_run import RemoteSimulation


class RemoteDriver(Driver):
    world: RemoteSimulation
    disk: RemoteDisk  # type: ignore[assignment]
    number = 0  # of the part of its log that it writes

    def _lock(self) -> bool:
        """There is no lock that another host would see: it looks, and the claim decides."""
        self.disk.restore()
        return True

    def _claim(self) -> None:
        super()._claim()
        history = self.log.read()
        if has_lost_its_log(history, self.home, self._segments(), own=self.generation):
            raise WouldLose("the log of this home is gone")

    def _adopt(self, plan: Plan, records: Mapping[str, Record]) -> None:
        super()._adopt(plan, records)
        self._drop_leftovers(plan.head)

    def _drop_leftovers(self, head: Point | None) -> None:
        for key, generation, epoch in self._objects():
            at = head.epoch if head else 0
            if pieces.is_leftover(generation, epoch, own=self.generation, head=at):
                self.disk.store.delete(key)
                self.world.dropped += 1

    def _run_tasks(self, epoch: int, content: str) -> tuple[Range, ...]:
        """Small runs come back with the result, large ones are put; twins may come very late."""
        scheduler = self.world.scheduler
        tasks = [RemoteTask(self, epoch, core, f"{content}/c{core}") for core in range(CORES)]
        for task in tasks:
            task.start()
        while any(task.result is None for task in tasks):
            scheduler.pause(f"waiting for the tasks of epoch {epoch}")
            if scheduler.chance(0.005) or any(task.failed for task in tasks):
                raise StoreUnavailable("a task was lost: the epoch is abandoned")
        return tuple(self._landed(task.result) for task in tasks if task.result)

    def _landed(self, result: Range | Run) -> Range:
        """The driver writes what its tasks carried, before the COMMIT that names it."""
        if isinstance(result, Range):
            return result
        path = self._segment(self.generation)
        return Range(result.core, path, self.disk.append(path, result), result.content)

    def _restore(self, *args: Any) -> None:
        super()._restore(*args)
        self.world.looking = self.generation

    def _publish(self) -> None:
        """Staged output is read when a sink gets it."""
        for chain in self.pending.values():
            for record in chain:
                self._check_there(record)
        super()._publish()

    def _check_there(self, record: Record) -> None:
        for place in record.ranges:
            run = self.disk.at(place.path, place.index)
            if not isinstance(run, Run) or run.content != place.checksum:
                self._lost(f"output {place} of {record.point} reads {run}")

    def _replayed(self, record: Record) -> tuple[str, ...]:
        self._check_there(record)
        return (*self.state, record.content)

    def _lost(self, what: str) -> None:
        """Who is overtaken may find nothing; else it is damage, which has to have a reason."""
        if self.world.newest_claim(self.home) > self.generation:
            raise Fenced(f"{what}: somebody has claimed the home since")
        if self.world.damaged:
            raise WalDamaged(what)
        raise Broken(f"G3, R7: {what}")

    def _has_runs(self, record: Record) -> bool:
        return bool(record.ranges) and all(self.disk.is_there(p.path) for p in record.ranges)

    def _floor(self) -> int:
        history = self.log.read()
        epochs = [s.position.point.epoch if s.position.point else 0 for s in self.world.sinks]
        return wal_floor(history, RETAIN, epochs)

    def _trim(self) -> None:
        if self.world.scheduler.random.random() < 0.5:
            self._rotate()
        floor = self._floor()
        own = self._segment(self.generation)
        kept = {p for p in self.disk.paths("driver/") if p >= own or self._newest_in(p) > floor}
        self.world.dropped += self.disk.drop_pieces({segment_of(path) for path in kept})
        for path in set(self.disk.paths("driver/")) - kept:
            self.disk.drop(path)
        for key, _, epoch in self._objects():
            if epoch <= floor:
                self.disk.store.delete(key)
                self.world.dropped += 1

    def _newest_in(self, path: str) -> int:
        epochs = [r.epoch for r in self.disk.read(path) if isinstance(r, Run)]
        return max((*epochs, *(r.commit.epoch for r in self._own_records(path))), default=0)

    def _objects(self) -> Iterator[tuple[str, int, int]]:
        """The runs in the bucket: key, generation and epoch."""
        for info in list(self.disk.store.list(f"{self.home}/runs")):
            _, _, name = info.key.rpartition("/")
            generation, epoch, _ = name.split("-", 2)
            yield info.key, int(generation), int(epoch)

    def _rotate(self) -> None:
        """Go on in a new part, so that what came before can be dropped."""
        floor = self._floor()
        known = sorted(self._records().values(), key=lambda r: r.commit.epoch)
        needed = tuple(r for r in known if r.commit.epoch > floor)
        self.number += 1
        path = self._segment(self.generation)
        self.disk.begin_part(path)
        self.disk.append(path, (Adopt(self.head, tuple(r.commit for r in needed)), needed))
        self.disk.sync(path)

    def _segment(self, generation: int) -> str:
        number = self.number if generation == self.generation else 0
        return path_of(DriverSegment(generation, number))

    def _segment_generations(self) -> list[int]:
        own = {segment_of(path).generation for path in self.disk.paths("driver/")}
        return sorted(own | self.disk.generations)

    def _segments(self) -> tuple[Segment, ...]:
        found = []
        for path in self.disk.paths("driver/"):
            segment = segment_of(path)
            if segment.generation == self.generation:
                continue
            records = self.disk.read(path)
            adopts = [r[0] for r in records if isinstance(r, tuple)]
            commits = tuple(r.commit for r in records if isinstance(r, Record))
            adopt = adopts[0] if adopts else None
            found.append(Segment(segment.generation, adopt, commits, segment.number))
        return tuple(found)

    def _records(self) -> dict[str, Record]:
        found: dict[str, Record] = {}
        for path in self.disk.paths("driver/"):
            for record in self._own_records(path):
                if record.ranges or record.point.digest not in found:
                    found[record.point.digest] = record
        return found

    def _own_records(self, path: str) -> Iterator[Record]:
        for item in self.disk.read(path):
            if isinstance(item, Record):
                yield item
            elif isinstance(item, tuple):
                yield from item[1]


@dataclass
class RemoteTask:
    """One task on an executor that knows the bucket only."""

    driver: RemoteDriver
    epoch: int
    core: int
    content: str
    result: Range | Run | None = None
    failed: bool = False

    def name(self, copy: int) -> str:
        """Nobody else has it: not a twin, and not another process with an epoch of this number."""
        return f"{self.generation:06d}-{self.epoch:06d}-c{self.core}-{copy}"

    def start(self) -> None:
        """Sometimes twice; executors live on when a driver dies."""
        scheduler = self.driver.world.scheduler
        self.generation = self.driver.generation
        large = scheduler.random.random() < 0.6
        for copy in range(2 if scheduler.chance(0.25) else 1):
            name = f"task {self.epoch}.{copy} of core {self.core} by g{self.generation}"
            store = self.driver.world.open_home()
            actor = scheduler.spawn(name, "", lambda s=store, c=copy: self._run(s, c, large))  # type: ignore[misc]
            if copy:
                actor.held = scheduler.random.randrange(300)

    def _run(self, store: Store, copy: int, large: bool) -> None:
        run = Run(self.epoch, self.core, self.content)
        if not large:
            self.driver.world.scheduler.pause("computing")
            self.result = self.result or run
            return
        key = f"{self.driver.home}/runs/{self.name(copy)}"
        try:
            store.put(key, pickle.dumps(run))
        except StoreUnavailable:
            self.failed = True
            return
        self.result = self.result or Range(self.core, key, 0, self.content)
