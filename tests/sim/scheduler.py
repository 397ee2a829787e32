"""Actors as greenlets: one runs at a time, and stops at every `pause`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

from greenlet import getcurrent, greenlet


class Killed(BaseException):
    """kill -9: no handler may eat it."""


class Actor:
    def __init__(self, name: str, home: str, body: Callable[[], None], main: greenlet) -> None:
        self.name = name
        self.home = home  # whose power cut kills it; "" for a tool elsewhere
        self.held = 0  # steps for which it does not run
        self.at = "start"
        self.children: list[Actor] = []
        self._green = greenlet(body, main)

    @property
    def alive(self) -> bool:
        return not self._green.dead

    def resume(self) -> None:
        self._green.switch()

    def kill(self) -> None:
        for child in self.children:
            child.kill()
        if self.alive:
            with suppress(Killed):  # comes back out of one that never started
                self._green.throw(Killed())


class Scheduler:
    """Picks who runs next. The same seed gives the same run."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.random = Random(seed)
        self.actors: list[Actor] = []
        self.steps = 0
        self.calm = False  # no faults any more: let everything come to an end
        self.events: list[str] = []
        self._trace = trace
        self._main = getcurrent()
        self._running: Actor | None = None

    def spawn(self, name: str, home: str, body: Callable[[], None]) -> Actor:
        actor = Actor(name, home, lambda: self._guard(actor, body), self._main)
        self.actors.append(actor)
        return actor

    def pause(self, what: str) -> None:
        """Give way; whoever comes back from here may find a different world."""
        if self._running is not None and getcurrent() is not self._main:
            self._running.at = what
            self._main.switch()

    def step(self) -> bool:
        """Run one actor up to its next pause; False if nobody is left."""
        self.actors = [a for a in self.actors if a.alive]
        ready = [a for a in self.actors if not a.held or self.calm]
        for actor in self.actors:
            actor.held = max(0, actor.held - 1)
        if not ready:
            return bool(self.actors)
        actor = self.random.choice(ready)
        if not self.calm and self.chance(0.01):
            actor.held = self.random.randrange(5, 120)  # a long pause makes a zombie
            return True
        self.steps += 1
        self.note(f"{actor.name}: {actor.at}")
        self._running = actor
        actor.resume()
        return True

    def chance(self, probability: float) -> bool:
        return not self.calm and self.random.random() < probability

    def note(self, text: str) -> None:
        if self._trace:
            self.events.append(f"{self.steps:5d} {text}")

    def _guard(self, actor: Actor, body: Callable[[], None]) -> None:
        try:
            body()
        except Killed:
            self.note(f"{actor.name}: killed at {actor.at}")
