"""Whether a source of files or objects was silent for so long that it holds nothing back any more.

As with partitions of Kafka, the clock is the process's, and counts from its start. What follows is
committed with the epoch, so a replay does not ask again.
"""

from __future__ import annotations

from lamina.clock import Clock, SystemClock
from lamina.connectors.kinds import DeclaredOption, OptionType, SourceContext
from lamina.connectors.options import bad_option

IDLE_AFTER = "idle_after"
IDLE_AFTER_OPTION = DeclaredOption(
    IDLE_AFTER,
    "Without a new file for this long, it no longer holds back what it is joined with",
    OptionType.INTERVAL,
)


def check_idle_after(context: SourceContext) -> None:
    """BadPipeline if there is nothing that it could hold back."""
    if IDLE_AFTER in context.given.declared and context.source.watermark is None:
        message = f"has {IDLE_AFTER}, and no watermark that it could hold"
        advice = "Give it a WATERMARK column DELAY OF INTERVAL n unit, or leave the option out"
        raise bad_option(context.source, message, context.given.file, advice)


class SilentFor:
    """When a source had something new the last time."""

    def __init__(self, idle_after_us: int | None, clock: Clock | None = None) -> None:
        self._idle_after_s = None if idle_after_us is None else idle_after_us / 1_000_000
        self._clock = clock or SystemClock()
        self._heard: float | None = None

    def holding(self, *, has_more: bool) -> tuple[str, ...] | None:
        """For `SourceRange.holding`: nothing holds the watermark once the source is silent."""
        if self._idle_after_s is None:
            return None
        now = self._clock.monotonic()
        if has_more or self._heard is None:
            self._heard = now
        return () if now - self._heard >= self._idle_after_s else None
