"""What Spark asks of a source, beside what the engine asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lamina.engine.model import SourceRange
from lamina.engine.ports import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkSource(Source, Protocol):
    """A source that Spark can read."""

    def frame(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        """The rows of a range: the same however often it is read."""
        ...


@runtime_checkable
class KeepsBadRows(Protocol):
    """A source that gives apart the rows that cannot be read."""

    def bad_rows(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        """What `frame` leaves out of a range: `file` and `text`."""
        ...
