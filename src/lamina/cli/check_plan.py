"""What `lamina check` says of a pipeline, as the JSON that scripts read; text is made of it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from lamina.cli.shapes import Shape
from lamina.connectors.opening import bad_row_streams, open_sinks, sinks_of
from lamina.engine.plans import EngineSettings
from lamina.front.places import PipelinePlace, require_spark
from lamina.pipeline.aggregates import AGGREGATES
from lamina.pipeline.checks import check_pipeline, order
from lamina.pipeline.expressions import calls
from lamina.pipeline.keys import read_keys
from lamina.pipeline.model import Emit, Pipeline, Sink, Source
from lamina.pipeline.select import Select, read_select

if TYPE_CHECKING:
    from lamina.spark.streams import SparkStream

EVERY = EngineSettings().checkpoint_epochs
LOST = {
    "process": "nothing: every committed epoch is in the log of the home",
    "machine": f"every epoch after the last checkpoint (one each {EVERY} epochs, and at the end), "
    "unless the home lies on a disk that survives the machine",
}


def plan_of(place: PipelinePlace, *, with_spark: bool) -> Shape:
    """Check a pipeline and say what it does; BadPipeline at the first thing that would not work."""
    pipeline, file = place.read(), str(place.file)
    check_pipeline(pipeline, file=file)
    opened = open_sinks(pipeline, place.folder, home=place.home, file=file)
    sinks = [_sink(each, opened[each.name].delivery) for each in sinks_of(pipeline)]
    streams = {name: _stream(pipeline, name, file) for name in order(pipeline, file=file)}
    streams |= {name: _bad_rows(name, source) for name, source in bad_row_streams(pipeline).items()}
    if with_spark:
        require_spark("`lamina check`")
        for name, found in _compiled(pipeline, place).items():
            streams[name] |= found
    return {
        "pipeline": place.name,
        "file": file,
        "checked_with_spark": with_spark,
        "sources": [_source(each, place.folder) for each in pipeline.sources.values()],
        "streams": list(streams.values()),
        "sinks": sinks,
        "mode": "local: one process and its tasks on one machine",
        "lost": LOST,
    }


def _source(source: Source, folder: Path) -> Shape:
    path = source.options.get("path")
    watermark = source.watermark
    return {
        "name": source.name,
        "format": source.format,
        "options": {name: option.written for name, option in source.options.items()},
        "columns": [{"name": each.name, "type": each.type} for each in source.columns],
        "watermark": None
        if watermark is None
        else {"column": watermark.column, "delay_us": watermark.delay_us},
        "missing": path is not None and not (folder / path.value).exists(),
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


def _bad_rows(name: str, source: Source) -> Shape:
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


def _sink(sink: Sink, delivery: str) -> Shape:
    return {
        "name": sink.name,
        "stream": sink.stream,
        "format": sink.format,
        "options": {name: option.written for name, option in sink.options.items()},
        "delivery": delivery,
    }


def _compiled(pipeline: Pipeline, place: PipelinePlace) -> dict[str, Shape]:
    """Columns, state and merge functions, as the streams compile on a live Spark."""
    from lamina.spark.failures import spark_errors  # noqa: PLC0415  an extra
    from lamina.spark.frames import own_session  # noqa: PLC0415
    from lamina.spark.internals import active  # noqa: PLC0415
    from lamina.spark.runner import pinned  # noqa: PLC0415
    from lamina.spark.session import start_session  # noqa: PLC0415
    from lamina.spark.sources import open_source  # noqa: PLC0415
    from lamina.spark.streams import compile_pipeline  # noqa: PLC0415

    file = str(place.file)
    for source in pipeline.sources.values():
        open_source(source, place.folder, file=file)
    with TemporaryDirectory(prefix="lamina-check-") as scratch:
        spark = start_session(place.name, Path(scratch), master="local[1]")
        try:
            own = own_session(spark, pinned(1))
            with spark_errors(), active(own):
                names = order(pipeline, file=file)
                _, streams = compile_pipeline(own, pipeline, names, name=place.name, file=file)
        finally:
            spark.stop()
    return {name: _columns(stream) for name, stream in streams.items()}


def _columns(stream: SparkStream) -> Shape:
    merged = stream.operator.merges if stream.operator else ()
    merges = {column: each.function for each in merged for column in each.columns}
    return {
        "columns": [
            {"name": each.name, "type": each.dataType.simpleString()} for each in stream.output
        ],
        "state": [
            {
                "name": each.name,
                "type": each.dataType.simpleString(),
                "merge": merges.get(each.name),
            }
            for each in stream.state or ()
        ],
    }
