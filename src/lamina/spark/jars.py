"""Whether a running Spark has the connectors that a pipeline reads with."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import SparkSession

from lamina.connectors.jars import CLASSES, PACKAGES, coordinates
from lamina.errors import UsageError
from lamina.spark.internals import has_class


def check_classes(spark: SparkSession, artifacts: Iterable[str]) -> None:
    """UsageError if a running Spark lacks a connector; nothing was claimed yet."""
    for each in artifacts:
        if not has_class(spark, CLASSES[each]):
            (package,) = coordinates([each])
            raise UsageError(
                f"this Spark does not have the connector {each}",
                where=package,
                advice=f"Start it with {PACKAGES}={package}, or let `lamina run` start it",
            )
