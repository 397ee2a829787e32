"""A join of two streams, compiled: its keys and their types, its bounds, what it keeps of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lamina.engine.asof import Asof
from lamina.engine.join_asking import ASKS
from lamina.engine.join_rows import AT, UNTIL, columns_of_state, columns_that_come_out
from lamina.engine.joins import Join
from lamina.engine.model import OperatorPlan
from lamina.engine.ports import Change, Output
from lamina.format.canonical import Json
from lamina.pipeline.join_checks import rows_replace
from lamina.pipeline.join_conditions import LEFT, RIGHT, Condition, Relation
from lamina.pipeline.model import Emit, JoinKind, JoinOf, Stream
from lamina.pipeline.plans import Stateless
from lamina.pipeline.select import quoted
from lamina.pipeline.tokens import bad_at, read_script
from lamina.pipeline.variables import filled
from lamina.spark.asof import without_times
from lamina.spark.frames import view
from lamina.spark.internals import arrow_schema, empty_frame
from lamina.spark.join_asked import Asked, Input
from lamina.spark.joins import JoinPlan, JoinSide, flat, seen_by_readers
from lamina.spark.known import Known
from lamina.spark.plan_checks import check_deterministic
from lamina.spark.schemas import advice_on, first_line, nullable
from lamina.spark.streams import Reading, SparkStream
from lamina.spark.tasks import META


@dataclass(frozen=True, slots=True)
class Joined:
    """A join, compiled; what its readers know of it."""

    stream: SparkStream
    relations: tuple[Relation, ...]
    schema: StructType
    seen: SparkStream
    delay_us: int

    @property
    def output(self) -> Output:
        return Output(pa.ipc.read_schema(pa.py_buffer(self.stream.arrow_output)), Change.APPEND)

    def timed(self, inputs: Sequence[Known]) -> Sequence[Known]:
        """The first of its *inputs*, those that the event times of its rows are of."""
        return inputs

    def known(
        self, inputs: Sequence[Known], sources: frozenset[str], meaning: Json, lateness_us: int
    ) -> Known:
        """Its rows come out when a partner has come, or cannot come any more."""
        return Known(
            self.schema,
            sources,
            meaning,
            lateness_us=lateness_us + self.delay_us,
            inlined=self.seen,
            delay_us=max(each.delay_us for each in inputs),
            relations=self.relations,
            stored=self.stream.output,
        )


def compile_join(
    spark: SparkSession, stream: Stream, inputs: Sequence[Known], reading: Reading, file: str
) -> Joined:
    """The join of two *inputs*, which *reading* has in their order."""
    of = stream.join
    assert of is not None
    for known, name in zip(inputs, (of.left, of.right), strict=True):
        if known.change is not Change.APPEND:
            raise rows_replace(name, of, file)
    left, right = sides_of(of, inputs, reading)
    try:
        asked = Asked(spark, stream, of, (left, right), file)
        return Joining(spark, stream, of, (left, right), asked).compiled()
    except PySparkException as error:
        said = f"the join of {stream.block_of!r}: {first_line(error)}"
        raise bad_at(said, file, of.on_place, advice_on(error)) from error


def sides_of(of: JoinOf, inputs: Iterable[Known], reading: Reading) -> tuple[Input, Input]:
    """The two *inputs*, which *reading* has in their order."""
    aliases = (of.left_alias, of.right_alias)
    left, right = (
        Input(known, Reading((part,)), alias)
        for known, part, alias in zip(inputs, reading.parts, aliases, strict=True)
    )
    return left, right


@dataclass(frozen=True, slots=True)
class Joining:
    spark: SparkSession
    stream: Stream
    of: JoinOf
    inputs: tuple[Input, Input]
    asked: Asked

    def compiled(self) -> Joined:
        condition = self.asked.condition()
        step = self.asked.step(condition)
        kept, others, using = self._read()
        if not self.of.kind.has_pairs:
            others = [self._asked(each, condition) for each in others]
        if isinstance(step, Asof):
            others = without_times(others)
        shown = (*kept, *(others if self.of.kind.has_pairs else ()))
        asked = seen_by_readers((*kept, *others), using)
        with self._view(LEFT) as left, self._view(RIGHT) as right:
            plan = self._plan(condition, (kept, others), asked, (left, right))
            rows = self.spark.sql(plan.sql(left, right))
            check_deterministic(rows, self.asked.bad)
        state = StructType([nullable(rows.schema[name]) for name in plan.columns])
        output = StructType([state[name] for name in plan.outputs])
        every = StructType([nullable(field) for field in rows.schema])
        arrow = arrow_schema(empty_frame(self.spark, every))
        step = replace(step, columns=plan.columns, left=len(plan.sides[LEFT].columns))
        if isinstance(step, Join):
            step = replace(step, asks=self.of.kind.judges and bool(plan.pairs))
        stream = SparkStream(
            self.stream.name,
            Reading((*self.inputs[LEFT].reading.parts, *self.inputs[RIGHT].reading.parts)),
            plan,
            output,
            _bytes(pa.schema([arrow.field(name) for name in plan.outputs])),
            state=state,
            operator=self._operator(plan, arrow, step, condition),
            over=(self.inputs[LEFT].reading, self.inputs[RIGHT].reading),
        )
        self._check_pairs(stream)
        return self._with_reader(stream, shown, seen_by_readers(shown, using), step.delay_us)

    def _check_pairs(self, stream: SparkStream) -> None:
        """Whether Spark knows what the condition of pairs says."""
        if stream.columns is not None or stream.state is None:
            return
        number = ASKS if stream.asks else ""
        numbers = [StructField(number, LongType())] if number else []
        carried = StructType([*stream.state.fields, *numbers, StructField(META, StringType())])
        with view(empty_frame(self.spark, carried), f"pairs of {stream.name}") as pairs:
            check_deterministic(self.spark.sql(stream.final(pairs, META, number)), self.asked.bad)

    def _with_reader(
        self,
        stream: SparkStream,
        shown: tuple[Relation, ...],
        seen: Stateless,
        delay_us: int,
    ) -> Joined:
        output = stream.output
        with view(empty_frame(self.spark, output), f"rows of {self.stream.name}") as flat_view:
            schema = self.spark.sql(seen.sql(flat_view)).schema
        reader = SparkStream(
            self.stream.name, Reading((self.stream.name,)), seen, schema, b"", makes_rows=False
        )
        return Joined(stream, shown, schema, reader, delay_us)

    def _plain(
        self, lefts: Sequence[Relation], rights: Sequence[Relation]
    ) -> Iterator[tuple[str, str]]:
        """Columns of USING without their table, in lower case.

        A row without a left side has those of the right one.
        """
        for column in self.of.using:
            left, right = (
                next(quoted(flat(r.alias, c)) for r in side for c in r.columns if same(c, column))
                for side in (lefts, rights)
            )
            kind = self.of.kind
            is_left = not kind.judges_right
            text = left if is_left else right if kind is JoinKind.RIGHT else ""
            yield column.lower(), text or f"coalesce({left}, {right})"

    # what is kept

    def _read(self) -> tuple[list[Relation], list[Relation], dict[str, str]]:
        """The tables of both sides, and what columns of USING are."""
        kept = [self._kept(each) for each in self.inputs[LEFT].relations]
        others = [self._kept(each) for each in self.inputs[RIGHT].relations]
        return kept, others, dict(self._plain(kept, others))

    def _kept(self, relation: Relation) -> Relation:
        """Only with columns that somebody mentions; its rows wait, and come in another epoch."""
        of, columns = self.of, relation.columns
        if relation.alias.lower() not in of.whole:
            columns = tuple(c for c in columns if c.lower() in of.mentioned)
        return Relation(relation.alias, columns, relation.times)

    def _asked(self, relation: Relation, condition: Condition) -> Relation:
        """Of a side that does not come out: only with columns that the condition mentions."""
        words = [
            w for text in condition.pairs for w in read_script(text, "", self.of.on_place).words
        ]
        names = {word.text.lower() for word in words}
        columns = tuple(c for c in relation.columns if c.lower() in names)
        return Relation(relation.alias, columns, relation.times)

    def _view(self, side: int) -> AbstractContextManager[str]:
        """No rows, with the columns of a side."""
        schema = StructType([nullable(field) for field in self.inputs[side].known.schema])
        return view(empty_frame(self.spark, schema), f"side {side} of {self.stream.name}")

    def _plan(
        self,
        condition: Condition,
        kept: tuple[Sequence[Relation], Sequence[Relation]],
        asked: Stateless,
        views: tuple[str, str],
    ) -> JoinPlan:
        types: dict[str, str] = {}
        for number, pair in enumerate(condition.keys):
            types[f"k{number}"] = self.asked.key_type(pair, views)
        sides, columns, outputs = [], list[str](), list[str]()
        for number, side in enumerate(self.inputs):
            made = self._side(side, number, condition, kept[number])
            listed = ", ".join(f"{text} AS {quoted(name)}" for name, text in made.columns)
            if listed:
                over = f"{views[number]} AS {quoted(side.called)}"
                frame = self.spark.sql(f"SELECT {listed} FROM {over}")  # noqa: S608  a check
                types |= {f.name: f.dataType.simpleString() for f in frame.schema}
            columns += [name for name, _ in made.columns]
            if number == LEFT or self.of.kind.has_pairs:
                outputs += [name for name, _ in made.columns]
            sides.append(made)
        pairs = " AND ".join(f"({filled(text, self.stream.variables)})" for text in condition.pairs)
        return JoinPlan(
            (sides[LEFT].filled(self.stream.variables), sides[RIGHT].filled(self.stream.variables)),
            tuple(f"k{number}" for number in range(len(condition.keys))),
            tuple(columns),
            tuple(outputs),
            types,
            pairs,
            asked,
        )

    def _side(
        self, side: Input, number: int, condition: Condition, kept: Sequence[Relation]
    ) -> JoinSide:
        asked = " AND ".join(f"({text})" for text in condition.sides[number])
        kind = self.of.kind
        may_be_alone = kind.judges_right if number else kind.judges_left
        is_only = may_be_alone and kind is not JoinKind.SEMI
        columns = tuple(
            (flat(each.alias, column), f"{quoted(each.alias)}.{quoted(column)}")
            for each in kept
            for column in each.columns
        )
        return JoinSide(
            side.called,
            tuple(pair[number] for pair in condition.keys),
            condition.times[number] or self._time(side),
            columns,
            "" if is_only else asked,
            asked if is_only else "",
        )

    def _time(self, side: Input) -> str:
        found = [(each, column) for each in side.relations for column in sorted(each.times)]
        relation, column = found[0]
        return f"{quoted(relation.alias)}.{quoted(column)}"

    def _operator(
        self, plan: JoinPlan, arrow: pa.Schema, step: Join | Asof, condition: Condition
    ) -> OperatorPlan:
        keys = [arrow.field(name) for name in plan.keys]
        sides = [arrow.field(name) for name in plan.columns]
        key, value, rows = columns_of_state(keys, sides)
        meanings = (
            *(" = ".join(pair) for pair in condition.keys),
            *("kept until", "number", "side", "event time"),
            *plan.columns,
        )
        waits = isinstance(step, Asof) or step.kind.judges
        asks = isinstance(step, Join) and step.asks
        return OperatorPlan(
            key_schema=_bytes(key),
            value_schema=_bytes(value),
            step=step,
            time=UNTIL,
            emit=Emit.ON_WINDOW_CLOSE if waits else Emit.ON_UPDATE,
            meanings=meanings,
            late_by=AT,
            rows_schema=_bytes(rows),
            output_schema=_bytes(columns_that_come_out(sides, asks=asks)),
            has_timers=waits,
            group=len(keys),
        )


def same(one: str, other: str) -> bool:
    return one.lower() == other.lower()


def _bytes(schema: pa.Schema) -> bytes:
    data: bytes = schema.serialize().to_pybytes()
    return data
