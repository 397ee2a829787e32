"""A run in its home, from before Spark starts until its end: it holds the lock and can be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from lamina.clock import Clock, new_writer_id
from lamina.disk import LocalDisk
from lamina.disk.base import Lock
from lamina.errors import Fenced, LaminaError
from lamina.format.home_names import HOME_LOCK
from lamina.running.control import (
    Ask,
    Status,
    answer,
    read_status,
    take_request,
    this_process,
    write_status,
)
from lamina.running.holder import find_holder

TRIES = 5
TRY_AGAIN_S = 0.1


class Presence:
    """One run: its name, its lock and what it last said. Made by `present`."""

    def __init__(
        self,
        home: Path,
        name: str,
        *,
        clock: Clock,
        lock: Lock,
        listener: Callable[[Status], None] = lambda _: None,
    ) -> None:
        me, now = this_process(), clock.now_ms()
        self.home = home
        self.lock = lock
        self.status = Status(name, me.pid, me.host, "starting", now, now, run=new_writer_id(clock))
        self._clock = clock
        self._began = clock.monotonic()
        self._listeners = [listener]

    def listen(self, listener: Callable[[Status], None]) -> None:
        """Tell one more of what is said from now on."""
        self._listeners.append(listener)

    def say(self, phase: str, **changes: object) -> None:
        """Write the status; *changes* are fields of it."""
        self.status = replace(
            self.status,
            phase=phase,
            updated_ms=self._clock.now_ms(),
            **changes,  # type: ignore[arg-type]  # fields of Status
        )
        write_status(self.home, self.status)
        for listener in self._listeners:
            listener(self.status)

    def age_ms(self) -> int:
        """Since the process took the lock: Spark is not started yet then."""
        return max(round((self._clock.monotonic() - self._began) * 1000), 1)

    def is_asked(self, what: Ask) -> bool:
        return take_request(self.home, what, self.status.run)

    def answer(self, what: Ask) -> None:
        answer(self.home, what)

    def leave(self, why: str) -> None:
        """The last words, unless they are said already.

        What ended the run matters more than a failure to say so.
        """
        with suppress(LaminaError):
            if not self.status.is_over:
                self.say("failed", why=why)
            for what in Ask:
                self.answer(what)


@contextmanager
def present(
    home: Path,
    name: str,
    *,
    clock: Clock,
    listener: Callable[[Status], None] = lambda _: None,
) -> Iterator[Presence]:
    """Take the lock of *home*, making the folder if need be, and be seen there until the end.

    Fenced if another process has the lock: nothing else decides who may run.
    """
    disk = LocalDisk(home)
    disk.make_folder("")
    lock = _take(disk, home, clock)
    try:
        here = Presence(home, name, clock=clock, lock=lock, listener=listener)
        why = "it was interrupted"
        try:
            here.say("starting")
            yield here
        except LaminaError as error:
            why = str(error)
            raise
        finally:
            here.leave(why)
    finally:
        lock.release()


def _take(disk: LocalDisk, home: Path, clock: Clock) -> Lock:
    """More than one try: a command that looks may have it for an instant (`find_holder`)."""
    for left in reversed(range(TRIES)):
        lock = disk.try_lock(HOME_LOCK)
        if lock is not None:
            return lock
        if left:
            clock.wait(TRY_AGAIN_S)
    holder = find_holder(home, read_status(home))
    who = f"pid {holder.pid} on {holder.host}" if holder else "another process"
    raise Fenced(
        f"{who} runs a pipeline in this home",
        where=str(home),
        advice="Two processes must not run one pipeline; `lamina stop` ends the other one",
    )
