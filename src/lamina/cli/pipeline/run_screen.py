"""How a run shows itself: a live table on a terminal, a line per epoch elsewhere, or JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lamina.cli.pipeline.run_words import (
    duration,
    epoch_shape,
    lag,
    live_facts,
    recovery_lines,
    recovery_shape,
    watermark,
)
from lamina.cli.support.words import counted, printable
from lamina.clock import Clock
from lamina.connectors.console_rows import text_rows
from lamina.engine.plans import EpochReport
from lamina.recovery import RecoveryReport
from lamina.running.control import Status
from lamina.running.loop import Rows


class RunScreen(Protocol):
    """What is shown of one run."""

    def __enter__(self) -> RunScreen: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def recovered(self, report: RecoveryReport) -> None: ...

    def note(self, text: str) -> None: ...

    def epoch(self, report: EpochReport) -> None: ...

    def status(self, status: Status) -> None: ...

    @property
    def rows(self) -> Callable[[str, Rows], None] | None:
        """Who shows some rows of each epoch; None where nobody does."""
        ...

    def ended(self, status: Status) -> None: ...


def open_screen(clock: Clock, *, as_json: bool) -> RunScreen:
    if as_json:
        return JsonLines(clock)
    return LiveTable(clock) if sys.stderr.isatty() else Lines(clock)


class Lines:
    """One line per epoch on stderr."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._status: Status | None = None
        self._ready_at = clock.monotonic()

    def __enter__(self) -> RunScreen:
        return self

    def __exit__(self, *_: object) -> None: ...

    def recovered(self, report: RecoveryReport) -> None:
        self._ready_at = self._clock.monotonic()
        for line in recovery_lines(report):
            self._line(line)
        self._line("Spark is warming up: the first epochs are slower")

    @property
    def rows(self) -> Callable[[str, Rows], None] | None:
        return None

    def note(self, text: str) -> None:
        self._line(f"note: {text}")

    def epoch(self, report: EpochReport) -> None:
        self._gaps(report)
        self._line(epoch_line(report, self._status, self._clock.now_ms()))

    def _gaps(self, report: EpochReport) -> None:
        for source, micros in report.gaps_us.items():
            self.note(
                f"every row of {source} was further ahead than --max-ahead, twice in a row: a gap "
                f"in its data. Its watermark has jumped by {duration(micros / 1_000_000)}"
            )

    def status(self, status: Status) -> None:
        before, self._status = self._status, status
        if status.phase == "starting":
            self._line(f"starting Spark for {status.pipeline}")
        if status.first_epoch_ms and not (before and before.first_epoch_ms):
            self._line(f"first new epoch {status.first_epoch_ms / 1000:.1f} s after the start")
        if status.why and not status.is_over and status.why != (before.why if before else ""):
            self._line(f"{'held' if status.phase == 'held' else 'trouble'}: {status.why}")
        if status.refused and status.refused != (before.refused if before else ""):
            self._line(f"no checkpoint was made: {status.refused}")

    def ended(self, status: Status) -> None:
        click.echo(summary(status, self._seconds()))

    def _seconds(self) -> float:
        return self._clock.monotonic() - self._ready_at

    def _line(self, text: str) -> None:
        click.echo(printable(text), err=True)


class LiveTable(Lines):
    """The same lines for what happens once; the epochs are one table that changes."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        console = Console(file=sys.stderr, force_terminal=True, highlight=False, emoji=False)
        self._live = Live(console=console, transient=True, refresh_per_second=4)
        self._report: EpochReport | None = None
        self._rows: list[str] = []

    def __enter__(self) -> RunScreen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def epoch(self, report: EpochReport) -> None:
        self._gaps(report)
        self._report = report
        self._draw()

    def status(self, status: Status) -> None:
        super().status(status)
        self._draw()

    @property
    def rows(self) -> Callable[[str, Rows], None] | None:
        return self._show_rows

    def _show_rows(self, sink: str, rows: Rows) -> None:
        epoch = self._report.epoch if self._report else 0
        self._rows = [f"rows of {sink}, epoch {epoch}:", *text_rows(rows)]
        self._draw()

    def ended(self, status: Status) -> None:
        self._live.stop()  # before the summary: it erases the lines where the table was
        super().ended(status)

    def _draw(self) -> None:
        if self._status is not None:
            now_ms = self._clock.now_ms()
            table = live_table(self._status, self._report, now_ms)
            self._live.update(Group(table, *(Text(printable(line)) for line in self._rows)))

    def _line(self, text: str) -> None:
        self._live.console.print(Text(printable(text)), soft_wrap=True)


class JsonLines:
    """stdout is one JSON object per line, each with its `event`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready_at = clock.monotonic()
        self._status: Status | None = None

    def __enter__(self) -> RunScreen:
        return self

    def __exit__(self, *_: object) -> None: ...

    def recovered(self, report: RecoveryReport) -> None:
        self._ready_at = self._clock.monotonic()
        json_line({"event": "recovered"} | recovery_shape(report))

    def note(self, text: str) -> None:
        json_line({"event": "note", "text": text})

    def epoch(self, report: EpochReport) -> None:
        json_line({"event": "epoch"} | epoch_shape(report, self._status))

    def status(self, status: Status) -> None:
        self._status = status

    @property
    def rows(self) -> Callable[[str, Rows], None] | None:
        return None

    def ended(self, status: Status) -> None:
        seconds = self._clock.monotonic() - self._ready_at
        json_line({"event": "ended"} | status.shape() | {"seconds": round(seconds, 3)})


def json_line(value: Mapping[str, Any]) -> None:
    click.echo(json.dumps(value))
    sys.stdout.flush()


def epoch_line(report: EpochReport, status: Status | None, now_ms: int) -> str:
    """epoch 12  4000 rows  1250 rows/s  out 60  watermark 2023-...  lag 5 s  late 0  ..."""
    read = sum(report.rows.values())
    parts = [
        f"epoch {report.epoch}",
        counted(read, "row"),
        f"{round(read / report.seconds) if report.seconds > 0 else 0} rows/s",
        f"out {sum(report.rows_out.values())}",
        f"watermark {watermark(report.watermark)}",
        f"lag {lag(report.watermark, now_ms)}",
        f"late {report.late}",
    ]
    if report.without_time:
        parts.append(f"without time {report.without_time}")
    if report.ahead:
        parts.append(f"ahead {report.ahead}")
    if report.keys:
        parts.append(f"keys {report.keys}")
    if status is not None:
        parts.append(f"checkpoint {status.saved_epoch or '-'}")
        if status.listings:
            full = sum(asked.get("full", 0) for asked in status.listings.values())
            parts.append(f"full listings {full}")
    parts.append(f"sinks behind {report.sinks_behind}" if report.sinks_behind else "sinks ok")
    return "  ".join(parts)


def live_table(status: Status, report: EpochReport | None, now_ms: int) -> Table:
    """A fact per line: it fits the smallest terminal."""
    table = Table.grid(padding=(0, 2))
    for name, text in live_facts(status, report, now_ms).items():
        table.add_row(Text(name, style="bold"), Text(printable(text)))
    return table


def summary(status: Status, seconds: float) -> str:
    saved = f"checkpoint of epoch {status.saved_epoch}" if status.saved_epoch else "no checkpoint"
    late = f", {counted(status.late, 'row')} late" if status.late else ""
    aside = f", {counted(status.without_time, 'row')} without time" if status.without_time else ""
    if status.why:
        return f"{status.phase}: {status.why}"
    out = "".join(f"{counted(n, 'row')} to {name}; " for name, n in status.rows_out.items())
    return (
        f"{status.phase} at epoch {status.epoch}: {counted(status.rows, 'row')} read in "
        f"{seconds:.1f} s{late}{aside}; {out}{saved}"
    )
