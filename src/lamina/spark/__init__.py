"""Pipelines on Spark. Nothing below `connectors` imports pyspark.

running      compile, recover, run: `open_pipeline`
streams      a pipeline compiled against a live Spark; plan_checks looks at Spark's plans
runner       one stream, one epoch, one job; tasks is what runs in Spark's Python workers
preflight    asks executors for versions, hashes and the home before anything is claimed
session      a Spark of our own: java and class_archive start it
internals    everything that is not part of Spark's public API, and nothing else
bridge       the batches of a Structured Streaming query, to sinks
failures     what a failed job means, in one line
datasource   state as DataFrames: the format `lamina`
"""

from lamina.spark.bridge import BatchSink, sink
from lamina.spark.datasource import register
from lamina.spark.running import run

__all__ = ["BatchSink", "register", "run", "sink"]
