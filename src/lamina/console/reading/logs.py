"""The write-ahead log of a home for people: its segments, and how its pipeline started last."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from lamina.console.reading.look import PipelineReader
from lamina.errors import LaminaError, NotFound
from lamina.format.home_names import DriverSegment, parse_segment
from lamina.format.log import Takeover
from lamina.wal.driver_log import DriverSegmentContent, read_driver_segment
from lamina.wal.home import read_home
from lamina.wal.scan import all_segments, segments_of
from lamina.wal.survey import Survey, survey

ENTRIES_BACK_MAX = 300


@dataclass(frozen=True, slots=True)
class LastStart:
    """What the newest process wrote when it took over."""

    generation: int
    at_ms: int | None  # when it told the store; None if that is too long ago to look for
    landed_on: int  # the epoch; 0: nothing was there
    commits: int  # that it took over from its predecessors' logs
    is_whole: bool  # False: the part of the log that it began with has been dropped since
    sinks_ahead: tuple[str, ...]


class Logs:
    """Of one home. A segment is read again only if it has grown."""

    def __init__(self, reader: PipelineReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int], Survey] = {}
        self._start: tuple[str, LastStart] | None = None  # by the segment that it began

    def segments(self) -> tuple[str, tuple[Survey, ...]]:
        """The home by its name, and its segments as they end now."""
        with self._lock, self._reader.disk() as (disk, _):
            home = read_home(disk)
            found: dict[tuple[str, int], Survey] = {}
            for path in all_segments(disk):
                try:
                    key = (path, disk.size(path))
                    known = self._known.get(key)
                    found[key] = known or survey(disk, path, home.identity)
                except NotFound:
                    continue  # a running pipeline has dropped it meanwhile
            self._known = found
            return home.name, tuple(found.values())

    def last_start(self) -> LastStart | None:
        """None if it never started, or if its log cannot be read."""
        try:
            with self._lock, self._reader.disk() as (disk, _):
                paths = segments_of(disk, None)
                first = _first_of_last(paths)
                if first is None:
                    return None
                if self._start is None or self._start[0] != first:
                    content = read_driver_segment(disk, first, read_home(disk).identity)
                    if content.adopt is None:
                        return self._of(content)  # it is just starting
                    self._start = (first, self._of(content))
                return self._start[1]
        except LaminaError:
            return None

    def _of(self, content: DriverSegmentContent) -> LastStart:
        adopt = content.adopt
        return LastStart(
            generation=content.generation,
            at_ms=self._taken_over_ms(content.generation),
            landed_on=adopt.head.epoch if adopt and adopt.head else 0,
            commits=len(adopt.commits) if adopt else 0,
            is_whole=content.number == 0,
            sinks_ahead=tuple(sorted(adopt.sinks)) if adopt else (),
        )

    def _taken_over_ms(self, generation: int) -> int | None:
        try:
            with self._reader.checkpointer() as checkpointer:
                first = max(1, checkpointer.history().seq - ENTRIES_BACK_MAX)
                for entry, _ in checkpointer.log.entries(first):
                    if isinstance(entry.body, Takeover) and entry.generation == generation:
                        return entry.timestamp_ms
        except LaminaError:
            return None
        return None


def _first_of_last(paths: tuple[str, ...]) -> str | None:
    """The oldest part that is left of what the newest generation has written."""
    names = [
        (name, path) for path in paths if isinstance(name := parse_segment(path), DriverSegment)
    ]
    newest = max((name.generation for name, _ in names), default=0)
    return next((path for name, path in names if name.generation == newest), None)
