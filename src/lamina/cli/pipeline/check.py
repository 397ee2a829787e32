"""`lamina check`: what a pipeline will do, before it does anything."""

from __future__ import annotations

from collections.abc import Iterator

import click

from lamina.cli.pipeline.check_tree import flow
from lamina.cli.support.places import PipelinePlace, pipeline_argument
from lamina.cli.support.screen import Screen, json_option, waiting
from lamina.cli.support.shapes import Shape
from lamina.front.check import add_types, price, read_plan
from lamina.front.costs import EVERY
from lamina.front.defaults import PARTITIONS
from lamina.running.request_costs import sentence

NOT_CHECKED = "only Spark can tell:    types, functions, columns of state"


@click.command("check")
@pipeline_argument
@click.option(
    "--no-spark",
    is_flag=True,
    help="Check only what needs no Spark: syntax, names, paths and options, not types.",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time between epoch starts, as for `run`: what a home in an object store costs depends on "
    "it.  [default: 10]",
)
@click.option(
    "--checkpoint-epochs",
    type=click.IntRange(min=0),
    metavar="N",
    help="Epochs between checkpoints, as for `run`: likewise.  [default: 10]",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="P",
    help="Number of partitions, as for `run`: likewise.  [default: 2]",
)
@json_option
def check_command(
    *,
    place: PipelinePlace,
    no_spark: bool,
    interval_s: float | None,
    checkpoint_epochs: int | None,
    partitions: int | None,
    screen: Screen,
) -> None:
    """Explain a pipeline and report what would not work.

    Shows sources, streams with their state, sinks, and what could be lost. Syntax, names, paths
    and options are checked at once; then Spark is started to check types and functions. An error
    names line, column and what to do. Nothing is run, claimed or changed.
    """
    pipeline = place.read()
    plan = read_plan(place, pipeline)
    if place.remote:
        every = EVERY if checkpoint_epochs is None else checkpoint_epochs
        plan["requests"] = price(
            plan, place.remote, interval_s, every=every, partitions=partitions or PARTITIONS
        )
    if not screen.as_json:
        for line in _lines(plan):
            screen.line(line)
    if not no_spark:
        with waiting("starting Spark to check types and functions"):
            add_types(plan, place, pipeline)
    if screen.as_json:
        screen.json(plan)
        return
    for line in _types(plan) if plan["checked_with_spark"] else (NOT_CHECKED,):
        screen.line(line)


def _lines(plan: Shape) -> Iterator[str]:
    yield f"pipeline {plan['pipeline']} ({plan['file']})"
    for source in plan["sources"]:
        yield from _source(source)
    for table in plan["tables"]:
        yield from _table(table)
    for stream in plan["streams"]:
        yield from _stream(stream)
    for sink in plan["sinks"]:
        yield from _sink(sink, plan["streams"])
    yield ""
    yield "how rows flow, in every epoch"
    yield from (f"  {line}" for line in flow(plan))
    yield ""
    yield f"mode:                   {plan['mode']}"
    yield f"lost with the process:  {plan['lost']['process']}"
    yield f"lost with an executor:  {plan['lost']['executor']}"
    yield f"lost with the machine:  {plan['lost']['machine']}"
    if plan["requests"] is not None:
        yield f"requests:               {sentence(plan['requests'])}"
    yield "checked:                syntax, names, paths, options"


def _types(plan: Shape) -> Iterator[str]:
    """What only Spark can tell."""
    yield "checked with Spark:     types and functions"
    for stream in plan["streams"]:
        yield ""
        yield f"stream {stream['name']}"
        for column in stream["state"]:
            merge = column["merge"] or "key"
            yield f"  state      {column['name']} {column['type']} ({merge})"
        if any(column["merge"] == "bag" for column in stream["state"]):
            yield "  cost       a bag is written as a whole whenever one of its values changes"
        if "kept_for" in stream:
            yield f"  kept       {stream['kept_for']}"
        if stream["state"]:
            yield f"  size       {_size(stream)}"
            for name, size in stream["beside"].items():
                yield f"  beside     {name}: about {size:,.0f} MB for a million"
        yield f"  columns    {_typed(stream['columns'])}"


def _source(source: Shape) -> Iterator[str]:
    yield ""
    yield f"source {source['name']}: {source['format']}{_options(source)}"
    yield f"  columns    {_typed(source['columns'])}"
    mark = source["watermark"]
    yield (
        f"  watermark  {mark['column']}, {_seconds(mark['delay_us'])} behind the latest"
        if mark
        else "  watermark  none: windows over it never close"
    )
    if source["missing"]:
        yield "  note       its path does not exist yet: a run would fail"


def _table(table: Shape) -> Iterator[str]:
    yield ""
    yield f"table {table['name']}: {table['format']}{_options(table)}"
    yield f"  columns    {_typed(table['columns'])}"
    if table["version"] is None:
        yield "  version    not known before it is read"
        return
    size = "" if table["bytes"] is None else f", {table['bytes']:,} bytes"
    yield f"  version    {table['version']}{size}"
    if table["sent"] is not None:
        how = "whole, to every task (broadcast)" if table["sent"] == "broadcast" else "by key"
        yield f"  sent       {how}"


def _stream(stream: Shape) -> Iterator[str]:
    yield ""
    what = f"block of {stream['block_of']}, " if stream["block_of"] else ""
    yield f"stream {stream['name']}: {what}{stream['kind']}, reads {stream['reads']}"
    if stream["kind"] == "distinct":
        yield "  keys       all columns: every different row is kept"
    if stream["kind"] in ("aggregate", "first rows", "keyed function"):
        yield f"  keys       {', '.join(stream['keys']) or 'none: one group'}"
        yield f"  window     {stream['window'] or 'none'}"
    if stream["kept"]:
        yield f"  kept       {stream['kept']}"
    if stream["over_changes"] and stream["kind"].startswith("temporal "):
        yield "  over       changes of the right side: what has come out is not taken back"
    elif stream["over_changes"] and stream["kind"].endswith(" join"):
        yield "  over       changes: a row that is taken back takes back what came out of it"
    elif stream["over_changes"] and stream["kind"] != "stateless":
        yield "  over       changes: rows may be taken back, and a group without rows is gone"
    is_changing = stream["emit"].startswith("changes")
    yield f"  emits      {stream['emit']}{_CHANGES if is_changing else ''}"


_CHANGES = ": +I new, -U and +U replaced, -D gone"


def _sink(sink: Shape, streams: list[Shape]) -> Iterator[str]:
    yield ""
    yield f"sink {sink['name']}: {sink['format']}{_options(sink)}, from {sink['stream']}"
    yield f"  delivery   {sink['delivery']}"
    read = next(s for s in streams if s["name"].lower() == sink["stream"].lower())
    if read["emit"].startswith("on update"):
        yield "  rows       a later row replaces an earlier one with the same key"
    if read["emit"].startswith("changes"):
        yield "  rows       a row replaces the one with the same key, or takes it away"


def _size(stream: Shape) -> str:
    what = "rows" if "kept_for" in stream else "keys"
    million = f"about {stream['bytes_per_key'] * 1_000_000 / 1e6:,.0f} MB for a million {what}"
    texts = ", with 16 bytes for each text" if stream["has_texts"] else ""
    lists = ", and what its lists hold" if stream["has_lists"] else ""
    return million + texts + lists


def _typed(columns: list[Shape]) -> str:
    return ", ".join(f"{column['name']} {column['type']}" for column in columns)


def _options(value: Shape) -> str:
    """As they are written: a value from the environment is never shown."""
    texts = ", ".join(f"{name} '{text}'" for name, text in value["options"].items())
    return f" ({texts})" if texts else ""


def _seconds(micros: int) -> str:
    return f"{micros / 1_000_000:g} s"
