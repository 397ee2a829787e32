"""Streams of a pipeline, compiled against a live Spark: types and aggregates are Spark's to say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    StructType,
)

from lamina.connectors.file_frames import ddl
from lamina.connectors.opening import bad_row_streams, bad_rows_ddl
from lamina.engine.model import OperatorPlan
from lamina.engine.plans import EnginePlan, StreamPlan
from lamina.engine.ports import Change, Output
from lamina.engine.steps import Merges
from lamina.engine.task import ROWS
from lamina.errors import BadPipeline
from lamina.format.canonical import Json
from lamina.format.manifest import pipeline_hash
from lamina.pipeline.compile import Aggregation, Stateless, compile_select
from lamina.pipeline.digests import digests_of, hash_of, words_of
from lamina.pipeline.model import DeclaredSource, Emit, Pipeline, Stream
from lamina.pipeline.select import Select, read_select
from lamina.pipeline.variables import filled
from lamina.spark.frames import arrow_schema, view
from lamina.spark.internals import is_aggregate
from lamina.spark.plan_checks import (
    check_final,
    check_keys,
    check_names,
    check_partial,
    check_rows,
    check_types,
    check_updates,
)

SUMMED = (LongType, DecimalType)
"""Types of sums whose value does not depend on the order."""

ALL = "k_all"
"""The key of an aggregate without one: all rows are one group."""


@dataclass(frozen=True, slots=True)
class SparkStream:
    """A stream as a runner needs it: the plan, and the schemas on the way."""

    name: str
    reads: str
    plan: Stateless | Aggregation
    variables: Mapping[str, str]
    input: StructType
    output: StructType
    arrow_output: bytes
    state: StructType | None = None  # keys and partials
    operator: OperatorPlan | None = None
    of_bad_rows: bool = False  # it reads what is wrong with a source, not what is right

    @property
    def keys(self) -> tuple[str, ...]:
        assert isinstance(self.plan, Aggregation)
        return self.plan.keys or (ALL,)

    @property
    def meanings(self) -> tuple[str, ...]:
        """What each column of the state holds, keys first."""
        assert isinstance(self.plan, Aggregation)
        return self.plan.meanings if self.plan.keys else ("all rows", *self.plan.meanings)

    @property
    def called(self) -> dict[str, str]:
        """What columns of the state are in the user's words, for errors."""
        names = self.state.names if self.state is not None else []
        return dict(zip(names, self.meanings, strict=True)) if names else {}

    @property
    def columns(self) -> tuple[str, ...] | None:
        """What of the state is the output, column by column, if it is nothing else."""
        return self.plan.columns if isinstance(self.plan, Aggregation) else None

    @property
    def partial_columns(self) -> list[str]:
        """As `partial` gives them."""
        assert self.state is not None
        rows = [ROWS] if isinstance(self.plan, Aggregation) and self.plan.time is not None else []
        return [*self.state.names, *rows]

    @property
    def can_send_rows(self) -> bool:
        """Whether rows, merged one by one, come to exactly the partials that Spark computes.

        A sum of doubles does not: its last bits depend on the order.
        """
        if not isinstance(self.plan, Aggregation) or self.plan.of_rows is None:
            return False
        assert self.state is not None
        return all(
            not isinstance(self.state[column].dataType, (FloatType, DoubleType))
            and (merge.function != "sum" or isinstance(self.state[column].dataType, SUMMED))
            for merge in self.plan.merges
            for column in merge.columns
        )

    def placed(self, view_name: str, partitions: int, *, of_rows: bool = False) -> str:
        """The partials of all rows, or of each, on the owner of their key (R8)."""
        hint = f"/*+ REPARTITION({partitions}, {', '.join(self.keys)}) */"
        text = self.rows(view_name) if of_rows else self.partial(view_name)
        return f"SELECT {hint} * FROM ({text})"

    def rows(self, view_name: str) -> str:
        """The partials of each row alone, in the types of the state."""
        assert isinstance(self.plan, Aggregation)
        assert self.state is not None
        typed = (f"CAST({f.name} AS {f.dataType.simpleString()}) {f.name}" for f in self.state)
        text = filled(self.plan.rows(view_name), self.variables)
        return f"SELECT {', '.join(typed)} FROM ({text})"

    def partial(self, view_name: str) -> str:
        """The partials of an epoch's rows."""
        assert isinstance(self.plan, Aggregation)
        rows = "" if self.plan.time is None else ROWS  # how many are late is asked of windows only
        text = filled(self.plan.partial(view_name, rows), self.variables)
        return text if self.plan.keys else f"SELECT 0 AS {ALL}, * FROM ({text})"

    def final(self, view_name: str, carry: str = "") -> str:
        assert isinstance(self.plan, Aggregation)
        return filled(self.plan.final(view_name, carry), self.variables)

    def select(self, view_name: str) -> str:
        assert isinstance(self.plan, Stateless)
        return filled(self.plan.sql(view_name), self.variables)


def compile_pipeline(
    spark: SparkSession, pipeline: Pipeline, order: tuple[str, ...], *, name: str, file: str
) -> tuple[EnginePlan, dict[str, SparkStream]]:
    """Every stream in its order, each over the schema of what it reads."""
    schemas = {each.name.lower(): _source_schema(spark, each) for each in pipeline.sources.values()}
    named = {each.lower(): each for each in (*pipeline.sources, *pipeline.streams)}
    reads_from: dict[str, frozenset[str]] = {n: frozenset({n}) for n in pipeline.sources}
    streams: dict[str, SparkStream] = {}
    outputs: dict[str, Output] = {}
    plans: list[StreamPlan] = []
    selects: dict[str, Json] = {}
    meanings: dict[str, Json] = {n: _meaning(s) for n, s in pipeline.sources.items()}
    for each in order:
        updating = {n.lower() for n, out in outputs.items() if out.change is not Change.APPEND}
        stream = pipeline.streams[each]
        compiled = _compile(spark, stream, schemas, named, file, updating=updating)
        selects[each] = words_of(read_select(stream, file), compiled.variables)
        meanings[each] = [selects[each], meanings[compiled.reads]]
        if compiled.operator is not None:
            operator = replace(compiled.operator, definition=pipeline_hash(meanings[each]))
            compiled = replace(compiled, operator=operator)
        streams[each] = compiled
        schemas[each.lower()] = compiled.output
        reads_from[each] = reads_from[compiled.reads]
        outputs[each] = _output(compiled, outputs.get(compiled.reads, Output()).change)
        operators = {each: compiled.operator} if compiled.operator is not None else {}
        plans.append(
            StreamPlan(each, (compiled.reads,), reads_from[each], operators, outputs[each])
        )
    kept = bad_row_streams(pipeline)
    for each, source in kept.items():
        streams[each] = _bad_rows(spark, each, source, file)
        output = _output(streams[each], Change.APPEND)
        plans.append(StreamPlan(each, (source.name,), frozenset({source.name}), output=output))
    digests = digests_of(pipeline, selects)
    plan = EnginePlan(
        pipeline=name,
        pipeline_hash=hash_of(pipeline, digests),
        definitions=digests,
        streams=tuple(plans),
        sinks={sink.name: named[sink.stream.lower()] for sink in pipeline.sinks.values()}
        | dict(zip(kept, kept, strict=True)),
        delays_us={
            source.name: source.watermark.delay_us
            for source in pipeline.sources.values()
            if source.watermark is not None
        },
        connectors={source.name: source.format for source in pipeline.sources.values()},
    )
    return plan, streams


def _output(stream: SparkStream, read: Change) -> Output:
    """What its rows do to those before; *read* is what the rows do that it reads."""
    schema = pa.ipc.read_schema(pa.py_buffer(stream.arrow_output))
    if stream.operator is None or not isinstance(stream.plan, Aggregation):
        return Output(schema, read)
    closes = stream.operator.emit is Emit.ON_WINDOW_CLOSE
    change = Change.APPEND if closes else Change.UPSERT
    return Output(schema, change, stream.plan.key_outputs)


def _meaning(source: DeclaredSource) -> Json:
    """What of a source its readers' state depends on; where it is may change."""
    columns = [column.definition() for column in source.columns]
    return [columns, None if source.watermark is None else source.watermark.column.lower()]


def _compile(
    spark: SparkSession,
    stream: Stream,
    schemas: Mapping[str, StructType],
    named: Mapping[str, str],
    file: str,
    *,
    updating: Collection[str] = (),
) -> SparkStream:
    select = read_select(stream, file)
    reads = select.table.text.lower()
    given = spark.createDataFrame([], schemas[reads])
    with view(given, f"check of {stream.name}") as name:

        def analysed(expression: str) -> DataFrame:
            known_as = (select.alias or select.table).text.replace("`", "``")
            text = f"SELECT {expression} AS x FROM {name} AS `{known_as}`"
            return spark.sql(filled(text, stream.variables))

        try:
            plan = compile_select(
                select,
                columns=given.columns,
                type_of=lambda text: analysed(text).schema["x"].dataType.simpleString(),
                is_aggregate=lambda function: is_aggregate(spark, function),
            )
            if isinstance(plan, Stateless):
                rows = spark.sql(filled(plan.sql(name), stream.variables))
                check_rows(rows, select)
                if reads in updating:
                    check_updates(rows, select)
                check_names(rows.columns, select)
                check_types(rows.schema, select)
                return _stateless(stream, plan, named[reads], given, name)
            check_names(plan.outputs, select)
            check_keys(select, given.columns, analysed)
            made = _aggregation(stream, plan, named[reads], given, name, select=select)
            return _checked(made, select, given, name)
        except PySparkException as error:
            where = f"{file}:{stream.place.line}:{stream.place.column}"
            raise BadPipeline(
                f"the stream {stream.name!r}: {_first_line(error)}", where=where
            ) from error


def _checked(stream: SparkStream, select: Select, given: DataFrame, name: str) -> SparkStream:
    """An aggregation whose plans are what the runner needs."""
    spark = given.sparkSession
    check_partial(spark.sql(stream.partial(name)), select)
    assert stream.state is not None
    with view(spark.createDataFrame([], stream.state), f"plan of {stream.name}") as state:
        check_final(spark.sql(stream.final(state)), select)
    return stream


def _bad_rows(spark: SparkSession, name: str, source: DeclaredSource, file: str) -> SparkStream:
    """The stream of a source's bad rows: staged, committed and published like any other."""
    stream = Stream(name, "SELECT * FROM bad_rows", place=source.place)
    named, columns = {"bad_rows": source.name}, bad_rows_ddl(source, file=file)
    kept = spark.createDataFrame([], columns).schema
    compiled = _compile(spark, stream, {"bad_rows": kept}, named, file)
    return replace(compiled, of_bad_rows=True)


def _stateless(
    stream: Stream, plan: Stateless, reads: str, given: DataFrame, name: str
) -> SparkStream:
    spark = given.sparkSession
    frame = spark.sql(filled(plan.sql(name), stream.variables))
    columns = arrow_schema(frame).serialize().to_pybytes()
    return SparkStream(
        stream.name, reads, plan, stream.variables, given.schema, frame.schema, columns
    )


def _aggregation(
    stream: Stream, plan: Aggregation, reads: str, given: DataFrame, name: str, *, select: Select
) -> SparkStream:
    spark = given.sparkSession
    draft = SparkStream(stream.name, reads, plan, stream.variables, given.schema, StructType(), b"")
    partial = spark.sql(draft.partial(name)).drop(ROWS)
    state = StructType([_nullable(field) for field in partial.schema])
    with view(
        spark.createDataFrame([], state), f"check of the state of {stream.name}"
    ) as state_view:
        output = spark.sql(draft.final(state_view))
        check_types(output.schema, select)
        columns = arrow_schema(output).serialize().to_pybytes()
        schema = output.schema
    arrow = arrow_schema(spark.createDataFrame([], state))
    keys = pa.schema([arrow.field(key) for key in draft.keys])
    values = pa.schema([field for field in arrow if field.name not in draft.keys])
    operator = OperatorPlan(
        key_schema=keys.serialize().to_pybytes(),
        value_schema=values.serialize().to_pybytes(),
        step=Merges(plan.merges),
        time=plan.time,
        emit=stream.emit or Emit.ON_UPDATE,
        meanings=draft.meanings,
    )
    return SparkStream(
        stream.name,
        reads,
        plan,
        stream.variables,
        given.schema,
        schema,
        columns,
        state,
        operator,
    )


def _source_schema(spark: SparkSession, source: DeclaredSource) -> StructType:
    try:
        return spark.createDataFrame([], ddl(source.columns)).schema
    except PySparkException as error:
        raise BadPipeline(
            f"the columns of {source.name!r}: {_first_line(error)}", where=str(source.place)
        ) from error


def _nullable(field: Any) -> Any:
    return type(field)(field.name, field.dataType, True)


def _first_line(error: PySparkException) -> str:
    return str(error).strip().splitlines()[0]
