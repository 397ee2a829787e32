"""A stream as Spark runs it: the texts of its jobs over the views of what it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from lamina.engine.joins import Join
from lamina.engine.model import OperatorPlan
from lamina.engine.ports import CHANGE, DELETE, INSERT, NEW, OLD
from lamina.engine.taking_back import TAKEN_BACK
from lamina.engine.task_state import ROWS
from lamina.pipeline.plans import FLOOR, Aggregation, Stateless
from lamina.pipeline.select import quoted
from lamina.spark.change_joins import ChangeJoinPlan, TemporalJoinPlan
from lamina.spark.frame_functions import FramePlan
from lamina.spark.internals import query
from lamina.spark.joins import JoinPlan

SUMMED = (LongType, DecimalType)
"""Types of sums whose value does not depend on the order."""

ALL = "k_all"
"""The key of an aggregate without one: all rows are one group."""


Views = Mapping[str, str]
"""Of each source, stream and block that is read: the view with this epoch's rows."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a SELECT is over: an input, or several as one (UNION ALL).

    A block without state is no input: its SELECT takes its place.
    """

    parts: tuple[str | SparkStream, ...]

    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._inputs()))

    def sql(self, views: Views) -> str:
        """As it stands behind FROM."""
        texts = [
            views[part] if isinstance(part, str) else f"({part.select(part.reading.sql(views))})"
            for part in self.parts
        ]
        together = " UNION ALL ".join(f"SELECT * FROM {text}" for text in texts)
        return texts[0] if len(texts) == 1 else f"({together})"

    def _inputs(self) -> Iterator[str]:
        for part in self.parts:
            if isinstance(part, str):
                yield part
            else:
                yield from part.reading.inputs()


@dataclass(frozen=True, slots=True)
class KeyedPlan:
    """A keyed function, or DISTINCT ON: rows go to the owner of their key as they are."""

    keys: tuple[str, ...]
    rows: tuple[str, ...]  # all columns of what it reads
    outputs: tuple[str, ...]
    meanings: tuple[str, ...] = ()  # what columns of the state hold, if their names do not say it


@dataclass(frozen=True, slots=True)
class SparkStream:
    """A stream as a runner needs it: the plan, and the schemas on the way."""

    name: str
    reading: Reading
    plan: Stateless | Aggregation | FramePlan | KeyedPlan | JoinPlan
    output: StructType
    arrow_output: bytes
    schemas: Mapping[str, StructType] = field(default_factory=dict)  # of its inputs
    state: StructType | None = None  # keys and partials
    operator: OperatorPlan | None = None
    distincts: tuple[str, ...] = ()  # blocks that have the values of DISTINCT aggregates, each once
    of_late_rows: bool = False  # it is told before which time windows have closed
    of_bad_rows: bool = False  # it reads what is wrong with a source, not what is right
    changing: frozenset[str] = frozenset()  # inputs whose rows are changes
    makes_rows: bool = False  # of one row it may make several
    over: tuple[Reading, Reading] | None = None  # of a join: what each side reads

    @property
    def inputs(self) -> tuple[str, ...]:
        """The sources, streams and blocks whose rows it needs."""
        return (*self.reading.inputs(), *self.distincts)

    @property
    def keys(self) -> tuple[str, ...]:
        if isinstance(self.plan, (KeyedPlan, JoinPlan)):
            return self.plan.keys
        assert isinstance(self.plan, Aggregation)
        return self.plan.keys or (ALL,)

    @property
    def meanings(self) -> tuple[str, ...]:
        """What each column of the state holds, keys first."""
        named = tuple(self.state.names if self.state is not None else ())
        if isinstance(self.plan, JoinPlan):
            return named
        if isinstance(self.plan, KeyedPlan):
            return self.plan.meanings or named
        assert isinstance(self.plan, Aggregation)
        return self.plan.meanings if self.plan.keys else ("all rows", *self.plan.meanings)

    @property
    def called(self) -> dict[str, str]:
        """What columns of the state are in the user's words, for errors."""
        names = self.state.names if self.state is not None else []
        return dict(zip(names, self.meanings, strict=True)) if names else {}

    @property
    def columns(self) -> tuple[str, ...] | None:
        """What of the state's rows is the output, column by column, if it is nothing else."""
        if isinstance(self.plan, KeyedPlan):
            return self.plan.outputs
        if isinstance(self.plan, JoinPlan):
            return None if self.plan.pairs else self.plan.outputs
        return self.plan.columns if isinstance(self.plan, Aggregation) else None

    @property
    def partial_columns(self) -> list[str]:
        """As `placed` gives them."""
        if isinstance(self.plan, KeyedPlan):
            return list(self.plan.rows)
        if isinstance(self.plan, JoinPlan):
            return list(self.plan.sent)
        assert self.state is not None
        rows = [ROWS] if isinstance(self.plan, Aggregation) and self.plan.time is not None else []
        return [*self.state.names, *rows, *([TAKEN_BACK] if self.changing else [])]

    @property
    def can_send_rows(self) -> bool:
        """Whether rows, merged one by one, come to exactly the partials that Spark computes.

        A sum of doubles does not: its last bits depend on the order. What the user's own aggregates
        come to is theirs to say.
        """
        if not isinstance(self.plan, Aggregation) or self.plan.of_rows is None or self.distincts:
            return False
        assert self.state is not None
        return all(
            not isinstance(self.state[column].dataType, (FloatType, DoubleType))
            and (merge.function != "sum" or isinstance(self.state[column].dataType, SUMMED))
            for merge in self.plan.merges
            for column in merge.columns
            if column not in self.own
        )

    @property
    def asks(self) -> bool:
        """Whether a join is told behind its task which rows have a partner."""
        step = self.operator.step if self.operator is not None else None
        return isinstance(step, Join) and step.asks

    @property
    def own(self) -> frozenset[str]:
        """The columns of the user's own aggregates."""
        plan = self.plan
        return frozenset(dict(plan.own) if isinstance(plan, Aggregation) else ())

    @property
    def is_session(self) -> bool:
        return isinstance(self.plan, Aggregation) and self.plan.session is not None

    @property
    def moves_rows(self) -> bool:
        """Whether Spark moves rows in it, or in a block that is a part of it."""
        parts = [part for part in self.reading.parts if not isinstance(part, str)]
        here = isinstance(self.plan, Stateless) and self.plan.moves_rows
        return here or any(part.moves_rows for part in parts)

    def placed(
        self, views: Views, partitions: int, *, of_rows: bool = False, taken_back: Views
    ) -> str:
        """The partials of all rows, or of each, on the owner of their key (R8)."""
        hint = f"/*+ REPARTITION({partitions}, {', '.join(map(quoted, self.keys))}) */"
        if isinstance(self.plan, KeyedPlan):
            return f"SELECT {hint} * FROM {self.reading.sql(views)}"
        if isinstance(self.plan, JoinPlan):
            return f"SELECT {hint} * FROM ({self._joined(self.plan, views, taken_back)})"
        text = self.rows(views) if of_rows else self.partial(views)
        if self.changing:
            text = self._signed(text, self.partial(taken_back))
        return f"SELECT {hint} * FROM ({text})"

    def _joined(self, plan: JoinPlan, views: Views, taken_back: Views) -> str:
        """The rows of both sides of a join."""
        assert self.over is not None
        new = [each.sql(views) for each in self.over]
        if isinstance(plan, ChangeJoinPlan):
            return plan.changes(new, [each.sql(taken_back) for each in self.over])
        if isinstance(plan, TemporalJoinPlan):
            left, right = new
            return plan.meeting(left, right, self.over[1].sql(taken_back))
        return plan.sql(*new)

    def rows(self, views: Views) -> str:
        """The partials of each row alone, in the types of the state; of own ones the arguments."""
        assert isinstance(self.plan, Aggregation)
        assert self.state is not None
        typed = [
            f.name
            if f.name in self.own
            else f"CAST({f.name} AS {f.dataType.simpleString()}) {f.name}"
            for f in self.state
        ]
        counted = [] if self.plan.time is None else [f"1L AS {ROWS}"]
        text = self.plan.rows(self.reading.sql(views))
        return f"SELECT {', '.join([*typed, *counted])} FROM ({text})"

    def _signed(self, new: str, old: str) -> str:
        """Partials of what is new and of what is taken back, which no late rows are counted of."""
        assert isinstance(self.plan, Aggregation)
        plain = "*" if self.plan.time is None else f"* EXCEPT ({ROWS}), 0L AS {ROWS}"
        return (
            f"SELECT *, false AS {TAKEN_BACK} FROM ({new}) UNION ALL "
            f"SELECT {plain}, true AS {TAKEN_BACK} FROM ({old})"
        )

    def partial(self, views: Views) -> str:
        """The partials of an epoch's rows; a key has several where there are DISTINCT ones."""
        assert isinstance(self.plan, Aggregation)
        rows = "" if self.plan.time is None else ROWS  # how many are late is asked of windows only
        text = self.plan.partial(self.reading.sql(views), rows)
        for number, name in enumerate(self.distincts):
            text += f" UNION ALL {self.plan.partial_of_distinct(number, views[name], rows)}"
        return text if self.plan.keys else f"SELECT 0 AS {ALL}, * FROM ({text})"

    def stored(self, name: str) -> StructType:
        """The columns of an input as a stream has staged it."""
        fields = self.schemas[name].fields
        changes = [StructField(CHANGE, StringType())] if name in self.changing else []
        return StructType([*fields, *changes])

    def sides(self, name: str, view: str) -> tuple[str, str]:
        """Of an input of changes: the rows that are new, and those that are taken back."""
        columns = ", ".join(map(quoted, self.schemas[name].names))
        kinds = (", ".join(f"'{kind}'" for kind in side) for side in (NEW, OLD))
        new, old = (f"(SELECT {columns} FROM {view} WHERE {CHANGE} IN ({each}))" for each in kinds)
        return new, old

    def final(self, view_name: str, carry: str = "", number: str = "") -> str:
        if isinstance(self.plan, JoinPlan):
            return self.plan.final(view_name, carry, number)
        assert isinstance(self.plan, Aggregation)
        return self.plan.final(view_name, carry, number)

    def stateless(self, spark: SparkSession, views: Views, taken_back: Views) -> DataFrame:
        """The rows of one without state, over those of its inputs."""
        if isinstance(self.plan, FramePlan):
            return self.plan.over(spark, [views[name] for name in self.inputs])
        return query(spark, self._selected(views, taken_back))

    def late(self, views: Views, floor: int) -> str:
        """The rows that came too late for windows that end before *floor*."""
        over = f"(SELECT *, {floor}L AS {FLOOR} FROM {self.reading.sql(views)})"
        return self.select(over)

    def select(self, over: str) -> str:
        """The rows of one without state, *over* what stands behind FROM."""
        assert isinstance(self.plan, Stateless)
        return self.plan.sql(over)

    def _selected(self, views: Views, taken_back: Views) -> str:
        """The output of one without state; of changes what is new, and what is taken back.

        The SELECT runs over both as it stands. A condition may leave out one version of a row, so
        they do not belong together any more.
        """
        new = self.select(self.reading.sql(views))
        if not self.changing:
            return new
        old = self.select(self.reading.sql(taken_back))
        return (
            f"SELECT *, '{INSERT}' AS {CHANGE} FROM ({new}) UNION ALL "
            f"SELECT *, '{DELETE}' AS {CHANGE} FROM ({old})"
        )

    @property
    def selected_columns(self) -> list[str]:
        return [*self.output.names, *([CHANGE] if self.changing else [])]

    @property
    def staged(self) -> bytes:
        """The Arrow schema of the rows of `stateless`."""
        if not self.changing:
            return self.arrow_output
        schema = pa.ipc.read_schema(pa.py_buffer(self.arrow_output))
        return bytes(schema.append(pa.field(CHANGE, pa.string())).serialize().to_pybytes())
