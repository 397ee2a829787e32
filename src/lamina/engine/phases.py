"""How long an epoch takes, phase by phase: for people, nothing is decided by it.

plan      ask every source how far to read
run       every stream, one after the other
decide    memory and state of the next epoch, and the parts of the COMMIT
commit    write and sync the COMMIT
publish   every sink
"""

from __future__ import annotations

from lamina.clock import Clock

PHASES = PLAN, RUN, DECIDE, COMMIT, PUBLISH = "plan", "run", "decide", "commit", "publish"


class Phases:
    """A stopwatch with laps: each phase gets the time since the lap before it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.streams: dict[str, float] = {}  # parts of `run`

    def begin(self) -> None:
        """What happened since the last lap belongs to another epoch, or to none."""
        self._since = self._clock.monotonic()

    def lap(self, phase: str) -> float:
        """The time since the last lap was *phase*."""
        now = self._clock.monotonic()
        took, self._since = now - self._since, now
        self.seconds[phase] += took
        return took

    def lap_stream(self, stream: str) -> None:
        """The time since the last lap was a run of *stream*."""
        self.streams[stream] = self.lap(RUN)
