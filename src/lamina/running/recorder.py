"""Tells of each epoch of a run: its report becomes a row, for the history and for other keepers.

All of that is for people. If a row cannot be kept the pipeline goes on, and says so, once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Protocol

from lamina.clock import Clock
from lamina.engine.plans import EpochReport
from lamina.errors import LaminaError
from lamina.format.epoch_row import EpochRow
from lamina.logs import about
from lamina.running.control import Status
from lamina.running.history import HistoryWriter
from lamina.running.loop import Watcher
from lamina.running.presence import Presence
from lamina.workspace.base import Notes

HELD = "held"
_LOG = logging.getLogger("lamina.epochs")


class RowKeeper(Protocol):
    """Somebody who wants to know of each epoch. Errors are notes for a person."""

    @property
    def what(self) -> str:
        """What it keeps, for people."""
        ...

    def add(self, row: EpochRow) -> None:
        """An epoch that is committed."""
        ...

    def finish(self) -> None:
        """The run ends in order."""
        ...

    def close(self) -> None:
        """Let go of everything; once is enough, twice is not an error."""
        ...


class Recorder:
    """Listens to one run."""

    def __init__(
        self,
        keepers: Sequence[RowKeeper],
        clock: Clock,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._keepers, self._clock, self._note = keepers, clock, note
        self._over_at: float | None = None  # the last epoch
        self._held = self._why = ""
        self._said: dict[str, str] = {}

    def status(self, status: Status) -> None:
        """What the run says of itself, between epochs too."""
        self._why = status.why
        if status.phase == HELD:
            self._held = status.why

    def epoch(self, report: EpochReport) -> None:
        """An epoch is committed."""
        now = self._clock.monotonic()
        since, self._over_at = self._over_at, now
        waited = max(now - since - report.seconds, 0.0) if since is not None else 0.0
        row = row_of(report, self._clock.now_ms(), waited_s=waited, held=self._held, why=self._why)
        self._held = ""
        with about(epoch=row.epoch):
            _LOG.info(
                "%d rows read, %d written, in %.3f s",
                sum(row.rows.values()),
                sum(row.rows_out.values()),
                report.seconds,
            )
        for keeper in self._keepers:
            self._try(keeper.what, partial(keeper.add, row))

    def finish(self) -> None:
        """The run ends in order."""
        for keeper in self._keepers:
            self._try(keeper.what, keeper.finish)

    def close(self) -> None:
        """Once is enough, twice is not an error."""
        for keeper in self._keepers:
            keeper.close()

    def _try(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except LaminaError as error:
            said = f"{what} is not complete: {error}"
            if said != self._said.get(what):
                self._note(said)
            self._said[what] = said
        else:
            self._said.pop(what, None)


@contextmanager
def recorded(
    watcher: Watcher,
    here: Presence,
    shared: Notes | None,
    clock: Clock,
    keepers: Sequence[RowKeeper] = (),
) -> Iterator[Watcher]:
    """A watcher whose epochs are also written down; *shared* is where others look for them."""
    history = HistoryWriter(here.home, clock, shared=shared)
    recorder = Recorder([history, *keepers], clock, watcher.note)
    here.listen(recorder.status)

    def epoch(report: EpochReport) -> None:
        recorder.epoch(report)
        watcher.epoch(report)

    try:
        yield replace(watcher, epoch=epoch)
        recorder.finish()
    finally:
        recorder.close()


def row_of(
    report: EpochReport, time_ms: int, *, waited_s: float = 0.0, held: str = "", why: str = ""
) -> EpochRow:
    """A report as the history has it."""
    return EpochRow(
        epoch=report.epoch,
        generation=report.generation,
        time_ms=time_ms,
        took_us=_us(report.seconds),
        waited_us=_us(waited_s),
        phases_us=_all_us(report.phases),
        streams_us=_all_us(report.streams),
        rows=dict(report.rows),
        rows_out=dict(report.rows_out),
        late=report.late,
        bad=report.bad,
        without_time=report.without_time,
        ahead=report.ahead,
        watermark=report.watermark,
        watermarks=dict(report.watermarks),
        keys=report.keys,
        state_runs=report.state_runs,
        state_bytes=report.state_bytes,
        wal_bytes=report.wal_bytes,
        saved_epoch=report.saved_epoch,
        saved_id=report.saved_id,
        sinks=dict(report.sinks),
        sink_errors=dict(report.sink_errors),
        held=held,
        why=why,
    )


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _all_us(seconds: Mapping[str, float]) -> dict[str, int]:
    return {name: _us(each) for name, each in seconds.items()}
