"""Small things about DataFrames that Spark has no words for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import vectorized_udf  # type: ignore[attr-defined]
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType

from lamina.format.canonical import sha256_hex

LISTS = ("spark.sql.optimizer.excludedRules",)
"""Settings that are added to what a session has."""

ArrowTask = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(
    frame: DataFrame,
    task: ArrowTask,
    schema: StructType | str,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """`DataFrame.mapInArrow`, which asks for pandas first and then does not use it.

    *columns* are all those of *frame*, if they are known: every call into the JVM takes its time.
    """
    function = vectorized_udf(
        cast(Any, task), cast(Any, schema), cast(Any, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    )
    names = ("`" + name.replace("`", "``") + "`" for name in columns or frame.columns)
    column = cast(Any, function)(*names)
    made = cast(Any, frame)._jdf.mapInArrow(column._jc, False, None)  # noqa: SLF001
    return DataFrame(made, frame.sparkSession)


def own_session(spark: SparkSession, wanted: Mapping[str, str]) -> SparkSession:
    """A session with all that *spark* has (functions, views, catalogs, jars) and these settings.

    Spark makes one like it for each of its own streaming queries. What is set or made there is not
    seen in *spark*, so both can be used at the same time.
    """
    java = cast(Any, spark)._jsparkSession  # noqa: SLF001  Python has no word for it
    own = SparkSession(spark.sparkContext, java.cloneSession())
    for name, value in wanted.items():
        theirs = own.conf.get(name, "") if name in LISTS else ""
        own.conf.set(name, f"{theirs},{value}" if theirs else value)
    return own


@contextmanager
def active(own: SparkSession) -> Iterator[None]:
    """This thread's active session is *own*; afterwards the one that it was.

    Some of Spark looks at the settings of the active session, whichever session it was asked by:
    the reading of DDL, for one. And `createDataFrame` makes its own session active, for good.
    """
    every, session = cast(Any, SparkSession), cast(Any, own)
    java = every._get_j_spark_session_class(session._jvm)  # noqa: SLF001
    of_java, of_python = java.getActiveSession(), every._activeSession  # noqa: SLF001
    java.setActiveSession(session._jsparkSession)  # noqa: SLF001
    try:
        yield
    finally:
        if every._activeSession is own:  # noqa: SLF001
            every._activeSession = of_python  # noqa: SLF001
        if of_java.isDefined():
            java.setActiveSession(of_java.get())
        else:
            java.clearActiveSession()


def named(frame: DataFrame, of: str) -> str:
    """A DataFrame under a name that nobody else has, for SQL in a session of our own."""
    name = f"lamina_{sha256_hex(of.encode())[:16]}"
    frame.createOrReplaceTempView(name)
    return name


@contextmanager
def view(frame: DataFrame, of: str) -> Iterator[str]:
    """The same in anybody's session, while it is needed."""
    name = named(frame, of)
    try:
        yield name
    finally:
        frame.sparkSession.catalog.dropTempView(name)


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The Arrow types of a frame's columns, as `toArrow` gives them; runs no job over data."""
    return cast(pa.Schema, frame.limit(0).toArrow().schema)
