"""Checks of the columns of a source or a table, which need no Spark."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from lamina.errors import BadPipeline
from lamina.pipeline.epoch_times import check_epoch_times
from lamina.pipeline.model import DeclaredSource, DeclaredTable

Bad = Callable[[str, DeclaredSource, str], BadPipeline]
"""The error that says this of a source, with its place and this advice."""

Of = TypeVar("Of", DeclaredSource, DeclaredTable)

RESERVED = "_lamina"
"""How names of columns that are not the user's begin."""
_PADDED = re.compile(r"(?i)\b(var)?char\s*\(")
_EVENT_TIMES = ("TIMESTAMP", "TIMESTAMP_LTZ")


def check_source(source: DeclaredSource, bad: Bad) -> None:
    """BadPipeline at a column of a wrong type or name, or at a watermark that is no time."""
    check_columns(source, bad)
    check_epoch_times(source, bad)
    _check_watermark(source, bad)


def check_columns(of: Of, bad: Callable[[str, Of, str], BadPipeline]) -> None:
    for column in of.columns:
        if _PADDED.search(column.type):
            message = f"{column.name!r} of {of.name!r} is {column.type}"
            advice = "Spark has CHAR and VARCHAR in tables only; write STRING"
            raise bad(message, of, advice)
    for column in of.columns:
        if column.name.lower().startswith(RESERVED):
            message = f"the column {column.name!r} of {of.name!r} is reserved for Lamina"
            raise bad(message, of, "Give it another one")


def _check_watermark(source: DeclaredSource, bad: Bad) -> None:
    if source.watermark is None:
        return
    name = source.watermark.column
    kind = next(column.type for column in source.columns if column.name == name)
    if kind.split()[0].upper() not in _EVENT_TIMES:
        raise bad(
            f"the watermark column {name!r} of {source.name!r} is {kind}",
            source,
            "Event times are of type TIMESTAMP",
        )
