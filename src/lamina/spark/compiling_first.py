"""A SELECT DISTINCT ON, compiled: its rows go to the owner of their key, which knows the keys.

What is sent is a block without state; the stream is a keyed step over it (engine/first_rows.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType, TimestampType

from lamina.engine.first_rows import EXPIRES, FirstRows
from lamina.engine.model import OperatorPlan
from lamina.pipeline.compile_first import compile_first
from lamina.pipeline.compile_rows import KeptRows
from lamina.pipeline.keys import Names
from lamina.pipeline.model import Emit, Stream
from lamina.pipeline.plans import FirstRow
from lamina.pipeline.select import Select
from lamina.spark.internals import arrow_schema, empty_frame
from lamina.spark.plan_checks import (
    Analysed,
    check_keys,
    check_names,
    check_rows,
    check_types,
    makes_rows,
    refused_type,
)
from lamina.spark.schemas import nullable
from lamina.spark.streams import KeyedPlan, Reading, SparkStream


@dataclass(frozen=True, slots=True)
class Firsts:
    """The first rows of one SELECT over a view with the columns of its input."""

    spark: SparkSession
    select: Select
    reading: Reading
    view: str
    columns: Sequence[str]
    analysed: Analysed

    def compiled(self, stream: Stream, times: Collection[str], delay_us: int) -> SparkStream:
        """*times* are event times of the input, of which the watermark is *delay_us* behind."""
        spark, select = self.spark, self.select
        known = Names(select.qualifier, {name.lower() for name in self.columns})
        plan = compile_first(KeptRows(select, self.columns, known, _no_type), times)
        check_names(plan.outputs, select)
        check_keys(select, plan.placed, self.analysed)
        sent = plan.rows.filled(stream.variables)
        rows = spark.sql(sent.sql(self.view))
        check_rows(rows, select)
        schema = StructType([nullable(each) for each in rows.schema])
        pairs = zip(plan.outputs, plan.columns, strict=True)
        output = StructType([StructField(name, schema[column].dataType) for name, column in pairs])
        check_types(output, select)
        keys = [schema[key] for key in plan.keys]
        return SparkStream(
            stream.name,
            Reading((SparkStream(stream.name, self.reading, sent, schema, b""),)),
            KeyedPlan(plan.keys, tuple(schema.names), plan.columns, (*plan.meanings, EXPIRES)),
            output,
            _bytes(spark, output),
            state=StructType([*keys, StructField(EXPIRES, TimestampType())]),
            operator=_operator(spark, plan, schema, delay_us),
            makes_rows=makes_rows(rows),
        )


def _operator(
    spark: SparkSession, plan: FirstRow, schema: StructType, delay_us: int
) -> OperatorPlan:
    keys = StructType([schema[key] for key in plan.keys])
    compared = tuple(each.name for each in schema if refused_type(each.dataType) is None)
    return OperatorPlan(
        key_schema=_bytes(spark, keys),
        value_schema=_bytes(spark, StructType([StructField(EXPIRES, TimestampType())])),
        step=FirstRows(plan.time, delay_us, compared),
        time=EXPIRES,
        emit=Emit.ON_UPDATE,
        meanings=(*plan.meanings, EXPIRES),
        late_by=plan.time,
        rows_schema=_bytes(spark, schema),
        output_schema=_bytes(spark, schema),
    )


def _no_type(text: str) -> str:
    raise AssertionError(f"the type of {text} is not asked for")


def _bytes(spark: SparkSession, schema: StructType) -> bytes:
    data: bytes = arrow_schema(empty_frame(spark, schema)).serialize().to_pybytes()
    return data
