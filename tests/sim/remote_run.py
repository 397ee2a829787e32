"""One seed in a remote home: `python -m tests.sim.remote_run SEED` replays it with a trace."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from lamina.errors import LaminaError, WalDamaged, WouldLose
from lamina.protocol.driver import Point
from lamina.store.retry import RetryingStore, RetryPolicy
from lamina.testing.clock import ManualClock
from tests.sim.remote_disk import RemoteDisk
from tests.sim.remote_driver import RemoteDriver
from tests.sim.remote_store import BucketStore
from tests.sim.run import Simulation, run_seed
from tests.sim.scheduler import Scheduler
from tests.sim.tools import Tool
from tests.sim.world import HOMES, Broken

EXPIRE_AFTER = 500  # steps; then there is something to lose


class Hosts:
    """A host of its own for every process: whoever asks gets a new one."""

    def __init__(self, world: RemoteSimulation) -> None:
        self._world = world

    def __getitem__(self, home: str) -> RemoteDisk:
        writer = str(self._world.scheduler.random.randrange(1 << 60))
        return RemoteDisk(self._world.open_home(), home, writer)


@dataclass
class RemoteSimulation(Simulation):
    """Several drivers at once, and a bucket with its faults."""

    dropped: int = 0
    outages: int = 0
    expired: int = 0
    named: int = 0  # damage that somebody was told of
    fenced: int = 0
    looking: int = 0  # the generation of the process that has just restored its state

    def __post_init__(self) -> None:
        super().__post_init__()
        self.bucket = BucketStore(self.scheduler)
        self.disks = Hosts(self)  # type: ignore[assignment]
        self.processes: list[RemoteDriver] = []
        self.rules = self.scheduler.random.random() < 0.3  # lifecycle rules, and people
        if self.scheduler.random.random() < (0.6 if self.rules else 0.1):
            self.sinks = []  # nobody outside who could say what is missing
        self.claims: dict[str, set[int]] = {home: set() for home in HOMES}

    def open_home(self) -> RetryingStore:
        clock = ManualClock(self.scheduler.random.randrange(1 << 30))
        return RetryingStore(self.bucket, RetryPolicy(), clock)

    def newest_claim(self, home: str) -> int:
        """The highest generation that has ever claimed *home*, by what is in the bucket."""
        keys = [info.key for info in self.bucket.inner.list(f"{home}/epochs")]
        reader = RemoteDisk(self.bucket.inner, home, "")
        found = [reader._piece(int(key.rpartition("/")[2])) for key in keys]
        self.claims[home] |= {piece[0].segment.generation for piece in found if piece}
        return max(self.claims[home], default=0)

    def start_driver(self, home: str, *, other_home: bool = False) -> RemoteDriver:
        driver = RemoteDriver(self, home, other_home=other_home)
        self.processes.append(driver)
        flag = " --take-over-home" if other_home else ""
        name = f"driver {driver.disk.writer[:4]} in {home}{flag}"
        driver.actor = self.scheduler.spawn(name, home, driver.run)
        return driver

    def disturb(self) -> None:
        """Now and then: a driver falls asleep before a request, and another one is started."""
        random, roll = self.scheduler.random, self.scheduler.random.random()
        drivers = [a for a in self.scheduler.actors if a.name.startswith("driver") and a.alive]
        for process in [p for p in self.processes if p.actor and p.actor.alive]:
            self._maybe_sleep(process)
        owner = self.history().home or HOMES[0]
        if roll < 0.2 and all(actor.held for actor in drivers):
            self.start_driver(owner)
        elif roll < (0.002 if self.restless else 0.0002):
            self.start_driver(HOMES[1 - HOMES.index(owner)], other_home=True)
        elif roll < 0.004:
            self.start_driver(owner)
        elif roll < 0.005 and drivers:
            random.choice(drivers).kill()
        elif roll < 0.0055:
            self.power_cut(random.choice(HOMES))
        elif roll < 0.008:
            self.scheduler.spawn("savepoint tool", "", Tool(self).savepoint)
        elif roll < 0.013:
            self.scheduler.spawn("gc tool", "", Tool(self).gc)
        elif roll < 0.0135 and self.rots and not self.damaged:
            self.damage_newest()
        elif roll < 0.014:
            self.outages += 1
            self.bucket.down_until = self.scheduler.steps + random.randrange(20, 400)
        elif roll < 0.0155 and self.rules and self.scheduler.steps > EXPIRE_AFTER:
            self.expire()

    def _maybe_sleep(self, process: RemoteDriver) -> None:
        """Most of all before it claims: it has looked, and then the log goes on without it."""
        actor, chance = process.actor, 0.05 if process.recovered else 0.25
        assert actor is not None, "it has been started"
        if "create home" not in actor.at or actor.held or self.scheduler.random.random() > chance:
            return
        actor.held = self.scheduler.random.randrange(100, 900)

    def expire(self) -> None:
        """No process sleeps for as long as a lifecycle rule waits. Or somebody deletes a piece."""
        for actor in self.scheduler.actors:
            if actor.name.startswith("driver"):
                actor.kill()
        roll, log = self.scheduler.random.random(), f"{self.history().home or HOMES[0]}/epochs"
        if roll < 0.4:
            gone = self.bucket.expire("", self.scheduler.random.choice((300, 100, 30)))
        elif roll < 0.6:
            gone = self.bucket.expire(log, 0)
        else:
            gone = self.bucket.lose_one(log)
        self.scheduler.note(f"EXPIRED {gone}")
        self.damaged |= bool(gone)
        self.expired += len(gone)

    def check_recovered(self, head: Point | None, state: tuple[str, ...], home_since: int) -> None:
        """Before its ADOPT somebody may have claimed, and acknowledged, behind its back."""
        every = self.acks
        self.acks = [ack for ack in every if ack.generation <= self.looking]
        try:
            super().check_recovered(head, state, home_since)
        finally:
            self.acks = every

    def power_cut(self, home: str) -> None:
        """Hosts go, with all they had; the bucket stays."""
        self.scheduler.note(f"HOSTS of {home} are lost")
        for actor in [a for a in self.scheduler.actors if a.home == home and a.alive]:
            actor.kill()

    def stop(self, who: RemoteDriver | Tool, error: LaminaError) -> None:  # type: ignore[override]
        if isinstance(error, (WalDamaged, WouldLose)) and self.damaged:
            self.scheduler.note(f"ends with {error}")
            self.named += 1
            if isinstance(who, RemoteDriver):
                who.recovered = False  # what is missing is said; nobody says that all is well
            return
        super().stop(who, error)

    def _check_fenced(self, who: RemoteDriver | Tool, error: LaminaError) -> None:  # type: ignore[override]
        self.fenced += 1
        own = (who.claimed or who.generation) if isinstance(who, RemoteDriver) else 0
        newest = [self.newest_claim(home) for home in HOMES]
        known = [self.history().generation, *(s.position.generation for s in self.sinks), *newest]
        if max(known) < own or (max(known) == own and newest != [own, own]):
            raise Broken(f"G9: generation {own} is fenced by nobody: {error}")


def run_remote_seed(seed: int, *, trace: bool = False) -> RemoteSimulation:
    """The world as it is in the end, for its counts."""
    made: list[RemoteSimulation] = []

    def kind(scheduler: Scheduler) -> RemoteSimulation:
        made.append(RemoteSimulation(scheduler))
        return made[0]

    run_seed(seed, trace=trace, kind=kind)  # type: ignore[arg-type]
    return made[0]


if __name__ == "__main__":
    world = run_remote_seed(int(sys.argv[1]), trace=True)
    print(len(world.acks), world.recoveries, world.fenced, world.dropped)
