"""From the definition of a sink to the sink."""

from __future__ import annotations

from pathlib import Path

from lamina.connectors.parquet import ParquetSink
from lamina.engine.ports import Sink as EngineSink
from lamina.pipeline.model import Sink
from lamina.pipeline.tokens import bad_at

SINKS = ("parquet",)


def open_sink(sink: Sink, folder: Path, *, file: str = "pipeline") -> EngineSink:
    """The sink of a pipeline; relative paths are below *folder*. Nothing is made or looked at."""
    if sink.format not in SINKS:
        message = f"the sink {sink.name!r} has the format {sink.format!r}, which is not known"
        raise bad_at(message, file, sink.place, f"There is {', '.join(SINKS)}")
    path = sink.options.get("path")
    if path is None:
        message = f"the sink {sink.name!r} has no path"
        raise bad_at(message, file, sink.place, "Write OPTIONS (path 'a/folder')")
    return ParquetSink(sink.name, folder / path.value)
