"""Runs a stream's epoch as one Spark job.

 rows of the epoch -> partial aggregates (JVM) -> on the owner of the key: merge, WAL  (UpdateState)
                   -> final projection (JVM)   -> Parquet, synced; one row per task    (StageOutput)

Where the final projection only names columns of the state there is none: both steps are one
(UpdateAndStage).

The session is one of our own, with the settings of `pinned`: placement and results need them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lamina.connectors.spark_source import PART, HasParts, KeepsBadRows, Learns, SparkSource
from lamina.engine.changing import PAIR
from lamina.engine.join_asking import ASKS
from lamina.engine.model import (
    Input,
    Seen,
    SourceRange,
    StagedRows,
    StreamResult,
    StreamWork,
    TaskResult,
)
from lamina.engine.task import results_of
from lamina.engine.wire import result_of
from lamina.errors import LaminaError
from lamina.spark.batches import ROWS_OF_BATCH, Batches
from lamina.spark.failures import spark_errors
from lamina.spark.frames import named
from lamina.spark.internals import Activation, ArrowStep, Measures, json_column, query
from lamina.spark.stamping import Stamps
from lamina.spark.streams import SparkStream, Views
from lamina.spark.tables import TableViews
from lamina.spark.task_files import TaskFiles
from lamina.spark.tasks import META, RESULT, StageOutput, UpdateAndStage, UpdateState


class SparkRunner:
    """Streams on one SparkSession."""

    def __init__(
        self,
        spark: SparkSession,
        streams: Mapping[str, SparkStream],
        sources: Mapping[str, SparkSource],
        times: Mapping[str, str],
        stamps: Mapping[str, Stamps] | None = None,
        *,
        tables: TableViews | None = None,
    ) -> None:
        """*times* names the column of event time of each source that has one.

        *stamps* are of sources whose rows get the time of the epoch.
        """
        self._spark = spark
        self._active = Activation(spark)
        self._streams = streams
        self._sources = sources
        self._times = times
        self._stamps = stamps or {}
        self._tables = tables or TableViews(spark, {})
        self._files = TaskFiles(spark)
        self._steps: dict[tuple[StructType, tuple[str, ...]], ArrowStep] = {}
        self._known_measures: dict[str, Measures] = {}
        self._empties: dict[str, str] = {}
        self._known_times: dict[str, Column] = {}
        self._few_rows_to_a_key: dict[str, bool] = {}
        self._two_level = ""
        self._batches = Batches(spark)

    def run(self, work: StreamWork) -> StreamResult:
        """One job; again if a source has learned from its failure how to read what it met."""
        while True:
            try:
                return self._run(work)
            except LaminaError as error:
                read = [self._sources.get(_name(each)) for each in work.inputs]
                if not any(_learns(each, error) for each in read):
                    raise

    def _run(self, work: StreamWork) -> StreamResult:
        stream = self._streams[work.stream]
        with spark_errors(stream.called), self._active():
            self._tables.show(work.tables)
            self._batches.choose(work.stream)
            views, taken_back = self._views(work, stream)
            if stream.operator is not None:
                self._choose_map(work.stream)
                job = self._aggregate(work, stream, views, taken_back)
                results = results_of(_results(job), work.partitions)
            elif not views:
                return StreamResult(())
            else:
                job = self._select(work, stream, views, taken_back)
                results = tuple(sorted(_results(job), key=lambda result: result.partition))
            self._batches.note(work.stream, results, job)
            seen = self._seen(work, stream, job)
            self._note_keys(work.stream, results, seen)
            return StreamResult(results, seen)

    # the job

    def _select(
        self, work: StreamWork, stream: SparkStream, views: Views, taken_back: Views
    ) -> DataFrame:
        if stream.of_late_rows:
            assert work.late_floor is not None, "before the first watermark nothing is late"
            output = query(self._spark, stream.late(views, work.late_floor))
        else:
            output = stream.stateless(self._spark, views, taken_back)
        task = StageOutput(_sent(work), stream.staged)
        return self._step(RESULT, stream.selected_columns).over(output, task)

    def _aggregate(
        self, work: StreamWork, stream: SparkStream, views: Views, taken_back: Views
    ) -> DataFrame:
        few = self._few_rows_to_a_key.get(stream.name, False)
        of_rows = stream.can_send_rows and (few or bool(stream.own) or stream.is_session)
        partials, columns = self._partials(work, stream, views, taken_back, of_rows=of_rows)
        task = UpdateState(_sent(work), bool(views), of_rows or bool(stream.distincts))
        if stream.columns is not None:
            both = UpdateAndStage(task, stream.columns, stream.arrow_output)
            return self._step(RESULT, columns).over(partials, both)
        return self._with_final(partials, columns, task, stream)

    def _with_final(
        self, partials: DataFrame, columns: list[str], task: UpdateState, stream: SparkStream
    ) -> DataFrame:
        """The final projection between the two steps, in the same stage, the result with it."""
        assert stream.state is not None
        number = PAIR if task.emits_changes else ASKS if stream.asks else ""
        numbers = [StructField(number, LongType())] if number else []
        carried = StructType([*stream.state.fields, *numbers, StructField(META, StringType())])
        updated = self._step(carried, columns).over(partials, task)
        text = stream.final(named(updated, f"state of {stream.name}"), META, number)
        stage = StageOutput(task.work, stream.arrow_output)
        step = self._step(RESULT, [*stream.output.names, *(each.name for each in numbers), META])
        return step.over(query(self._spark, text), stage)

    def _step(self, schema: StructType, columns: Sequence[str]) -> ArrowStep:
        """Made once for all epochs."""
        key = schema, tuple(columns)
        if key not in self._steps:
            self._steps[key] = ArrowStep(self._spark, schema, columns)
        return self._steps[key]

    def _partials(
        self,
        work: StreamWork,
        stream: SparkStream,
        views: Views,
        taken_back: Views,
        *,
        of_rows: bool,
    ) -> tuple[DataFrame, list[str]]:
        """Exactly P tasks, each with the keys that it owns (R8); and the columns.

        Where few rows share a key, Spark would group them twice for little: they come as they are,
        and are merged where they are sorted anyway.
        """
        if not views:
            return self._spark.range(0, work.partitions, 1, work.partitions), ["id"]
        placed = stream.placed(views, work.partitions, of_rows=of_rows, taken_back=taken_back)
        return query(self._spark, placed), stream.partial_columns

    def _choose_map(self, stream: str) -> None:
        """Spark's small first map of groups pays where many rows have one key; else it costs."""
        wanted = "false" if self._few_rows_to_a_key.get(stream) else "true"
        if wanted != self._two_level:
            self._spark.conf.set(TWO_LEVEL, wanted)
            self._two_level = wanted

    def _note_keys(
        self, stream: str, results: Iterable[TaskResult], seen: Mapping[str, Seen]
    ) -> None:
        rows = sum(each.rows for each in seen.values())
        if rows >= MANY_ROWS:
            keys = sum(place.entries for each in results for place in each.ranges)
            self._few_rows_to_a_key[stream] = keys * 2 > rows

    # input

    def _views(self, work: StreamWork, stream: SparkStream) -> tuple[Views, Views]:
        """A view of what each input has in this epoch, and one of what it takes back.

        None at all if no input has anything; and nothing is taken back if none is of changes.
        """
        frames = {_name(each): self._rows(work, stream, each) for each in work.inputs}
        if all(frame is None for frame in frames.values()):
            return {}, {}
        views, taken_back = dict[str, str](), dict[str, str]()
        for name, frame in frames.items():
            nothing = self._empty(name, stream) if frame is None or stream.changing else ""
            view = nothing if frame is None else named(frame, f"{name} for {work.stream}")
            views[name], taken_back[name] = view, nothing
            if frame is not None and name in stream.changing:
                views[name], taken_back[name] = stream.sides(name, view)
        return views, taken_back if stream.changing else {}

    def _empty(self, name: str, stream: SparkStream) -> str:
        """The view of an input that has no rows now, beside others that have."""
        if name not in self._empties:
            frame = self._spark.createDataFrame([], stream.schemas[name])
            self._empties[name] = named(frame, f"nothing of {name}")
        return self._empties[name]

    def _rows(self, work: StreamWork, stream: SparkStream, read: Input) -> DataFrame | None:
        match read:
            case SourceRange(source, start, end) as planned:
                if start == end:
                    return None
                if stream.of_bad_rows:
                    return self._bad_rows(planned)
                frame = self._sources[source].frame(self._spark, planned)
                if source in self._stamps:
                    frame = self._stamps[source].on(frame, work.epoch_time_us)
                measured = self._measures(source, work, planned).of(frame)
                if planned.holding is not None:
                    measured = measured.drop(PART)
                return self._timed(source, measured)
            case StagedRows(name, files):
                if not files:
                    return None
                return self._files.frame(work.space, stream.stored(name), files)

    def _bad_rows(self, planned: SourceRange) -> DataFrame:
        source = self._sources[planned.source]
        assert isinstance(source, KeepsBadRows), planned.source
        return source.bad_rows(self._spark, planned)

    def _timed(self, source: str, rows: DataFrame) -> DataFrame:
        """Rows without an event time are counted and left out."""
        if source not in self._times:
            return rows
        if source not in self._known_times:
            self._known_times[source] = self._time(source).isNotNull()
        return rows.where(self._known_times[source])

    def _time(self, source: str) -> Column:
        return F.col("`" + self._times[source].replace("`", "``") + "`")

    def _measures(self, source: str, work: StreamWork, planned: SourceRange) -> Measures:
        if planned.holding is not None and source in self._times:
            return self._measures_of_parts(source)
        if source in work.latest_max_us:
            time = self._time(source)
            measures = bounded_measures(time, work.latest_max_us[source])
            return Measures(self._spark, source, measures)
        if source not in self._known_measures:
            measures = [F.count(F.lit(1)).alias("rows")]
            if source in self._times:
                measures.append(F.max(F.unix_micros(self._time(source))).alias("latest_us"))
                measures.append(F.count_if(self._time(source).isNull()).alias("without_time"))
            self._known_measures[source] = Measures(self._spark, source, measures)
        return self._known_measures[source]

    def _measures_of_parts(self, source: str) -> Measures:
        """The latest event time of every part, by its number: made anew when there is a new one."""
        parts = self._parts(source)
        key = f"{source} {len(parts)}"
        if key not in self._known_measures:
            time, part = F.unix_micros(self._time(source)), F.col(PART)
            latest = [
                F.max(F.when(part == number, time)).alias(f"part_{number}")
                for number in range(len(parts))
            ]
            rows = F.count(F.lit(1)).alias("rows")
            without = F.count_if(self._time(source).isNull()).alias("without_time")
            self._known_measures[key] = Measures(
                self._spark, source, [rows, F.max(time).alias("latest_us"), without, *latest]
            )
        return self._known_measures[key]

    def _parts(self, source: str) -> Sequence[str]:
        found = self._sources[source]
        assert isinstance(found, HasParts), source
        return found.parts

    def _seen(self, work: StreamWork, stream: SparkStream, job: DataFrame) -> dict[str, Seen]:
        if stream.of_bad_rows:
            return {}
        read = [each for each in work.inputs if isinstance(each, SourceRange)]
        found = [each for each in read if each.start != each.end]
        if not found:
            return {}
        measured = Measures.seen(job, [each.source for each in found])
        return {each.source: self._seen_of(each, measured[each.source]) for each in found}

    def _seen_of(self, planned: SourceRange, measured: dict[str, Any]) -> Seen:
        if planned.holding is None or planned.source not in self._times:
            return Seen(**measured)
        latest = {
            name: measured.pop(f"part_{number}", None)
            for number, name in enumerate(self._parts(planned.source))
        }
        parts = {name: at for name, at in latest.items() if at is not None}
        return Seen(**measured, parts=parts)


def bounded_measures(column: Column, latest_max_us: int | None) -> list[Column]:
    """What counts, and what is ahead: later than the limit. Without one all counts, and is ahead.

    A number that changes with every epoch would be part of the code that Spark generates, which
    would be compiled anew: a list of one number is not.
    """
    time = F.unix_micros(column)
    limit, beyond = (_LAST, _FIRST) if latest_max_us is None else (latest_max_us, latest_max_us)
    listed = F.array(time)
    ahead = listed > F.array(F.lit(limit))
    return [
        F.count(F.lit(1)).alias("rows"),
        F.max(F.when(~ahead, time)).alias("latest_us"),
        F.count_if(column.isNull()).alias("without_time"),
        F.min(F.when(listed > F.array(F.lit(beyond)), time)).alias("earliest_us"),
        F.count_if(ahead).alias("ahead"),
    ]


_FIRST, _LAST = -(1 << 63), (1 << 63) - 1
TWO_LEVEL = "spark.sql.codegen.aggregate.map.twolevel.enabled"
MANY_ROWS = 50_000  # of an epoch: below that the choice is not worth new code
RESULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.caseSensitive": "false",
}
"""What results depend on: pinned, and recorded in every manifest (R9)."""


def _name(input_: Input) -> str:
    return input_.source if isinstance(input_, SourceRange) else input_.stream


def _learns(source: object, error: LaminaError) -> bool:
    return isinstance(source, Learns) and source.learn(error)


def _sent(work: StreamWork) -> StreamWork:
    """What tasks need of it: a list of files may be long, and each would get it."""
    return replace(work, inputs=(), tables=())


def _results(job: DataFrame) -> Iterator[TaskResult]:
    """Run the job: one row from each task."""
    return map(result_of, json_column(job))


def pinned(partitions: int) -> dict[str, str]:
    """What placement and results depend on."""
    rules = "org.apache.spark.sql.catalyst.optimizer"
    return {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(partitions),
        # A WHERE that Spark proves to be false would take the tasks away, and what they count.
        "spark.sql.optimizer.excludedRules": f"{rules}.PruneFilters,{rules}.PropagateEmptyRelation",
        "spark.sql.optimizer.disableHints": "false",  # one of ours places rows
        "spark.sql.legacy.pathOptionBehavior.enabled": "false",
        # A list of files longer than this would be looked at in a job of its own.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": str(1 << 30),
        "spark.sql.files.ignoreCorruptFiles": "false",
        "spark.sql.files.ignoreMissingFiles": "false",
        **RESULTS,
        **ROWS_OF_BATCH,
        "spark.sql.execution.arrow.useLargeVarTypes": "false",
    }
