"""The user's own aggregates of a pipeline, compiled: the types of what they take and give.

A column of one has three types: what Spark gives, a list of arguments; what the state keeps, a
struct; and what the final projection sees, which is what `finish` makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from lamina.connectors.file_frames import ddl
from lamina.engine.code import folder_of
from lamina.engine.user_aggregates import UserAggregate, aggregate_of
from lamina.pipeline.aggregate_model import Own
from lamina.pipeline.model import DeclaredFunction, Pipeline
from lamina.pipeline.plans import Aggregation
from lamina.pipeline.tokens import bad_at
from lamina.spark.internals import arrow_schema, is_built_in
from lamina.spark.sending import Sent
from lamina.state.merge import Merge


@dataclass(frozen=True, slots=True)
class OwnAggregate:
    code: UserAggregate
    returns: DataType


@dataclass(frozen=True, slots=True)
class OwnAggregates:
    """By name, in lower case."""

    named: Mapping[str, OwnAggregate]

    @classmethod
    def of(cls, spark: SparkSession, pipeline: Pipeline, *, file: str) -> OwnAggregates:
        declared = (each for each in pipeline.functions.values() if each.is_aggregate)
        return cls({each.name.lower(): _compiled(spark, each, file) for each in declared})

    def sent(self, plan: Aggregation) -> Aggregation:
        """The plan with the code that its merges need."""
        own = dict(plan.own)
        if not own:
            return plan
        merges = tuple(
            replace(merge, code=self._code(own[merge.columns[0]]))
            if merge.columns[0] in own
            else merge
            for merge in plan.merges
        )
        return replace(plan, merges=merges)

    def shown(self, plan: Aggregation, given: StructType) -> StructType:
        """Keys and partials as the final projection sees them."""
        own = {name: self.named[each.name.lower()].returns for name, each in plan.own}
        return StructType([StructField(f.name, own.get(f.name, f.dataType)) for f in given])

    def _code(self, own: Own) -> UserAggregate:
        code = self.named[own.name.lower()].code
        return replace(code, of_bag=own.of_bag, distinct=own.distinct)


def stored_columns(plan: Aggregation, given: pa.Schema) -> pa.Schema:
    """Keys and partials as the state keeps them."""
    own = {merge.columns[0]: kind for merge in plan.merges if (kind := _stored(merge)) is not None}
    return pa.schema([pa.field(f.name, own.get(f.name, f.type), f.nullable) for f in given])


def _stored(merge: Merge) -> pa.DataType | None:
    code = merge.code
    return code.stored if isinstance(code, UserAggregate) and not code.of_bag else None


def _compiled(spark: SparkSession, function: DeclaredFunction, file: str) -> OwnAggregate:
    if is_built_in(spark, function.name):
        message = f"{function.name!r} is a function of Spark"
        raise bad_at(message, file, function.place, "Give yours another name")
    code = aggregate_of(function, file=file)
    try:
        parameters = arrow_schema(spark.createDataFrame([], ddl(function.parameters)))
        returned = spark.createDataFrame([], f"x {function.returns}")
    except PySparkException as error:
        said = str(error).strip().splitlines()[0]
        message = f"the aggregate {function.name!r}: {said}"
        raise bad_at(message, file, function.place) from error
    called = f"the aggregate {function.name!r}"
    made = UserAggregate(
        function.name,
        Sent(code.make, folder_of(code.found), called),
        pa.schema([pa.field(each.name, each.type) for each in parameters]),
        code.state,
        arrow_schema(returned).field(0).type,
    )
    return OwnAggregate(made, returned.schema[0].dataType)
