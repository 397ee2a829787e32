"""`lamina history`: what each epoch did, from files of the home alone."""

from __future__ import annotations

import click

from lamina.cli.pipeline.run_words import watermark
from lamina.cli.support.places import PipelinePlace, pipeline_argument
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.shapes import Shape
from lamina.cli.support.words import counted, utc
from lamina.format.epoch_row import EpochRow, shape
from lamina.front.history import history_at, history_places
from lamina.workspace.history import LIMIT, HistoryPage

_PHASES = ("plan", "run", "decide", "commit", "publish")
COLUMNS = (
    ">EPOCH",
    "ENDED",
    ">ROWS",
    ">OUT",
    ">LATE",
    ">SECONDS",
    *(f">{name.upper()}" for name in _PHASES),
    "WATERMARK",
    ">CHECKPOINT",
    "SINKS",
)


@click.command("history")
@pipeline_argument
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=LIMIT,
    show_default=True,
    help="How many epochs to show.",
)
@click.option(
    "--before",
    type=click.IntRange(min=0),
    metavar="EPOCH",
    help="Show epochs before this one.  [default: the newest]",
)
@json_option
def history_command(place: PipelinePlace, limit: int, before: int | None, screen: Screen) -> None:
    """Show the epochs of a pipeline, newest first.

    Works whether the pipeline runs or not. The home keeps the last 100,000 epochs; times by phase
    are in milliseconds, CHECKPOINT is the epoch of the last one.
    """
    page = history_at(history_places(place), before=before, limit=limit)
    if screen.as_json:
        screen.json(_shape(page))
        return
    if not page.rows:
        screen.line("no epochs" + ("" if before is None else f" before epoch {before}"))
    else:
        screen.table(COLUMNS, [cells(row) for row in page.rows])
    for each in page.skipped:
        screen.line(f"not read: {each}")
    if page.older is not None:
        screen.note(f"older epochs: --before {page.older}")


def _shape(page: HistoryPage) -> Shape:
    return {
        "epochs": [shape(row) for row in page.rows],
        "older": page.older,
        "skipped": list(page.skipped),
    }


def cells(row: EpochRow) -> tuple[str, ...]:
    return (
        str(row.epoch),
        utc(row.time_ms),
        str(sum(row.rows.values())),
        str(sum(row.rows_out.values())),
        str(row.late),
        f"{row.took_us / 1e6:.3f}",
        *(f"{row.phases_us.get(name, 0) / 1000:.0f}" for name in _PHASES),
        watermark(row.watermark),
        str(row.saved_epoch or "-"),
        _sinks(row),
    )


def _sinks(row: EpochRow) -> str:
    """ok; or who is behind, and why."""
    behind = (
        f"{name} {counted(row.epoch - epoch, 'epoch')} behind"
        + (f" ({row.sink_errors[name]})" if name in row.sink_errors else "")
        for name, epoch in sorted(row.sinks.items())
        if epoch < row.epoch
    )
    return "; ".join(behind) or "ok"
