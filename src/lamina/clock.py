"""The one place that reads a clock or draws a random number.

Times are for people and for waiting; no decision and no deletion looks at one. A pipeline may ask
for one beside its rows (METADATA FROM 'epoch_time'). Everything that needs either takes a Clock, so
that tests and the simulation can hold both still.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Protocol

from lamina.ids import CheckpointId


class Clock(Protocol):
    """Time, waiting and chance, as one argument."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, for people to read."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards, for budgets."""
        ...

    def wait(self, seconds: float, cancel: threading.Event | None = None) -> bool:
        """Sleep, or return True at once when *cancel* is set."""
        ...

    def random_bits(self, count: int) -> int:
        """An unpredictable number of *count* bits."""
        ...


class SystemClock:
    """The machine's own clock and its cryptographic random source."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float, cancel: threading.Event | None = None) -> bool:
        if cancel is not None:
            return cancel.wait(seconds)
        time.sleep(seconds)
        return False

    def random_bits(self, count: int) -> int:
        return self._random.getrandbits(count)


def new_checkpoint_id(clock: Clock) -> CheckpointId:
    """A fresh id; two of one process in one millisecond differ by their random bits."""
    return CheckpointId.from_parts(clock.now_ms(), clock.random_bits(74))


def new_writer_id(clock: Clock) -> str:
    """Sixteen random bytes as hex: what tells our bytes from another writer's."""
    return f"{clock.random_bits(128):032x}"
