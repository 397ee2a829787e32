"""A process that rewinds a pipeline of tests/engine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.engine.ports import Sink
from lamina.engine.rewinding import Rewound, rewind
from lamina.engine.surveying import OnSink, Survey, choose, survey
from lamina.store import Store
from lamina.testing import ManualClock
from lamina.testing.faulty import Killed
from tests.engine.pipelines import PROCESSES, Bomb, World, nothing

BACK, KEEP = OnSink.TRUNCATE, OnSink.KEEP


def rewound(
    world: World,
    to: str,
    default: OnSink | None = BACK,
    *,
    by_sink: Mapping[str, OnSink] | None = None,
    bomb: Bomb | None = None,
    store: Store | None = None,
    sinks: Mapping[str, Sink] | None = None,
) -> Rewound:
    """As the command does: look under the lock of the home, choose, rewind."""
    clock = ManualClock(next(PROCESSES))
    saved = store or world.store
    space, checkpointer = world.space(clock, saved), Checkpointer(saved, clock=clock)
    asked = sinks or world.sinks()
    home = space.claim(clock)
    try:
        found = survey(home, checkpointer, asked, to)
        return rewind(
            found,
            choose(found, default, by_sink or {}),
            space=space,
            checkpointer=checkpointer,
            sinks=asked,
            clock=clock,
            lock=home.lock,
            fail_point=bomb or nothing,
        )
    finally:
        home.release()


def surveyed(world: World, to: str) -> Survey:
    clock = ManualClock(next(PROCESSES))
    space = world.space(clock, world.store)
    home = space.claim(clock)
    try:
        return survey(home, Checkpointer(world.store, clock=clock), world.sinks(), to)
    finally:
        home.release()


def killed(world: World, to: str, default: OnSink, bomb: Bomb) -> None:
    with suppress(Killed):
        rewound(world, to, default, bomb=bomb)
