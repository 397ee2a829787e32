"""What only Spark can tell about a pipeline: columns, state and merge functions of its streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from lamina.engine.asof import Asof
from lamina.engine.change_joins import COUNT
from lamina.engine.join_rows import AT, ID, RIGHT, UNTIL
from lamina.engine.joins import ChangeJoin, Join, TemporalJoin
from lamina.engine.model import OperatorPlan
from lamina.engine.own_columns import own_of
from lamina.engine.pending import with_pending
from lamina.engine.ports import CHANGE
from lamina.engine.sessions import Sessions
from lamina.engine.task_state import schema_of
from lamina.engine.timers import with_timers
from lamina.pipeline.checks import order
from lamina.pipeline.model import Pipeline
from lamina.spark.compiling import compile_pipeline
from lamina.spark.failures import spark_errors
from lamina.spark.frames import own_session
from lamina.spark.internals import active
from lamina.spark.runner import pinned
from lamina.spark.session import start_session, stop_session
from lamina.spark.streams import SparkStream
from lamina.state.meanings import names_for_people
from lamina.state.sizes import bytes_of_row


def explain_types(
    pipeline: Pipeline, *, name: str, file: str, spark: SparkSession | None = None
) -> dict[str, dict[str, Any]]:
    """By stream, as the JSON of `lamina check --json`; BadPipeline if a stream does not compile.

    An existing SparkSession (*spark*) is used and left unchanged, otherwise one is started.
    """
    with _session(name, spark) as session:
        own = own_session(session, pinned(1))
        with spark_errors(), active(own):
            names = order(pipeline, file=file)
            _, streams = compile_pipeline(own, pipeline, names, name=name, file=file)
    return {stream: _columns(compiled) for stream, compiled in streams.items()}


@contextmanager
def _session(name: str, spark: SparkSession | None) -> Iterator[SparkSession]:
    if spark is not None:
        yield spark
        return
    with TemporaryDirectory(prefix="lamina-check-") as scratch:
        session = start_session(name, Path(scratch), master="local[1]")
        try:
            yield session
        finally:
            stop_session(session)


def _columns(stream: SparkStream) -> dict[str, Any]:
    operator = stream.operator
    if operator is not None and isinstance(operator.step, Join):
        return _join(stream, operator, _kept_for(operator.step))
    if operator is not None and isinstance(operator.step, ChangeJoin):
        return _join(stream, operator, _BOTH_SIDES)
    if operator is not None and isinstance(operator.step, TemporalJoin):
        return _join(stream, operator, _RIGHT_SIDE)
    if operator is not None and isinstance(operator.step, Asof):
        return _join(stream, operator, _kept_by_asof(operator.step))
    merged = operator.merges if operator else ()
    if operator is not None and isinstance(operator.step, Sessions):
        merged = operator.step.partials
    merges = {column: each.function for each in merged for column in each.columns}
    state = stream.state or ()
    kept = {} if operator is None else _kept(operator)
    names = names_for_people([each.name for each in state], operator.meanings if operator else ())
    return {
        "columns": [
            {"name": each.name, "type": each.dataType.simpleString()} for each in stream.output
        ],
        "state": [
            {
                "name": name,
                "type": kept.get(each.name) or each.dataType.simpleString(),
                "merge": merges.get(each.name),
            }
            for each, name in zip(state, names, strict=True)
        ],
        **_size(stream),
    }


_BOTH_SIDES = "the rows that both sides have now, until they are taken back"

_RIGHT_SIDE = (
    "the rows that the right side has now, until they are taken back; none of the left side"
)


def _kept_for(step: Join) -> str:
    left, right = step.until(np.zeros(2, np.int64), np.array([False, True])) - 1
    return (
        f"rows of the left side until the watermark is {_time(left)} past their time, "
        f"those of the right side {_time(right)}"
    )


def _join(stream: SparkStream, operator: OperatorPlan, kept_for: str) -> dict[str, Any]:
    """Of a join: the rows of both sides that it keeps, and how long."""
    schema = schema_of(operator)
    plan_keys = schema.key.names[: operator.group]
    return {
        "columns": [
            {"name": each.name, "type": each.dataType.simpleString()}
            for each in stream.output
            if each.name != CHANGE
        ],
        "state": [
            {
                "name": schema.called(each.name),
                "type": str(each.type),
                "merge": None if each.name in plan_keys else "kept",
            }
            for each in schema.row
            if each.name not in (RIGHT, AT, UNTIL, ID, COUNT)
        ],
        "kept_for": kept_for,
        **_size(stream),
    }


def _kept_by_asof(step: Asof) -> str:
    """The last version of a key is kept for ever, unless a bound says for how long it counts."""
    wait = f"until the watermark is {_time(step.delay_us)} past their time"
    if step.high <= 0:
        wait = "until the watermark is past their time"
    said = f"rows of the left side {wait}, those of the right side "
    (end,) = step.until(np.zeros(1, np.int64), np.ones(1, np.bool_)).tolist()
    if step.low is None:
        last = "the last one of each key for ever: it grows with the number of keys"
        return f"{said}until the watermark is past the next one of their key, and {last}"
    if step.looks_ahead:
        return f"{said}until it is {_time(end - 1)} past theirs"
    return f"{said}until it is past the next one of their key, or {_time(end - 1)} past theirs"


def _time(us: int | np.int64) -> str:
    return f"{int(us) / 1e6:g} s"


def _kept(operator: OperatorPlan) -> dict[str, str]:
    """What the state keeps of the user's own aggregates, which is not what people see of them."""
    row = schema_of(operator).row
    return {
        name: str(row.field(name).type if code.of_bag else code.stored)
        for name, code in own_of(operator).items()
    }


def _size(stream: SparkStream) -> dict[str, Any]:
    """What a key takes on disk, roughly: a number of a schema, before there is any data."""
    if stream.operator is None:
        return {}
    row = schema_of(stream.operator).row
    name = stream.name
    every = with_timers(name, stream.operator) | with_pending(name, stream.operator)
    return {
        "bytes_per_key": bytes_of_row(row),
        "beside": {
            each: bytes_of_row(schema_of(plan).row) for each, plan in every.items() if each != name
        },
        "has_texts": any(_is_text(field.type) for field in row),
        "has_lists": any(pa.types.is_list(field.type) for field in row),
    }


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
