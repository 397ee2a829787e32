"""What an epoch is made of: pure decisions about offsets and watermarks.

An epoch applies the watermark that was committed with its parent. The latest event time of the rows
that it reads acts in the next one. So with the same epochs the result is the same, whatever was
killed in between. What an epoch has applied is committed with it, beside the offsets of the source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from lamina.engine.model import Offset, Seen, SourceRange
from lamina.errors import Refused
from lamina.format.manifest_model import ConnectorCheckpoint

END_US = (1 << 63) - 2
"""The watermark of a source that is drained: what ends later ends never."""
DRAINED = (END_US, 1 << 62)
"""The second is what was written before: a time in the year 148108, and Spark has later ones."""

_APPLIED = "applied_watermark_us"


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Event time as it was committed: of every source, in microseconds."""

    by_source: Mapping[str, int] = field(default_factory=dict)

    def of(self, sources: frozenset[str]) -> int | None:
        """The watermark of a stream that reads *sources*: the slowest one's; None before it."""
        known = [self.by_source.get(source) for source in sorted(sources)]
        if not known or any(time is None for time in known):
            return None
        return min(time for time in known if time is not None)

    def floor_of(self, sources: frozenset[str]) -> int | None:
        """What is not late begins here: late is a window that ends at the watermark or before."""
        watermark = self.of(sources)
        return None if watermark is None else watermark + 1

    def latest_max(self, source: str, delay_us: int, max_ahead_us: int | None) -> int | None:
        """The latest event time that still moves the watermark of its source; None: any does."""
        before = self.by_source.get(source)
        if before is None or max_ahead_us is None:
            return None
        return before + delay_us + max_ahead_us

    def advanced(
        self,
        seen: Mapping[str, Seen],
        delays_us: Mapping[str, int],
        max_ahead_us: int | None,
    ) -> Watermarks:
        """After an epoch that has read *seen*: it never falls.

        A row further ahead of the watermark than *max_ahead_us* does not move it: it would make
        everything else late.
        """
        after = dict(self.by_source)
        for source, delay in delays_us.items():
            latest = seen[source].latest_us if source in seen else None
            if latest is None:
                continue
            now = latest - delay
            before = after.get(source)
            if before is not None and max_ahead_us is not None and now > before + max_ahead_us:
                continue
            after[source] = now if before is None else max(before, now)
        return Watermarks(after)

    def ended(self, sources: Iterable[str]) -> Watermarks:
        """As they are when nothing more is to come of *sources*."""
        return Watermarks({**self.by_source, **dict.fromkeys(sources, END_US)})

    def only(self, sources: Iterable[str]) -> Watermarks:
        return Watermarks({s: self.by_source[s] for s in sources if s in self.by_source})


def stood_at(epoch: int, end: Offset, applied: int | None) -> ConnectorCheckpoint:
    """Where a source stands after an epoch, and the watermark that the epoch has applied to it."""
    metadata = {} if applied is None else {_APPLIED: str(applied)}
    return ConnectorCheckpoint(dict(end), epoch, metadata)


def applied_of(checkpoints: Mapping[str, ConnectorCheckpoint]) -> Watermarks:
    """What the last epoch has applied, as it was committed."""
    return Watermarks(
        {
            source: int(each.metadata[_APPLIED])
            for source, each in checkpoints.items()
            if _APPLIED in each.metadata
        }
    )


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """What one epoch reads, and the watermark it applies."""

    epoch: int
    ranges: Mapping[str, SourceRange]
    watermarks: Watermarks

    @property
    def has_input(self) -> bool:
        return any(each.start != each.end for each in self.ranges.values())


def check_not_drained(plan: EpochPlan, committed: Watermarks, windowed: Collection[str]) -> None:
    """All windows of a drained source are closed: new rows of it would all be late."""
    for source, each in plan.ranges.items():
        drained = committed.by_source.get(source) in DRAINED
        if drained and source in windowed and each.start != each.end:
            raise Refused(
                f"the source {source!r} was drained, and now there is more of it: all its "
                "windows are closed, so every row would be late",
                advice="Go back to a checkpoint from before, or run without --drain next time",
            )


def plan_epoch(
    epoch: int,
    ranges: Mapping[str, SourceRange],
    committed: Watermarks,
    applied: Watermarks,
    *,
    drain: Iterable[str] = (),
) -> EpochPlan | None:
    """The next epoch, or None if there is nothing to do.

    Something is to do if a source has more, or if the committed watermark has moved on and no epoch
    has applied it yet: after the last data one more epoch closes windows. To *drain* sources is to
    say that nothing more comes of them: then one epoch without input closes all windows.
    """
    plan = EpochPlan(epoch, ranges, committed)
    if plan.has_input or committed.only(ranges) != applied.only(ranges):
        return plan
    ended = committed.ended(drain)
    return EpochPlan(epoch, ranges, ended) if ended != committed else None
