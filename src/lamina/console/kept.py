"""One value that is read anew when it is old: however many ask, one reads.

Fresh        younger than *fresh_s*: as it is
Stale        another thread reads it again; whoever asks waits a moment for that, and no longer
Too old      whoever asks waits for it

A slow store makes pages old, never slow; a thousand readers cost it what one costs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from lamina.clock import Clock

T = TypeVar("T")
STALE_FACTOR = 20
MOMENT_S = 0.04


class Kept(Generic[T]):
    """*read* is called by one thread at a time, with the value before."""

    def __init__(self, read: Callable[[T | None], T], clock: Clock, *, fresh_s: float) -> None:
        self._read = read
        self._clock = clock
        self._fresh_s = fresh_s
        self._reading = threading.Lock()
        self._renewed = threading.Event()
        self._value: T | None = None
        self._at: float | None = None

    @property
    def last(self) -> T | None:
        """What was read last, however old."""
        return self._value

    def get(self) -> T:
        age = self._age()
        if age is not None and age <= self._fresh_s:
            return self._known()
        if age is not None and age <= self._fresh_s * STALE_FACTOR:
            self.renew().wait(MOMENT_S)
            return self._known()
        with self._reading:
            age = self._age()
            if age is None or age > self._fresh_s:  # nobody has read it while we waited
                self._load()
            return self._known()

    def renew(self) -> threading.Event:
        """Have it read in another thread, unless one does already; set when that is over."""
        if self._reading.acquire(blocking=False):
            self._renewed = threading.Event()
            work = threading.Thread(
                target=self._load_and_release, args=(self._renewed,), daemon=True
            )
            work.start()
        return self._renewed

    def renew_if_stale(self) -> None:
        age = self._age()
        if age is None or age > self._fresh_s:
            self.renew()

    def expire(self) -> None:
        """Whoever asks next reads it: something was changed."""
        self._at = None

    def _load_and_release(self, over: threading.Event) -> None:
        try:
            self._load()
        finally:
            self._reading.release()
            over.set()

    def _load(self) -> None:
        self._value = self._read(self._value)
        self._at = self._clock.monotonic()

    def _age(self) -> float | None:
        at = self._at
        return None if at is None else self._clock.monotonic() - at

    def _known(self) -> T:
        value = self._value
        assert value is not None, "it was read"
        return value
