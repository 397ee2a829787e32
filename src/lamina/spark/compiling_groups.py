"""Aggregations of a SELECT, compiled: types of the state, and the blocks of DISTINCT aggregates."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lamina.engine.task_state import ROWS
from lamina.pipeline.model import Emit, Stream
from lamina.pipeline.plans import Aggregation
from lamina.pipeline.select import Select, block_name
from lamina.spark.frames import view
from lamina.spark.internals import arrow_schema, empty_frame
from lamina.spark.operators import operator_of
from lamina.spark.own_aggregates import OwnAggregates, stored_columns
from lamina.spark.plan_checks import check_change, check_final, check_partial, check_types
from lamina.spark.schemas import nullable
from lamina.spark.streams import Reading, SparkStream, Views

INPUT = ""
"""What stands for all that is read, while types are asked for; no input has this name."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Aggregations of one SELECT over a view with the columns of its input."""

    spark: SparkSession
    select: Select
    reading: Reading
    view: str
    own: OwnAggregates

    def aggregations(self, stream: Stream, plan: Aggregation) -> list[SparkStream]:
        """An aggregation, after the blocks that keep the values of its DISTINCT aggregates."""
        made: list[SparkStream] = []
        views = {INPUT: self.view}
        with ExitStack() as opened:
            for part in plan.distincts:
                called = block_name(stream.name, part.name)
                block = self._aggregation(called, part.values, Emit.ON_UPDATE, views)
                frame = empty_frame(self.spark, block.output)
                views[called] = opened.enter_context(view(frame, f"block {called}"))
                made.append(block)
            emit = stream.emit or (Emit.CHANGES if plan.takes_back else Emit.ON_UPDATE)
            names = tuple(each.name for each in made)
            whole = self._aggregation(stream.name, plan, emit, views, names)
            assert whole.operator is not None
            return [
                *made,
                replace(whole, operator=replace(whole.operator, every_us=stream.every_us)),
            ]

    def _aggregation(
        self,
        name: str,
        plan: Aggregation,
        emit: Emit,
        views: Views,
        distincts: tuple[str, ...] = (),
    ) -> SparkStream:
        spark, select = self.spark, self.select
        simple = Reading((INPUT,))  # one view, whatever it will be made of
        draft = SparkStream(name, simple, plan, StructType(), b"", distincts=distincts)
        partial = spark.sql(draft.partial(views)).drop(ROWS)
        given = StructType([nullable(each) for each in partial.schema])
        state = self.own.shown(plan, given)
        plain = replace(draft, distincts=())
        partials = spark.sql(plain.partial(views))
        check_partial(partials, select)
        if plan.takes_back:
            check_change(partials, select, what="a stream over changes")
        with view(empty_frame(spark, state), f"state of {name}") as state_view:
            output = spark.sql(draft.final(state_view))
            check_types(output.schema, select)
            check_final(output, select, makes_rows=plan.has_lists)
            if emit is Emit.CHANGES:
                check_change(output, select)
            columns = arrow_schema(output).serialize().to_pybytes()
            schema = output.schema
        arrow = stored_columns(plan, arrow_schema(empty_frame(spark, given)))
        operator = operator_of(replace(draft, state=state), plan, arrow, emit)
        return SparkStream(
            name, self.reading, plan, schema, columns, {}, state, operator, distincts
        )
