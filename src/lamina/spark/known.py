"""What can be read, as streams that read it need to know it: schema, changes, keys, event times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from lamina.engine.ports import Change, Output
from lamina.format.canonical import Json
from lamina.pipeline.join_conditions import Relation
from lamina.pipeline.model import Emit
from lamina.pipeline.nesting import has_star, name_of, plain_column
from lamina.pipeline.plans import Aggregation
from lamina.pipeline.select import Select
from lamina.spark.streams import SparkStream


@dataclass(frozen=True, slots=True)
class Known:
    """What can be read, as those that read it need to know it."""

    schema: StructType
    sources: frozenset[str]  # all that its rows come from
    meaning: Json  # what state over it depends on
    change: Change = Change.APPEND
    keys: tuple[str, ...] | None = None  # columns that tell its rows apart, if that is known
    times: frozenset[str] = frozenset()  # its columns that are event times, in lower case
    lateness_us: int = 0  # its rows come out this much after the watermark, at the latest
    inlined: SparkStream | None = None  # a block that is a part of what reads it
    delay_us: int = 0  # of the watermark: the longest of its sources
    ends: frozenset[str] = frozenset()  # its columns that are ends of closed windows
    relations: tuple[Relation, ...] = ()  # of a join: the tables that it has
    stored: StructType | None = None  # its rows as they are staged, if readers see others
    clocks: frozenset[str] = frozenset()  # its columns that are the time of the epoch, lower case


def times_of(select: Select, made: SparkStream, inputs: Sequence[Known]) -> frozenset[str]:
    """Columns that are still the event time of every input."""
    if isinstance(made.plan, Aggregation) and not made.plan.is_distinct and len(inputs) == 1:
        return frozenset()
    return _still(select, made, inputs, lambda read: read.times)


def clocks_of(select: Select, made: SparkStream, inputs: Sequence[Known]) -> frozenset[str]:
    """Columns that are still the time of the epoch, because no row waits for another one."""
    if made.operator is not None:
        return frozenset()
    return _still(select, made, inputs, lambda read: read.clocks)


def _still(
    select: Select,
    made: SparkStream,
    inputs: Sequence[Known],
    of: Callable[[Known | Relation], frozenset[str]],
) -> frozenset[str]:
    """The columns that come of those *of* every input."""
    if select.is_python:
        return frozenset()
    if len(inputs) > 1:
        places = [
            {i for i, column in enumerate(each.schema.names) if column.lower() in of(each)}
            for each in inputs
        ]
        return frozenset(made.output.names[i].lower() for i in set.intersection(*places))
    (read,) = inputs
    if read.relations:
        return frozenset(_of_tables(select, read.relations, of))
    passed = _passed_on(select, made)
    return frozenset(passed[name].lower() for name in of(read) if name in passed)


def _of_tables(
    select: Select, tables: Sequence[Relation], of: Callable[[Known | Relation], frozenset[str]]
) -> Iterator[str]:
    """Items that are such a column of a table of a join: `x.ts`, or `ts` if only one has it."""
    for item in select.items:
        name, words = name_of(item), [word.text.lower() for word in item.words]
        for each in tables:
            path = words[-1:] if len(words) == 1 else [each.alias.lower(), ".", words[-1]]
            if name is not None and words == path and words[-1] in of(each):
                yield name


def ends_of(select: Select, made: SparkStream, inputs: Sequence[Known]) -> frozenset[str]:
    """Columns that are the ends of windows, of a stream whose rows come when they close."""
    if made.operator is None and len(inputs) == 1 and not select.is_python:
        passed = _passed_on(select, made)
        return frozenset(passed[name].lower() for name in inputs[0].ends if name in passed)
    if not isinstance(made.plan, Aggregation) or made.operator is None:
        return frozenset()
    closes = made.operator.emit is Emit.ON_WINDOW_CLOSE
    return frozenset(map(str.lower, made.plan.ends)) if closes else frozenset()


def _passed_on(select: Select, made: SparkStream) -> dict[str, str]:
    """Columns of the input that come out as they are: their names in lower case, and the new ones.

    Of two copies of one column, the first.
    """
    passed: dict[str, str] = {}
    for item in select.items:
        column, name = plain_column(select, item.words), name_of(item)
        if column is not None and name is not None:
            passed.setdefault(column, name)
    if has_star(select):
        listed = {name_of(item) for item in select.items}
        for name in made.output.names:
            if name.lower() not in listed:
                passed.setdefault(name.lower(), name)
    return passed


def _passed_of(read: Known, select: Select, made: SparkStream) -> dict[str, str]:
    """Columns of what is read that come out as they are; those of a join are `alias.column`."""
    if read.relations:
        return _passed_of_tables(select, read.relations)
    return _passed_on(select, made)


def _passed_of_tables(select: Select, tables: Sequence[Relation]) -> dict[str, str]:
    """Items that are columns of a table of a join: `x.id`, `x.*`, or `id` if only one has it."""
    passed: dict[str, str] = {}
    for item in select.items:
        name, words = name_of(item), [word.text.lower() for word in item.words]
        for each in tables:
            alias = each.alias.lower()
            if words == [alias, ".", "*"]:
                for column in each.columns:
                    passed.setdefault(f"{alias}.{column.lower()}", column)
            is_alone = len(words) == 1 and sum(table.has(words[0]) for table in tables) == 1
            path = words if is_alone else [alias, ".", words[-1]]
            if name is not None and words == path and each.has(words[-1]):
                passed.setdefault(f"{alias}.{words[-1]}", name)
    return passed


def output_of(stream: SparkStream, select: Select, inputs: Sequence[Known]) -> Output:
    """What its rows do to those before them, and what tells them apart."""
    schema = pa.ipc.read_schema(pa.py_buffer(stream.arrow_output))
    if stream.operator is None or not isinstance(stream.plan, Aggregation):
        read = inputs[0]
        passed = _passed_of(read, select, stream)
        known = read.keys is not None and all(key.lower() in passed for key in read.keys)
        spelled = {name.lower(): name for name in schema.names}
        named = (passed[key.lower()] for key in read.keys or ()) if known else ()
        keys = tuple(spelled.get(name.lower(), name) for name in named) if known else None
        is_one_to_one = len(inputs) == 1 and not (stream.makes_rows or select.is_python)
        return Output(schema, change_of(inputs), keys if is_one_to_one else None)
    closes = stream.operator.emit is Emit.ON_WINDOW_CLOSE
    change = Change.APPEND if closes or stream.plan.is_distinct else Change.UPSERT
    if stream.operator.emit is Emit.CHANGES:
        change = Change.CHANGES
    return Output(schema, change, stream.plan.key_outputs, stream.plan.key_choices)


def change_of(inputs: Sequence[Known]) -> Change:
    """What rows do that come from all of them."""
    found = {each.change for each in inputs}
    return next((each for each in (Change.CHANGES, Change.UPSERT) if each in found), Change.APPEND)
