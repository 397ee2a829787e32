"""A temporal join over changes, compiled: rows of events, each with what a table has in its epoch.

The right side is read as that of a join over changes, by its join keys and without times. The left
side keeps its event times, because its rows come out in the epoch in which they came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lamina.engine.joins import TemporalJoin
from lamina.engine.model import OperatorPlan
from lamina.engine.ports import Change
from lamina.engine.temporal_joins import columns_of_state
from lamina.pipeline.join_checks import looks_up, no_versions
from lamina.pipeline.join_conditions import LEFT, RIGHT, Condition, Relation
from lamina.pipeline.model import PROCTIME, Emit, Stream
from lamina.pipeline.tokens import bad_at, read_script
from lamina.spark.change_joins import TemporalJoinPlan
from lamina.spark.compiling_change_joins import ChangeJoining, compile_change_join, without_times
from lamina.spark.compiling_joins import Joined, compile_join, sides_of
from lamina.spark.internals import arrow_schema, empty_frame
from lamina.spark.join_asked import Asked
from lamina.spark.joins import JoinPlan, seen_by_readers
from lamina.spark.known import Known, change_of
from lamina.spark.plan_checks import check_deterministic
from lamina.spark.schemas import advice_on, first_line, nullable
from lamina.spark.streams import Reading

Compiler = Callable[[SparkSession, Stream, Sequence[Known], Reading, str], Joined]


def compile_stream_join(
    spark: SparkSession, stream: Stream, inputs: Sequence[Known], reading: Reading, file: str
) -> Joined:
    """The join of two *inputs*, which *reading* has in their order."""
    of = stream.join
    assert of is not None
    left, right = (known.change for known in inputs)
    compiled: Compiler = compile_join
    if change_of(inputs) is Change.CHANGES:
        compiled = compile_change_join
        if left is Change.APPEND and looks_up(of, (False, right is Change.CHANGES)):
            compiled = compile_temporal_join
    return compiled(spark, stream, inputs, reading, file)


@dataclass(frozen=True, slots=True)
class TemporalJoined(Joined):
    """Its rows have the event times of the left side, and come out with these."""

    def timed(self, inputs: Sequence[Known]) -> Sequence[Known]:
        return inputs[:RIGHT]


def compile_temporal_join(
    spark: SparkSession, stream: Stream, inputs: Sequence[Known], reading: Reading, file: str
) -> Joined:
    """The join of two *inputs*, of which the second one is changes."""
    of = stream.join
    assert of is not None
    assert of.asof is not None
    left, _ = sides_of(of, inputs, reading)
    if not _is_of_the_epoch(of.asof.as_of, left.relations):
        raise no_versions(of.right, of, file)
    plain, sides = replace(of, asof=None), sides_of(of, map(without_times, inputs), reading)
    try:
        asked = Asked(spark, stream, plain, sides, file)
        return _TemporalJoining(spark, stream, plain, sides, asked, left.relations).compiled()
    except PySparkException as error:
        said = f"the join of {stream.block_of!r}: {first_line(error)}"
        raise bad_at(said, file, of.on_place, advice_on(error)) from error


def _is_of_the_epoch(as_of: str, left: Sequence[Relation]) -> bool:
    """Whether FOR SYSTEM_TIME AS OF names the epoch in which a row comes here."""
    if as_of == PROCTIME:
        return True
    *table, column = (word.text.lower() for word in read_script(as_of, "").words)
    having = [each for each in left if not table or each.alias.lower() == table[0]]
    return any(column in each.clocks for each in having if each.has(column))


@dataclass(frozen=True, slots=True)
class _TemporalJoining(ChangeJoining):
    timed: tuple[Relation, ...]  # the tables of the left side, with their times

    @property
    def _called(self) -> str:
        return "a temporal join over changes"

    def compiled(self) -> Joined:
        condition = self.asked.condition()
        self._check(condition)
        kept, others, using = self._read()
        seen = seen_by_readers((*kept, *others), using)
        with self._view(LEFT) as left, self._view(RIGHT) as right:
            plan = _temporal(self._plan(condition, (kept, others), seen, (left, right)))
            rows = self.spark.sql(plan.meeting(left, right, right))
            check_deterministic(rows, self.asked.bad)
        self._check_types(rows.schema, [name for name, _ in plan.sides[RIGHT].columns])
        output = StructType([nullable(rows.schema[name]) for name in plan.columns])
        every = StructType([nullable(field) for field in rows.schema])
        arrow = arrow_schema(empty_frame(self.spark, every))
        stream = self._stream_of(plan, output, self._operator_of(plan, arrow, condition))
        shown = (*self._with_times(kept), *others)
        read = self._with_reader(stream, shown, seen, 0)
        return TemporalJoined(stream, shown, read.schema, read.seen, 0)

    def _with_times(self, kept: Sequence[Relation]) -> Iterator[Relation]:
        """The tables of the left side as readers see them: nothing has waited."""
        for each, timed in zip(kept, self.timed, strict=True):
            yield replace(each, times=timed.times, clocks=timed.clocks)

    def _operator_of(self, plan: JoinPlan, arrow: pa.Schema, condition: Condition) -> OperatorPlan:
        lefts, rights = ([arrow.field(name) for name, _ in side.columns] for side in plan.sides)
        keys = [arrow.field(name) for name in plan.keys]
        key, value, rows, output = columns_of_state(keys, lefts, rights)
        equal = (" = ".join(pair) for pair in condition.keys)
        return OperatorPlan(
            key_schema=key.serialize().to_pybytes(),
            value_schema=value.serialize().to_pybytes(),
            step=TemporalJoin(self.of.kind, plan.columns, len(lefts)),
            time=None,
            emit=Emit.ON_UPDATE,
            meanings=(*equal, *(field.name for field in rights), "how often"),
            rows_schema=rows.serialize().to_pybytes(),
            output_schema=output.serialize().to_pybytes(),
            takes_back=True,
            group=len(keys),
        )


def _temporal(plan: JoinPlan) -> TemporalJoinPlan:
    return TemporalJoinPlan(**{each.name: getattr(plan, each.name) for each in fields(plan)})
