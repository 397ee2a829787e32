"""The kind `delta`: a Delta Lake table, on a file system or in an object store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lamina.connectors.keyed_options import KEYS, MODE, ORDER_BY
from lamina.connectors.kinds import DeclaredOption, Extra, Given, OptionType, SinkContext, SinkKind
from lamina.connectors.options import bad_option
from lamina.connectors.store_options import STORE_OPTIONS, check_store_options

if TYPE_CHECKING:
    from lamina.engine.ports import Sink
    from lamina.pipeline.model import DeclaredSink

DELIVERY = "exactly once; an epoch is one version of the table"


def _check(sink: DeclaredSink, given: Given) -> None:
    """What can be seen without looking at the table."""
    place = given.place("path")
    if isinstance(place, Path) and "%" in str(place):
        advice = "Use another folder: deltalake would write into one with another name"
        raise bad_option(sink, f"has a % in its path: {str(place)!r}", given.file, advice)
    check_store_options(sink, given, "path")
    key, secret = given.text("access_key_id"), given.text("secret_access_key")
    if bool(key) != bool(secret):
        advice = "Give access_key_id and secret_access_key together, or set them as AWS_..."
        raise bad_option(sink, "has half of the credentials", given.file, advice)


def _open(context: SinkContext) -> Sink:
    from lamina.connectors.delta.sink import open_delta  # noqa: PLC0415  an extra

    return open_delta(context)


DELTA = SinkKind(
    "delta",
    "A Delta Lake table: rows are appended, or replaced by key",
    open=_open,
    delivery=DELIVERY,
    check=_check,
    extra=Extra("delta", ("deltalake",)),
    options=(
        DeclaredOption(
            "path",
            "Folder of the table, or its address: `s3://bucket/table`. It is created if missing",
            OptionType.OUTPUT,
            required=True,
            remote=True,
        ),
        DeclaredOption("partition_by", "Columns to partition a new table by", OptionType.COLUMNS),
        MODE,
        KEYS,
        ORDER_BY,
        DeclaredOption(
            "merge_schema",
            "Add columns to the table that it lacks; otherwise such a stream is refused",
            OptionType.SWITCH,
            default=False,
        ),
        DeclaredOption(
            "compact",
            "Merge small files every N epochs; never by default",
            OptionType.NUMBER,
        ),
        *STORE_OPTIONS,
    ),
)
