"""Streams of a pipeline, compiled against a live Spark: types and aggregates are Spark's to say.

Each stream becomes a job of every epoch, and so does each block with state (pipeline/blocks.py). A
block without state is put into the text of what reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lamina.connectors.opening import (
    bad_row_streams,
    bad_rows_ddl,
    changing_sources,
    keyed_sources,
)
from lamina.engine.pending import with_pending
from lamina.engine.plans import EnginePlan, StreamPlan
from lamina.engine.ports import Change, Output
from lamina.engine.timers import with_timers
from lamina.format.canonical import Json
from lamina.format.manifest import pipeline_hash
from lamina.pipeline.blocks import keeps_state
from lamina.pipeline.compile import compile_select
from lamina.pipeline.compile_rows import named_table
from lamina.pipeline.digests import digests_of, hash_of, words_of
from lamina.pipeline.epoch_times import epoch_times, goes_by_clock
from lamina.pipeline.model import DeclaredSource, FrameFunction, Pipeline, Stream
from lamina.pipeline.plans import Aggregation, Stateless
from lamina.pipeline.select import Select, read_select
from lamina.pipeline.tokens import bad_at
from lamina.pipeline.variables import filled
from lamina.spark.compiling_first import Firsts
from lamina.spark.compiling_frames import compile_frames
from lamina.spark.compiling_groups import INPUT, Groups
from lamina.spark.compiling_keyed import compile_keyed
from lamina.spark.compiling_temporal_joins import compile_stream_join
from lamina.spark.compiling_values import compile_beside, reads_tables_beside
from lamina.spark.compiling_versions import compile_versions
from lamina.spark.frames import view
from lamina.spark.internals import arrow_schema, empty_frame, is_aggregate
from lamina.spark.known import Known, change_of, clocks_of, ends_of, output_of, times_of
from lamina.spark.own_aggregates import OwnAggregates
from lamina.spark.plan_checks import (
    check_change,
    check_keys,
    check_names,
    check_rows,
    check_types,
    check_updates,
    makes_rows,
)
from lamina.spark.schemas import advice_on, columns_schema, first_line
from lamina.spark.streams import Reading, SparkStream
from lamina.spark.tables import declare_tables
from lamina.spark.unions import together
from lamina.spark.user_functions import register_functions


def compile_pipeline(
    spark: SparkSession, pipeline: Pipeline, order: tuple[str, ...], *, name: str, file: str
) -> tuple[EnginePlan, dict[str, SparkStream]]:
    """Every stream in its order, each over the schema of what it reads."""
    register_functions(spark, pipeline, file=file)
    own = OwnAggregates.of(spark, pipeline, file=file)
    compiler = _Compiler(spark, pipeline, file, own)
    compiler.add_versions()
    for each in order:
        compiler.add(pipeline.streams[each])
    kept = bad_row_streams(pipeline)
    for each, source in kept.items():
        compiler.add_bad_rows(each, source)
    digests = digests_of(pipeline, compiler.selects)
    plan = EnginePlan(
        pipeline=name,
        pipeline_hash=hash_of(pipeline, digests),
        definitions=digests,
        streams=tuple(compiler.plans),
        sinks={s.name: compiler.named[s.stream.lower()] for s in pipeline.sinks.values()}
        | dict(zip(kept, kept, strict=True)),
        delays_us={
            source.name: source.watermark.delay_us
            for source in pipeline.sources.values()
            if source.watermark is not None
        },
        by_clock=frozenset(s.name for s in pipeline.sources.values() if goes_by_clock(s)),
        connectors={source.name: source.format for source in pipeline.sources.values()},
        changing=frozenset(changing_sources(pipeline, file=file)) - set(compiler.by_key),
    )
    return plan, compiler.streams


@dataclass(slots=True)
class _Compiler:
    spark: SparkSession
    pipeline: Pipeline
    file: str
    own: OwnAggregates
    named: dict[str, str] = field(init=False)
    by_key: dict[str, tuple[str, ...]] = field(init=False)  # sources of versions, and their keys
    streams: dict[str, SparkStream] = field(default_factory=dict)
    plans: list[StreamPlan] = field(default_factory=list)
    selects: dict[str, Json] = field(default_factory=dict)
    _known: dict[str, Known] = field(init=False)
    _tables: dict[str, StructType] = field(init=False)

    def __post_init__(self) -> None:
        pipeline = self.pipeline
        changing = changing_sources(pipeline, file=self.file)
        self._tables = declare_tables(self.spark, pipeline.tables.values())
        self.by_key = keyed_sources(pipeline, file=self.file)
        self.named = {each.lower(): each for each in (*pipeline.sources, *pipeline.streams)}
        self._known = {
            name: Known(
                columns_schema(self.spark, source),
                frozenset({name}),
                [_meaning(source), "changes"] if name in changing else _meaning(source),
                Change.CHANGES if name in changing else Change.APPEND,
                changing.get(name),
                times=frozenset({source.watermark.column.lower()} if source.watermark else ()),
                delay_us=source.watermark.delay_us if source.watermark else 0,
                clocks=frozenset(each.lower() for each in epoch_times(source)),
            )
            for name, source in pipeline.sources.items()
        }

    def add_versions(self) -> None:
        """Of each source of versions by key a stream that makes changes of them, in its place."""
        for name, keys in self.by_key.items():
            source, known = self.pipeline.sources[name], self._known[name]
            made = compile_versions(self.spark, source, known.schema, keys, self.file)
            self._known[name] = replace(known, schema=made.versions, change=Change.APPEND)
            stream = Stream(made.stream.name, "", place=source.place)
            self._add(made.stream, stream, known.meaning, known.sources, made.output)
            self.named[name.lower()] = made.stream.name
            self._known[made.stream.name] = known

    def add(self, stream: Stream) -> None:
        """Compile a stream over what is known so far."""
        select = read_select(stream, self.file)
        reads = [self.named[each.lower()] for each in select.reads]
        inputs = [self._known[name] for name in reads]
        self.selects[stream.name] = words_of(select, stream, self.pipeline.functions)
        meaning: Json = [self.selects[stream.name], *(each.meaning for each in inputs)]
        if stream.top is not None:
            meaning = [meaning, stream.top]
        reading = Reading(
            tuple(each.inlined or name for name, each in zip(reads, inputs, strict=True))
        )
        if reads_tables_beside(stream):
            self._add_inlined(stream, inputs[0], reading, meaning)
            return
        if stream.join is not None:
            self._add_join(stream, inputs, reading, meaning)
            return
        sources = frozenset(source for each in inputs for source in each.sources)
        lateness_us = max(each.lateness_us for each in inputs) + stream.late.allowed_us
        if stream.late_of:
            parts, made = [], self._late_rows(stream, reading, inputs)
        else:
            *parts, made = _compile(
                self.spark, stream, reading, inputs, file=self.file, own=self.own
            )
        for part in parts:
            out = output_of(part, select, inputs)
            self._add(part, stream, meaning, sources, out, lateness_us=lateness_us)
        output = output_of(made, select, inputs)
        is_inlined = self._is_inlined(stream, made)
        if is_inlined:
            self.streams[stream.name] = made
        else:
            self._add(made, stream, meaning, sources, output, lateness_us=lateness_us)
        self._known[stream.name] = Known(
            made.output,
            sources,
            [meaning, "changes"] if output.change is Change.CHANGES else meaning,
            output.change,
            output.keys,
            times_of(select, made, inputs),
            lateness_us,
            made if is_inlined else None,
            max(each.delay_us for each in inputs),
            ends_of(select, made, inputs),
            clocks=clocks_of(select, made, inputs),
        )

    def _add_join(
        self, stream: Stream, inputs: Sequence[Known], reading: Reading, meaning: Json
    ) -> None:
        joined = compile_stream_join(self.spark, stream, inputs, reading, self.file)
        timed = joined.timed(inputs)
        sources = frozenset(source for each in timed for source in each.sources)
        lateness_us = max(each.lateness_us for each in timed)
        looks_up = frozenset(s for each in inputs[len(timed) :] for s in each.sources)
        self._add(
            joined.stream,
            stream,
            meaning,
            sources,
            joined.output,
            lateness_us=lateness_us,
            looks_up=looks_up,
        )
        self._known[stream.name] = joined.known(timed, sources, meaning, lateness_us)

    def _add_inlined(self, stream: Stream, read: Known, reading: Reading, meaning: Json) -> None:
        """A join with a table, and values of queries: a part of what reads them."""
        known = compile_beside(
            self.spark,
            self.pipeline,
            self._tables,
            stream,
            (read, reading),
            meaning=meaning,
            file=self.file,
        )
        assert known.inlined is not None
        self._known[stream.name], self.streams[stream.name] = known, known.inlined

    def _add(
        self,
        block: SparkStream,
        stream: Stream,
        meaning: Json,
        sources: frozenset[str],
        output: Output,
        *,
        lateness_us: int = 0,
        looks_up: frozenset[str] = frozenset(),
    ) -> None:
        """A job of every epoch: the stream itself, or a block that only it needs."""
        if block.name in self.streams or (block.name != stream.name and block.name in self._known):
            message = f"{block.name!r} is the name of a block of {stream.name!r}"
            raise bad_at(message, self.file, stream.place, "Give the other stream another name")
        block = replace(
            block,
            schemas={name: self._schema(name) for name in block.inputs},
            changing=frozenset(name for name in block.inputs if self._is_changing(name)),
        )
        operators = {}
        if block.operator is not None:
            operator = replace(block.operator, definition=pipeline_hash(meaning))
            block = replace(block, operator=operator)
            operators = with_timers(block.name, operator) | with_pending(block.name, operator)
        self.streams[block.name] = block
        is_whole = block.name == stream.name
        self.plans.append(
            StreamPlan(
                block.name,
                block.inputs,
                sources,
                operators,
                output,
                block_of=stream.block_of if is_whole else stream.block_of or stream.name,
                late_of=stream.late_of,
                lateness_us=lateness_us,
                looks_up=looks_up,
                is_counted=is_whole,
            )
        )

    def _is_inlined(self, stream: Stream, made: SparkStream) -> bool:
        """A block without state is a part of what reads it.

        Where rows are moved, it is so for one reader only, and without state: of rows that are
        equal in ORDER BY Spark takes any, and no two may see different ones.
        """
        if not stream.block_of or not isinstance(made.plan, Stateless):
            return False
        if not made.moves_rows:
            return True
        selects = (read_select(each, self.file) for each in self.pipeline.streams.values())
        readers = [each for each in selects if stream.name in each.reads]
        return len(readers) == 1 and not keeps_state(readers[0])

    def _is_changing(self, name: str) -> bool:
        known = self._known.get(name)
        return known is not None and known.change is Change.CHANGES

    def _schema(self, name: str) -> StructType:
        known = self._known.get(name)
        return self.streams[name].output if known is None else known.stored or known.schema

    def _late_rows(self, stream: Stream, reading: Reading, inputs: Sequence[Known]) -> SparkStream:
        """The rows that its stream has left out, of what that reads."""
        plan = self.streams[stream.late_of].plan
        if not isinstance(plan, Aggregation) or plan.late is None:
            message = f"LATE ROWS of {stream.late_of!r}, which has no window(), TUMBLE or HOP"
            raise bad_at(message, self.file, stream.place)
        if any(each.change is not Change.APPEND for each in inputs):
            message = f"LATE ROWS of {stream.late_of!r}, which reads rows that replace others"
            raise bad_at(message, self.file, stream.place)
        given = self.spark.createDataFrame([], together(self.spark, stream, inputs, self.file))
        with view(given, f"late rows of {stream.late_of}") as name:
            draft = SparkStream(stream.name, Reading((INPUT,)), plan.late, given.schema, b"")
            rows = self.spark.sql(draft.late({INPUT: name}, 0))
            columns = arrow_schema(rows).serialize().to_pybytes()
        return SparkStream(stream.name, reading, plan.late, rows.schema, columns, of_late_rows=True)

    def add_bad_rows(self, name: str, source: DeclaredSource) -> None:
        """The stream of a source's bad rows: staged, committed and published like any other."""
        stream = Stream(name, "SELECT * FROM bad_rows", place=source.place)
        kept = self.spark.createDataFrame([], bad_rows_ddl(source, file=self.file)).schema
        inputs = [Known(kept, frozenset({source.name}), None)]
        reading = Reading((source.name,))
        (made,) = _compile(self.spark, stream, reading, inputs, file=self.file, own=self.own)
        made = replace(made, of_bad_rows=True)
        output = output_of(made, read_select(stream, self.file), inputs)
        self._add(made, stream, None, inputs[0].sources, output)


def _meaning(source: DeclaredSource) -> Json:
    """What of a source its readers' state depends on; where it is may change."""
    columns = [column.definition() for column in source.columns]
    return [columns, None if source.watermark is None else source.watermark.column.lower()]


def _compile(
    spark: SparkSession,
    stream: Stream,
    reading: Reading,
    inputs: Sequence[Known],
    *,
    file: str,
    own: OwnAggregates,
) -> list[SparkStream]:
    """The stream, after the blocks that only it needs."""
    select = read_select(stream, file)
    try:
        if isinstance(stream.python, FrameFunction):
            return [compile_frames(spark, stream, reading, [each.schema for each in inputs])]
        every = together(spark, stream, inputs, file)
        if stream.python is not None:
            times = frozenset.intersection(*(each.times for each in inputs))
            return [compile_keyed(spark, stream, reading, every, times)]
        given = empty_frame(spark, every)
        with view(given, f"check of {stream.name}") as name:
            rows_of = filled(f"{name}{named_table(select)}", stream.variables)

            def analysed(expression: str) -> DataFrame:
                text = filled(expression, stream.variables)
                return spark.sql(f"SELECT {text} AS x FROM {rows_of}")  # noqa: S608  a check

            if select.laterals.text:
                given = spark.sql(f"SELECT * FROM {rows_of}")  # noqa: S608  a check
            times = frozenset.intersection(*(each.times for each in inputs))
            if select.on is not None:
                delay_us = max(each.delay_us for each in inputs)
                firsts = Firsts(spark, select, reading, name, given.columns, analysed)
                return [firsts.compiled(stream, times, delay_us)]
            plan = compile_select(
                select,
                columns=given.columns,
                type_of=lambda text: analysed(text).schema["x"].dataType.simpleString(),
                is_aggregate=lambda function: is_aggregate(spark, function),
                times=times,
                top=stream.top,
                over_changes=change_of(inputs) is Change.CHANGES,
            )
            if isinstance(plan, Stateless):
                plan = plan.filled(stream.variables)
                rows = spark.sql(plan.sql(name))
                _check_rows(rows, select, change_of(inputs))
                columns = arrow_schema(rows).serialize().to_pybytes()
                made = SparkStream(stream.name, reading, plan, rows.schema, columns)
                return [replace(made, makes_rows=makes_rows(rows))]
            if change_of(inputs) is Change.CHANGES and not plan.takes_back:
                message = "this cannot be kept of changes: rows could not be taken back"
                raise select.script.bad(message, select.table, "Let it read what never changes")
            check_names(plan.outputs, select)
            for each in (plan, *(part.values for part in plan.distincts)):
                check_keys(select, each.placed, analysed)
            groups = Groups(spark, select, reading, name, own)
            return groups.aggregations(stream, own.sent(plan.filled(stream.variables)))
    except PySparkException as error:
        said = f"the stream {stream.name!r}: {first_line(error)}"
        raise bad_at(said, file, stream.place, advice_on(error)) from error


def _check_rows(rows: DataFrame, select: Select, change: Change) -> None:
    """Of a SELECT that keeps no state: what Spark makes of it."""
    check_rows(rows, select)
    if change is Change.UPSERT:
        check_updates(rows, select)
    if change is Change.CHANGES:
        check_change(rows, select, what="a stream over changes")
    check_names(rows.columns, select)
    check_types(rows.schema, select)
