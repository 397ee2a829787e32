"""What the engine asks of the world: sources, sinks, and somebody who runs streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lamina.engine.model import (
    Offset,
    SourceFile,
    SourceRange,
    Staged,
    StreamResult,
    StreamWork,
)
from lamina.format.commit import Point
from lamina.protocol.sinks import SinkPosition


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a source one epoch takes; None is all there is."""

    rows: int | None = None
    files: int | None = None


class Memory(Protocol):
    """The files that a source has read: keyed state, committed and checkpointed like any other."""

    def find(self, paths: Sequence[str]) -> Sequence[SourceFile | None]:
        """Each file as it was when it was read; None if it was not."""
        ...


class Source(Protocol):
    """A replayable source, as the driver sees it: only offsets, never rows."""

    @property
    def name(self) -> str: ...

    def initial(self) -> Offset:
        """Where a new pipeline begins."""
        ...

    def plan(self, start: Offset, limits: Limits, memory: Memory) -> SourceRange:
        """What one epoch reads from *start* on; nothing, with end == start, if nothing is new.

        Raises if *start* can no longer be reached: it never begins again by itself.
        """
        ...

    def confirm(self, planned: SourceRange) -> None:
        """Before COMMIT: what was read is still what was planned; raises what has changed."""
        ...


@dataclass(frozen=True, slots=True)
class Publication:
    """One epoch's output for one sink, and what the sink has to remember with it (R6)."""

    pipeline: str
    generation: int
    point: Point
    files: Sequence[Staged]
    home: Path


class Sink(Protocol):
    """Where output goes; it keeps its own position in the transaction of the data (R6)."""

    @property
    def name(self) -> str: ...

    @property
    def delivery(self) -> str:
        """What it promises, for people: "exactly once" or "at least once", and when it is seen."""
        ...

    def position(self) -> SinkPosition:
        """What the outside system itself says it has."""
        ...

    def fence(self, generation: int) -> SinkPosition:
        """Let nobody of a lower generation publish any more; then the position."""
        ...

    def publish(self, publication: Publication) -> None:
        """Make it visible, and the position with it; the same one twice is no error."""
        ...


class Runner(Protocol):
    """Runs one stream for one epoch; everything it returns is durable."""

    def run(self, work: StreamWork) -> StreamResult: ...
