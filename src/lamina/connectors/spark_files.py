"""Files of a folder as a source of rows: what the driver plans, and how Spark reads it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from lamina.connectors.file_kinds import PATH
from lamina.connectors.files import FilesSource
from lamina.connectors.kinds import BAD_ROWS_PATH, SourceContext
from lamina.connectors.options import option_of
from lamina.connectors.silent import IDLE_AFTER
from lamina.engine.model import SourceRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lamina.connectors.file_frames import FileFrames


class SparkFiles(FilesSource):
    """The files of a folder, and how Spark reads them."""

    def __init__(self, context: SourceContext) -> None:
        source, given = context.source, context.given
        path = option_of(source, PATH)
        assert path is not None, "it is required"
        silent_us = given.microseconds(IDLE_AFTER)
        super().__init__(
            source.name, given.folder(PATH), written=path.value, idle_after_us=silent_us
        )
        self._source = source
        self._further = given.further
        self._keeps_bad_rows = BAD_ROWS_PATH in given.declared

    def frame(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        """The rows of a range; without those that cannot be read, if these are kept elsewhere."""
        return self._frames.rows(spark, planned.data)

    def bad_rows(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        return self._frames.bad_rows(spark, planned.data)

    @cached_property
    def _frames(self) -> FileFrames:
        from lamina.connectors.file_frames import FileFrames  # noqa: PLC0415  an extra

        return FileFrames(self._source, self._further, keeps_bad_rows=self._keeps_bad_rows)
