"""What the ON, USING and WHERE of a join come to: keys of one type, bounds of time, conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, NumericType

from lamina.engine.asof import Asof
from lamina.engine.joins import Join
from lamina.errors import BadPipeline
from lamina.pipeline.join_conditions import LEFT, RIGHT, Condition, Conditions, Relation
from lamina.pipeline.model import JoinKind, JoinOf, Place, Stream
from lamina.pipeline.select import quoted
from lamina.pipeline.tokens import bad_at, did_you_mean, read_script
from lamina.pipeline.variables import filled
from lamina.spark.asof import asof_step, read_match
from lamina.spark.known import Known
from lamina.spark.plan_checks import refused_type
from lamina.spark.streams import Reading

_BOUNDS = (
    "Write how far apart they may be: ON ... AND y.ts BETWEEN x.ts - INTERVAL 1 HOUR AND x.ts + "
    "INTERVAL 1 HOUR. Or write STATE TTL INTERVAL 1 DAY behind the SELECT: rows that are further "
    "apart are no pair then"
)
_ENDS = (
    "Compare the ends of the windows: {} = {}. That their starts are equal, or the windows "
    "themselves, does not say how long to wait; it may stay beside it"
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
        return (Relation(self.alias, tuple(known.schema.names), times, known.clocks),)

    @property
    def called(self) -> str:
        return self.alias or "_joined"


def inner_condition(
    of: JoinOf, left: Sequence[Relation], right: Sequence[Relation], file: str
) -> str:
    """All that a subquery of WHERE asks of a pair; each column has its table before it."""
    parts = []
    if of.on:
        script = read_script(of.on, file, of.on_place)
        parts.append(Conditions(script, (left, right), is_inner=True).qualified(script.words))
    if of.values:
        parts.append(values_compared(of, left, right, file))
    return " AND ".join(f"({part})" for part in parts) or "true"


def values_compared(
    of: JoinOf, left: Sequence[Relation], right: Sequence[Relation], file: str
) -> str:
    """Of x IN (SELECT y ...): they are equal. Of NOT IN: they are, or nobody knows it."""
    compared = []
    for x, y in of.values:
        one, two = (read_script(text, file, of.on_place) for text in (x, y))
        mine = Conditions(one, (left, ())).qualified(one.words)
        theirs = Conditions(two, ((), right)).qualified(two.words)
        compared.append(f"({mine}) = ({theirs})")
    equal = " AND ".join(compared)
    return f"coalesce({equal}, true)" if of.kind is JoinKind.ANTI else equal


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
        match = self._match()
        times = list(match.times if match else ("", ""))
        conditions = Conditions(script, sides, times, is_inner=of.is_inner)
        condition = conditions.read(script.words)
        if match is not None and condition.pairs:
            raise self.bad(
                f"{condition.pairs[0]} in the ON of an ASOF JOIN compares both sides: which row is "
                "chosen is decided by equal columns and event times",
                "Put it into WHERE: then it is asked of the row that was chosen",
            )
        keys, pairs = [*self._using(), *condition.keys], condition.pairs
        if of.kind is JoinKind.ANTI and of.values:
            pairs += (self._not_in(keys),)
        else:
            keys += of.values
        low, high, asked = condition.low, condition.high, condition.sides
        times = conditions.times
        if of.where:
            where = read_script(of.where, self.file, of.where_place)
            more = Conditions(where, sides, conditions.times, is_of_more=True).read(where.words)
            low, high = condition.bounded(more.low, more.high)
            keys += more.keys
            asked = (asked[0] + more.sides[0], asked[1] + more.sides[1])
        equal = [*self._using(), *(self._times(*pair) for pair in of.values if pair in keys)]
        for left, right in equal:
            if self._is_time(LEFT, left) and self._is_time(RIGHT, right) and not any(times):
                low, high = condition.bounded(0, 0)
                times[:] = [left, right]
        if not keys:
            raise self.bad(
                "a join without equal columns: every row would meet every other",
                "Write ON x.key = y.key AND ...",
            )
        chosen = (times[LEFT], times[RIGHT])
        return Condition(tuple(keys), low, high, asked, pairs, chosen)

    def _not_in(self, keys: Sequence[tuple[str, str]]) -> str:
        """What takes a row out of x NOT IN (SELECT y): y is equal, or nobody knows it.

        Without another key a single null would have to meet all rows.
        """
        if not keys:
            (x, y), *_ = self.of.values
            raise self.bad(
                f"{x} NOT IN (SELECT {y} ...): a single null among them would take every row out, "
                "wherever it is kept",
                f"Write NOT EXISTS (...), with {y} = {x} in its WHERE: that leaves nulls out. Or "
                "compare other columns, too, in the WHERE of the subquery",
            )
        left, right = (each.relations for each in self.inputs)
        return values_compared(self.of, left, right, self.file)

    def _times(self, x: str, y: str) -> tuple[str, str]:
        """The event times that x and y of x IN (SELECT y ...) are, with their tables."""
        left, right = (each.relations for each in self.inputs)
        one, two = (read_script(text, self.file) for text in (x, y))
        mine = Conditions(one, (left, ())).event_time(one.words)
        theirs = Conditions(two, ((), right)).event_time(two.words)
        return mine or "", theirs or ""

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

    def step(self, condition: Condition) -> Join | Asof:
        """How rows of both sides find each other; it does not know their columns yet."""
        times, match = self._event_times(), self._match()
        if match is not None:
            return asof_step(self.of, match, condition, self.bad)
        return Join(self.of.kind, *self._bounds(condition, times), (), 0)

    def _match(self) -> Condition | None:
        """Of an ASOF join: which row of the right side is chosen."""
        if self.of.asof is None:
            return None
        sides = (self.inputs[LEFT].relations, self.inputs[RIGHT].relations)
        return read_match(self.of, self.of.asof, sides, self.file)

    def _event_times(self) -> list[str]:
        """The event times of both sides."""
        times = [
            " or ".join(f"{r.alias}.{c}" for r in each.relations for c in sorted(r.times))
            for each in self.inputs
        ]
        if not all(times):
            raise self.bad(
                "a join of rows without their event time: nobody knows how long to keep them",
                "Pass the watermark's column on, as it is, on both sides; of closed windows "
                "window.end (neither window.start nor the window itself)",
            )
        return times

    def _bounds(self, condition: Condition, times: Sequence[str]) -> tuple[int, int]:
        low, high = condition.low, condition.high
        if self.of.ttl_us is not None:
            low, high = condition.bounded(-self.of.ttl_us, self.of.ttl_us)
        if low is None or high is None:
            what = "bounds" if low is None and high is None else "one of two bounds"
            raise self.bad(
                f"a join without {what} of time, between {times[0]} and {times[1]}: its rows would "
                "be kept for ever",
                _ENDS.format(*times) if all(each.known.ends for each in self.inputs) else _BOUNDS,
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
