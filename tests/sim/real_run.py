"""One seed of the real code: `python -m tests.sim.real_run SEED` replays it with a trace."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.crash.pipeline import Broken
from tests.sim.real_driver import RealDriver, collect_garbage
from tests.sim.real_world import HOMES, RealWorld
from tests.sim.scheduler import Scheduler

STEPS = 3000


@dataclass(frozen=True)
class Outcome:
    recoveries: int
    replayed: int
    epochs: int
    checkpoints: int
    dropped: int
    forgotten: int
    moves: int
    losses: int
    cuts: int
    kills: int


def run_real_seed(seed: int, scratch: Path, *, trace: bool = False) -> Outcome:
    scheduler = Scheduler(seed, trace=trace)
    world = RealWorld(scheduler, scratch)
    restless = scheduler.random.random() < 0.3
    careless = scheduler.random.random() < 0.3  # people give epochs up
    try:
        while scheduler.steps < STEPS:
            disturb(world, restless=restless, careless=careless)
            if scheduler.actors:
                scheduler.step()
            world.check()
        calm_down(world)
    except Exception as error:
        error.add_note(f"replay with: python -m tests.sim.real_run {seed}")
        if trace:
            error.add_note("\n".join(scheduler.events[-300:]))
        raise
    return Outcome(
        world.recoveries,
        world.replayed,
        len(world.acks),
        world.checkpoints,
        world.dropped,
        world.forgotten,
        world.moves,
        sum(bool(loss.disk.generation) for loss in world.losses),
        world.cuts,
        world.kills,
    )


def disturb(world: RealWorld, *, restless: bool, careless: bool) -> None:
    """Now and then: a start, a kill, a power cut, a person."""
    random = world.scheduler.random
    roll = random.random()
    drivers = [a for a in world.scheduler.actors if a.name.startswith("driver") and a.alive]
    owner = world.owner()
    if not drivers and roll < 0.2:
        start(world, owner)
    elif roll < (0.001 if restless else 0.0001):
        start(world, HOMES[1 - HOMES.index(owner)], other_home=True)
    elif roll < 0.0018:
        start(world, owner)
    elif roll < 0.0030 and drivers:
        random.choice(drivers).kill()
        world.kills += 1
    elif roll < 0.0040:
        power_cut(world, random.choice(HOMES))
    elif roll < 0.0055:
        world.scheduler.spawn("gc", "", lambda: collect_garbage(world))
    elif roll < 0.0070 and careless and world.acks:
        start(world, owner, lose_after=random.choice(world.acks[-4:]).point.epoch - 1)


def start(
    world: RealWorld, home: str, *, other_home: bool = False, lose_after: int | None = None
) -> RealDriver:
    driver = RealDriver(world, home, other_home=other_home, lose_after=lose_after)
    world.scheduler.spawn(driver.disk.name, home, driver.run)
    return driver


def power_cut(world: RealWorld, home: str) -> None:
    world.scheduler.note(f"POWER CUT in {home}")
    for actor in [a for a in world.scheduler.actors if a.home == home and a.alive]:
        actor.kill()
    world.platters[home].power_cut(world.scheduler.random)
    world.cuts += 1


def calm_down(world: RealWorld) -> None:
    """End all faults, recover once more, go on for two epochs, and look at everything."""
    world.scheduler.calm = True
    for actor in list(world.scheduler.actors):
        actor.kill()
    driver = start(world, world.owner())
    assert driver is not None
    for _ in range(20_000):
        if not world.scheduler.step():
            break
        world.check()
    if not driver.recovered or driver.epochs < 2:
        raise Broken(f"the last process did not come to an end: {driver.error}")
    world.check_end(driver.process.head)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(run_real_seed(int(sys.argv[1]), Path(folder), trace=True))
