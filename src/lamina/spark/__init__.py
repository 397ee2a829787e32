"""Pipelines on Spark: the only package that imports pyspark."""

from lamina.spark.running import run

__all__ = ["run"]
