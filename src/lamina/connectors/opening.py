"""From the definitions of a pipeline to its sources and sinks; and what is wrong with them.

Everything that a pipeline says of its connectors is checked before any is opened, and without a
look at the world. Sinks are opened when their streams are compiled: they are told what they get.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, TextIO

from lamina.connectors.folder import is_passed_over
from lamina.connectors.installed import check_installed
from lamina.connectors.keyed_options import KEYS
from lamina.connectors.kinds import (
    BAD_ROWS_PATH,
    Given,
    OptionType,
    SinkContext,
    SinkKind,
    SourceContext,
    SourceKind,
)
from lamina.connectors.opening_tables import check_table, folders_of
from lamina.connectors.options import option_of, read_options
from lamina.connectors.registry import sink_kind, sink_names, source_kind, source_names
from lamina.connectors.store_options import shared_options
from lamina.format.home_names import journal_folder
from lamina.ids import fold
from lamina.pipeline.epoch_times import EPOCH_TIME, without_epoch_times
from lamina.pipeline.model import Column, DeclaredSink, DeclaredSource, Pipeline
from lamina.pipeline.tokens import bad_at

if TYPE_CHECKING:
    from lamina.connectors.spark_source import DriverFiles, MakeStep, SparkSource
    from lamina.engine.ports import Output, Sink
    from lamina.workspace.base import Notes


def check_connectors(pipeline: Pipeline, folder: Path, *, file: str = "pipeline") -> None:
    """BadPipeline at the first source or sink that would not work; nothing is looked at."""
    _check_names(pipeline, file)
    for source in pipeline.sources.values():
        check_source(source, folder, file=file)
    for table in pipeline.tables.values():
        check_table(table, folder, file=file)
    writers: dict[PurePath, str] = {}
    for sink in sinks_of(pipeline):
        check_sink(sink, folder, file=file)
        for path in _folders(sink, OptionType.OUTPUT, folder, file):
            other = writers.setdefault(path, sink.name)
            if other != sink.name:
                message = f"{other!r} and {sink.name!r} would write into the same folder"
                raise bad_at(message, file, sink.place, "Give each a path of its own")
            for source in pipeline.sources.values():
                read = _folders(source, OptionType.INPUT, folder, file)
                _check_not_read(sink, path, f"the source {source.name!r}", read, file)
            for table in pipeline.tables.values():
                read = folders_of(table, folder, file=file)
                _check_not_read(sink, path, f"the table {table.name!r}", read, file)


def check_source(source: DeclaredSource, folder: Path, *, file: str = "pipeline") -> SourceContext:
    """What a source is opened with; relative paths are below *folder*."""
    kind, source = _source_kind(source, file), without_epoch_times(source)
    context = SourceContext(source, read_options(source, kind, folder, file=file))
    _check_metadata(source, kind, file)
    kind.check(context)
    check_installed(source, kind, file)
    return context


def check_sink(sink: DeclaredSink, folder: Path, *, file: str = "pipeline") -> Given:
    """The options of a sink; relative paths are below *folder*."""
    kind = _sink_kind(sink, file)
    given = read_options(sink, kind, folder, file=file)
    kind.check(sink, given)
    check_installed(sink, kind, file)
    return given


def open_source(
    source: DeclaredSource,
    folder: Path,
    *,
    file: str = "pipeline",
    pipeline: str = "pipeline",
    skip_lost: Collection[str] = (),
    make_step: MakeStep | None = None,
    notes: Notes | None = None,
    scratch: Path | None = None,
    files: DriverFiles | None = None,
) -> SparkSource:
    """*pipeline* is its name; if *skip_lost* names it, it goes on behind rows that are gone.

    `NAME:PLACE` confirms a place to go back to. *make_step* is what sources need whose tasks read
    rows; *notes* take what a source has to remember, *scratch* its files, *files* reads those.
    """
    context = check_source(source, folder, file=file)
    said = [place for name, place in map(named_place, skip_lost) if fold(name) == fold(source.name)]
    return _source_kind(source, file).open(
        replace(
            context,
            pipeline=pipeline,
            skip_lost="" in said,
            go_back=frozenset(said) - {""},
            make_step=make_step,
            files=files,
            notes=notes,
            scratch=None if scratch is None else scratch.absolute() / journal_folder(source.name),
        )
    )


def named_place(lost: str) -> tuple[str, str]:
    """What follows `--skip-lost`: a source, and a place in it or nothing."""
    name, _, place = lost.partition(":")
    return name, place


def changing_sources(pipeline: Pipeline, *, file: str = "pipeline") -> dict[str, tuple[str, ...]]:
    """The sources whose rows are changes, by name, and the columns that tell their rows apart."""
    kinds = {name: source_kind(source.format) for name, source in pipeline.sources.items()}
    given = {
        name: (kind, read_options(pipeline.sources[name], kind, Path(), file=file))
        for name, kind in kinds.items()
        if kind is not None and (kind.changes or KEYS.name in (each.name for each in kind.options))
    }
    return {
        name: options.columns(KEYS.name)
        for name, (kind, options) in given.items()
        if kind.changes or kind.by_key(options)
    }


def keyed_sources(pipeline: Pipeline, *, file: str = "pipeline") -> dict[str, tuple[str, ...]]:
    """Those of `changing_sources` whose rows are versions by key."""
    changing = changing_sources(pipeline, file=file)
    kinds = {name: source_kind(pipeline.sources[name].format) for name in changing}
    return {name: changing[name] for name, kind in kinds.items() if kind and not kind.changes}


def bad_rows_ddl(source: DeclaredSource, *, file: str = "pipeline") -> str:
    """The columns of what is kept of rows that cannot be read."""
    return _source_kind(source, file).bad_rows


def can_skip_lost(source: DeclaredSource, *, file: str = "pipeline") -> bool:
    """Whether `--skip-lost` means something for it."""
    return _source_kind(source, file).skips_lost


def jars_of(pipeline: Pipeline, folder: Path, *, file: str = "pipeline") -> tuple[str, ...]:
    """The artifacts of Spark's project that the sources of a pipeline are read with."""
    found = [
        jar
        for source in pipeline.sources.values()
        for jar in _source_kind(source, file).jars(check_source(source, folder, file=file).given)
    ]
    return tuple(sorted(set(found)))


def open_sinks(
    pipeline: Pipeline,
    folder: Path,
    *,
    notes: Notes,
    file: str = "pipeline",
    out: TextIO | None = None,
    outputs: Mapping[str, Output] | None = None,
) -> dict[str, Sink]:
    """All of them, by name. Without *outputs* they can be claimed and moved, and get no rows."""
    check_connectors(pipeline, folder, file=file)
    opened: dict[str, Sink] = {}
    try:
        for sink in sinks_of(pipeline):
            output = (outputs or {}).get(sink.name)
            opened[sink.name] = open_sink(
                sink, folder, notes=notes, file=file, out=out, output=output
            )
    except BaseException:
        close_sinks(opened)
        raise
    return opened


def close_sinks(sinks: Mapping[str, Sink]) -> None:
    for sink in sinks.values():
        sink.close()


def open_sink(
    sink: DeclaredSink,
    folder: Path,
    *,
    notes: Notes,
    file: str = "pipeline",
    out: TextIO | None = None,
    output: Output | None = None,
) -> Sink:
    """*notes* take what a sink without a memory has to remember; *out* is for people."""
    given = check_sink(sink, folder, file=file)
    context = SinkContext(sink, given, notes, out or sys.stdout, output)
    return _sink_kind(sink, file).open(context)


def delivery_of(sink: DeclaredSink, *, file: str = "pipeline") -> str:
    """What a sink promises, for people."""
    return _sink_kind(sink, file).delivery


def missing_folders(source: DeclaredSource, folder: Path, *, file: str = "pipeline") -> list[Path]:
    """Folders that a source reads and that are not there; object stores are not asked."""
    folders = _folders(source, OptionType.INPUT, folder, file)
    return [path for path in folders if isinstance(path, Path) and not path.exists()]


# bad rows


def bad_rows_name(source: str) -> str:
    """Of the stream of a source's bad rows, and of the sink they go to."""
    return f"{source} bad rows"


def sinks_of(pipeline: Pipeline) -> tuple[DeclaredSink, ...]:
    """The sinks of a pipeline, and one for each source that keeps its bad rows."""
    kept = bad_row_streams(pipeline).values()
    return (*pipeline.sinks.values(), *(_bad_rows(source) for source in kept))


def bad_row_streams(pipeline: Pipeline) -> dict[str, DeclaredSource]:
    """The streams of bad rows, by name, and the sources that keep them."""
    kept = (source for source in pipeline.sources.values() if option_of(source, BAD_ROWS_PATH))
    return {bad_rows_name(source.name): source for source in kept}


def _bad_rows(source: DeclaredSource) -> DeclaredSink:
    name, path = bad_rows_name(source.name), option_of(source, BAD_ROWS_PATH)
    assert path is not None
    options = {"path": path, **shared_options(source, "path", BAD_ROWS_PATH)}
    return DeclaredSink(name, name, "parquet", options, source.place)


# steps


def _check_names(pipeline: Pipeline, file: str) -> None:
    """The streams of bad rows are in the one space of names, too."""
    every = (*pipeline.sources, *pipeline.tables, *pipeline.streams, *pipeline.sinks)
    named = {name.lower() for name in every}
    for name, source in bad_row_streams(pipeline).items():
        if name.lower() in named:
            message = f"{name!r} is the stream of what {source.name!r} cannot read"
            raise bad_at(message, file, source.place, "Give the other one another name")


def _check_not_read(
    sink: DeclaredSink, path: PurePath, reader: str, folders: Iterable[PurePath], file: str
) -> None:
    """Output that is taken for input would come back for ever."""
    for read in folders:
        if path.is_relative_to(read) and not is_passed_over(path.relative_to(read)):
            raise bad_at(
                f"{sink.name!r} would write into the folder that {reader} reads",
                file,
                sink.place,
                "Use another folder, or one whose name begins with _ (those are ignored)",
            )


def _folders(
    of: DeclaredSource | DeclaredSink, wanted: OptionType, folder: Path, file: str
) -> list[PurePath]:
    """The folders that the options of one type name, each in one spelling.

    A `Path` is one of a file system; an address is a path that cannot be opened.
    """
    kind = _source_kind(of, file) if isinstance(of, DeclaredSource) else _sink_kind(of, file)
    given = read_options(of, kind, folder, file=file)
    names = [each.name for each in kind.options if each.type is wanted]
    places = [given.place(name) for name in names if name in given.declared]
    return [
        Path(os.path.normpath(place.absolute()))
        if isinstance(place, Path)
        else PurePosixPath(place)
        for place in places
    ]


def _check_metadata(source: DeclaredSource, kind: SourceKind, file: str) -> None:
    """Columns beside the value of a record: only of kinds that have them, in their types."""
    known = {name.lower(): types for name, types in kind.metadata.items()}
    for column in source.columns:
        if not column.metadata:
            continue
        types = known.get(column.metadata.lower())
        shown = f"the column {column.name!r} of {source.name!r} is METADATA FROM"
        if types is None:
            advice = (
                f"There are {', '.join(kind.metadata)} and {EPOCH_TIME}"
                if known
                else f"Rows of {kind.name} have no metadata: leave it out. Only {EPOCH_TIME!r}, "
                "when the epoch was planned, goes with all of them"
            )
            raise bad_at(f"{shown} {column.metadata!r}", file, source.place, advice)
        if _type_of(column) not in types:
            message = f"{shown} {column.metadata!r}, and of the type {column.type}"
            raise bad_at(message, file, source.place, f"Its type is {' or '.join(types).upper()}")


def _type_of(column: Column) -> str:
    """In one spelling, without NOT NULL."""
    text = re.sub(r"\s+not\s+null\s*$", "", column.type.lower())
    return re.sub(r"\s*([<>:,])\s*", r"\1", text.strip())


def _source_kind(source: DeclaredSource, file: str) -> SourceKind:
    kind = source_kind(source.format)
    if kind is None:
        message = f"the source {source.name!r} has the format {source.format!r}, which is not known"
        raise bad_at(message, file, source.place, f"Known formats: {', '.join(source_names())}")
    return kind


def _sink_kind(sink: DeclaredSink, file: str) -> SinkKind:
    kind = sink_kind(sink.format)
    if kind is None:
        message = f"the sink {sink.name!r} has the format {sink.format!r}, which is not known"
        raise bad_at(message, file, sink.place, f"Known formats: {', '.join(sink_names())}")
    return kind
