"""A pipeline as a frozen value, whichever way it was written down.

source     where rows come from, with their columns and, if it has one, their watermark
table      reference data that streams are joined with, a version of it for each epoch
stream     one SELECT over sources and other streams; one with SELECTs inside has a block for each;
           or a Python function of their rows
sink       where the rows of a stream go
function   the user's own Python under a name that SELECTs can call: of rows, or an aggregate

Text that came from the environment is kept apart from text that was written: only the latter is
shown, hashed and stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any

from lamina.format.canonical import Json


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a pipeline file; both count from one."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


START = Place(1, 1)
NOWHERE = Place(0, 0)
"""Of what a Python program has built."""


class Emit(Enum):
    """When an aggregate's rows come out."""

    ON_WINDOW_CLOSE = "on window close"
    ON_UPDATE = "on update"
    CHANGES = "changes"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str  # as Spark's DDL has it
    metadata: str = ""  # what of a record beside its value: METADATA FROM 'timestamp'

    def definition(self) -> Json:
        named: list[Json] = [self.name.lower(), self.type.lower()]
        return [*named, self.metadata.lower()] if self.metadata else named


@dataclass(frozen=True, slots=True)
class Option:
    """A value as it was written, `${VAR}` and all, and as it is."""

    written: str
    value: str = field(repr=False)  # may be a secret
    made: Callable[..., Any] | None = field(default=None, repr=False, compare=False)
    """A function that a Python program has given; the two texts are its name."""

    @classmethod
    def plain(cls, value: str) -> Option:
        return cls(value, value)


@dataclass(frozen=True, slots=True)
class Watermark:
    """Rows may come this much later than the latest event time seen."""

    column: str
    delay_us: int


@dataclass(frozen=True, slots=True)
class DeclaredSource:
    name: str
    columns: tuple[Column, ...]
    format: str
    options: Mapping[str, Option] = field(default_factory=dict)
    watermark: Watermark | None = None
    place: Place = field(default=NOWHERE, compare=False)

    def definition(self) -> Json:
        """What it is, for comparing: without case, and nothing from the environment is in it."""
        watermark = self.watermark
        return {
            "columns": [column.definition() for column in self.columns],
            "format": self.format.lower(),
            "options": _written(self.options),
            "watermark": None
            if watermark is None
            else [watermark.column.lower(), watermark.delay_us],
        }


@dataclass(frozen=True, slots=True)
class DeclaredTable:
    """Reference data for joins; an epoch reads one version of it."""

    name: str
    columns: tuple[Column, ...]
    format: str
    options: Mapping[str, Option] = field(default_factory=dict)
    place: Place = field(default=NOWHERE, compare=False)

    def definition(self) -> Json:
        return {
            "columns": [column.definition() for column in self.columns],
            "format": self.format.lower(),
            "options": _written(self.options),
        }


@dataclass(frozen=True, slots=True)
class Code:
    """The user's own Python, as `module:name`; *made* if a program has given the thing itself.

    Nobody can tell from outside whether what it computes has changed: its *version* says so.
    """

    name: str
    version: str
    made: Callable[..., Any] | None = field(default=None, repr=False, compare=False)

    def definition(self) -> Json:
        """Where a program imports its function from may change, what it is called may not."""
        name = self.name if self.made is None else self.name.rpartition(":")[2]
        return [name, self.version]


@dataclass(frozen=True, slots=True)
class FrameFunction:
    """A stream that is a function of DataFrames, one for each input, row by row."""

    code: Code
    inputs: tuple[str, ...]

    def definition(self) -> Json:
        return ["function", self.code.definition(), [name.lower() for name in self.inputs]]


@dataclass(frozen=True, slots=True)
class KeyedFunction:
    """A stream that is a function of rows and state, called for keys (engine/user_steps.py)."""

    code: Code
    inputs: tuple[str, ...]
    keys: tuple[str, ...]  # columns of the inputs
    state: tuple[Column, ...]
    output: tuple[Column, ...]
    has_timers: bool = False
    ttl_us: int | None = None  # after the latest row of a key its state is kept this long
    initial: tuple[tuple[str, Any], ...] = ()  # columns of the state of a key that has none

    def definition(self) -> Json:
        return [
            "keyed",
            self.code.definition(),
            [name.lower() for name in self.inputs],
            [name.lower() for name in self.keys],
            [column.definition() for column in self.state],
            [column.definition() for column in self.output],
            self.has_timers,
            self.ttl_us,
            [[name.lower(), repr(value)] for name, value in self.initial],
        ]

    @property
    def follows_time(self) -> bool:
        """Whether the watermark calls it, or takes its state away."""
        return self.has_timers or self.ttl_us is not None


@dataclass(frozen=True, slots=True)
class DeclaredFunction:
    """A function that SELECTs can call: of each row, of Arrow arrays of rows, or an aggregate."""

    name: str
    parameters: tuple[Column, ...]
    returns: str  # a type, as Spark's DDL has it
    code: Code
    of_arrays: bool = False
    place: Place = field(default=NOWHERE, compare=False)
    is_aggregate: bool = False  # a class with partial, merge and finish (engine/user_aggregates.py)

    def definition(self) -> Json:
        parameters: list[Json] = [each.type.lower() for each in self.parameters]
        said: list[Json] = [parameters, self.returns.lower(), self.of_arrays]
        kind: list[Json] = ["aggregate"] if self.is_aggregate else []
        return [*said, self.code.definition(), *kind]


@dataclass(frozen=True, slots=True)
class Lateness:
    """What becomes of rows whose window has closed by the watermark of their source."""

    allowed_us: int = 0  # windows stay open for this much longer
    rows_to: str = ""  # the stream that has the rows that are later still

    def definition(self) -> Json:
        return [self.allowed_us, self.rows_to.lower()]


class JoinKind(StrEnum):
    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"
    SEMI = "LEFT SEMI"
    ANTI = "LEFT ANTI"

    @property
    def has_pairs(self) -> bool:
        """Whether rows of both sides come out together."""
        return self not in (JoinKind.SEMI, JoinKind.ANTI)

    @property
    def judges_left(self) -> bool:
        return self not in (JoinKind.INNER, JoinKind.RIGHT)

    @property
    def judges_right(self) -> bool:
        return self in (JoinKind.RIGHT, JoinKind.FULL)

    @property
    def judges(self) -> bool:
        """Whether rows come out when no partner can come any more."""
        return self.judges_left or self.judges_right


PROCTIME = "PROCTIME()"
"""Behind FOR SYSTEM_TIME AS OF: the epoch in which a row comes to the join."""


@dataclass(frozen=True, slots=True)
class AsofOf:
    """Of a join that gives each row of the left side one of the right side (asof_clauses.py)."""

    match: str = ""  # what MATCH_CONDITION says, if it is there
    as_of: str = ""  # what FOR SYSTEM_TIME AS OF says: a column, or PROCTIME
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class JoinOf:
    """A block that is a join of two inputs (joins.py): columns of both, under their aliases."""

    kind: JoinKind
    left: str  # a source, a stream or a block; it may be a join, which has aliases of its own
    right: str
    left_alias: str
    right_alias: str
    on: str = ""  # the condition, as it was written
    on_place: Place = field(default=NOWHERE, compare=False)
    using: tuple[str, ...] = ()  # columns that are equal
    where: str = ""  # of an inner join: what is asked of the pairs later
    where_place: Place = field(default=NOWHERE, compare=False)
    ttl_us: int | None = None  # rows that are further apart in time are no pair
    mentioned: tuple[
        str, ...
    ] = ()  # names in the SELECT, in lower case: other columns are not kept
    whole: tuple[str, ...] = ()  # aliases of tables of which every column is kept, in lower case
    values: tuple[tuple[str, str], ...] = ()  # of x [NOT] IN (SELECT y ...): x and y
    is_inner: bool = False  # a subquery of WHERE: a name is one of its own table first
    asof: AsofOf | None = None
    is_table: bool = False  # the right side is a table of the pipeline: nothing is kept
    is_value: bool = False  # the right side is a query inside an expression (scalar_joins.py)


@dataclass(frozen=True, slots=True)
class Values:
    """A block that has, beside the rows of FROM, the values of queries inside expressions."""

    left: str  # what it reads; a join has aliases of its own
    left_alias: str
    columns: tuple[tuple[str, str], ...]  # the alias that each has, and its expression
    tables: tuple[str, ...] = ()  # that the expressions read, in lower case
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Stream:
    name: str
    select: str  # the user's own text, with its variables
    emit: Emit | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)  # values, maybe secret
    place: Place = field(default=NOWHERE, compare=False)  # of the SELECT
    block_of: str = ""
    """The stream that it is a block of: a WITH, a subquery, a part of a UNION (blocks.py)."""
    scope: tuple[tuple[str, str], ...] = ()  # names of WITH, in lower case, and their blocks
    top: int | None = None  # of rows that it ranks: how many are kept, if what reads it says so
    late: Lateness = Lateness()
    late_of: str = ""  # the stream whose late rows it has (lateness.py)
    whole: bool = False  # its window functions are over closed windows (whole_windows.py)
    union: tuple[str, ...] = ()  # the blocks that it puts together; then its text is all of them
    python: FrameFunction | KeyedFunction | None = None  # then it has no SELECT
    values: Values | None = None  # it has the values of queries (scalars.py), and no SELECT
    join: JoinOf | None = None  # it is a join, and no SELECT: its text is that of FROM
    joined: str = ""  # the block that is the join in its FROM
    state_ttl_us: int | None = None  # rows of its joins are kept this long, whatever ON says
    aggregates: tuple[DeclaredFunction, ...] = ()  # those of the pipeline that are the user's own
    tables: tuple[str, ...] = ()  # those of the pipeline, in lower case
    every_us: int | None = None  # EMIT EVERY: rows come out once in so much event time


@dataclass(frozen=True, slots=True)
class DeclaredSink:
    name: str
    stream: str
    format: str
    options: Mapping[str, Option] = field(default_factory=dict)
    place: Place = field(default=NOWHERE, compare=False)

    def definition(self) -> Json:
        return {
            "stream": self.stream.lower(),
            "format": self.format.lower(),
            "options": _written(self.options),
        }


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Sources, tables, streams, sinks and functions, by name, in the order they were written."""

    sources: Mapping[str, DeclaredSource]
    streams: Mapping[str, Stream]
    sinks: Mapping[str, DeclaredSink]
    functions: Mapping[str, DeclaredFunction] = field(default_factory=dict)
    tables: Mapping[str, DeclaredTable] = field(default_factory=dict)


def memory_name(source: str) -> str:
    """The state that is the memory of a source; called so when only files had one."""
    return f"files of {source}"


def _written(options: Mapping[str, Option]) -> Json:
    return {name.lower(): option.written for name, option in options.items()}
