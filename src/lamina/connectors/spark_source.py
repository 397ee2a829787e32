"""What Spark asks of a source, beside what the engine asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from lamina.engine.model import SourceRange
from lamina.engine.ports import Source
from lamina.errors import LaminaError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ArrowTask: TypeAlias = "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]"


class Step(Protocol):
    """A function over batches, between DataFrames: see lamina.spark.internals.ArrowStep."""

    def over(self, frame: DataFrame, task: ArrowTask) -> DataFrame: ...


MakeStep: TypeAlias = "Callable[[SparkSession, StructType, Sequence[str]], Step]"
"""Makes one for the columns of its result and of its input. Sources whose tasks read need it."""


class DriverFiles(Protocol):
    """Parquet files that the driver has written: see lamina.spark.task_files.LentFiles."""

    def frame(
        self, spark: SparkSession, columns: StructType, paths: Sequence[str], *, owner: str
    ) -> DataFrame:
        """Their rows, wherever tasks run; what *owner* gave before is not read any more."""
        ...


class SparkSource(Source, Protocol):
    """A source that Spark can read."""

    def frame(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        """The rows of a range: the same however often it is read."""
        ...


@runtime_checkable
class KeepsBadRows(Protocol):
    """A source that gives apart the rows that cannot be read."""

    def bad_rows(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        """What `frame` leaves out of a range, in the columns that its kind declares."""
        ...


PART = "_lamina_part"
"""The last column of a frame of a range with `holding`: the number of the part a row is from."""


@runtime_checkable
class HasParts(Protocol):
    """A source whose parts hold its watermark, each for itself (`SourceRange.holding`)."""

    @property
    def parts(self) -> Sequence[str]:
        """By their numbers; new ones come behind."""
        ...


@runtime_checkable
class Probed(Protocol):
    """A source in another system, which may not answer, or not to us."""

    def probe(self, spark: SparkSession) -> None:
        """Before anything is claimed: whether it can be read; it must not change anything."""
        ...


@runtime_checkable
class Learns(Protocol):
    """A source whose rows may need something that only a task can find missing."""

    def learn(self, error: LaminaError) -> bool:
        """After a job that failed: whether it would now do better."""
        ...
