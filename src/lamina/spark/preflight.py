"""Before a pipeline is claimed: will its tasks do where they run?

On a cluster one job, with a task for every partition and at least one for every executor. Each task
says which Python, pyarrow and Lamina it has, whether it sees the home that the driver sees (R2),
and what its JVM makes of the golden keys (R9). Later every task looks whether the home is there
(`tasks.py`): executors come and go.
"""

from __future__ import annotations

import json
import platform
import re
import socket
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lamina.clock import Clock, new_writer_id
from lamina.errors import LaminaError, NotShared, Refused
from lamina.spark.failures import line_of
from lamina.spark.golden import ALL, check_hash, check_hashes
from lamina.spark.internals import ArrowTask, executor_count, map_in_arrow
from lamina.version import __version__
from lamina.workspace.base import Workspace

ANSWER = "answer string"
HOSTS_MAX = 8
_OTHER_PYTHON = re.compile(
    r"PYTHON_VERSION_MISMATCH\].*?version: (\d+\.\d+) than that in driver: (\d+\.\d+)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """What one task says of where it ran; None for what is not there."""

    host: str
    executor: str  # the folder it runs in: executors of one host differ in it
    python: str
    pyarrow: str
    lamina: str | None
    nonce: str | None
    hash: int
    xxhash64: int
    trouble: str = ""  # why it has not read the nonce from an object store

    @property
    def hashes(self) -> tuple[int, int]:
        """Of all golden keys in one."""
        return self.hash, self.xxhash64


def preflight(spark: SparkSession, space: Workspace, *, partitions: int, clock: Clock) -> None:
    """Ask every executor once; nothing is claimed, and the home is left as it was.

    NotShared or Refused, with the host, if state would be lost or differ there. Where tasks run in
    the driver's own JVM and Python there is nobody else to ask, and no job.
    """
    if runs_here(spark):
        check_hashes(spark, (ALL,))
        return
    nonce = new_writer_id(clock)
    with space.shown(nonce) as path:
        places = _ask(spark, path, tasks=max(partitions, executor_count(spark)))
    if any(place.hashes != (ALL.hash, ALL.xxhash64) for place in places):
        check_hashes(spark)  # says of which type, if it is not one executor alone
    judge(places, nonce, home=space.where)


def runs_here(spark: SparkSession) -> bool:
    """Whether all tasks run in this process's JVM, and their Python is this one."""
    context = spark.sparkContext
    master = str(context.master)
    is_local = master == "local" or master.startswith("local[")
    return is_local and context.pythonExec == sys.executable


def _ask(spark: SparkSession, path: str, *, tasks: int) -> list[TaskPlace]:
    try:
        answers = map_in_arrow(_keys(spark, tasks), _probe(path), ANSWER).toArrow()
    except (PySparkException, Py4JError) as error:
        raise _meaning(str(error)) from error
    return [TaskPlace(**json.loads(answer)) for answer in answers.column(0).to_pylist()]


def _keys(spark: SparkSession, tasks: int) -> DataFrame:
    """One row a task, with hashes that its JVM computes: a constant would be the driver's."""
    keys = spark.range(0, tasks, 1, tasks).selectExpr(f"IF(id >= 0, struct({ALL.values}), NULL) k")
    return keys.selectExpr("hash(k) h", "xxhash64(k) x")


def _probe(path: str) -> ArrowTask:
    """A function within a function is sent whole: it also runs where there is no Lamina."""

    def probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [row for batch in batches for row in batch.to_pylist()]
        try:
            version = import_module("lamina").__version__
        except ImportError:  # it may be missing here
            version = None
        trouble = ""
        try:
            if "://" in path:
                folder, _, name = path.rpartition("/")
                stores = import_module("lamina.store")
                patience = stores.RetryPolicy(budget_seconds=10.0)
                opened = stores.open_store(folder, writable=False, retry=patience)
                nonce = opened.get(name).decode()
            else:
                nonce = Path(path).read_text()
        except ImportError:
            nonce = None
        except (OSError, UnicodeDecodeError):
            nonce = None
        except Exception as error:  # noqa: BLE001  of any kind: the driver says what it was
            nonce, trouble = None, f"{type(error).__name__}: {error}"
        place = {
            "host": socket.gethostname(),
            "executor": str(Path.cwd()),
            "python": platform.python_version(),
            "pyarrow": pa.__version__,
            "lamina": version,
            "nonce": nonce,
            "hash": rows[0]["h"],
            "xxhash64": rows[0]["x"],
            "trouble": trouble,
        }
        yield pa.record_batch({"answer": pa.array([json.dumps(place)], pa.string())})

    return probe


def _meaning(text: str) -> LaminaError:
    """The usual reasons for which no task gets as far as to answer."""
    advice = "What executors need is in docs/clusters.md"
    if other := _OTHER_PYTHON.search(text):
        return Refused(
            f"executors have Python {other[1]}, the driver has {other[2]}",
            advice=f"Let PYSPARK_PYTHON name a Python {other[2]} that executors have. {advice}",
        )
    return Refused(f"executors cannot run a task: {line_of(text)}", advice=advice)


def judge(places: Collection[TaskPlace], nonce: str, *, home: str) -> None:
    """The first thing that is wrong with these places, as an error that names their hosts."""
    if "://" in home:  # only Lamina reads it there
        _check_versions(places, "Lamina", lambda place: place.lamina, __version__)
    _check_home(places, nonce, home)
    _check_versions(places, "Lamina", lambda place: place.lamina, __version__)
    _check_versions(places, "pyarrow", lambda place: place.pyarrow, pa.__version__)
    for place in places:
        check_hash(ALL, *place.hashes, where=f"host {place.host}")


def _check_home(places: Collection[TaskPlace], nonce: str, home: str) -> None:
    blind = [place for place in places if place.nonce != nonce]
    if not blind:
        return
    count = f"{len(blind)} of {len(places)} tasks"
    if "://" not in home:
        raise NotShared(
            f"{count} do not see the home of this pipeline: those on {_hosts(blind)}", where=home
        )
    why = next((line_of(place.trouble) for place in blind if place.trouble), "it is not there")
    raise NotShared(
        f"{count} cannot read the home of this pipeline in its object store: those on "
        f"{_hosts(blind)}. The first one says: {why}",
        where=home,
        advice="Executors need the way to the store, and the store's address and credentials in "
        "their own environment: spark.executorEnv.NAME, or a role of their machine",
    )


def _check_versions(
    places: Collection[TaskPlace], what: str, version: Callable[[TaskPlace], str | None], mine: str
) -> None:
    for place in places:
        theirs = version(place)
        if theirs != mine:
            same = [each for each in places if version(each) == theirs]
            raise Refused(
                f"there is {what + ' ' + theirs if theirs else 'no ' + what} on {_hosts(same)}, "
                f"and {what} {mine} on the driver",
                where=f"Python {place.python}; the driver has {sys.executable}",
                advice="Install the same versions everywhere; docs/clusters.md says how",
            )


def _hosts(places: Collection[TaskPlace]) -> str:
    """Each executor once, by its host and the folder it runs in."""
    names = sorted({f"{place.host} ({place.executor})" for place in places})
    more = f" and {len(names) - HOSTS_MAX} more" if len(names) > HOSTS_MAX else ""
    return ", ".join(names[:HOSTS_MAX]) + more
