"""Sessions and DataFrames under names of our own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from lamina.format.canonical import sha256_hex
from lamina.spark.internals import clone_session

LISTS = ("spark.sql.optimizer.excludedRules",)
"""Settings that are added to what a session has."""


def own_session(spark: SparkSession, wanted: Mapping[str, str]) -> SparkSession:
    """A session with all that *spark* has (functions, views, catalogs, jars) and these settings.

    What is set or made there is not seen in *spark*, so both can be used at the same time.
    """
    own = clone_session(spark)
    for name, value in wanted.items():
        theirs = own.conf.get(name, "") if name in LISTS else ""
        own.conf.set(name, f"{theirs},{value}" if theirs else value)
    return own


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
