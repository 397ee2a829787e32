"""A join of two streams, compiled: its keys and their types, its bounds, what it keeps of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, NumericType, StructType

from lamina.engine.join_rows import AT, UNTIL, columns_of_state
from lamina.engine.joins import Join
from lamina.engine.model import OperatorPlan
from lamina.engine.ports import Change, Output
from lamina.errors import BadPipeline
from lamina.format.canonical import Json
from lamina.pipeline.join_checks import rows_replace
from lamina.pipeline.join_conditions import LEFT, RIGHT, Condition, Conditions, Relation
from lamina.pipeline.model import Emit, JoinKind, JoinOf, Place, Stream
from lamina.pipeline.plans import Stateless
from lamina.pipeline.select import quoted
from lamina.pipeline.tokens import bad_at, did_you_mean, read_script
from lamina.pipeline.variables import filled
from lamina.spark.frames import view
from lamina.spark.internals import arrow_schema, empty_frame
from lamina.spark.joins import JoinPlan, JoinSide, flat, seen_by_readers
from lamina.spark.known import Known
from lamina.spark.plan_checks import check_deterministic, refused_type
from lamina.spark.schemas import advice_on, first_line, nullable
from lamina.spark.streams import Reading, SparkStream

_BOUNDS = (
    "Write how far apart they may be: ON ... AND y.ts BETWEEN x.ts - INTERVAL 1 HOUR AND x.ts + "
    "INTERVAL 1 HOUR. Or write STATE TTL INTERVAL 1 DAY behind the SELECT: rows that are further "
    "apart are no pair then"
)


@dataclass(frozen=True, slots=True)
class Input:
    """A side of a join: what it reads, and what that is called in FROM."""

    known: Known
    reading: Reading
    alias: str

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The tables that it is: a join is several."""
        known = self.known
        if known.relations:
            return known.relations
        times = known.times | known.ends
        return (Relation(self.alias, tuple(known.schema.names), times),)

    @property
    def called(self) -> str:
        return self.alias or "_joined"


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
    left, right = (
        Input(known, Reading((part,)), alias)
        for known, part, alias in zip(
            inputs, reading.parts, (of.left_alias, of.right_alias), strict=True
        )
    )
    try:
        return _Joining(spark, stream, of, (left, right), file).compiled()
    except PySparkException as error:
        said = f"the join of {stream.block_of!r}: {first_line(error)}"
        raise bad_at(said, file, of.on_place, advice_on(error)) from error


@dataclass(frozen=True, slots=True)
class _Joining:
    spark: SparkSession
    stream: Stream
    of: JoinOf
    inputs: tuple[Input, Input]
    file: str

    def compiled(self) -> Joined:
        condition = self._condition()
        low, high = self._bounds(condition)
        kept = [self._kept(each) for each in self.inputs[LEFT].relations]
        others = [self._kept(each) for each in self.inputs[RIGHT].relations]
        shown = (*kept, *(others if self.of.kind.has_pairs else ()))
        seen = seen_by_readers(shown, dict(self._plain(kept, others)))
        with self._view(LEFT) as left, self._view(RIGHT) as right:
            plan = self._plan(condition, (kept, others), seen, (left, right))
            rows = self.spark.sql(plan.sql(left, right))
            check_deterministic(rows, self._bad)
        output = StructType([nullable(rows.schema[name]) for name in plan.columns])
        every = StructType([nullable(field) for field in rows.schema])
        arrow = arrow_schema(empty_frame(self.spark, every))
        lefts = sum(1 for name, _ in plan.sides[LEFT].columns if name in plan.columns)
        step = Join(self.of.kind, low, high, plan.columns, lefts)
        stream = SparkStream(
            self.stream.name,
            Reading((*self.inputs[LEFT].reading.parts, *self.inputs[RIGHT].reading.parts)),
            plan,
            output,
            _bytes(pa.schema([arrow.field(name) for name in plan.columns])),
            state=output,
            operator=self._operator(plan, arrow, step, condition),
            over=(self.inputs[LEFT].reading, self.inputs[RIGHT].reading),
        )
        with view(empty_frame(self.spark, output), f"rows of {self.stream.name}") as flat_view:
            schema = self.spark.sql(seen.sql(flat_view)).schema
        reader = SparkStream(
            self.stream.name, Reading((self.stream.name,)), seen, schema, b"", makes_rows=False
        )
        return Joined(stream, shown, schema, reader, step.delay_us)

    # the condition

    def _condition(self) -> Condition:
        of = self.of
        sides = (self.inputs[LEFT].relations, self.inputs[RIGHT].relations)
        script = read_script(of.on, self.file, of.on_place)
        conditions = Conditions(script, sides)
        condition = conditions.read(script.words)
        if of.kind is not JoinKind.INNER and condition.pairs:
            raise script.bad(
                f"{condition.pairs[0]} in the ON of a {of.kind} JOIN compares both sides: which "
                "rows have a partner is decided by equal columns and bounds of time",
                condition.first_pair,
                "Put it into WHERE, or use an inner join",
            )
        keys = [*self._using(), *condition.keys]
        low, high, asked = condition.low, condition.high, condition.sides
        times = conditions.times
        if of.where:
            where = read_script(of.where, self.file, of.where_place)
            more = Conditions(where, sides, conditions.times, is_of_more=True).read(where.words)
            low, high = condition.bounded(more.low, more.high)
            keys += more.keys
            asked = (asked[0] + more.sides[0], asked[1] + more.sides[1])
        for left, right in self._using():
            if self._is_time(LEFT, left) and self._is_time(RIGHT, right) and not any(times):
                low, high = condition.bounded(0, 0)
                times[:] = [left, right]
        if not keys:
            raise self._bad(
                "a join without equal columns: every row would meet every other",
                "Write ON x.key = y.key AND ...",
            )
        chosen = (times[LEFT], times[RIGHT])
        return Condition(tuple(keys), low, high, asked, condition.pairs, chosen)

    def _is_time(self, side: int, text: str) -> bool:
        relations = self.inputs[side].relations
        return any(text == _column(r, time) for r in relations for time in r.times)

    def _using(self) -> list[tuple[str, str]]:
        found = []
        for column in self.of.using:
            texts = []
            for each in self.inputs:
                having = [r for r in each.relations if r.has(column)]
                if len(having) != 1:
                    listed = [c for r in each.relations for c in r.columns]
                    message = f"USING ({column}): {len(having)} columns of that name on one side"
                    raise self._bad(message, did_you_mean(column, listed))
                texts.append(_column(having[0], column))
            found.append((texts[LEFT], texts[RIGHT]))
        return found

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

    def _bounds(self, condition: Condition) -> tuple[int, int]:
        times = [
            " or ".join(f"{r.alias}.{c}" for r in each.relations for c in sorted(r.times))
            for each in self.inputs
        ]
        if not all(times):
            raise self._bad(
                "a join of rows without their event time: nobody knows how long to keep them",
                "Pass the watermark's column on, as it is, on both sides",
            )
        low, high = condition.low, condition.high
        if self.of.ttl_us is not None:
            low, high = condition.bounded(-self.of.ttl_us, self.of.ttl_us)
        if low is None or high is None:
            what = "bounds" if low is None and high is None else "one of two bounds"
            raise self._bad(
                f"a join without {what} of time, between {times[0]} and {times[1]}: its rows would "
                "be kept for ever",
                _BOUNDS,
            )
        if low > high:
            raise self._bad("no pair of rows meets the bounds of this join", "See its ON")
        return low, high

    # what is kept

    def _kept(self, relation: Relation) -> Relation:
        """Only with columns that somebody mentions."""
        of = self.of
        if relation.alias.lower() in of.whole:
            return relation
        columns = tuple(c for c in relation.columns if c.lower() in of.mentioned)
        return Relation(relation.alias, columns, relation.times)

    def _view(self, side: int) -> AbstractContextManager[str]:
        """No rows, with the columns of a side."""
        schema = StructType([nullable(field) for field in self.inputs[side].known.schema])
        return view(empty_frame(self.spark, schema), f"side {side} of {self.stream.name}")

    def _plan(
        self,
        condition: Condition,
        kept: tuple[Sequence[Relation], Sequence[Relation]],
        seen: Stateless,
        views: tuple[str, str],
    ) -> JoinPlan:
        types: dict[str, str] = {}
        for number, pair in enumerate(condition.keys):
            types[f"k{number}"] = self._key_type(pair, views)
        sides, columns = [], list[str]()
        for number, side in enumerate(self.inputs):
            made = self._side(side, number, condition, kept[number])
            listed = ", ".join(f"{text} AS {quoted(name)}" for name, text in made.columns)
            if listed:
                over = f"{views[number]} AS {quoted(side.called)}"
                frame = self.spark.sql(f"SELECT {listed} FROM {over}")  # noqa: S608  a check
                types |= {f.name: f.dataType.simpleString() for f in frame.schema}
            if number == LEFT or self.of.kind.has_pairs:
                columns += [name for name, _ in made.columns]
            sides.append(made)
        pairs = " AND ".join(f"({filled(text, self.stream.variables)})" for text in condition.pairs)
        return JoinPlan(
            (sides[LEFT].filled(self.stream.variables), sides[RIGHT].filled(self.stream.variables)),
            tuple(f"k{number}" for number in range(len(condition.keys))),
            tuple(columns),
            types,
            pairs,
            seen,
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
            columns if number == LEFT or kind.has_pairs else (),
            "" if is_only else asked,
            asked if is_only else "",
        )

    def _time(self, side: Input) -> str:
        found = [(each, column) for each in side.relations for column in sorted(each.times)]
        relation, column = found[0]
        return f"{quoted(relation.alias)}.{quoted(column)}"

    def _key_type(self, pair: tuple[str, str], views: tuple[str, str]) -> str:
        """The type that both sides of an equality have."""
        kinds: list[DataType] = []
        for number, text in enumerate(pair):
            over = f"{views[number]} AS {quoted(self.inputs[number].called)}"
            said = filled(text, self.stream.variables)
            frame = self.spark.sql(f"SELECT {said} AS x FROM {over}")  # noqa: S608  a check
            kinds.append(frame.schema[0].dataType)
        for text, kind in zip(pair, kinds, strict=True):
            reason = refused_type(kind)
            if reason is not None:
                message = f"{text} of type {kind.simpleString()} cannot be a key: {reason}"
                raise self._bad(message, "")
        names = [kind.simpleString() for kind in kinds]
        if names[0] == names[1]:
            return names[0]
        if not all(isinstance(kind, NumericType) for kind in kinds):
            raise self._bad(
                f"{pair[0]} is {names[0].upper()} and {pair[1]} is {names[1].upper()}",
                "CAST one of them to the type of the other",
            )
        nulls = (f"CAST(NULL AS {name})" for name in names)
        return (
            self.spark.sql(f"SELECT coalesce({', '.join(nulls)}) AS x")
            .schema[0]
            .dataType.simpleString()
        )

    def _operator(
        self, plan: JoinPlan, arrow: pa.Schema, step: Join, condition: Condition
    ) -> OperatorPlan:
        keys = [arrow.field(name) for name in plan.keys]
        sides = [arrow.field(name) for name in plan.columns]
        key, value, rows = columns_of_state(keys, sides)
        meanings = (
            *(" = ".join(pair) for pair in condition.keys),
            *("kept until", "number", "side", "event time"),
            *plan.columns,
        )
        return OperatorPlan(
            key_schema=_bytes(key),
            value_schema=_bytes(value),
            step=step,
            time=UNTIL,
            emit=Emit.ON_WINDOW_CLOSE if step.kind.judges else Emit.ON_UPDATE,
            meanings=meanings,
            late_by=AT,
            rows_schema=_bytes(rows),
            output_schema=_bytes(pa.schema(sides)),
            has_timers=step.kind.judges,
            group=len(keys),
        )

    def _bad(self, message: str, advice: str) -> BadPipeline:
        place: Place = self.of.on_place
        return bad_at(message, self.file, place, advice)


def _column(relation: Relation, name: str) -> str:
    """A column with its table, in lower case, as conditions have it."""
    return f"{quoted(relation.alias)}.{quoted(name.lower())}"


def same(one: str, other: str) -> bool:
    return one.lower() == other.lower()


def _bytes(schema: pa.Schema) -> bytes:
    data: bytes = schema.serialize().to_pybytes()
    return data
