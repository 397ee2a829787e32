"""What the engine asks of the world: sources, sinks, and somebody who runs streams."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lamina.engine.model import Offset, SourceRange, StreamResult, StreamWork, TableVersion
from lamina.format.commit import Point
from lamina.format.pipeline_record import Owner
from lamina.protocol.sinks import Publish, SinkPosition, judge_publish
from lamina.workspace.model import Staged

if TYPE_CHECKING:
    import pyarrow as pa

    from lamina.state.partition import Looked
    from lamina.state.schema import StateSchema
    from lamina.workspace.base import StagedFiles


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a source one epoch takes; None is all there is."""

    rows: int | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True)
class Listings:
    """What a source has asked a server since it was opened."""

    full: int = 0  # listings of everything there is, not only of what is new
    requests: int = 0  # all that the driver made: pages of listings, and looks at single objects


class SourceMemory(Protocol):
    """Keyed state of a source's own: committed with its epochs, saved and rewound with them.

    It changes by `SourceRange.learned` alone. An engine gives a source the same object every time.
    """

    def find(self, keys: pa.RecordBatch) -> Looked:
        """The values of keys, row by row."""
        ...

    def scan(self) -> Iterator[pa.RecordBatch]:
        """Key and value columns of everything there is."""
        ...


class Source(Protocol):
    """A replayable source, as the driver sees it: only offsets, never rows."""

    @property
    def name(self) -> str: ...

    @property
    def memory(self) -> StateSchema | None:
        """What it remembers beside its offset; None if the offset says it all."""
        ...

    def initial(self) -> Offset:
        """Where a new pipeline begins."""
        ...

    def plan(self, start: Offset, limits: Limits, memory: SourceMemory | None) -> SourceRange:
        """What one epoch reads from *start* on; nothing, with end == start, if nothing is new.

        *memory* is there if the source has asked for one. A range that was planned may never be
        committed: then the next plan has the same start.

        Raises if *start* can no longer be reached: it never begins again by itself.
        """
        ...

    def confirm(self, planned: SourceRange) -> None:
        """Before COMMIT: what was read is still what was planned; raises what has changed."""
        ...

    def acknowledge(self, offset: Offset) -> None:
        """No recovery will ask for rows before *offset* again: what holds them may let go.

        Called after a checkpoint, with the offset of the oldest one that is kept for fallback.
        """
        ...


class Table(Protocol):
    """Reference data that streams are joined with."""

    def version(self) -> TableVersion:
        """What the next epoch reads, all of it there for tasks; the same value if it is the same.

        StoreUnavailable if the table is not there now, or changes while it is read: it is waited
        for. Refused if its columns are not those that were declared, or its keys are not unique.
        """
        ...

    def confirm(self, version: TableVersion) -> None:
        """Before COMMIT: what tasks have read is still what it was; StoreUnavailable if not."""
        ...

    def close(self) -> None:
        """Let go of what it holds; once is enough, twice is not an error."""
        ...


@runtime_checkable
class Listing(Protocol):
    """A source that finds what is new by asking a server for a list, which is slow and may cost."""

    @property
    def listings(self) -> Listings: ...


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a source has that no epoch has planned yet; None: not counted in that."""

    rows: int | None = None
    files: int | None = None


@runtime_checkable
class Behind(Protocol):
    """A source that knows how much it has still to give."""

    @property
    def backlog(self) -> Backlog | None:
        """As of its last plan; None before the first. Read by another thread, for people."""
        ...


@runtime_checkable
class Held(Protocol):
    """A source that holds something while a pipeline runs: a connection, say."""

    def close(self) -> None:
        """Let go of it; once is enough, twice is not an error."""
        ...


class Change(Enum):
    """What the rows of a stream do to the rows before them."""

    APPEND = "append"  # nothing: each row is new and stays
    UPSERT = "upsert"  # a row replaces the one with the same keys
    CHANGES = "changes"  # rows also say which rows are gone: in the column CHANGE


CHANGE = "_change"
"""The last column of a stream of changes, not in its schema; its values are those of Flink."""
INSERT, TAKE_BACK, UPDATE, DELETE = "+I", "-U", "+U", "-D"
NEW, OLD = (INSERT, UPDATE), (TAKE_BACK, DELETE)
"""What a row of changes does: it is there from now on, or it was there and is no more.

Within an epoch a key has one row of OLD and one of NEW at most, in any order. So a sink that goes
by keys puts a new row if there is one, and else deletes the key.
"""


def _no_columns() -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415  slow to import, and `lamina check` knows no columns

    return pa.schema([])


@dataclass(frozen=True, slots=True)
class Output:
    """The rows of a stream, as its sinks get them."""

    schema: pa.Schema = field(default_factory=_no_columns)
    change: Change = Change.APPEND
    keys: tuple[str, ...] | None = None
    """The columns that tell one row from another; none: there is one row at most; None: unknown."""
    key_choices: tuple[frozenset[str], ...] | None = None
    """For each key the columns of which any one will do, where it is in several: of a window its
    start or its end. None: each column of `keys` is one."""

    def is_keyed_by(self, columns: Collection[str]) -> bool:
        """Whether two rows never have the same of these *columns*, as far as is known."""
        if self.keys is None:
            return False
        choices = self.key_choices or [frozenset({key}) for key in self.keys]
        return all(choice.intersection(columns) for choice in choices)


@dataclass(frozen=True, slots=True)
class Publication:
    """One epoch's output for one sink, and what the sink has to remember with it (R6)."""

    pipeline: Owner
    generation: int
    point: Point
    files: Sequence[Staged]
    staged: StagedFiles
    output: Output = field(default_factory=Output)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def position(self) -> SinkPosition:
        """Where a sink stands that has it."""
        return SinkPosition(self.pipeline, self.generation, self.point)

    def judge(self, position: SinkPosition) -> Publish:
        """Whether a sink at *position* gets it or has it already; raises what forbids it."""
        return judge_publish(
            position, self.point, pipeline=self.pipeline, generation=self.generation
        )


class Positions(Protocol):
    """The memory of a sink that has none: its position, durable and whole, for one sink."""

    def load(self) -> SinkPosition: ...

    def save(self, position: SinkPosition) -> None: ...


class Sink(Protocol):
    """Where output goes; it keeps its own position in the transaction of the data (R6)."""

    @property
    def name(self) -> str: ...

    @property
    def delivery(self) -> str:
        """What it promises, for people: "exactly once" or "at least once", and when it is seen."""
        ...

    @property
    def takes(self) -> frozenset[Change]:
        """The kinds of change that it can express; others are refused before it is claimed."""
        ...

    def position(self) -> SinkPosition:
        """What the outside system itself says it has."""
        ...

    def fence(self, generation: int, pipeline: Owner) -> SinkPosition:
        """Let nobody of a lower generation publish any more; then the position.

        From now on the sink is *pipeline*'s, by its id. Refused, with nothing changed, if it is
        another's.
        """
        ...

    def publish(self, publication: Publication) -> None:
        """Make it visible, and the position with it; the same one twice is not an error.

        Refused, Fenced or Diverged before any effect: `protocol.sinks.judge_publish`.
        """
        ...

    def close(self) -> None:
        """Let go of connections; once is enough, twice is not an error."""
        ...


@dataclass(frozen=True, slots=True)
class Beyond:
    """What a sink shows, compared with what it showed at an earlier epoch."""

    epochs: int = 0  # with rows that came after it
    rows: int = 0
    bytes: int = 0
    missing: int = 0  # epochs that it showed then, and has taken back since


@runtime_checkable
class Truncating(Protocol):
    """A sink that can show again exactly what it showed at an earlier epoch."""

    def beyond(self, to: Point) -> Beyond:
        """What `truncate` would take back, and what it would show again; reading only.

        Refused if it cannot be as it was at *to*.
        """
        ...

    def truncate(self, publication: Publication, to: Point) -> None:
        """In the place of `publish`, of a rewind: be as at *to*, and move the position with it.

        The publication has no rows. The same one twice is not an error. What is taken back is not
        destroyed where it can be kept: a later rewind may show it again.
        """
        ...


class Runner(Protocol):
    """Runs one stream for one epoch; everything it returns is durable."""

    def run(self, work: StreamWork) -> StreamResult: ...
