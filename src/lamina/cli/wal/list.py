"""`lamina wal list`: which segments there are, and how each ends."""

from __future__ import annotations

import click

from lamina.checkpoint.progress import Progress, Report
from lamina.cli.support.exits import Exit
from lamina.cli.support.homes import HomeTarget, home_option, place
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.shapes import Shape
from lamina.cli.support.words import counted, size
from lamina.errors import LaminaError, NotFound, Unsupported
from lamina.format.home_names import CoreSegment, parse_segment
from lamina.wal.home import Home
from lamina.wal.reader import Clean, Torn
from lamina.wal.scan import all_segments
from lamina.wal.survey import Survey, survey

COLUMNS = (
    "SEGMENT",
    "CORE",
    ">GENERATION",
    ">P",
    ">RECORDS",
    ">ENTRIES",
    "EPOCHS",
    ">SIZE",
    "END",
)


@click.command("list")
@home_option
@json_option
def wal_list_command(home_target: HomeTarget, screen: Screen) -> None:
    """List the segments of the driver and of every core.

    A torn end is what a crash leaves behind; recovery skips it. Only headers are read; `lamina wal
    verify` reads every byte. Exits with 4 if a segment is damaged.
    """
    home = home_target.to_read()
    with screen.progress("reading") as report:
        found = _survey_all(home, report)
    if screen.as_json:
        screen.json(place(home) | {"segments": [shape(each) for each in found]})
    elif found:
        screen.table(COLUMNS, [_row(each) for each in found])
    else:
        screen.line(f"no segments in {home.disk.root}")
    if any(isinstance(each.end, LaminaError) for each in found):
        click.get_current_context().exit(Exit.CORRUPT)


def _survey_all(home: Home, report: Report) -> list[Survey]:
    paths = list(all_segments(home.disk))
    found = []
    for number, path in enumerate(paths, 1):
        try:
            found.append(survey(home.disk, path, home.identity))
        except NotFound:
            continue  # a running pipeline has dropped it meanwhile
        report(Progress(number, len(paths), "objects", path))
    return found


def shape(found: Survey) -> Shape:
    header = found.header
    return {
        "path": found.path,
        "core": core_of(found.path),
        "generation": header.generation if header else None,
        "partitions": header.partitions if header else None,
        "first_sequence": header.first_sequence if header else None,
        "records": found.records,
        "entries": found.entries,
        "epoch_min": found.epochs[0] if found.epochs else None,
        "epoch_max": found.epochs[1] if found.epochs else None,
        "size_bytes": found.size,
        "end": end_shape(found.end),
    }


def end_shape(end: Clean | Torn | LaminaError) -> Shape:
    match end:
        case Clean(at):
            return _end("clean", at)
        case Torn(at, count, reason):
            return _end("torn", at) | {"torn_bytes": count, "reason": reason}
        case Unsupported():
            return _end("unsupported", None) | {"reason": end.message, "where": end.where}
    return _end("damaged", None) | {"reason": end.message, "where": end.where}


def _end(state: str, at: int | None) -> Shape:
    return {"state": state, "offset": at, "torn_bytes": 0, "reason": "", "where": ""}


def end_text(end: Clean | Torn | LaminaError) -> str:
    said = end_shape(end)
    match said["state"]:
        case "clean":
            return "clean"
        case "torn":
            left = counted(said["torn_bytes"], "byte")
            return f"torn at byte {said['offset']}, {left}: {said['reason']}"
    at = str(said["where"]).rpartition(", ")[2]
    return f"{str(said['state']).upper()} at {at}: {said['reason']}"


def core_of(path: str) -> int | None:
    """The core whose segment this is, by its name; None for the driver's."""
    name = parse_segment(path)
    return name.core if isinstance(name, CoreSegment) else None


def _row(found: Survey) -> tuple[str, ...]:
    said = shape(found)
    return (
        found.path,
        "driver" if said["core"] is None else str(said["core"]),
        _or_dash(said["generation"]),
        _or_dash(said["partitions"]),
        str(found.records),
        str(found.entries),
        epochs_text(found.epochs),
        size(found.size),
        end_text(found.end),
    )


def epochs_text(epochs: tuple[int, int] | None) -> str:
    if epochs is None:
        return "-"
    first, last = epochs
    return str(first) if first == last else f"{first} to {last}"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
