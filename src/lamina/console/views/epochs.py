"""What the history of epochs says: rates, plots, the timeline. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lamina.console.drawing.plots import Point, draw_plot
from lamina.console.drawing.timeline import OTHER, Bar, draw_timeline
from lamina.console.views.words import clock, duration, short, whole
from lamina.format.epoch_row import EpochRow
from lamina.front.words import size

PHASES = ("plan", "run", "decide", "commit", "publish")
BARS = 72
RATE_ROWS = 10


@dataclass(frozen=True, slots=True)
class Plot:
    title: str
    now: str  # the last value
    picture: Markup


def rates_of(rows: Sequence[EpochRow]) -> dict[str, float]:
    """Rows a second of each source and sink over the last epochs, by the id of their part."""
    last = rows[-RATE_ROWS:]
    seconds = sum(row.took_us + row.waited_us for row in last) / 1e6
    if seconds <= 0:
        return {}
    found: dict[str, float] = {}
    for row in last:
        for kind, counts in (("source", row.rows), ("sink", row.rows_out)):
            for name, count in counts.items():
                found[f"{kind}:{name}"] = found.get(f"{kind}:{name}", 0.0) + count / seconds
    return found


def plots_of(rows: Sequence[EpochRow]) -> list[Plot]:
    """Throughput, latency, lag and state; those of which nothing is known are left out."""
    made = (
        _plot("Rows a second", rows, _throughput, short, "rows"),
        _plot("Time of an epoch", rows, lambda row: row.took_us / 1e6, duration, "seconds"),
        _plot("Lag of the watermark", rows, _lag, duration, "lag"),
        _plot("State", rows, lambda row: row.state_bytes or None, _bytes, "state"),
    )
    return [plot for plot in made if plot is not None]


def timeline_of(
    rows: Sequence[EpochRow], href: Callable[[EpochRow], str]
) -> tuple[Markup, tuple[str, ...]] | None:
    """The picture, and the phases that are in it."""
    if not rows:
        return None
    bars = [_bar(row, href(row)) for row in rows[-BARS:]]
    used = [name for name in (*PHASES, OTHER) if any(bar.phases.get(name) for bar in bars)]
    took = [bar.total for bar in bars]
    label = (
        f"The last {len(bars)} epochs by phase: {duration(min(took) / 1e6)} to "
        f"{duration(max(took) / 1e6)}"
    )
    return draw_timeline(bars, label, said=duration), tuple(used)


def phases_of(row: EpochRow) -> dict[str, int]:
    """Microseconds by phase, in the order they run; *other* is what no phase has."""
    known = {name: row.phases_us.get(name, 0) for name in PHASES}
    rest = max(row.took_us - sum(known.values()), 0)
    return {**known, OTHER: rest}


def _bar(row: EpochRow, href: str) -> Bar:
    phases = phases_of(row)
    parts = ", ".join(f"{name} {duration(us / 1e6)}" for name, us in phases.items() if us)
    read = sum(row.rows.values())
    said = f"epoch {row.epoch:,}, {clock(row.time_ms)}: {whole(read)} rows; {parts}"
    return Bar(row.epoch, phases, href, said)


def _plot(
    title: str,
    rows: Iterable[EpochRow],
    value: Callable[[EpochRow], float | None],
    said: Callable[[float], str],
    kind: str,
) -> Plot | None:
    known = ((row, value(row)) for row in rows)
    points = [Point(row.time_ms, number) for row, number in known if number is not None]
    if not points:
        return None
    low, high = min(p.value for p in points), max(p.value for p in points)
    now = said(points[-1].value)
    label = f"{title}: {said(low)} to {said(high)}, now {now}"
    drawn = draw_plot(points, label, said=said, when=_when, kind=kind)
    return Plot(title, now, drawn)


def _throughput(row: EpochRow) -> float | None:
    seconds = (row.took_us + row.waited_us) / 1e6
    return sum(row.rows.values()) / seconds if seconds > 0 else None


def _lag(row: EpochRow) -> float | None:
    if row.watermark is None:
        return None
    return max(row.time_ms / 1000 - row.watermark / 1e6, 0.0)


def _bytes(number: float) -> str:
    return size(int(number))


def _when(milliseconds: float) -> str:
    return clock(int(milliseconds))[5:]


def errors_of(rows: Sequence[EpochRow]) -> Mapping[str, str]:
    """Why sinks are behind, as the last epoch says."""
    return rows[-1].sink_errors if rows else {}
