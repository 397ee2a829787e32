"""`lamina.check`: what a pipeline will do, before it does anything.

In two stages: what the text says (syntax, names, options, paths) takes a moment and needs no Spark;
types, functions and the columns of state are Spark's to say. The answer is the JSON of `lamina
check --json` (docs/cli.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from lamina.connectors.opening import (
    bad_row_streams,
    check_connectors,
    delivery_of,
    missing_folders,
    sinks_of,
)
from lamina.engine.plans import EngineSettings
from lamina.front.locate import PipelineLike, locate
from lamina.front.places import PipelinePlace, require_spark
from lamina.pipeline.aggregates import AGGREGATES
from lamina.pipeline.checks import check_pipeline, order
from lamina.pipeline.expressions import calls
from lamina.pipeline.keys import read_keys
from lamina.pipeline.model import DeclaredSink, DeclaredSource, Emit, Pipeline
from lamina.pipeline.select import Select, read_select
from lamina.state.meanings import names_for_people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lamina.spark.streams import SparkStream

Shape = dict[str, Any]

EVERY = EngineSettings().checkpoint_epochs
LOST = {
    "process": "nothing: every committed epoch is in the log of the home",
    "machine": f"every epoch after the last checkpoint (one each {EVERY} epochs, and at the end), "
    "unless the home lies on a disk that survives the machine",
}


def check(
    pipeline: PipelineLike,
    *,
    name: str = "",
    folder: str | os.PathLike[str] = "",
    spark: SparkSession | None = None,
    with_spark: bool = True,
) -> Shape:
    """What a pipeline will do; BadPipeline at the first thing that would not work.

    Nothing is run, claimed or changed. An existing SparkSession (*spark*) is used and left
    unchanged, otherwise one is started; without Spark only the text is checked.
    """
    place, model = locate(pipeline, name=name, folder=folder)
    model = place.read() if model is None else model
    plan = read_plan(place, model)
    if with_spark:
        add_types(plan, place, model, spark=spark)
    return plan


def read_plan(place: PipelinePlace, pipeline: Pipeline) -> Shape:
    """What the text says, without Spark."""
    file = str(place.file)
    check_pipeline(pipeline, file=file)
    check_connectors(pipeline, place.folder, file=file)
    sinks = [_sink(each, delivery_of(each, file=file)) for each in sinks_of(pipeline)]
    streams = {name: _stream(pipeline, name, file) for name in order(pipeline, file=file)}
    streams |= {name: _bad_rows(name, source) for name, source in bad_row_streams(pipeline).items()}
    return {
        "pipeline": place.name,
        "file": file,
        "checked_with_spark": False,
        "sources": [_source(each, place) for each in pipeline.sources.values()],
        "streams": list(streams.values()),
        "sinks": sinks,
        "mode": "local: the home is on a disk that the driver and its tasks share",
        "lost": LOST,
    }


def add_types(
    plan: Shape, place: PipelinePlace, pipeline: Pipeline, *, spark: SparkSession | None = None
) -> None:
    """What Spark says, added to what the text says: columns, state and merge functions."""
    require_spark("checking types")
    found = _compiled(pipeline, place, spark)
    for stream in plan["streams"]:
        stream.update(found[stream["name"]])
    plan["checked_with_spark"] = True


def _source(source: DeclaredSource, place: PipelinePlace) -> Shape:
    watermark = source.watermark
    return {
        "name": source.name,
        "format": source.format,
        "options": {name: option.written for name, option in source.options.items()},
        "columns": [{"name": each.name, "type": each.type} for each in source.columns],
        "watermark": None
        if watermark is None
        else {"column": watermark.column, "delay_us": watermark.delay_us},
        "missing": bool(missing_folders(source, place.folder, file=str(place.file))),
    }


def _stream(pipeline: Pipeline, name: str, file: str) -> Shape:
    """What the text says; types are Spark's to say."""
    stream = pipeline.streams[name]
    select = read_select(stream, file)
    found = read_keys(select, _columns_of(pipeline, select.table.text))
    keys = [select.text(key.words) for key in found]
    windows = [select.text(key.words) for key in found if key.is_window]
    aggregate = bool(keys) or _has_aggregates(select)
    emit = stream.emit or (Emit.ON_UPDATE if aggregate else None)
    return {
        "name": stream.name,
        "reads": select.table.text,
        "kind": "aggregate" if aggregate else "stateless",
        "keys": keys,
        "window": windows[0] if windows else None,
        "emit": emit.value if emit else "every row, at once",
    }


def _bad_rows(name: str, source: DeclaredSource) -> Shape:
    """The stream of rows that cannot be read, of a source that keeps them."""
    return {
        "name": name,
        "reads": source.name,
        "kind": "stateless",
        "keys": [],
        "window": None,
        "emit": "every row that cannot be read",
    }


def _columns_of(pipeline: Pipeline, table: str) -> set[str]:
    read = (each for each in pipeline.sources.values() if each.name.lower() == table.lower())
    return {column.name.lower() for source in read for column in source.columns}


def _has_aggregates(select: Select) -> bool:
    texts = [*(item.words for item in select.items), select.having]
    return any(words[at].text.lower() in AGGREGATES for words in texts for at, _ in calls(words))


def _sink(sink: DeclaredSink, delivery: str) -> Shape:
    return {
        "name": sink.name,
        "stream": sink.stream,
        "format": sink.format,
        "options": {name: option.written for name, option in sink.options.items()},
        "delivery": delivery,
    }


def _compiled(
    pipeline: Pipeline, place: PipelinePlace, spark: SparkSession | None
) -> dict[str, Shape]:
    """Columns, state and merge functions, as the streams compile on a live Spark."""
    from lamina.spark.failures import spark_errors  # noqa: PLC0415  an extra
    from lamina.spark.frames import own_session  # noqa: PLC0415
    from lamina.spark.internals import active  # noqa: PLC0415
    from lamina.spark.runner import pinned  # noqa: PLC0415
    from lamina.spark.streams import compile_pipeline  # noqa: PLC0415

    file = str(place.file)
    with _session(place.name, spark) as session:
        own = own_session(session, pinned(1))
        with spark_errors(), active(own):
            names = order(pipeline, file=file)
            _, streams = compile_pipeline(own, pipeline, names, name=place.name, file=file)
    return {name: _columns(stream) for name, stream in streams.items()}


@contextmanager
def _session(name: str, spark: SparkSession | None) -> Iterator[SparkSession]:
    from lamina.spark.session import start_session, stop_session  # noqa: PLC0415  an extra

    if spark is not None:
        yield spark
        return
    with TemporaryDirectory(prefix="lamina-check-") as scratch:
        session = start_session(name, Path(scratch), master="local[1]")
        try:
            yield session
        finally:
            stop_session(session)


def _columns(stream: SparkStream) -> Shape:
    merged = stream.operator.merges if stream.operator else ()
    merges = {column: each.function for each in merged for column in each.columns}
    state = stream.state.names if stream.state else []
    names = names_for_people(state, stream.operator.meanings if stream.operator else ())
    return {
        "columns": [
            {"name": each.name, "type": each.dataType.simpleString()} for each in stream.output
        ],
        "state": [
            {
                "name": name,
                "type": each.dataType.simpleString(),
                "merge": merges.get(each.name),
            }
            for each, name in zip(stream.state or (), names, strict=True)
        ],
    }
