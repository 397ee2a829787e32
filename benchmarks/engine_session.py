"""The one Spark session in which everything runs, with the same settings for all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from lamina.spark.session import start_session

PARTITIONS = 2
SETTINGS = {
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.pollingDelay": "200ms",
    "spark.sql.streaming.numRecentProgressUpdates": "4",
}
"""For everyone. Idle native queries look for files every 200 ms, not every 10: they share the
machine with whoever is being timed. What they report of a batch does not have the waiting."""
BOTH_CORES = {"spark.sql.files.openCostInBytes": "0"}
"""A file with two row groups is read by two tasks, whatever its size."""


@contextmanager
def session(folder: Path, memory: str, jars: Path | None = None) -> Iterator[SparkSession]:
    """Two cores; LAMINA_DRIVER_MEMORY says otherwise how much memory the JVM has."""
    os.environ.setdefault("LAMINA_DRIVER_MEMORY", memory)
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # workers import engine_task
    more = {"spark.jars": ",".join(map(str, jars.glob("*.jar")))} if jars else {}
    spark = start_session("benchmark", folder, master=f"local[{PARTITIONS}]", settings=more)
    try:
        for name, value in SETTINGS.items():
            spark.conf.set(name, value)
        yield spark
    finally:
        spark.stop()


@contextmanager
def configured(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings, for sessions and queries that are made of it."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def say(text: str) -> None:
    """How far it is, for a person who waits."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
