"""The keyed state of an aggregation, as the engine sees it."""

from __future__ import annotations

import pyarrow as pa

from lamina.engine.changing import PAIR
from lamina.engine.model import OperatorPlan
from lamina.engine.sessions import Sessions
from lamina.engine.steps import Merges
from lamina.pipeline.model import Emit
from lamina.pipeline.plans import Aggregation
from lamina.spark.streams import SparkStream
from lamina.state.stored_types import stored_schema


def operator_of(
    stream: SparkStream, plan: Aggregation, columns: pa.Schema, emit: Emit
) -> OperatorPlan:
    """*columns* are keys and partials, as Spark gives them."""
    keys = pa.schema([columns.field(key) for key in stream.keys])
    values = pa.schema([each for each in columns if each.name not in stream.keys])
    if plan.session is not None:
        return _sessions(stream, plan, keys, values, emit)
    return OperatorPlan(
        key_schema=keys.serialize().to_pybytes(),
        value_schema=values.serialize().to_pybytes(),
        step=Merges(plan.merges),
        time=plan.time,
        emit=emit,
        meanings=stream.meanings,
        takes_back=plan.takes_back,
        live=plan.live,
    )


def _sessions(
    stream: SparkStream, plan: Aggregation, keys: pa.Schema, values: pa.Schema, emit: Emit
) -> OperatorPlan:
    """Of each key the open sessions: a list for each column."""
    assert plan.session is not None
    rows = stored_schema(pa.schema([*keys, *values]))
    gives_changes = emit is Emit.CHANGES
    numbers = [pa.field(PAIR, pa.int64())] if gives_changes else []
    lists = [pa.field(each.name, pa.list_(rows.field(each.name).type)) for each in values]
    return OperatorPlan(
        key_schema=keys.serialize().to_pybytes(),
        value_schema=pa.schema(lists).serialize().to_pybytes(),
        step=Sessions(*plan.session, plan.merges, gives_changes, tuple(stream.called.items())),
        time=None,
        emit=emit,
        meanings=tuple(stream.called[name] for name in rows.names),
        late_by=plan.time,
        rows_schema=rows.serialize().to_pybytes(),
        output_schema=pa.schema([*rows, *numbers]).serialize().to_pybytes(),
        has_timers=True,
    )
