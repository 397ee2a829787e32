"""Columns METADATA FROM 'epoch_time': the time at which the epoch was planned that read a row.

Every kind of source may have them. The driver takes the time (engine/epoch_times.py), and the
runner puts it beside the rows: a source knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lamina.errors import BadPipeline
from lamina.pipeline.model import Column, DeclaredSource

EPOCH_TIME = "epoch_time"
_TYPES = ("TIMESTAMP", "TIMESTAMP_LTZ")


def epoch_times(source: DeclaredSource) -> frozenset[str]:
    """The names of its columns that are the time of the epoch."""
    return frozenset(column.name for column in source.columns if _is_epoch_time(column))


def goes_by_clock(source: DeclaredSource) -> bool:
    """Whether its watermark is on such a column."""
    return source.watermark is not None and source.watermark.column in epoch_times(source)


def without_epoch_times(source: DeclaredSource) -> DeclaredSource:
    """As what it is read with sees it."""
    columns = tuple(column for column in source.columns if not _is_epoch_time(column))
    watermark = None if goes_by_clock(source) else source.watermark
    return replace(source, columns=columns, watermark=watermark)


def check_epoch_times(
    source: DeclaredSource, bad: Callable[[str, DeclaredSource, str], BadPipeline]
) -> None:
    """BadPipeline if one is no timestamp, or if there is nothing beside them."""
    for column in source.columns:
        if _is_epoch_time(column) and column.type.upper() not in _TYPES:
            message = f"{column.name!r} of {source.name!r} is the time of the epoch, and"
            raise bad(f"{message} {column.type}", source, "Its type is TIMESTAMP")
    if len(epoch_times(source)) == len(source.columns):
        message = f"{source.name!r} has no column but the time of the epoch"
        raise bad(message, source, "Name a column of its rows, too")


def _is_epoch_time(column: Column) -> bool:
    return column.metadata.lower() == EPOCH_TIME
