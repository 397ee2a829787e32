"""What Spark makes of a SELECT, looked at before it runs: types of keys, and the shape of its plan.

keys     of a type whose hash and equality are the same for ever (R9), and the same when a task is
         tried again: its row must go to the same owner
rows     a stream without aggregates has none that Spark would see as one over an epoch's rows
frames   a function of DataFrames has none of these either, and reads nothing but its inputs
final    behind the state step there is nothing that moves rows, makes several of one, or is the
         user's own code: a task's result travels with the rows, on a row of nulls
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from lamina.engine.ports import CHANGE
from lamina.errors import BadPipeline
from lamina.pipeline.expressions import Words, sign
from lamina.pipeline.key_types import COLLATED, MAPS, VARIANTS, YEARS
from lamina.pipeline.select import Select
from lamina.pipeline.source_checks import RESERVED
from lamina.pipeline.tokens import Word
from lamina.spark.internals import AnalysedPlan

Analysed = Callable[[str], DataFrame]
"""The one column that an expression over the input is."""

Bad = Callable[[str, str], BadPipeline]
"""The error that says this of a function, with this advice."""

BINARY_COLLATION = "UTF8_BINARY"
_PLAIN = ("Project", "Filter", "SubqueryAlias", "View")
_SPREADS = ("Generate", "Expand")
"""What makes several rows of one; Expand is for hopping windows."""
_ROWS = (*_PLAIN, *_SPREADS)
_PARTIAL = (*_ROWS, "Aggregate")
_FRAMES = (*_ROWS, "Union", "MapInArrow", "MapInPandas")
_OTHER_INPUT = "It has what it is given, and nothing else: an epoch is cut anywhere"
_INSTEAD = (
    ("Join", "Join streams in SQL: a join has to keep rows of other epochs"),
    ("Aggregate", "Let a SELECT with GROUP BY read this stream"),
    ("Distinct", "Let a SELECT DISTINCT read this stream"),
    ("Deduplicate", "Let a SELECT DISTINCT read this stream"),
    ("Window", "Let a SELECT with QUALIFY row_number() OVER (...) <= n read this stream"),
    ("Sort", "Leave it out: a stream has no order"),
    ("Limit", "Leave it out: a stream has no end to count to"),
    ("Sample", "A sample would not be the same after a restart: use a WHERE over a hash"),
    ("Repartition", "Leave it out: rows are placed by their keys where state is kept"),
    ("Watermark", "Leave it out: the watermark is that of the source"),
)
"""What to do about a node of a plan, by a part of its name."""
_NOW = ("CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIMESTAMP")
_NOW_IF_CALLED = ("NOW", "CURDATE", "UNIX_TIMESTAMP")
_OWN_STREAM = "Put it into a stream of its own that reads this one"
_KEY_TYPES = (
    BooleanType,
    NumericType,
    BinaryType,
    DateType,
    TimestampType,
    TimestampNTZType,
    DayTimeIntervalType,
    StringType,
)
_REASONS: tuple[tuple[type[DataType], str], ...] = (
    (MapType, MAPS),
    (VariantType, VARIANTS),
    (YearMonthIntervalType, YEARS),
    (NullType, "it has no type; CAST it to one"),
)


def check_keys(select: Select, keys: Iterable[tuple[str, int]], analysed: Analysed) -> None:
    """BadPipeline, with its place, at a key that cannot be one; *keys* are texts and places."""
    for text, at in keys:
        frame = analysed(text)
        kind = frame.schema[0].dataType
        reason = refused_type(kind)
        if reason is not None:
            message = f"{text} of type {kind.simpleString()} cannot be a key: {reason}"
            advice = "Group by a field of it, or by a text: to_json(x), CAST(x AS STRING)"
            raise select.script.bad(message, at, advice)
        if not AnalysedPlan(frame).is_deterministic():
            raise select.script.bad(
                f"{text} cannot be a key: its value changes when a task is retried",
                at,
                "Compute it in a stream of its own, whose rows are kept, and group by it there",
            )


def check_deterministic(frame: DataFrame, bad: Bad) -> None:
    """Of the rows of a join: a task that is tried again has the same, on the same owner."""
    if not AnalysedPlan(frame).is_all_deterministic():
        raise bad(
            "the condition of a join with a function that gives other values again",
            "Compute it in a stream of its own, whose rows are kept, and join that",
        )


def refused_type(kind: DataType) -> str | None:
    """Why values of this type cannot be keys; None if they can."""
    if isinstance(kind, StructType):
        reasons = (refused_type(field.dataType) for field in kind)
        return next((reason for reason in reasons if reason is not None), None)
    if isinstance(kind, ArrayType):
        return refused_type(kind.elementType)
    if isinstance(kind, StringType) and kind.collation != BINARY_COLLATION:
        return COLLATED
    for refused, reason in _REASONS:
        if isinstance(kind, refused):
            return reason
    return None if isinstance(kind, _KEY_TYPES) else "its hash is not known to be stable"


def check_rows(frame: DataFrame, select: Select) -> None:
    """Of a stream without aggregates: each row stands for itself, or is of a whole window."""
    known = (*_ROWS, "Window", "Aggregate") if select.is_whole else _ROWS
    for node in AnalysedPlan(frame).spine():
        if node not in known:
            raise select.script.bad(
                f"Spark would compute this over the rows of one epoch ({node})",
                0,
                "A stream has the aggregates that Lamina knows; others cannot be kept as state",
            )


def check_frames(frame: DataFrame, views: Sequence[str], *, seen: Collection[str], bad: Bad) -> str:
    """Of a function of frames: each row stands for itself, and it reads its inputs, all of them.

    The plan as a text, which is not looked at again if it is among *seen*.
    """
    plan = AnalysedPlan(frame)
    text = plan.text()
    if text in seen:
        return text
    nodes, found = plan.above(views)
    for node in nodes:
        if node not in _FRAMES:
            advice = next((said for part, said in _INSTEAD if part in node), _OTHER_INPUT)
            raise bad(f"is not row by row: Spark would have {node} over one epoch's rows", advice)
    if plan.has_subqueries():
        raise bad("reads a table in a subquery", _OTHER_INPUT)
    if len(found) != len(set(views)):
        raise bad("does not read all of its inputs", "Leave out of inputs what it does not need")
    return text


def check_updates(frame: DataFrame, select: Select) -> None:
    """Of a stream over one that emits on update: each row becomes one row, which replaces one."""
    if makes_rows(frame):
        raise select.script.bad(
            f"a function that makes several rows of one, over the updating stream "
            f"{select.reads[0]!r}: rows that an older version had would stay",
            0,
            f"Let {select.reads[0]!r} EMIT CHANGES or EMIT ON WINDOW CLOSE",
        )


def makes_rows(frame: DataFrame) -> bool:
    """Whether several rows may come of one."""
    return not set(AnalysedPlan(frame).spine()).isdisjoint(_SPREADS)


def check_change(frame: DataFrame, select: Select, *, what: str = "a stream of changes") -> None:
    """Of a stream of changes: a row that is taken back is computed again, and must be the same."""
    for name in frame.columns:
        if name.lower() == CHANGE:
            raise select.script.bad(f"{name!r} in {what} is reserved for Lamina", 0, "Use AS")
    now = next(of_now(select.script.words), None)
    if now is not None or not AnalysedPlan(frame).is_all_deterministic():
        said = f"{now.text}()" if now is not None else "a function that gives other values again"
        raise select.script.bad(
            f"{said} in {what}: a row that is taken back must be as it was",
            now or 0,
            "Compute it in a stream of its own over a source, whose rows never change; for a time, "
            "give the source a column METADATA FROM 'epoch_time'",
        )


def of_now(words: Words) -> Iterator[Word]:
    """Functions whose value is another one in the next epoch."""
    for index, word in enumerate(words):
        is_called = [sign(words, index + step) for step in (1, 2)] == ["(", ")"]
        if word.upper in _NOW or (word.upper in _NOW_IF_CALLED and is_called):
            yield word


def check_names(names: Sequence[str], select: Select) -> None:
    """Columns that come out are told apart by their names, and ours are not among them."""
    for index, name in enumerate(names):
        if name.lower() in (other.lower() for other in names[:index]):
            raise select.script.bad(f"two columns are called {name!r}", 0, "Use AS")
        if name.lower().startswith(RESERVED):
            raise select.script.bad(f"{name!r} is reserved for Lamina", 0, "Use AS")


def check_types(schema: StructType, select: Select) -> None:
    """Columns that come out can be written: `array()` has elements of no type."""
    for field in schema:
        if _is_untyped(field.dataType):
            raise select.script.bad(
                f"{field.name!r} of type {field.dataType.simpleString()} has values of no type",
                0,
                "CAST it to one, as CAST(array() AS ARRAY<INT>)",
            )


def _is_untyped(kind: DataType) -> bool:
    """Whether it has parts that can be neither null nor anything else."""
    parts: list[tuple[DataType, bool]] = []
    if isinstance(kind, ArrayType):
        parts = [(kind.elementType, kind.containsNull)]
    elif isinstance(kind, MapType):
        parts = [(kind.keyType, False), (kind.valueType, kind.valueContainsNull)]
    elif isinstance(kind, StructType):
        parts = [(field.dataType, field.nullable) for field in kind]
    return any((isinstance(k, NullType) and not null) or _is_untyped(k) for k, null in parts)


def check_partial(frame: DataFrame, select: Select) -> None:
    """Of a stream with aggregates, up to its state: one grouping of rows."""
    nodes = AnalysedPlan(frame).spine()
    other = [node for node in nodes if node not in _PARTIAL]
    if other or nodes.count("Aggregate") != 1:
        said = other[0] if other else f"{nodes.count('Aggregate')} aggregations"
        raise select.script.bad(
            f"Spark would not group the rows just once ({said})",
            0,
            "Compute in a subquery what the aggregates are of",
        )


def check_final(frame: DataFrame, select: Select, *, makes_rows: bool = False) -> None:
    """Of a stream with aggregates, from its state on: no exchange can follow (R8).

    *makes_rows*: the one generator is Lamina's own, and lets a task's result through.
    """
    analysed = AnalysedPlan(frame)
    nodes = analysed.spine()
    if makes_rows:
        nodes.remove("Generate")
    for node in nodes:
        if node == "Generate":
            message = "a function that makes several rows of one, over keys or aggregates"
            raise select.script.bad(message, 0, _OWN_STREAM)
        if node not in _PLAIN:
            message = f"Spark would move rows after their state is kept ({node})"
            raise select.script.bad(message, 0, _OWN_STREAM)
    if analysed.has_subqueries():
        message = "a function that reads a table, over keys or aggregates"
        raise select.script.bad(message, 0, _OWN_STREAM)
    if found := analysed.users_code():
        message = f"the function {found} of this session, over keys or aggregates"
        raise select.script.bad(
            message, 0, f"{_OWN_STREAM}; it may stay inside an aggregate, a key or WHERE"
        )
