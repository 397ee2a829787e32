"""`lamina status`: how far a pipeline has come, from its files alone."""

from __future__ import annotations

from collections.abc import Iterator

import click

from lamina.checkpoint import Checkpointer
from lamina.cli.pipeline.run_words import late_sides, listed, watermark
from lamina.cli.support import shapes
from lamina.cli.support.homes import home_on
from lamina.cli.support.places import PipelinePlace, place_of, place_options
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.shapes import Shape
from lamina.cli.support.target import open_at, require_log
from lamina.cli.support.words import counted, size, utc
from lamina.disk.base import Disk
from lamina.errors import NotFound
from lamina.format.holder import Holder
from lamina.format.manifest import ConnectorCheckpoint
from lamina.front.homes import seen
from lamina.front.status import PipelineStatus, look_up, sink_epochs
from lamina.recovery import RecoveredState
from lamina.running.holder import is_own_status
from lamina.running.request_costs import sentence
from lamina.wal.home import Home


@click.command("status")
@click.argument("pipeline", metavar="[PIPELINE]", required=False)
@place_options()[0]
@place_options()[1]
@json_option
def status_command(
    pipeline: str | None, home: str | None, store: str | None, screen: Screen
) -> None:
    """Show how far a pipeline has come, running or not.

    Shows epoch, offsets, watermark, checkpoint, log and sinks, read from files alone. Without a
    PIPELINE file, give --home and --store; the sinks shown are then those that the last process
    named.
    """
    if pipeline is None and (home is None or store is None):
        raise click.UsageError("Name the pipeline file, or give --home and --store.")
    place = place_of(pipeline or "pipeline", home, store)
    with seen(place) as home_seen:
        sinks = None if pipeline is None else sink_epochs(place, home_seen.notes)
        found = look_up(
            place.home,
            place.store,
            lambda: _open(place, home_seen.disk),
            sinks,
            remote=place.remote,
            had_by=home_seen.had_by,
        )
    if screen.as_json:
        screen.json(shape(found))
    else:
        _print(screen, found)


def _open(place: PipelinePlace, disk: Disk) -> tuple[Home, Checkpointer]:
    home = _home(disk)
    checkpointer = Checkpointer(open_at(place.store, {}, writable=False), vnode_count=None)
    require_log(checkpointer)
    return home, checkpointer


def _home(disk: Disk) -> Home:
    try:
        return home_on(disk)
    except NotFound as error:
        advice = "Has it ever run? `lamina run` creates its home; --home says where it is"
        raise NotFound(error.message, where=error.where, advice=advice) from error


def _state(found: PipelineStatus) -> str:
    """In a few words: what a process does now, or how the last one ended."""
    said = found.said
    if found.holder is not None:
        mine = is_own_status(said, found.holder)
        return said.phase if mine and said is not None else "in use"
    if found.had_by is not None and found.is_had_elsewhere:
        host, when = found.had_by.host, utc(found.had_by.since_ms)
        if found.had_by.has_ended:
            return f"not running: it ended on {host} at {when}"
        return f"not running here: {host} has had it since {when}, and has not said that it ended"
    if said is None:
        return "not running"
    if said.is_over or said.process.is_here:
        return f"not running: it {said.phase if said.is_over else 'was killed'}"
    when = utc(said.updated_ms)
    return f"not running: last seen {said.phase} on {said.host} (pid {said.pid}) at {when}"


def shape(found: PipelineStatus) -> Shape:
    rehearsal, holder = found.rehearsal, found.holder
    state = rehearsal.state if rehearsal else None
    offsets = state.source_offsets if state else {}
    newest = rehearsal.history.newest if rehearsal else None
    return {
        "home": found.home,
        "store": found.store,
        "running": holder is not None,
        "process": None if holder is None else {"pid": holder.pid, "host": holder.host},
        "state": _state(found),
        "epoch": found.epoch,
        "watermark": state.watermark if state else None,
        "source_watermarks": dict(state.source_watermarks) if state else {},
        "source_offsets": {name: dict(each.offsets) for name, each in sorted(offsets.items())},
        "table_offsets": {
            name: {"since_epoch": each.epoch, **each.offsets}
            for name, each in sorted((state.table_offsets if state else {}).items())
        },
        "checkpoint": shapes.checkpoint(newest, rehearsal.history)
        if rehearsal and newest
        else None,
        "unsaved_epochs": found.epoch - found.saved_epoch,
        "wal_segments": found.segments,
        "wal_bytes": found.wal_bytes,
        "sinks": dict(sorted(found.sinks.items())),
        "said": found.said.shape() if found.said else None,
        "had_by": _holder(found.had_by),
        "requests": found.requests(),
    }


def _holder(had_by: Holder | None) -> Shape | None:
    """Of a home in an object store."""
    if had_by is None:
        return None
    return {
        "host": had_by.host,
        "folder": had_by.scratch,
        "since_ms": had_by.since_ms,
        "has_ended": had_by.has_ended,
    }


def _print(screen: Screen, found: PipelineStatus) -> None:
    for name, text in _lines(found):
        screen.line(f"{name + ':':<12}{text}")
    rows = _sources(found.rehearsal.state) if found.rehearsal else []
    if rows:
        screen.line()
        screen.table(("SOURCE", "OFFSETS", "WATERMARK"), rows)
    tables = _tables(found.rehearsal.state) if found.rehearsal else []
    if tables:
        screen.line()
        screen.table(("TABLE", "VERSION", ">SINCE EPOCH"), tables)
    sinks = [(n, str(e), str(max(found.epoch - e, 0))) for n, e in sorted(found.sinks.items())]
    if sinks:
        screen.line()
        screen.table(("SINK", ">EPOCH", ">BEHIND"), sinks)


def _sources(state: RecoveredState) -> list[tuple[str, str, str]]:
    return [
        (name, _offsets(each), watermark(state.source_watermarks.get(name)))
        for name, each in sorted(state.source_offsets.items())
    ]


def _tables(state: RecoveredState) -> list[tuple[str, str, str]]:
    """Which version of each table the last epoch has read."""
    found = sorted(state.table_offsets.items())
    return [(name, _offsets(each), str(each.epoch)) for name, each in found]


def _offsets(found: ConnectorCheckpoint) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(found.offsets.items()))


def _lines(found: PipelineStatus) -> Iterator[tuple[str, str]]:
    holder, said, rehearsal = found.holder, found.said, found.rehearsal
    newest = rehearsal.history.newest if rehearsal else None
    by = f" (pid {holder.pid} on {holder.host})" if holder else ""
    yield "state", _state(found) + by
    yield "home", found.home
    yield "store", found.store
    yield "epoch", str(found.epoch)
    yield "watermark", watermark(rehearsal.state.watermark if rehearsal else None)
    unsaved = counted(max(found.epoch - found.saved_epoch, 0), "epoch")
    yield "checkpoint", f"epoch {newest.epoch}, {newest.id}; {unsaved} after it" if newest else "-"
    yield "log", f"{counted(found.segments, 'segment')}, {size(found.wal_bytes)}"
    if (requests := found.requests()) is not None:
        yield "requests", sentence(requests)
    if said is not None:
        yield (
            "said",
            f"at {utc(said.updated_ms)}: {counted(said.rows, 'row')} read, "
            f"{said.rows_per_s} rows/s, {said.late} late",
        )
        if said.first_epoch_ms:
            yield "first epoch", f"{said.first_epoch_ms / 1000:.1f} s after the start"
        if late_sides(said):
            yield "late", late_sides(said)
        if said.listings:
            yield "listings", listed(said)
        if said.why:
            yield "why", said.why
