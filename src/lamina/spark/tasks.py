"""What runs inside of Spark's Python workers: functions over batches.

update   partials in; the state is merged and logged; rows of the state out, and one with the result
stage    output rows in, and that one row; a Parquet file is written; the result out

Where the output is nothing but columns of the state, one function does both.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from lamina.engine.changing import PAIR, changes_of
from lamina.engine.join_asking import answered
from lamina.engine.joins import Join
from lamina.engine.model import OperatorWork, StreamWork, TaskResult, TaskWork
from lamina.engine.steps import is_beside
from lamina.engine.task import Updated, output_schema, update_state
from lamina.engine.typed import as_planned
from lamina.engine.wire import decode_result, encode_result
from lamina.errors import Refused
from lamina.pipeline.model import Emit, JoinKind

META = "_lamina"
RESULT = StructType([StructField("result", StringType())])


@dataclass(frozen=True, slots=True)
class UpdateState:
    """For `mapInArrow`, on the owner of the keys."""

    work: StreamWork
    has_input: bool
    of_rows: bool = False  # what comes are partials of single rows

    def update(self, batches: Iterator[pa.RecordBatch]) -> Updated:
        task = task_of(self.work)
        if self.has_input:
            weighed = _Weighed(batches)
            made = update_state(task, self.operator, weighed, of_rows=self.of_rows)
            return Updated(replace(made.result, row_bytes=weighed.row_bytes), made.rows)
        for _ in batches:  # rows that only say how many tasks there are
            pass
        return update_state(task, self.operator, ())

    @property
    def operator(self) -> OperatorWork:
        """A SELECT has one state, and perhaps timers, or rows that wait, beside it."""
        (only,) = (each for each in self.work.operators if not is_beside(each.plan.step))
        return only

    @property
    def emits_changes(self) -> bool:
        return self.operator.plan.emit is Emit.CHANGES

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        updated = self.update(batches)
        columns = output_schema(self.operator.plan)
        for batch in updated.rows:
            yield batch.append_column(META, pa.nulls(batch.num_rows, pa.string()))
        nulls = [pa.nulls(1, field.type) for field in columns]
        names = [*columns.names, META]
        result = pa.array([encode_result(updated.result)], pa.string())
        yield pa.RecordBatch.from_arrays([*nulls, result], names=names)


@dataclass(frozen=True, slots=True)
class UpdateAndStage:
    """Both steps at once: the output is columns of the state."""

    state: UpdateState
    columns: tuple[str, ...]  # of the state, one for each of the output
    output: bytes  # the output's Arrow schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        updated = self.state.update(batches)
        schema = pa.ipc.read_schema(pa.py_buffer(self.output))
        more = [PAIR] if self.state.emits_changes else []
        rows = (batch.select([*self.columns, *more]) for batch in updated.rows)
        task = task_of(self.state.work)
        staged = self.state.work.space.stage(task.writer, output_rows(rows, schema))
        yield _result(replace(updated.result, staged=staged))


@dataclass(frozen=True, slots=True)
class StageOutput:
    """For `mapInArrow`, behind the final projection in the same stage."""

    work: StreamWork
    columns: bytes  # the output's Arrow schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = task_of(self.work)
        found: list[str] = []
        schema = pa.ipc.read_schema(pa.py_buffer(self.columns))
        weighed = _Weighed(batches)
        rows = output_rows(self._answered(self._rows(weighed, found)), schema)
        staged = self.work.space.stage(task.writer, rows)
        if self.work.operators and len(found) != 1:
            raise Refused(f"{len(found)} results have come for one task of {self.work.stream!r}")
        result = decode_result(found[0]) if found else TaskResult(task.partition)
        heaviest = max(result.row_bytes, weighed.row_bytes)
        yield _result(replace(result, staged=staged, row_bytes=heaviest))

    def _rows(
        self, batches: Iterable[pa.RecordBatch], found: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """Output rows; the row with the result is kept aside."""
        for batch in batches:
            rows = batch
            if META in batch.schema.names:
                meta = batch.column(META)
                found += meta.drop_null().to_pylist()
                rows = batch.filter(meta.is_null()).drop_columns([META])
            yield rows

    def _answered(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Of a join that asks a condition of both sides: the rows that come out."""
        joins = (each.plan.step for each in self.work.operators if isinstance(each.plan.step, Join))
        join = next(joins, None)
        if join is None or not join.asks:
            return batches
        return answered(batches, is_semi=join.kind is JoinKind.SEMI)


class _Weighed:
    """Batches as Spark gives them, and the average row of the heaviest."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.row_bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if batch.num_rows:
                self.row_bytes = max(self.row_bytes, batch.nbytes // batch.num_rows)
            yield batch


def output_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in the types of the output; versions of rows, behind which is a number, as changes."""
    versions: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.schema.names[-1:] != [PAIR]:
            yield _typed(batch, schema)
        elif batch.num_rows:
            rows = _typed(batch.drop_columns([PAIR]), schema)
            versions.append(rows.append_column(PAIR, batch.column(PAIR)))
    if versions:
        yield changes_of(pa.concat_batches(versions))


def _typed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same values under the names and in the types of *schema*."""
    columns = [
        as_planned(column, field.type) for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _result(result: TaskResult) -> pa.RecordBatch:
    """The one row that a task returns."""
    return pa.record_batch({"result": pa.array([encode_result(result)], pa.string())})


def task_of(work: StreamWork) -> TaskWork:
    context = TaskContext.get()
    assert context is not None
    _freeze_modules()
    work.space.check_visible()
    return work.task(context.partitionId(), str(context.taskAttemptId()))


@cache
def _freeze_modules() -> None:
    """Once in every worker: what is imported by now is not garbage, and is not looked through.

    Spark's workers collect all garbage after every task. With Spark, Arrow and numpy imported that
    takes tens of milliseconds, in which the driver and the next task want the processor.
    """
    gc.freeze()
