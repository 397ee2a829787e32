"""When to try again what has failed."""

from __future__ import annotations

from lamina.clock import Clock
from lamina.errors import StoreError

FIRST_WAIT_S = 0.5
WAIT_MAX_S = 60.0


class Backoff:
    """Waits twice as long after each failure, until something succeeds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wait_s = 0.0
        self._next_try = clock.monotonic()
        self.failure: StoreError | None = None

    @property
    def error(self) -> str:
        """What went wrong last, for people; empty if nothing did."""
        return "" if self.failure is None else str(self.failure)

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic() >= self._next_try

    def failed(self, error: StoreError) -> None:
        self.failure = error
        self._wait_s = min(max(FIRST_WAIT_S, self._wait_s * 2), WAIT_MAX_S)
        self._next_try = self._clock.monotonic() + self._wait_s

    def succeeded(self) -> None:
        self.failure, self._wait_s = None, 0.0
