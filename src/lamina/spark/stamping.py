"""The time of the epoch beside the rows of a source: columns METADATA FROM 'epoch_time'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from lamina.pipeline.epoch_times import epoch_times
from lamina.pipeline.model import Pipeline
from lamina.pipeline.select import quoted


@dataclass(frozen=True, slots=True)
class Stamps:
    """The columns of a source in their order, and which of them are the time of the epoch."""

    columns: tuple[str, ...]
    stamped: frozenset[str]

    def on(self, rows: DataFrame, time_us: int) -> DataFrame:
        """The rows with these columns; what else they have stays behind them.

        A number that changes with every epoch would be part of the code that Spark generates, which
        would be compiled anew. An element of a list is not, if Spark cannot know which one it is:
        both are the same, and by the number of the task it is always the first.
        """
        time = f"timestamp_micros(array({time_us}L, {time_us}L)[int(spark_partition_id() < 0)])"
        more = [name for name in rows.columns if name not in self.columns]
        return rows.selectExpr(
            *(
                f"{time} AS {quoted(name)}" if name in self.stamped else quoted(name)
                for name in (*self.columns, *more)
            )
        )


def stamps_of(pipeline: Pipeline) -> Mapping[str, Stamps]:
    """Of each source that has such columns."""
    return {
        source.name: Stamps(tuple(column.name for column in source.columns), epoch_times(source))
        for source in pipeline.sources.values()
        if epoch_times(source)
    }
