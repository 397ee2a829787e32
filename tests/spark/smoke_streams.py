"""The streams of the smoke job: keys, partial aggregates, how these merge, what people see.

A stream is the SQL `SELECT keys, outputs GROUP BY keys`. Over epochs it is done in three parts:
partial aggregates by Spark, their merge with the state, and a projection of the merged ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from lamina.state.merge import Merge
from lamina.state.schema import StateSchema


@dataclass(frozen=True)
class Output:
    """A column of the result: as one aggregate over all rows, and as made of merged partials."""

    batch: str
    final: str


@dataclass(frozen=True)
class Stream:
    name: str
    keys: Mapping[str, str]  # name: SQL
    partials: Mapping[str, str]
    merges: tuple[Merge, ...]
    outputs: Mapping[str, Output]


def _single(partials: Mapping[str, str], *names: str) -> dict[str, Output]:
    """Columns whose partial aggregate is also the result."""
    return {name: Output(partials[name], name) for name in names}


def _merge(function: str, *columns: str) -> tuple[Merge, ...]:
    return tuple(Merge(function, (column,)) for column in columns)


_PLAIN = {
    "rows": "count(*)",
    "sum_v": "sum(v)",
    "count_v": "count(v)",
    "sum_m": "sum(m)",
    "count_m": "count(m)",
    "min_t": "min(t)",
    "max_e": "max(e)",
    "took": "sum(make_dt_interval(0, 0, 0, v % 1000))",
}
_NUMBERS = {
    "rows": "count(*)",
    "sum_w": "sum(w)",
    "count_w": "count(w)",
    "min_q": "min(q)",
    "max_q": "max(q)",
    "sum_n": "sum(n)",
    "count_n": "count(n)",
    "var_n": "count(w)",
    "var_mean": "avg(w)",
    "var_m2": "var_pop(w) * count(w)",
}
_NESTED = {
    "rows": "count(*)",
    "last_t": "max_by(t, u)",
    "last_u": "max(u)",
    "any_b": "bool_or(b)",
    "min_day": "min(day)",
    "max_x": "max(x)",
    "all_u": "collect_list(u)",
}

PLAIN = Stream(
    "plain",
    {name: name for name in ("s", "l", "i", "b", "day", "ts", "tn", "x")},
    _PLAIN,
    (
        *_merge("count", "rows", "count_v", "count_m"),
        *_merge("sum", "sum_v", "sum_m", "took"),
        *_merge("min", "min_t"),
        *_merge("max", "max_e"),
    ),
    {
        **_single(_PLAIN, "rows", "sum_v", "sum_m", "min_t", "max_e", "took"),
        "avg_v": Output("avg(v)", "try_divide(sum_v, count_v)"),
        "avg_m": Output("avg(m)", "cast(try_divide(sum_m, count_m) as decimal(16,6))"),
    },
)
NUMBERS = Stream(
    "numbers",
    {name: name for name in ("d", "f", "d12", "d38", "small")},
    _NUMBERS,
    (
        *_merge("count", "rows", "count_w", "count_n"),
        *_merge("sum", "sum_w", "sum_n"),
        *_merge("min", "min_q"),
        *_merge("max", "max_q"),
        Merge("moments", ("var_n", "var_mean", "var_m2")),
    ),
    {
        **_single(_NUMBERS, "rows", "sum_w", "min_q", "max_q", "sum_n"),
        "avg_w": Output("avg(w)", "try_divide(sum_w, count_w)"),
        # Spark's quotient of decimals this wide would keep six digits, its avg keeps ten.
        "avg_n": Output(
            "avg(n)",
            "cast(try_divide(cast(sum_n as decimal(25,10)), cast(count_n as decimal(10,0)))"
            " as decimal(38,10))",
        ),
        "var_w": Output("var_pop(w)", "try_divide(var_m2, var_n)"),
    },
)
NESTED = Stream(
    "nested",
    {
        "point": "point",
        "list": "list",
        "items": "items",
        "time": "window(e, '6 hours')",
        "never_null": "named_struct('even', coalesce(u % 2 = 0, false))",
        "took": "make_dt_interval(0, 0, 0, u % 2)",
    },
    _NESTED,
    (
        *_merge("count", "rows"),
        Merge("last_by", ("last_t", "last_u")),
        *_merge("any", "any_b"),
        *_merge("min", "min_day"),
        *_merge("max", "max_x"),
        *_merge("list_append", "all_u"),
    ),
    {
        **_single(_NESTED, "rows", "last_t", "last_u", "any_b", "min_day", "max_x"),
        "all_u": Output("array_sort(collect_list(u))", "array_sort(all_u)"),
    },
)
STREAMS = {stream.name: stream for stream in (PLAIN, NUMBERS, NESTED)}


def stored_schema(stream: Stream, arrived: pa.Schema) -> StateSchema:
    """The columns of a stream's state, given those that Spark hands to its tasks."""
    fields = {field.name: stored(field) for field in arrived}
    return StateSchema(
        pa.schema([fields[name] for name in stream.keys]),
        pa.schema([fields[name] for name in stream.partials]),
    )


def stored(field: pa.Field) -> pa.Field:
    """A column as it is kept, whatever a session's settings are and a plan knows about nulls.

    The time zone, large strings and what cannot be null are part of an Arrow type, and none of them
    is of Spark's: a key type with them would change with them, and that is refused (R9).
    """
    return pa.field(field.name, _stored_type(field.type))


def _stored_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, kind.tz and "UTC")
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([stored(field) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _stored_type(kind.value_type)))
    return kind
