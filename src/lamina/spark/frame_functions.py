"""Streams that are functions of DataFrames: called with each epoch's frames, and checked.

What a function makes of empty frames is what it must make of all others: what it is called with
decides nothing. So the plan of an epoch is looked at only if Spark prints it in a way that was not
seen before; that costs one call into the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lamina.engine.code import line_of_error
from lamina.errors import BadPipeline, LaminaError
from lamina.pipeline.model import FrameFunction, Stream
from lamina.spark.plan_checks import check_frames


@dataclass(frozen=True, slots=True)
class FramePlan:
    """A function that gives the rows of a stream."""

    stream: str
    function: Callable[..., Any]
    output: StructType | None = None  # what it gave of empty frames
    _seen: set[str] = field(default_factory=set)  # plans that are row by row

    @classmethod
    def of(cls, stream: Stream) -> FramePlan:
        assert isinstance(stream.python, FrameFunction)
        assert stream.python.code.made is not None, "a file has no such streams"
        return cls(stream.name, stream.python.code.made)

    def over(self, spark: SparkSession, views: Sequence[str]) -> DataFrame:
        """The rows of these inputs; BadPipeline if they are not computed row by row."""
        frame = self._called([spark.table(view) for view in views])
        if self.output is not None and frame.schema != self.output:
            raise self._bad(
                f"has given the columns {frame.schema.simpleString()}, and of empty frames "
                f"{self.output.simpleString()}",
                "It must make the same of all rows",
            )
        self._check(frame, views)
        return frame

    def _called(self, frames: list[DataFrame]) -> DataFrame:
        try:
            given = self.function(*frames)
        except (PySparkException, LaminaError):
            raise
        except Exception as error:
            said = f"failed: {type(error).__name__}: {error} ({line_of_error(error)})"
            raise self._bad(said, "It is called with a DataFrame for each input") from error
        if not isinstance(given, DataFrame):
            raise self._bad(f"has given a {type(given).__name__}", "It returns a DataFrame")
        return given

    def _check(self, frame: DataFrame, views: Sequence[str]) -> None:
        text = check_frames(frame, views, seen=self._seen, bad=self._bad)
        self._seen.add(text)

    def _bad(self, said: str, advice: str) -> BadPipeline:
        message = f"the function of the stream {self.stream!r} {said}"
        return BadPipeline(message, where=f"stream {self.stream}", advice=advice)
