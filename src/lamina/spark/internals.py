"""Everything Lamina uses that is not part of Spark's public Python API, and nothing else.

Each function says why the public API is not enough. A new Spark release is supported when the tests
of this module (tests/spark/test_internals.py) pass on it and it is added to `TRIED`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import vectorized_udf  # type: ignore[attr-defined]
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType

TRIED = ("4.3.0",)
"""The Spark releases that this module was tried with; pyproject.toml allows no others."""

ArrowTask = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_USERS_CODE = ("PythonUDF", "PythonUDAF", "ScalaUDF", "HiveSimpleUDF", "HiveGenericUDF")


def launch_jvm(settings: Mapping[str, str]) -> None:
    """Start the driver's JVM in a session of its own, unless there is one already.

    `SparkSession.builder` starts it in our process group: a signal for the group, as from a
    terminal or a service manager, would end it before us. It still ends when this process does.
    """
    context = cast(Any, SparkContext)
    if context._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:  # noqa: SLF001
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        gateway = cast(Any, launch_gateway)(conf, {"start_new_session": True})
        context._ensure_initialized(gateway=gateway)  # noqa: SLF001


def spark_home() -> Path:
    """Where the Spark lies that would be started; `find_spark_home` is not documented."""
    return Path(_find_spark_home())


def class_path(spark: SparkSession) -> str:
    """The class path of the driver's JVM, every jar by its name."""
    return str(cast(Any, spark)._jvm.java.lang.System.getProperty("java.class.path"))  # noqa: SLF001


def map_in_arrow(
    frame: DataFrame,
    task: ArrowTask,
    schema: StructType | str,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """`DataFrame.mapInArrow` without its check for pandas, which it requires and does not use.

    *columns* are all columns of *frame*, if the caller knows them: it saves a call into the JVM.
    """
    function = vectorized_udf(
        cast(Any, task), cast(Any, schema), cast(Any, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    )
    names = ("`" + name.replace("`", "``") + "`" for name in columns or frame.columns)
    column = cast(Any, function)(*names)
    made = cast(Any, frame)._jdf.mapInArrow(column._jc, False, None)  # noqa: SLF001
    return DataFrame(made, frame.sparkSession)


def clone_session(spark: SparkSession) -> SparkSession:
    """A session with the functions, views, catalogs and jars of *spark*, and settings of its own.

    `newSession` would not have the views and functions. Spark clones the session for each of its
    own streaming queries.
    """
    java = cast(Any, spark)._jsparkSession  # noqa: SLF001
    return SparkSession(spark.sparkContext, java.cloneSession())


@contextmanager
def active(own: SparkSession) -> Iterator[None]:
    """Make *own* this thread's active session, and restore the previous one afterwards.

    Parts of Spark (parsing DDL, for one) use the settings of the active session, whichever session
    was called; and `createDataFrame` changes the active session without restoring it.
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


def executor_count(spark: SparkSession) -> int:
    """How many executors are registered now, the driver included; Python has no such call."""
    tracker = cast(Any, spark.sparkContext)._jsc.sc().statusTracker()  # noqa: SLF001
    return len(tracker.getExecutorInfos())


def is_aggregate(spark: SparkSession, function: str) -> bool:
    """Whether Spark's catalog lists *function* as an aggregate; `spark.catalog` does not say."""
    java = cast(Any, spark)._jsparkSession.sessionState()  # noqa: SLF001
    name = java.sqlParser().parseFunctionIdentifier(f"`{function}`")
    if not java.catalog().functionExists(name):
        return False
    return bool(java.catalog().lookupFunctionInfo(name).getGroup() == "agg_funcs")


class AnalysedPlan:
    """What Spark made of a query before it optimises it: `explain` gives only text."""

    def __init__(self, frame: DataFrame) -> None:
        self._plan = cast(Any, frame)._jdf.queryExecution().analyzed()  # noqa: SLF001

    def spine(self) -> list[str]:
        """The names of the plan's nodes from the top down, without the input."""
        names: list[str] = []
        plan = self._plan
        while (children := plan.children()).nonEmpty():
            names.append(str(plan.nodeName()))
            plan = children.head()
        return names

    def is_deterministic(self) -> bool:
        """Whether the top node's expressions give the same values when a task runs again."""
        return all(each.deterministic() for each in _each(self._plan.expressions()))

    def has_subqueries(self) -> bool:
        return bool(self._plan.subqueriesAll().nonEmpty())

    def users_code(self) -> str | None:
        """The first function that is the user's own code, anywhere in the plan."""
        todo = [self._plan]
        while todo:
            node = todo.pop()
            for expression in _each(node.expressions()):
                if call := _users_call(expression):
                    return call
            todo += _each(node.children())
        return None


def _users_call(expression: Any) -> str | None:
    if expression.getClass().getSimpleName() in _USERS_CODE:
        return f"{expression.name()}()"
    calls = (_users_call(child) for child in _each(expression.children()))
    return next((call for call in calls if call), None)


def _each(sequence: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]
