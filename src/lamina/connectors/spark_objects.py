"""Objects of a bucket as a source of rows: what the driver plans, and how tasks read it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from lamina.connectors.kinds import BAD_ROWS_PATH, SourceContext
from lamina.connectors.objects import ObjectsSource
from lamina.connectors.silent import IDLE_AFTER
from lamina.connectors.store_options import store_options
from lamina.engine.model import SourceRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lamina.connectors.object_frames import ObjectFrames


class SparkObjects(ObjectsSource):
    """The objects below an address, and how Spark reads them."""

    def __init__(self, context: SourceContext, url: str) -> None:
        source, given = context.source, context.given
        self._context = context
        self._store = store_options(given)
        every = given.microseconds("list_every")
        silent_us = given.microseconds(IDLE_AFTER)
        super().__init__(
            source.name, url, self._store, list_every_us=every, idle_after_us=silent_us
        )

    def frame(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        """The rows of a range; without those that cannot be read, if these are kept elsewhere."""
        return self._frames.rows(spark, planned.data)

    def bad_rows(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        return self._frames.bad_rows(spark, planned.data)

    @cached_property
    def _frames(self) -> ObjectFrames:
        from lamina.connectors.object_frames import ObjectFrames  # noqa: PLC0415  an extra

        context = self._context
        assert context.make_step is not None, "it is opened for reading rows by lamina.spark"
        return ObjectFrames(
            context.source,
            context.given.further,
            self._store,
            context.make_step,
            keeps_bad_rows=BAD_ROWS_PATH in context.given.declared,
        )
