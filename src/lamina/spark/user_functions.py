"""Functions of a pipeline, so that its SELECTs can call them.

Spark casts the arguments to the types that are declared, as for any SQL function. The Python
function gets them as Arrow arrays or, row by row, as Python's own values; what it gives must be of
its type, or the epoch stops: Spark alone would make a null of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

from lamina.connectors.file_frames import ddl
from lamina.engine.code import find_code, folder_of, line_of_error
from lamina.errors import Refused
from lamina.pipeline.model import Column, DeclaredFunction, Pipeline
from lamina.pipeline.select import quoted
from lamina.pipeline.source_checks import RESERVED
from lamina.pipeline.tokens import bad_at
from lamina.spark.internals import arrow_schema, is_built_in
from lamina.spark.sending import Sent

SHOWN_MAX = 200
"""Characters of the arguments in an error."""


def register_functions(spark: SparkSession, pipeline: Pipeline, *, file: str) -> None:
    """Make the functions of a pipeline known to a session, which is one of our own."""
    for function in pipeline.functions.values():
        if function.is_aggregate:
            continue  # Spark does not see it (spark/own_aggregates.py)
        if is_built_in(spark, function.name):
            message = f"{function.name!r} is a function of Spark"
            raise bad_at(message, file, function.place, "Give yours another name")
        try:
            _register(spark, function, file)
        except PySparkException as error:
            said = str(error).strip().splitlines()[0]
            message = f"the function {function.name!r}: {said}"
            raise bad_at(message, file, function.place) from error


def _register(spark: SparkSession, function: DeclaredFunction, file: str) -> None:
    called = f"the function {function.name!r}"
    found = find_code(function.code, called, file=file, place=function.place)
    returned = spark.createDataFrame([], f"x {function.returns}")
    kind = arrow_schema(returned).field(0).type
    task = Call(
        Sent(found, folder_of(found), called), function.name, kind, of_arrays=function.of_arrays
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what type hints would tell is told here
        made = arrow_udf(task, returned.schema[0].dataType, ArrowUDFType.SCALAR)
    inner = f"lamina_{function.name}"
    spark.udf.register(inner, made)
    # Names of our own: Spark takes a parameter that is called `user` for its function of that name.
    parameters = [
        Column(f"{RESERVED}_{number}", each.type) for number, each in enumerate(function.parameters)
    ]
    names = ", ".join(each.name for each in parameters)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY FUNCTION {quoted(function.name)} "
        f"({ddl(parameters)}) RETURNS {function.returns} RETURN {quoted(inner)}({names})"
    )


@dataclass(frozen=True, slots=True)
class Call:
    """What a task calls, with the arguments of many rows."""

    function: Sent
    name: str
    returns: pa.DataType
    of_arrays: bool

    def __call__(self, *arguments: pa.Array) -> pa.Array:
        return self._of_arrays(arguments) if self.of_arrays else self._of_rows(arguments)

    def _of_arrays(self, arguments: Sequence[pa.Array]) -> pa.Array:
        given = self._tried(arguments)
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        said = type(given).__name__
        if isinstance(given, pa.Array):
            if given.type == self.returns and len(given) == len(arguments[0]):
                return given
            said = f"{len(given)} of {given.type}"
        wanted = f"{len(arguments[0])} of {self.returns}"
        raise Refused(f"the function {self.name!r} has given {said} for an array of {wanted}")

    def _tried(self, arguments: Sequence[pa.Array]) -> Any:
        try:
            return self.function(*arguments)
        except Exception as error:
            first = self._first_bad(arguments)
            values = [each[first].as_py() for each in arguments]
            raise self._failed(values, error) from error

    def _first_bad(self, arguments: Sequence[pa.Array]) -> int:
        """The row that it fails at: the last one of the fewest first rows that it fails with."""
        good, bad = 0, len(arguments[0])
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                self.function(*(each.slice(0, middle) for each in arguments))
                good = middle
            except Exception:  # noqa: BLE001  whatever it was
                bad = middle
        return good

    def _of_rows(self, arguments: Sequence[pa.Array]) -> pa.Array:
        columns = [each.to_pylist(maps_as_pydicts="strict") for each in arguments]
        made: list[Any] = []
        for values in zip(*columns, strict=True):
            try:
                made.append(self.function(*values))
            except Exception as error:
                raise self._failed(values, error) from error
        try:
            return pa.array(made, self.returns)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            first = next(i for i, value in enumerate(made) if not self._fits(value))
            row = [each[first] for each in columns]
            raise Refused(
                f"{self._shown(row)} is {_cut(repr(made[first]))}, not of the type "
                f"{self.returns} that is declared"
            ) from error

    def _fits(self, value: object) -> bool:
        try:
            pa.array([value], self.returns)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            return False
        return True

    def _failed(self, values: Sequence[Any], error: Exception) -> Refused:
        said = f"{self._shown(values)} failed: {type(error).__name__}: {error}"
        return Refused(" ".join(f"{said} ({line_of_error(error)})".split()))

    def _shown(self, values: Sequence[Any]) -> str:
        """The call, as a person would write it."""
        return f"{self.name}({_cut(', '.join(map(repr, values)))})"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
