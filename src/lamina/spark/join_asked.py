"""What the ON, USING and WHERE of a join come to: keys of one type, bounds of time, conditions."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, NumericType

from lamina.errors import BadPipeline
from lamina.pipeline.join_conditions import LEFT, RIGHT, Condition, Conditions, Relation
from lamina.pipeline.model import JoinOf, Place, Stream
from lamina.pipeline.select import quoted
from lamina.pipeline.tokens import bad_at, did_you_mean, read_script
from lamina.pipeline.variables import filled
from lamina.spark.known import Known
from lamina.spark.plan_checks import refused_type
from lamina.spark.streams import Reading

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
class Asked:
    """Reads what is asked of the rows of two inputs."""

    spark: SparkSession
    stream: Stream
    of: JoinOf
    inputs: tuple[Input, Input]
    file: str

    def condition(self) -> Condition:
        of = self.of
        sides = (self.inputs[LEFT].relations, self.inputs[RIGHT].relations)
        script = read_script(of.on, self.file, of.on_place)
        conditions = Conditions(script, sides)
        condition = conditions.read(script.words)
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
            raise self.bad(
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
                    raise self.bad(message, did_you_mean(column, listed))
                texts.append(_column(having[0], column))
            found.append((texts[LEFT], texts[RIGHT]))
        return found

    def bounds(self, condition: Condition) -> tuple[int, int]:
        times = [
            " or ".join(f"{r.alias}.{c}" for r in each.relations for c in sorted(r.times))
            for each in self.inputs
        ]
        if not all(times):
            raise self.bad(
                "a join of rows without their event time: nobody knows how long to keep them",
                "Pass the watermark's column on, as it is, on both sides",
            )
        low, high = condition.low, condition.high
        if self.of.ttl_us is not None:
            low, high = condition.bounded(-self.of.ttl_us, self.of.ttl_us)
        if low is None or high is None:
            what = "bounds" if low is None and high is None else "one of two bounds"
            raise self.bad(
                f"a join without {what} of time, between {times[0]} and {times[1]}: its rows would "
                "be kept for ever",
                _BOUNDS,
            )
        if low > high:
            raise self.bad("no pair of rows meets the bounds of this join", "See its ON")
        return low, high

    def key_type(self, pair: tuple[str, str], views: tuple[str, str]) -> str:
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
                raise self.bad(message, "")
        names = [kind.simpleString() for kind in kinds]
        if names[0] == names[1]:
            return names[0]
        if not all(isinstance(kind, NumericType) for kind in kinds):
            raise self.bad(
                f"{pair[0]} is {names[0].upper()} and {pair[1]} is {names[1].upper()}",
                "CAST one of them to the type of the other",
            )
        nulls = (f"CAST(NULL AS {name})" for name in names)
        return (
            self.spark.sql(f"SELECT coalesce({', '.join(nulls)}) AS x")
            .schema[0]
            .dataType.simpleString()
        )

    def bad(self, message: str, advice: str) -> BadPipeline:
        place: Place = self.of.on_place
        return bad_at(message, self.file, place, advice)


def _column(relation: Relation, name: str) -> str:
    """A column with its table, in lower case, as conditions have it."""
    return f"{quoted(relation.alias)}.{quoted(name.lower())}"
