"""What an epoch is made of: pure decisions about offsets and watermarks.

An epoch applies the watermark that was committed with its parent. The latest event time of the rows
that it reads acts in the next one. So with the same epochs the result is the same, whatever was
killed in between. What an epoch has applied is committed with it, beside the offsets of the source.

With `max_ahead` a row that is further ahead of the watermark than that does not move it. If two
epochs with rows in succession have only such rows, this is a gap in the data and not a wrong clock:
the watermark then jumps to the earliest of them. If the first rows of a source are further apart
than `max_ahead`, its watermark begins at the earliest: the latest may be a wrong clock, too.

A source may have parts (`SourceRange.holding`), each with a latest event time of its own. Then the
slowest part moves the watermark. Parts that the source has not named as holding it, because they
were silent for long, are passed over: what they bring later may be late.

A source all of whose parts are silent would hold what it is joined with for ever. So it goes along:
its watermark follows those of the sources that are read with it and do speak, and if all of them
are silent, the latest of them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from lamina.engine.model import (
    Input,
    Offset,
    Seen,
    SourceRange,
    StagedRows,
    StreamResult,
    TableVersion,
)
from lamina.errors import Refused
from lamina.format.manifest_model import CONNECTOR_TYPE, ConnectorCheckpoint

END_US = (1 << 63) - 2
"""The watermark of a source that is drained: what ends later ends never."""
DRAINED = (END_US, 1 << 62)
"""The second is what was written before: a time in the year 148108, and Spark has later ones."""

_APPLIED = "applied_watermark_us"
_AHEAD = "ahead_us"
_PARTS = "parts_us"


@dataclass(frozen=True, slots=True)
class Timing:
    """What a pipeline says of event time."""

    delays_us: Mapping[str, int]  # of sources with a watermark
    together: Collection[frozenset[str]] = ()  # those of each stream


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Event time as it was committed: of every source, in microseconds."""

    by_source: Mapping[str, int] = field(default_factory=dict)
    ahead: Mapping[str, int] = field(default_factory=dict)
    """The earliest event time of a source whose last rows were all too far ahead to count."""
    parts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The latest event time of each part of a source that has parts."""

    def of(self, sources: frozenset[str]) -> int | None:
        """The watermark of a stream that reads *sources*: the slowest one's; None before it."""
        known = [self.by_source.get(source) for source in sorted(sources)]
        if not known or any(time is None for time in known):
            return None
        return min(time for time in known if time is not None)

    def floor_of(self, sources: frozenset[str], lateness_us: int = 0) -> int | None:
        """What is not late begins here: late is a window that ends at the watermark or before.

        With a lateness, that much before; not if nothing more is to come.
        """
        watermark = self.of(sources)
        if watermark is None or watermark in DRAINED:
            return None if watermark is None else watermark + 1
        return watermark - lateness_us + 1

    def latest_max(
        self, sources: Iterable[str], delays_us: Mapping[str, int], max_ahead_us: int | None
    ) -> dict[str, int | None]:
        """The latest event time that still moves a source's watermark; None before its first one.

        A source that is left out has no such limit.
        """
        if max_ahead_us is None:
            return {}
        before = {source: self.by_source.get(source) for source in sources if source in delays_us}
        return {
            source: None if mark is None else mark + delays_us[source] + max_ahead_us
            for source, mark in before.items()
        }

    def advanced(
        self,
        seen: Mapping[str, Seen],
        timing: Timing,
        max_ahead_us: int | None,
        holding: Mapping[str, Collection[str]] | None = None,
    ) -> Watermarks:
        """After an epoch that has read *seen*; a watermark never falls.

        *holding* are the parts that hold the watermark, of sources that have parts.
        """
        marks, ahead, parts = dict(self.by_source), dict(self.ahead), dict(self.parts)
        for source, delay in timing.delays_us.items():
            rows = seen.get(source)
            if rows is None or not rows.timed:
                continue
            if holding is not None and source in holding:
                known = parts[source] = _later(parts.get(source, {}), rows.parts)
                slowest = _slowest(known, holding[source])
                if slowest is not None:
                    marks[source] = max(slowest - delay, marks.get(source, slowest - delay))
                continue
            latest = _latest(rows, marks.get(source), ahead.pop(source, None), max_ahead_us)
            if latest is not None:
                marks[source] = max(latest - delay, marks.get(source, latest - delay))
            elif rows.earliest_us is not None:
                ahead[source] = rows.earliest_us
        silent = {s for s in timing.delays_us if holding is not None and holding.get(s) == ()}
        return Watermarks(_with_silent(marks, silent, timing.together), ahead, parts)

    def gaps(self, after: Watermarks, seen: Mapping[str, Seen]) -> dict[str, int]:
        """How far the watermarks of sources have jumped over gaps, in microseconds."""
        return {
            source: after.by_source[source] - before
            for source, before in sorted(self.by_source.items())
            if source in self.ahead
            and source in seen
            and seen[source].latest_us is None
            and after.by_source[source] > before
        }

    def ended(self, sources: Iterable[str]) -> Watermarks:
        """As they are when nothing more is to come of *sources*."""
        ended = {**self.by_source, **dict.fromkeys(sources, END_US)}
        return Watermarks(ended, self.ahead, self.parts)

    def only(self, sources: Iterable[str]) -> Watermarks:
        """The watermarks alone: what an epoch applies."""
        return Watermarks({s: self.by_source[s] for s in sources if s in self.by_source})


def _with_silent(
    marks: Mapping[str, int], silent: Collection[str], together: Collection[frozenset[str]]
) -> dict[str, int]:
    """The watermarks, where silent sources go along with what they are read with."""
    moved = dict(marks)
    for source in silent:
        others = frozenset[str]().union(*(each for each in together if source in each)) - {source}
        speaking = others.difference(silent)
        if not speaking:
            known = [marks[each] for each in others if each in marks]
            target = max(known, default=None)
        else:
            target = min(marks[s] for s in speaking) if speaking <= marks.keys() else None
        if target is not None and target not in DRAINED:
            moved[source] = max(target, marks.get(source, target))
    return moved


def _later(known: Mapping[str, int], seen: Mapping[str, int]) -> dict[str, int]:
    return {**known, **{part: max(at, known.get(part, at)) for part, at in seen.items()}}


def _slowest(known: Mapping[str, int], holding: Collection[str]) -> int | None:
    """None while a part that holds the watermark has had no row yet."""
    if not holding or any(part not in known for part in holding):
        return None
    return min(known[part] for part in holding)


def _latest(
    rows: Seen, before: int | None, ahead_us: int | None, max_ahead_us: int | None
) -> int | None:
    """The event time that moves a watermark; None if every row is too far ahead to do so."""
    if max_ahead_us is None or rows.earliest_us is None:
        return rows.latest_us
    if before is None:
        assert rows.latest_us is not None, "without a limit all rows count"
        is_within = rows.latest_us <= rows.earliest_us + max_ahead_us
        return rows.latest_us if is_within else rows.earliest_us
    if rows.latest_us is None and ahead_us is not None:  # for the second time: a gap
        return min(ahead_us, rows.earliest_us)
    return rows.latest_us


def stood_at(
    epoch: int,
    end: Offset,
    *,
    applied: int | None,
    ahead: int | None = None,
    connector: str | None = None,
    parts: Mapping[str, int] | None = None,
) -> ConnectorCheckpoint:
    """Where a source stands after an epoch, and what the next one must know of its event time."""
    told = json.dumps(parts, sort_keys=True, separators=(",", ":")) if parts else None
    kept = {_APPLIED: applied, _AHEAD: ahead, CONNECTOR_TYPE: connector, _PARTS: told}
    metadata = {name: str(value) for name, value in kept.items() if value is not None}
    return ConnectorCheckpoint(dict(end), epoch, metadata)


def applied_of(checkpoints: Mapping[str, ConnectorCheckpoint]) -> Watermarks:
    """What the last epoch has applied, as it was committed."""
    return Watermarks(_times(checkpoints, _APPLIED))


def ahead_of(checkpoints: Mapping[str, ConnectorCheckpoint]) -> dict[str, int]:
    """`Watermarks.ahead`, as it was committed."""
    return _times(checkpoints, _AHEAD)


def parts_of(checkpoints: Mapping[str, ConnectorCheckpoint]) -> dict[str, dict[str, int]]:
    """`Watermarks.parts`, as it was committed."""
    return {
        source: json.loads(each.metadata[_PARTS])
        for source, each in checkpoints.items()
        if _PARTS in each.metadata
    }


def _times(checkpoints: Mapping[str, ConnectorCheckpoint], name: str) -> dict[str, int]:
    return {
        source: int(each.metadata[name])
        for source, each in checkpoints.items()
        if name in each.metadata
    }


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """What one epoch reads, and the watermark it applies."""

    epoch: int
    ranges: Mapping[str, SourceRange]
    watermarks: Watermarks
    time_us: int = 0  # when it was planned (epoch_times.py)
    tables: Mapping[str, TableVersion] = field(default_factory=dict)

    @property
    def has_input(self) -> bool:
        return any(each.start != each.end for each in self.ranges.values())

    @property
    def holding(self) -> dict[str, tuple[str, ...]]:
        """The parts that hold the watermark, of sources that have parts."""
        named = {name: each.holding for name, each in self.ranges.items()}
        return {name: parts for name, parts in named.items() if parts is not None}


def check_not_drained(plan: EpochPlan, committed: Watermarks, windowed: Collection[str]) -> None:
    """All windows of a drained source are closed: new rows of it would all be late."""
    for source, each in plan.ranges.items():
        drained = committed.by_source.get(source) in DRAINED
        if drained and source in windowed and each.start != each.end:
            raise Refused(
                f"the source {source!r} was drained, and now has new rows: all its windows are "
                "closed, so every row would be late",
                advice="Use --drain only when no more rows will come. To undo it, start with "
                "--lose-after and an epoch from before; sinks keep the rows they got",
            )


def plan_epoch(
    epoch: int,
    ranges: Mapping[str, SourceRange],
    committed: Watermarks,
    applied: Watermarks,
    *,
    timing: Timing,
    drain: Iterable[str] = (),
) -> EpochPlan | None:
    """The next epoch, or None if there is nothing to do.

    Something is to do if a source has more, or if the committed watermark has moved on and no epoch
    has applied it yet: after the last data one more epoch closes windows. So it has if a source has
    fallen silent. To *drain* sources is to say that nothing more comes of them: then one epoch
    without input closes all windows.
    """
    plan = EpochPlan(epoch, ranges, committed)
    if plan.has_input or committed.only(ranges) != applied.only(ranges):
        return plan
    if committed.advanced({}, timing, None, plan.holding) != committed:
        return plan
    ended = committed.ended(drain)
    return EpochPlan(epoch, ranges, ended) if ended != committed else None


def input_of(name: str, plan: EpochPlan, results: Mapping[str, StreamResult]) -> Input:
    """What a stream reads of a source, or of a stream that has run in this epoch."""
    if name in plan.ranges:
        return replace(plan.ranges[name], learned=None)  # tasks do not need it
    tasks = results[name].tasks
    return StagedRows(name, tuple(file for task in tasks for file in task.staged))
