"""A Spark of our own: quiet, without a web page, with the driver's files in one folder.

On this computer, or with executors of a cluster. Settings that change results are pinned by the
runner; here are those that count only when a JVM is launched.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from lamina.errors import SparkLost, UsageError
from lamina.os_errors import typed_errors
from lamina.running.control import is_alive
from lamina.spark.class_archive import ClassArchive, find_archive
from lamina.spark.internals import class_path, launch_jvm, spark_home
from lamina.spark.java import driver_java, prepare_java

TASK_ATTEMPTS = 4
DRIVER_MEMORY = "1g"
LOOPBACK = "127.0.0.1"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
JIT = (
    "-XX:Tier4InvocationThreshold=150000",
    "-XX:Tier4MinInvocationThreshold=18000",
    "-XX:Tier4CompileThreshold=450000",
    "-XX:Tier4BackEdgeThreshold=1200000",
)
"""Thirty times Java's own, so that only what stays hot is optimised to the full: Spark runs a lot
of code a few thousand times and never again (docs/decisions/0024)."""
_LOCAL = re.compile(r"local\[(\*|[1-9][0-9]*)\]")
_LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark %p %c{1}: %m%n%ex{short}
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.task.name = org.apache.spark.scheduler.TaskSetManager
logger.task.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
"""  # the gateway at the root's level says nothing about levels; the error of a job has its tasks'


def start_session(
    name: str,
    scratch: Path,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A new session, or the existing one, as under spark-submit.

    *scratch* takes what Spark writes; *settings* are the user's, and go before ours. UsageError if
    Java or Python will not do.
    """
    prepare_java(scratch)
    check_worker_python(os.environ["PYSPARK_PYTHON"])
    log4j = scratch / "log4j2.properties"
    with typed_errors(scratch):
        scratch.mkdir(parents=True, exist_ok=True)
        log4j.write_text(_LOG4J)
        os.environ.setdefault("SPARK_LOCAL_DIRS", str(_own_folder(scratch)))
    if is_local(master):  # a host name that cannot be resolved stops the JVM otherwise
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    wanted = {
        "spark.master": with_retries(master),
        "spark.app.name": f"lamina {name}",
        **launch_settings(scratch, master),
        **(settings or {}),
    }
    wanted[JAVA_OPTIONS] = " ".join(_java_options(log4j, (settings or {}).get(JAVA_OPTIONS)))
    try:
        launch_jvm(wanted)
        session = SparkSession.builder.config(map=dict(wanted)).getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise SparkLost(
            f"Spark did not start: {str(error).splitlines()[0]}",
            where=master,
            advice="`lamina doctor` shows which Java it would use; its own messages are above",
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    say_errors_once()
    return session


def stop_session(session: SparkSession) -> None:
    """Stop it; one whose JVM is gone is stopped already."""
    classes = None
    with suppress(Py4JError, ConnectionError):
        classes = class_path(session)
    with suppress(Py4JError, ConnectionError):
        session.stop()
    archive = None if classes is None else _archive()
    if archive is not None and classes is not None:
        archive.make_beside(classes)


def _java_options(log4j: Path, users: str | None) -> list[str]:
    """Ours, then the user's: of two that say different things the last one counts."""
    archive = _archive()
    ours = [f"-Dlog4j.configurationFile={log4j.absolute().as_uri()}"]
    kept = archive.options() if archive else ()
    return [*ours, *JIT, *kept, *([users] if users else ())]


def _archive() -> ClassArchive | None:
    return find_archive(driver_java(), spark_home())


def say_errors_once() -> None:
    """PySpark writes what it raises to stderr too, with the stack of the JVM, in one long line."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _own_folder(scratch: Path) -> Path:
    """For shuffle files of this process; those of processes that are gone go with it."""
    for folder in scratch.glob("spark-*"):
        pid = folder.name.removeprefix("spark-")
        if pid.isdecimal() and not is_alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
    return (scratch / f"spark-{os.getpid()}").absolute()


def is_local(master: str) -> bool:
    return master.strip().startswith("local")


def with_retries(master: str) -> str:
    """`local[2]` as `local[2,4]`: without the second number a task that fails once ends it all."""
    found = _LOCAL.fullmatch(master.strip())
    return f"local[{found[1]},{TASK_ATTEMPTS}]" if found else master


def launch_settings(scratch: Path, master: str = "local[*]") -> dict[str, str]:
    """Executors of a cluster must reach the driver: there Spark chooses its address."""
    host = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return {
        **(host if is_local(master) else {}),
        "spark.ui.enabled": "false",
        "spark.cleaner.periodicGC.interval": "5min",  # shuffle files go when the JVM collects
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": os.environ.get("LAMINA_DRIVER_MEMORY", DRIVER_MEMORY),
        "spark.sql.warehouse.dir": str((scratch / "warehouse").absolute()),
        "spark.sql.session.timeZone": "UTC",
    }


def check_worker_python(python: str) -> None:
    """Spark's workers must be of the driver's version; it says so late, and in many lines."""
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        asked = subprocess.run(  # noqa: S603  the user's own Python
            [python, "-c", code], capture_output=True, text=True, check=False, timeout=60
        )
        said = asked.stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    if said != mine:
        raise UsageError(
            f"PYSPARK_PYTHON is {python!r}, "
            + (f"Python {said}" if said else "which does not run")
            + f"; this is Python {mine}",
            advice="Unset PYSPARK_PYTHON, or let it name a Python of this version",
        )
