"""Everything Lamina uses that is not part of Spark's public Python API, and nothing else.

Each function says why the public API is not enough. A new Spark release is supported when the tests
of this module (tests/spark/test_internals.py) pass on it and it is added to `TRIED`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from py4j.java_collections import (  # type: ignore[import-untyped]
    ListConverter,
    MapConverter,
)
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.column import _to_java_column, _to_seq
from pyspark.sql.pandas.functions import vectorized_udf  # type: ignore[attr-defined]
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType

TRIED = ("4.3.0",)
"""The Spark releases that this module was tried with; pyproject.toml allows no others."""

ArrowTask = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_MEASURES = "lamina: "
_NUMBERS = re.compile(r"#\d+")
_OTHER_PYTHON = re.compile(
    r"Python|Pandas|GroupsInArrow|MapInArrow (?!\w*(?:State|Stage|Output)\()"
)
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
    """Where the Spark is that would be started; `find_spark_home` is not documented."""
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
    column = cast(Any, function)(*map(_quoted, columns or frame.columns))
    made = cast(Any, frame)._jdf.mapInArrow(column._jc, False, None)  # noqa: SLF001
    return DataFrame(made, frame.sparkSession)


class ArrowStep:
    """`map_in_arrow` for a new function in every epoch, over columns that stay the same.

    Spark makes everything about a Python function anew for each, in forty calls into the JVM. Here
    what stays the same is made once, and a function is four calls.
    """

    def __init__(self, spark: SparkSession, schema: StructType, columns: Sequence[str]) -> None:
        context = cast(Any, spark.sparkContext)
        jvm, client = context._jvm, context._gateway._gateway_client  # noqa: SLF001
        self._schema, self._names = schema, list(columns)
        self._context = context
        self._columns = _to_seq(context, [_to_java_column(_quoted(name)) for name in columns])
        self._type = cast(Any, spark)._jsparkSession.parseDataType(schema.json())  # noqa: SLF001
        self._function = jvm.SimplePythonFunction
        self._udf = getattr(jvm, "org.apache.spark.sql.execution.python.UserDefinedPythonFunction")
        self._size_max = jvm.PythonUtils.getBroadcastThreshold(context._jsc)  # noqa: SLF001
        self._files = list(context._python_includes)  # noqa: SLF001
        self._nothing = ListConverter().convert([], client)
        self._includes = ListConverter().convert(self._files, client)
        self._environment = MapConverter().convert(context.environment, client)

    def over(self, frame: DataFrame, task: ArrowTask) -> DataFrame:
        command = cast(Any, CloudPickleSerializer)().dumps((task, self._schema))
        context = self._context
        if len(command) > self._size_max or context._python_includes != self._files:  # noqa: SLF001
            return map_in_arrow(frame, task, self._schema, self._names)
        function = self._function(
            bytearray(command),
            self._environment,
            self._includes,
            context.pythonExec,
            context.pythonVer,
            self._nothing,
            context._javaAccumulator,  # noqa: SLF001
        )
        kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        name = type(task).__name__
        udf = self._udf(name, function, self._type, kind, True, self._nothing, self._nothing)
        column = udf.apply(self._columns)
        made = cast(Any, frame)._jdf.mapInArrow(column, False, None)  # noqa: SLF001
        return DataFrame(made, frame.sparkSession)


def query(spark: SparkSession, text: str) -> DataFrame:
    """`spark.sql` for a text without arguments: one call into the JVM instead of five."""
    return DataFrame(cast(Any, spark)._jsparkSession.sql(text), spark)  # noqa: SLF001


class Measures:
    """`DataFrame.observe` for the same expressions in every epoch, and what was observed.

    An `Observation` comes by Spark's listener bus: it is waited for, in fifteen calls. The plan
    itself has the numbers once its action has ended.
    """

    def __init__(self, spark: SparkSession, name: str, expressions: Sequence[Column]) -> None:
        """*name* tells them apart from others of the same job."""
        self._name = f"{_MEASURES}{name}"
        first, *rest = (cast(Any, each)._jc for each in expressions)  # noqa: SLF001
        self._first, self._rest = first, _to_seq(cast(Any, spark.sparkContext), rest)

    def of(self, frame: DataFrame) -> DataFrame:
        java = cast(Any, frame)._jdf  # noqa: SLF001
        made = java.observe(self._name, self._first, self._rest)
        return DataFrame(made, frame.sparkSession)

    @staticmethod
    def seen(frame: DataFrame, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """What the action of *frame* has observed, by names of measures and of expressions."""
        found = cast(Any, frame)._jdf.queryExecution().observedMetrics()  # noqa: SLF001
        return {name: json.loads(found.apply(f"{_MEASURES}{name}").json()) for name in names}


def json_column(frame: DataFrame) -> list[Any]:
    """The values of a frame's only column, which are JSON; this runs the job.

    `collect` brings many rows fast, through a socket of its own. Here they are few: as one text.
    A row is its values in brackets, and so is a list of rows: JSON again.
    """
    rows = cast(Any, frame)._jdf.collectAsList().toString()  # noqa: SLF001
    return [value for (value,) in json.loads(rows)]


def has_other_python(frame: DataFrame) -> bool:
    """Whether the plan of *frame* runs other Python than our tasks; `explain` only prints it."""
    plan = str(cast(Any, frame)._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001
    return _OTHER_PYTHON.search(plan) is not None


def clone_session(spark: SparkSession) -> SparkSession:
    """A session with the functions, views, catalogs and jars of *spark*, and settings of its own.

    `newSession` would not have the views and functions. Spark clones the session for each of its
    own streaming queries.
    """
    java = cast(Any, spark)._jsparkSession  # noqa: SLF001
    return SparkSession(spark.sparkContext, java.cloneSession())


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """A DataFrame without rows.

    `createDataFrame` pickles a list that has nothing in it, in ten times as many calls.
    """
    java = cast(Any, spark)._jsparkSession  # noqa: SLF001
    nothing = cast(Any, spark)._jvm.java.util.ArrayList()  # noqa: SLF001
    return DataFrame(java.createDataFrame(nothing, java.parseDataType(schema.json())), spark)


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The Arrow types of a frame's columns: those that its `toArrow` casts its rows to.

    There they come with a job, even if there are no rows.
    """
    large = frame.sparkSession.conf.get("spark.sql.execution.arrow.useLargeVarTypes")
    found: pa.Schema = to_arrow_schema(
        frame.schema,
        error_on_duplicated_field_names_in_struct=True,
        timezone="UTC",
        prefers_large_types=large == "true",
    )
    return found


def frame_schema(schema: pa.Schema) -> StructType:
    """The columns of a frame with these types of Arrow; raises Spark's own error of another."""
    return from_arrow_schema(schema)


def sent_schema(schema: StructType) -> pa.Schema:
    """The Arrow types in which Spark takes the columns of a frame from a data source."""
    found: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return found


class Activation:
    """Makes a session the thread's active one for a while; calls into the JVM are prepared."""

    def __init__(self, own: SparkSession) -> None:
        session = cast(Any, own)
        java = cast(Any, SparkSession)._get_j_spark_session_class(session._jvm)  # noqa: SLF001
        self._own, self._java_own = own, session._jsparkSession  # noqa: SLF001
        self._get, self._set = java.getActiveSession, java.setActiveSession
        self._clear = java.clearActiveSession

    @contextmanager
    def __call__(self) -> Iterator[None]:
        every = cast(Any, SparkSession)
        of_java, of_python = self._get(), every._activeSession  # noqa: SLF001
        before = of_java.get() if of_java.isDefined() else None
        self._set(self._java_own)
        try:
            yield
        finally:
            if every._activeSession is self._own:  # noqa: SLF001
                every._activeSession = of_python  # noqa: SLF001
            if before is None:
                self._clear()
            else:
                self._set(before)


def active(own: SparkSession) -> AbstractContextManager[None]:
    """Make *own* this thread's active session, and restore the previous one afterwards.

    Parts of Spark (parsing DDL, for one) use the settings of the active session, whichever session
    was called; and `createDataFrame` changes the active session without restoring it.
    """
    return Activation(own)()


def has_class(spark: SparkSession, name: str) -> bool:
    """Whether the driver's JVM can load a class; Python has no such call."""
    thread = cast(Any, spark)._jvm.java.lang.Thread.currentThread()  # noqa: SLF001
    path = name.replace(".", "/") + ".class"
    return thread.getContextClassLoader().getResource(path) is not None


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


def is_built_in(spark: SparkSession, function: str) -> bool:
    """Whether *function* is one that Spark comes with; `spark.catalog` does not say."""
    java = cast(Any, spark)._jsparkSession.sessionState()  # noqa: SLF001
    name = java.sqlParser().parseFunctionIdentifier(_quoted(function))
    if not java.catalog().functionExists(name):
        return False
    return bool(java.catalog().lookupFunctionInfo(name).getSource() == "built-in")


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

    def text(self) -> str:
        """As Spark prints it, without the numbers that it gives to every column anew."""
        return _NUMBERS.sub("#", str(self._plan.toString()))

    def above(self, views: Collection[str]) -> tuple[list[str], set[str]]:
        """The names of all nodes above these views, and the views that there are.

        Another input than these is a node, too.
        """
        names, found, todo = list[str](), set[str](), [self._plan]
        while todo:
            node = todo.pop()
            name = str(node.nodeName())
            if name == "SubqueryAlias" and (alias := str(node.alias())) in views:
                found.add(alias)
                continue
            names.append(name)
            todo += _each(node.children())
        return names, found

    def is_deterministic(self) -> bool:
        """Whether the top node's expressions give the same values when a task runs again."""
        return all(each.deterministic() for each in _each(self._plan.expressions()))

    def is_all_deterministic(self) -> bool:
        """The same of all nodes."""
        todo = [self._plan]
        while todo:
            node = todo.pop()
            if not all(each.deterministic() for each in _each(node.expressions())):
                return False
            todo += _each(node.children())
        return True

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


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
