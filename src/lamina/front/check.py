"""`lamina.check`: what a pipeline will do, before it does anything.

In two stages: what the text says (syntax, names, options, paths) takes a moment and needs no Spark;
types, functions and the columns of state are Spark's to say. The answer is the JSON of `lamina
check --json` (docs/cli.md).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from lamina.connectors.opening import (
    bad_row_streams,
    changing_sources,
    check_connectors,
    delivery_of,
    missing_folders,
    sinks_of,
)
from lamina.connectors.opening_tables import peek
from lamina.connectors.table_sizes import is_sent_whole
from lamina.engine.checked_code import check_code
from lamina.front.costs import EVERY, files_of, pace_of
from lamina.front.defaults import PARTITIONS
from lamina.front.locate import PipelineLike, locate
from lamina.front.places import PipelinePlace, require_spark
from lamina.pipeline.blocks import keeps_state
from lamina.pipeline.checks import check_pipeline, order
from lamina.pipeline.keys import read_keys
from lamina.pipeline.model import (
    DeclaredSink,
    DeclaredSource,
    DeclaredTable,
    Emit,
    JoinKind,
    JoinOf,
    KeyedFunction,
    Pipeline,
    Stream,
    Values,
)
from lamina.pipeline.select import Select, read_select
from lamina.running.request_costs import shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Shape = dict[str, Any]

_JOIN = "{} join"
_ASOF, _TEMPORAL = "asof ", "temporal "
_JOINS = frozenset(_JOIN.format(kind.value.lower()) for kind in JoinKind)

LOCAL = "local: the home is on a disk that the driver and its tasks share"
LOST = {
    "process": "nothing: every committed epoch is in the log of the home",
    "executor": "nothing: its tasks are run again",
    "machine": f"every epoch after the last checkpoint (one each {EVERY} epochs, and at the end), "
    "unless the home lies on a disk that survives the machine",
}
REMOTE = "remote: the home is in an object store; driver and executors share no disk"
REMOTE_LOST = {
    "process": "nothing: every committed epoch is in the object store",
    "executor": "nothing: its tasks are run again",
    "machine": "nothing: every committed epoch is in the object store, and another machine goes on "
    "from there (--take-over)",
}


def check(
    pipeline: PipelineLike,
    *,
    home: str | os.PathLike[str] | None = None,
    interval_s: float | None = None,
    checkpoint_epochs: int = EVERY,
    partitions: int = PARTITIONS,
    name: str = "",
    folder: str | os.PathLike[str] = "",
    spark: SparkSession | None = None,
    with_spark: bool = True,
) -> Shape:
    """What a pipeline will do; BadPipeline at the first thing that would not work.

    Nothing is run, claimed or changed. An existing SparkSession (*spark*) is used and left
    unchanged, otherwise one is started; without Spark only the text is checked. *interval_s*,
    *checkpoint_epochs* and *partitions* are those for which requests are priced, if the home is in
    an object store.
    """
    place, model = locate(pipeline, home=home, name=name, folder=folder)
    model = place.read() if model is None else model
    plan = read_plan(place, model)
    if place.remote:
        plan["requests"] = price(
            plan, place.remote, interval_s, every=checkpoint_epochs, partitions=partitions
        )
    if with_spark:
        add_types(plan, place, model, spark=spark)
    return plan


def read_plan(place: PipelinePlace, pipeline: Pipeline) -> Shape:
    """What the text says, without Spark."""
    file = str(place.file)
    changing = changing_sources(pipeline, file=file)
    check_pipeline(pipeline, file=file, changing=changing)
    check_connectors(pipeline, place.folder, file=file)
    check_code(pipeline, file=file)
    sinks = [_sink(each, delivery_of(each, file=file)) for each in sinks_of(pipeline)]
    streams = {name: stream_shape(pipeline, name, file) for name in order(pipeline, file=file)}
    _add_changes(streams.values(), changing)
    streams |= {name: _bad_rows(name, source) for name, source in bad_row_streams(pipeline).items()}
    return {
        "pipeline": place.name,
        "file": file,
        "checked_with_spark": False,
        "sources": [_source(each, place) for each in pipeline.sources.values()],
        "tables": [_table(each, place) for each in pipeline.tables.values()],
        "streams": list(streams.values()),
        "sinks": sinks,
        "mode": REMOTE if place.remote else LOCAL,
        "lost": REMOTE_LOST if place.remote else LOST,
        "requests": None,
    }


def price(
    plan: Shape, remote: str, interval_s: float | None, *, every: int, partitions: int
) -> Shape:
    """What a home in an object store asks of it in a month."""
    return shape(remote, pace_of(interval_s, every=every, files=files_of(plan, partitions)))


def add_types(
    plan: Shape, place: PipelinePlace, pipeline: Pipeline, *, spark: SparkSession | None = None
) -> None:
    """What Spark says, added to what the text says: columns, state and merge functions."""
    require_spark("checking types")
    from lamina.spark.explanation import explain_types  # noqa: PLC0415  an extra

    found = explain_types(pipeline, name=place.name, file=str(place.file), spark=spark)
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


def _table(table: DeclaredTable, place: PipelinePlace) -> Shape:
    """What is declared, and what can be told of it in a moment; a run reads it."""
    found = peek(table, place.folder, file=str(place.file))
    size = None if found is None else found.size
    return {
        "name": table.name,
        "format": table.format,
        "options": {name: option.written for name, option in table.options.items()},
        "columns": [{"name": each.name, "type": each.type} for each in table.columns],
        "version": None if found is None else found.version,
        "bytes": size,
        "sent": None if size is None else "broadcast" if is_sent_whole(size) else "by key",
    }


def stream_shape(pipeline: Pipeline, name: str, file: str) -> Shape:
    """What the text says; types are Spark's to say."""
    stream = pipeline.streams[name]
    select = read_select(stream, file)
    found = read_keys(select, _columns_of(pipeline, select.reads))
    by = select.ranked.partition if select.ranked else [key.words for key in found]
    by = select.on.keys if select.on else by
    keys = [select.text(words) for words in by]
    windows = [select.text(key.words) for key in found if key.is_window]
    if isinstance(stream.python, KeyedFunction):
        return _keyed(stream, stream.python)
    if stream.join is not None:
        return _join(stream, stream.join)
    if stream.values is not None:
        return _values(stream, stream.values)
    aggregate = keeps_state(select)
    emit = stream.emit or (Emit.ON_UPDATE if aggregate else None)
    said = "every new row, once" if select.distinct else emit.value if emit else ""
    said = "the first row of each key" if select.on else said
    if stream.every_us is not None:
        said += f" every {stream.every_us / 1e6:g} s of event time"
    if stream.late_of:
        said = f"every row that is late for {stream.late_of}"
    return {
        "name": stream.name,
        "block_of": stream.block_of or None,
        "reads": ", ".join(select.reads),
        "inputs": list(select.reads),
        "kind": _kind(select),
        "keys": keys,
        "window": windows[0] if windows else None,
        "emit": said or "every row, at once",
        "kept": _kept(select, bool(windows)),
        "over_changes": False,
    }


def _add_changes(streams: Iterable[Shape], sources: Collection[str]) -> None:
    """Which streams read changes; what keeps no more than rows passes them on."""
    changing = {name.lower() for name in sources}
    for stream in streams:
        stream["over_changes"] = any(each.lower() in changing for each in stream["inputs"])
        if stream["over_changes"] and stream["kind"].startswith(_ASOF):
            stream["kind"] = stream["kind"].replace(_ASOF, _TEMPORAL)
            stream["emit"] = f"each row, at once, with the rows that {stream['inputs'][1]} has now"
            stream["kept"] = (
                "of the right side, until rows are taken back; nothing of the left side"
            )
            continue
        is_join = stream["kind"] in _JOINS
        if stream["over_changes"] and (is_join or stream["kind"] in ("stateless", "distinct")):
            stream["emit"] = Emit.CHANGES.value
            if is_join:
                stream["kept"] = "until rows are taken back: as many as both sides have"
        if stream["emit"].startswith(Emit.CHANGES.value):
            changing.add(stream["name"].lower())


def _keyed(stream: Stream, function: KeyedFunction) -> Shape:
    """A stream that is a keyed function."""
    kept = "until the function says that a key is gone; if it never does, for ever (no ttl)"
    if function.ttl_us is not None:
        kept = f"{function.ttl_us / 1e6:g} seconds after the latest row of a key"
    return {
        "name": stream.name,
        "block_of": None,
        "reads": ", ".join(function.inputs),
        "inputs": list(function.inputs),
        "kind": "keyed function",
        "keys": list(function.keys),
        "window": None,
        "emit": "what the function gives",
        "kept": kept,
    }


def _join(stream: Stream, of: JoinOf) -> Shape:
    """A join of two inputs; how far apart they may be is Spark's to say."""
    if of.is_table:
        return _table_join(stream, of)
    emits = ["each pair of rows, at once"] if of.kind.has_pairs else []
    if of.asof is not None:
        left = "each row" if of.kind is JoinKind.LEFT else "each row that has one"
        emits = [f"{left} with its version, when no later version of its time can come"]
    elif of.kind.judges:
        which = "with" if of.kind is JoinKind.SEMI else "without"
        emits.append(f"rows {which} a partner, when no more partners can come")
    return {
        "name": stream.name,
        "block_of": stream.block_of or None,
        "reads": f"{of.left}, {of.right}",
        "inputs": [of.left, of.right],
        "kind": (_ASOF if of.asof else "") + _JOIN.format(of.kind.value.lower()),
        "keys": [of.on or of.where or ", ".join(of.using or map(" = ".join, of.values))],
        "window": None,
        "emit": "; ".join(emits),
        "kept": _kept_by_join(of),
        "over_changes": False,
    }


def _kept_by_join(of: JoinOf) -> str:
    kept = "the last version of each key" if of.asof else "until no partner can come"
    if of.ttl_us is None:
        return kept
    within = f"STATE TTL changes the result: rows more than {of.ttl_us / 1e6:g} s apart"
    return f"{kept}; {within} {'do not meet' if of.asof else 'are no pair'}"


def _table_join(stream: Stream, of: JoinOf) -> Shape:
    """A join with a table: a part of what reads it, which keeps nothing."""
    return {
        "name": stream.name,
        "block_of": stream.block_of or None,
        "reads": f"{of.left}, and the table {of.right}",
        "inputs": [of.left],
        "kind": f"{of.kind.value.lower()} join with a table",
        "keys": [of.on or ", ".join(of.using)],
        "window": None,
        "emit": "every row, at once, with the version of the table that the epoch has",
        "kept": None,
        "over_changes": False,
    }


def _values(stream: Stream, of: Values) -> Shape:
    """Values of queries inside expressions: a part of what reads them."""
    tables = "".join(f", and the table {name}" for name in dict.fromkeys(of.tables))
    at_once = "every row, at once"
    said = f"{at_once}, with the version of the table that the epoch has" if tables else at_once
    return {
        "name": stream.name,
        "block_of": stream.block_of or None,
        "reads": f"{of.left}{tables}",
        "inputs": [of.left],
        "kind": "stateless",
        "keys": [],
        "window": None,
        "emit": said,
        "kept": None,
        "over_changes": False,
    }


def _kept(select: Select, has_window: bool) -> str | None:
    """How long its state is kept, as far as the text says."""
    if not keeps_state(select):
        return None
    if has_window:
        return "until the watermark passes the end of the window"
    if select.on is not None:
        return "until the watermark passes the event time of the row and the delay"
    if select.distinct is not None:
        return "for ever, unless the event time is one of the columns"
    return "for ever: it grows with the number of keys"


def _kind(select: Select) -> str:
    if select.distinct is not None:
        return "distinct"
    if select.ranked is not None:
        return "first rows"
    return "aggregate" if keeps_state(select) else "stateless"


def _bad_rows(name: str, source: DeclaredSource) -> Shape:
    """The stream of rows that cannot be read, of a source that keeps them."""
    return {
        "name": name,
        "block_of": None,
        "reads": source.name,
        "inputs": [source.name],
        "kind": "stateless",
        "keys": [],
        "window": None,
        "emit": "every row that cannot be read",
        "kept": None,
        "over_changes": False,
    }


def _columns_of(pipeline: Pipeline, reads: Collection[str]) -> set[str]:
    named = {name.lower() for name in reads}
    read = (each for each in pipeline.sources.values() if each.name.lower() in named)
    return {column.name.lower() for source in read for column in source.columns}


def _sink(sink: DeclaredSink, delivery: str) -> Shape:
    return {
        "name": sink.name,
        "stream": sink.stream,
        "format": sink.format,
        "options": {name: option.written for name, option in sink.options.items()},
        "delivery": delivery,
    }
