"""A stream that is a keyed function, compiled: the types of its keys, rows, state and output."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lamina.connectors.file_frames import ddl
from lamina.engine.code import find_code, folder_of
from lamina.engine.model import OperatorPlan
from lamina.engine.user_steps import EXPIRES, TIME, UserStep, initial_of
from lamina.errors import BadPipeline
from lamina.pipeline.model import Column, Emit, KeyedFunction, Stream
from lamina.pipeline.select import read_select
from lamina.pipeline.tokens import bad_at, did_you_mean
from lamina.spark.internals import arrow_schema, empty_frame
from lamina.spark.plan_checks import check_names, check_types, refused_type
from lamina.spark.schemas import nullable
from lamina.spark.sending import Sent
from lamina.spark.streams import KeyedPlan, Reading, SparkStream


def compile_keyed(
    spark: SparkSession,
    stream: Stream,
    reading: Reading,
    given: StructType,
    times: Collection[str],
) -> SparkStream:
    """The stream over rows of these columns, of which *times* are event times."""
    function = stream.python
    assert isinstance(function, KeyedFunction)
    return _Keyed(spark, stream, function, given, times).compiled(reading)


@dataclass(frozen=True, slots=True)
class _Keyed:
    spark: SparkSession
    stream: Stream
    function: KeyedFunction
    given: StructType
    times: Collection[str]

    def compiled(self, reading: Reading) -> SparkStream:
        function, select = self.function, read_select(self.stream, self._file)
        keys = [self._key(name) for name in function.keys]
        state, output = self._schema(function.state), self._schema(function.output)
        check_names(output.names, select)
        check_types(output, select)
        check_types(state, select)
        every = StructType([*(nullable(self.given[key]) for key in keys), *state])
        arrow = self._arrow(every)
        values = pa.schema([arrow.field(name) for name in state.names])
        follows = function.follows_time
        operator = OperatorPlan(
            key_schema=_bytes(pa.schema([arrow.field(name) for name in keys])),
            value_schema=_bytes(self._kept(values)),
            step=self._step(values, output),
            time=None,
            emit=Emit.ON_WINDOW_CLOSE if function.has_timers else Emit.ON_UPDATE,
            meanings=(*keys, *self._kept(values).names),
            late_by=self._time() if follows else None,
            rows_schema=_bytes(self._arrow(StructType([nullable(each) for each in self.given]))),
            output_schema=_bytes(self._arrow(output)),
            has_timers=follows,
        )
        plan = KeyedPlan(tuple(keys), tuple(self.given.names), tuple(output.names))
        columns = _bytes(self._arrow(output))
        return SparkStream(
            self.stream.name, reading, plan, output, columns, state=every, operator=operator
        )

    def _step(self, values: pa.Schema, output: StructType) -> UserStep:
        function, called = self.function, f"the function of the stream {self.stream.name!r}"
        found = find_code(function.code, called, file=self._file, place=self.stream.place)
        named = {each.lower(): each for each in values.names}
        initial = [(named[name.lower()], value) for name, value in function.initial]
        try:
            start = initial_of(initial, values)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise self._bad(f"initial does not fit the state: {error}") from error
        return UserStep(
            self.stream.name,
            Sent(found, folder_of(found), called),
            _bytes(values),
            _bytes(self._arrow(output)),
            self._time(),
            function.has_timers,
            function.ttl_us,
            start,
        )

    def _kept(self, values: pa.Schema) -> pa.Schema:
        """With the column that a ttl needs."""
        return values if self.function.ttl_us is None else values.append(pa.field(EXPIRES, TIME))

    def _key(self, name: str) -> str:
        """The column that it is, of a type that can be a key (R9)."""
        found = next((each for each in self.given.names if each.lower() == name.lower()), None)
        if found is None:
            message = f"there is no column {name!r} to be a key"
            raise self._bad(message, did_you_mean(name, self.given.names))
        reason = refused_type(self.given[found].dataType)
        if reason is not None:
            kind = self.given[found].dataType.simpleString()
            raise self._bad(f"{found!r} of type {kind} cannot be a key: {reason}")
        return found

    def _time(self) -> str | None:
        """The event time of the rows; a function that follows time must have one."""
        found = next((name for name in self.given.names if name.lower() in self.times), None)
        if found is None and self.function.follows_time:
            raise self._bad(
                "timers or a ttl over rows without their event time",
                "Pass the watermark's column of the source on, as it is",
            )
        return found

    def _schema(self, columns: tuple[Column, ...]) -> StructType:
        made = self.spark.createDataFrame([], ddl(columns)).schema
        return StructType([nullable(each) for each in made])

    def _arrow(self, schema: StructType) -> pa.Schema:
        return arrow_schema(empty_frame(self.spark, schema))

    @property
    def _file(self) -> str:
        return f"stream {self.stream.name}"

    def _bad(self, message: str, advice: str = "") -> BadPipeline:
        return bad_at(message, self._file, self.stream.place, advice)


def _bytes(schema: pa.Schema) -> bytes:
    data: bytes = schema.serialize().to_pybytes()
    return data
