"""A source whose rows are versions of rows by key, compiled: a stream makes changes of them.

It takes the place of the source for whoever reads that; its state is the last version of every row
(engine/last_versions.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from lamina.engine.changing import PAIR
from lamina.engine.last_versions import AT, GONE, PLACE, LastVersions
from lamina.engine.model import OperatorPlan
from lamina.engine.ports import Change, Output
from lamina.pipeline.model import DeclaredSource, Emit
from lamina.pipeline.tokens import bad_at
from lamina.spark.internals import arrow_schema, empty_frame
from lamina.spark.plan_checks import refused_type
from lamina.spark.schemas import nullable
from lamina.spark.streams import KeyedPlan, Reading, SparkStream


def versions_name(source: str) -> str:
    """The stream that makes changes of a source's versions; no plain name has a space."""
    return f"{source} by key"


@dataclass(frozen=True, slots=True)
class CompiledVersions:
    stream: SparkStream
    versions: StructType  # what the source gives
    output: Output


def compile_versions(
    spark: SparkSession,
    source: DeclaredSource,
    declared: StructType,
    keys: Sequence[str],
    file: str,
) -> CompiledVersions:
    """The stream over versions of rows with these columns."""
    rows = StructType([nullable(each) for each in declared])
    named = {name.lower(): name for name in rows.names}
    own = tuple(named[key.lower()] for key in keys)
    for key in own:
        if reason := refused_type(rows[key].dataType):
            message = f"{key!r} of type {rows[key].dataType.simpleString()} cannot be a key"
            raise bad_at(f"{message}: {reason}", file, source.place, "Declare it STRING")
    place = StructField(PLACE, StringType())
    versions = StructType(
        [*rows, StructField(AT, LongType()), place, StructField(GONE, BooleanType())]
    )
    kept = StructType([*(each for each in rows if each.name not in own), place])
    state = StructType([*(rows[key] for key in own), *kept])
    columns = _bytes(_arrow(spark, rows))
    operator = OperatorPlan(
        key_schema=_bytes(_arrow(spark, StructType([rows[key] for key in own]))),
        value_schema=_bytes(_arrow(spark, kept)),
        step=LastVersions(source.name, tuple(rows.names)),
        time=None,
        emit=Emit.CHANGES,
        meanings=tuple(state.names),
        rows_schema=_bytes(_arrow(spark, versions)),
        output_schema=_bytes(_arrow(spark, StructType([*rows, StructField(PAIR, LongType())]))),
    )
    stream = SparkStream(
        versions_name(source.name),
        Reading((source.name,)),
        KeyedPlan(own, tuple(versions.names), tuple(rows.names)),
        rows,
        columns,
        state=state,
        operator=operator,
    )
    output = Output(_arrow(spark, rows), Change.CHANGES, own)
    return CompiledVersions(stream, versions, output)


def _arrow(spark: SparkSession, schema: StructType) -> pa.Schema:
    return arrow_schema(empty_frame(spark, schema))


def _bytes(schema: pa.Schema) -> bytes:
    data: bytes = schema.serialize().to_pybytes()
    return data
