"""From the definitions of sinks to the sinks."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO

from lamina.connectors.console import ConsoleSink
from lamina.connectors.folder import is_passed_over
from lamina.connectors.parquet import ParquetSink
from lamina.connectors.paths import check_options, folder_of, option_of, whole_number
from lamina.connectors.positions import NotedPosition
from lamina.engine.ports import Sink as EngineSink
from lamina.pipeline.model import Pipeline, Sink, Source
from lamina.pipeline.tokens import bad_at
from lamina.workspace.notes import LocalNotes

SINKS = ("parquet", "console")
BAD_ROWS_PATH = "bad_rows_path"
ROWS_SHOWN = 20


def bad_rows_name(source: str) -> str:
    """Of the stream of a source's bad rows, and of the sink they go to."""
    return f"{source} bad rows"


def sinks_of(pipeline: Pipeline) -> tuple[Sink, ...]:
    """The sinks of a pipeline, and one for each source that keeps its bad rows."""
    kept = bad_row_streams(pipeline).values()
    return (*pipeline.sinks.values(), *(_bad_rows(source) for source in kept))


def bad_row_streams(pipeline: Pipeline) -> dict[str, Source]:
    """The streams of bad rows, by name, and the sources that keep them."""
    kept = (source for source in pipeline.sources.values() if keeps_bad_rows(source))
    return {bad_rows_name(source.name): source for source in kept}


def keeps_bad_rows(source: Source) -> bool:
    """Whether rows that cannot be read are kept; else they stop the epoch."""
    return option_of(source, BAD_ROWS_PATH) is not None


def _bad_rows(source: Source) -> Sink:
    name, path = bad_rows_name(source.name), option_of(source, BAD_ROWS_PATH)
    assert path is not None
    return Sink(name, name, "parquet", {"path": path}, source.place)


def open_sinks(
    pipeline: Pipeline,
    folder: Path,
    *,
    home: Path,
    file: str = "pipeline",
    out: TextIO | None = None,
) -> dict[str, EngineSink]:
    """All of them, by name. Nothing is made or looked at; each has a folder of its own."""
    opened: dict[str, EngineSink] = {}
    taken: dict[Path, str] = {}
    _check_names(pipeline, file)
    for sink in sinks_of(pipeline):
        opened[sink.name] = open_sink(sink, folder, home=home, file=file, out=out)
        if sink.format == "parquet":
            path = _normal(folder_of(sink, "path", folder, file=file))
            other = taken.setdefault(path, sink.name)
            if other != sink.name:
                message = f"{other!r} and {sink.name!r} would write into one folder"
                raise bad_at(message, file, sink.place, "Give each a path of its own")
            for source in pipeline.sources.values():
                _check_not_read(sink, path, source, folder, file)
    return opened


def _check_names(pipeline: Pipeline, file: str) -> None:
    """The streams of bad rows are in the one space of names, too."""
    named = {name.lower() for name in (*pipeline.sources, *pipeline.streams, *pipeline.sinks)}
    for name, source in bad_row_streams(pipeline).items():
        if name.lower() in named:
            message = f"{name!r} is the stream of what {source.name!r} cannot read"
            raise bad_at(message, file, source.place, "Give the other one another name")


def _check_not_read(sink: Sink, path: Path, source: Source, folder: Path, file: str) -> None:
    """Output that a source takes for input would come back for ever."""
    if option_of(source, "path") is None:
        return
    read = _normal(folder_of(source, "path", folder, file=file))
    if path.is_relative_to(read) and not is_passed_over(path.relative_to(read)):
        raise bad_at(
            f"{sink.name!r} would write into the folder that the source {source.name!r} reads",
            file,
            sink.place,
            "Take another folder, or one whose name begins with _: those are passed over",
        )


def _normal(path: Path) -> Path:
    return Path(os.path.normpath(path.absolute()))


def open_sink(
    sink: Sink,
    folder: Path,
    *,
    home: Path,
    file: str = "pipeline",
    out: TextIO | None = None,
) -> EngineSink:
    """A sink of a pipeline; relative paths are below *folder*. Nothing is made or looked at.

    *home* takes what a sink without a memory has to remember; *out* is for people, and standard
    output if it is not given.
    """
    if sink.format == "parquet":
        check_options(sink, ("path",), file=file)
        return ParquetSink(sink.name, folder_of(sink, "path", folder, file=file))
    if sink.format == "console":
        check_options(sink, ("rows",), file=file)
        rows = whole_number(sink, "rows", ROWS_SHOWN, file=file)
        return ConsoleSink(
            sink.name, out or sys.stdout, NotedPosition(LocalNotes(home), sink.name), rows
        )
    message = f"the sink {sink.name!r} has the format {sink.format!r}, which is not known"
    raise bad_at(message, file, sink.place, f"There is {', '.join(SINKS)}")
