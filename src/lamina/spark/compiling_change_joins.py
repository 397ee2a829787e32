"""A join of rows that may be taken back, compiled: without times, and its rows are changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from lamina.engine.change_joins import columns_of_state
from lamina.engine.joins import ChangeJoin
from lamina.engine.model import OperatorPlan
from lamina.engine.ports import CHANGE, Change, Output
from lamina.format.canonical import Json
from lamina.pipeline.join_checks import check_sides, rows_replace
from lamina.pipeline.join_conditions import LEFT, RIGHT, Condition, Relation
from lamina.pipeline.join_keys import Columns, keys_of_join
from lamina.pipeline.model import Emit, JoinKind, Stream
from lamina.pipeline.tokens import bad_at, read_script
from lamina.spark.change_joins import ChangeJoinPlan
from lamina.spark.compiling_joins import Joined, Joining, sides_of
from lamina.spark.internals import arrow_schema, empty_frame
from lamina.spark.join_asked import Asked, Input
from lamina.spark.joins import JoinPlan, Types, flat, seen_by_readers
from lamina.spark.known import Known
from lamina.spark.plan_checks import check_deterministic, of_now, refused_type
from lamina.spark.schemas import advice_on, first_line, nullable
from lamina.spark.streams import Reading, SparkStream


@dataclass(frozen=True, slots=True)
class ChangesJoined(Joined):
    """A join over changes, compiled; what its readers know of it."""

    keys: Columns | None = None  # columns that tell its rows apart, each as `alias.column`

    @property
    def output(self) -> Output:
        schema = pa.ipc.read_schema(pa.py_buffer(self.stream.arrow_output))
        columns = [field for field in schema if field.name != CHANGE]
        return Output(pa.schema(columns), Change.CHANGES, self.keys)

    def known(
        self, inputs: Sequence[Known], sources: frozenset[str], meaning: Json, lateness_us: int
    ) -> Known:
        stored = [field for field in self.stream.output if field.name != CHANGE]
        return Known(
            self.schema,
            sources,
            [meaning, "changes"],
            Change.CHANGES,
            self.keys,
            lateness_us=lateness_us,
            inlined=self.seen,
            delay_us=max(each.delay_us for each in inputs),
            relations=self.relations,
            stored=StructType(stored),
        )


def compile_change_join(
    spark: SparkSession, stream: Stream, inputs: Sequence[Known], reading: Reading, file: str
) -> Joined:
    """The join of two *inputs*, of which one or both are changes."""
    of = stream.join
    assert of is not None
    for known, name in zip(inputs, (of.left, of.right), strict=True):
        if known.change is Change.UPSERT:
            raise rows_replace(name, of, file)
    changing = (known.change is Change.CHANGES for known in inputs)
    check_sides(of, (next(changing), next(changing)), file)
    left, right = sides_of(of, map(without_times, inputs), reading)
    try:
        asked = Asked(spark, stream, of, (left, right), file)
        return ChangeJoining(spark, stream, of, (left, right), asked).compiled()
    except PySparkException as error:
        said = f"the join of {stream.block_of!r}: {first_line(error)}"
        raise bad_at(said, file, of.on_place, advice_on(error)) from error


def without_times(known: Known) -> Known:
    """Bounds of time are conditions like others: nothing is kept by them."""
    relations = tuple(Relation(each.alias, each.columns) for each in known.relations)
    return replace(known, times=frozenset(), ends=frozenset(), relations=relations)


@dataclass(frozen=True, slots=True)
class ChangeJoining(Joining):
    @property
    def _called(self) -> str:
        return "a join over changes"

    def compiled(self) -> Joined:
        condition = self.asked.condition()
        self._check(condition)
        kept, others, using = self._read()
        if not self.of.kind.has_pairs:
            others = [Relation(each.alias, ()) for each in others]
        shown = (*kept, *(others if self.of.kind.has_pairs else ()))
        seen = seen_by_readers(shown, using)
        with self._view(LEFT) as left, self._view(RIGHT) as right:
            plan = _over_changes(self._plan(condition, (kept, others), seen, (left, right)))
            rows = self.spark.sql(plan.changes((left, right), (left, right)))
            check_deterministic(rows, self.asked.bad)
        self._check_types(rows.schema, plan.columns)
        columns = StructType([nullable(rows.schema[name]) for name in plan.columns])
        every = StructType([nullable(field) for field in rows.schema])
        operator = self._operator_of(plan, arrow_schema(empty_frame(self.spark, every)), condition)
        output = StructType([*columns, StructField(CHANGE, StringType())])
        stream = self._stream_of(plan, output, operator)
        read = self._with_reader(replace(stream, output=columns), shown, seen, 0)
        return ChangesJoined(
            stream, shown, read.schema, read.seen, 0, self._told_apart_by(condition, plan.types)
        )

    def _stream_of(self, plan: JoinPlan, output: StructType, operator: OperatorPlan) -> SparkStream:
        stream = SparkStream(
            self.stream.name,
            Reading((*self.inputs[LEFT].reading.parts, *self.inputs[RIGHT].reading.parts)),
            plan,
            output,
            operator.output_schema,
            state=output,
            operator=operator,
            over=(self.inputs[LEFT].reading, self.inputs[RIGHT].reading),
        )
        self._check_pairs(stream)
        return stream

    def _time(self, side: Input) -> str:  # noqa: ARG002  rows of changes have none that counts
        return ""

    # what is refused

    def _check(self, condition: Condition) -> None:
        of = self.of
        if of.ttl_us is not None:
            raise self.asked.bad(
                f"STATE TTL in {self._called}: a row is kept until it is taken back",
                "Leave it out: what is there now is kept. If another join needs it, let that be a "
                "stream of its own",
            )
        if of.kind is not JoinKind.INNER and condition.pairs:
            raise self.asked.bad(
                f"{condition.pairs[0]} in the ON of a {of.kind} JOIN over changes compares both "
                "sides: which rows have a partner is decided by equal columns",
                "Put it into WHERE, or use an inner join",
            )
        for text, place in ((of.on, of.on_place), (of.where, of.where_place)):
            script = read_script(text, self.asked.file, place)
            now = next(of_now(script.words), None)
            if now is not None:
                raise script.bad(
                    f"{now.text}() in {self._called}: a row that is taken back must be as it was",
                    now,
                    "Compute it in a stream of its own over a source, whose rows never change",
                )

    def _check_types(self, schema: StructType, kept: Sequence[str]) -> None:
        """A row that is taken back is found by all its columns."""
        for name in kept:
            kind = schema[name].dataType
            reason = refused_type(kind)
            if reason is not None:
                raise self.asked.bad(
                    f"{name} of type {kind.simpleString()} in {self._called} cannot be kept, "
                    f"because rows that are taken back are found by it: {reason}",
                    "Leave it out, or make a STRING of it in a stream before",
                )

    # what tells rows apart

    def _told_apart_by(self, condition: Condition, types: Types) -> Columns | None:
        keys = (self._keys(LEFT), self._keys(RIGHT))
        equal = (self._equal(side, condition, types) for side in (LEFT, RIGHT))
        return keys_of_join(self.of.kind, keys, (next(equal), next(equal)))

    def _keys(self, side: int) -> Columns | None:
        """The columns that tell the rows of a side apart."""
        given = self.inputs[side]
        if given.known.keys is None or given.known.relations:
            return given.known.keys
        return tuple(flat(given.alias, key) for key in given.known.keys)

    def _equal(self, side: int, condition: Condition, types: Types) -> list[str]:
        """The columns of a side that are join keys, of which no two values become one there."""
        found = []
        for number, pair in enumerate(condition.keys):
            said = pair[side].replace("`", "").replace(" ", "").lower()
            for relation in self.inputs[side].relations:
                for column in relation.columns:
                    name = flat(relation.alias, column)
                    is_it = said in (name.lower(), column.lower())
                    if is_it and _keeps_values(types.get(name, ""), types[f"k{number}"]):
                        found.append(name)
        return found

    def _operator_of(
        self, plan: ChangeJoinPlan, arrow: pa.Schema, condition: Condition
    ) -> OperatorPlan:
        names = plan.columns
        key, value, rows, output = columns_of_state(
            [arrow.field(name) for name in plan.keys], [arrow.field(name) for name in names]
        )
        lefts = len(plan.sides[LEFT].columns)
        equal = (" = ".join(pair) for pair in condition.keys)
        return OperatorPlan(
            key_schema=key.serialize().to_pybytes(),
            value_schema=value.serialize().to_pybytes(),
            step=ChangeJoin(self.of.kind, names, lefts),
            time=None,
            emit=Emit.ON_UPDATE,
            meanings=(*equal, "side", *names, "how often"),
            rows_schema=rows.serialize().to_pybytes(),
            output_schema=output.serialize().to_pybytes(),
            takes_back=True,
            group=len(plan.keys),
        )


_WHOLE = ("tinyint", "smallint", "int", "bigint")


def _keeps_values(kind: str, as_key: str) -> bool:
    """Whether different values are different keys, in the type that both sides have."""
    return kind == as_key or (kind in _WHOLE and as_key in _WHOLE)


def _over_changes(plan: JoinPlan) -> ChangeJoinPlan:
    given = {each.name: getattr(plan, each.name) for each in fields(plan)}
    return ChangeJoinPlan(**{**given, "outputs": (*plan.outputs, CHANGE)})
