"""A clock that moves only when somebody waits, and random numbers that repeat."""

from __future__ import annotations

import hashlib
import threading


class ManualClock:
    """Time starts at *now_ms* and advances by what is waited; the seed fixes every random bit."""

    def __init__(self, seed: int = 0, *, now_ms: int = 1_700_000_000_000) -> None:
        self._seed = seed
        self._start_ms = now_ms
        self._waited_seconds = 0.0
        self._drawn = 0
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        return self._start_ms + int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        with self._lock:
            return self._waited_seconds

    def wait(self, seconds: float, cancel: threading.Event | None = None) -> bool:
        """Advance without sleeping; a cancel that is already set stops the clock, too."""
        if cancel is not None and cancel.is_set():
            return True
        self.advance(seconds)
        return False

    def advance(self, seconds: float) -> None:
        assert seconds >= 0, seconds
        with self._lock:
            self._waited_seconds += seconds

    def random_bits(self, count: int) -> int:
        with self._lock:
            self._drawn += 1
            drawn = self._drawn
        return chance_bits(f"{self._seed}:{drawn}", count)


def chance_bits(what: str, count: int) -> int:
    """*count* bits that depend on *what* and on nothing else: not on threads, not on the run."""
    size = -(-count // 8)
    raw = hashlib.shake_256(what.encode()).digest(size)
    return int.from_bytes(raw, "big") >> (size * 8 - count)
