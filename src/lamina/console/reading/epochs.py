"""The history of a pipeline's epochs: the newest for plots, older ones page by page.

The newest are kept, and only what came since is read again. The whole history, which may have
100,000 epochs, is read once, by a job, and kept as a few hundred points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lamina.checkpoint.progress import Progress, Report
from lamina.clock import Clock
from lamina.console.kept import Kept
from lamina.console.subjects import Subject
from lamina.errors import LaminaError, NotFound
from lamina.format.epoch_row import EpochRow
from lamina.front.history import HistoryPage, history_at, history_places

NEWEST = 600
NEW_AT_ONCE = 60
PER_PAGE = 50
CHUNK = 1000
POINTS_PER_CHUNK = 4
FRESH_S, FRESH_REMOTE_S = 1.0, 15.0


@dataclass(frozen=True, slots=True)
class Recent:
    """The newest epochs, oldest first."""

    rows: tuple[EpochRow, ...] = ()
    skipped: tuple[str, ...] = ()
    error: LaminaError | None = None

    @property
    def last(self) -> EpochRow | None:
        return self.rows[-1] if self.rows else None


@dataclass(frozen=True, slots=True)
class Whole:
    """One row of every so many, oldest first: what a long plot needs."""

    rows: tuple[EpochRow, ...]
    epochs: int


class Epochs:
    """Of one home. Safe to use from many threads."""

    def __init__(self, subject: Subject, clock: Clock) -> None:
        self._subject = subject
        fresh_s = FRESH_REMOTE_S if subject.remote else FRESH_S
        self._kept: Kept[Recent] = Kept(self._renewed, clock, fresh_s=fresh_s)

    def recent(self) -> Recent:
        return self._kept.get()

    def page(self, before: int | None) -> HistoryPage:
        """NotFound if there is no home."""
        return self._read(before, PER_PAGE)

    def whole(self, report: Report) -> Whole:
        """From the newest back to the oldest that is kept."""
        found: list[EpochRow] = []
        before, epochs = None, 0
        while True:
            page = self._read(before, CHUNK)
            epochs += len(page.rows)
            step = max(1, len(page.rows) // POINTS_PER_CHUNK)
            found += [_middle(page.rows[at : at + step]) for at in range(0, len(page.rows), step)]
            first = page.rows[0].epoch if page.rows else 0
            report(Progress(epochs, max(epochs + first - CHUNK, epochs), "epochs", "history"))
            if page.older is None:
                return Whole(tuple(reversed(found)), epochs)
            before = page.older

    def _renewed(self, known: Recent | None) -> Recent:
        try:
            if known is None or not known.rows:
                page = self._read(None, NEWEST)
                return Recent(tuple(reversed(page.rows)), page.skipped)
            page = self._read(None, NEW_AT_ONCE)
            if page.rows and page.rows[-1].epoch > known.rows[-1].epoch + 1:  # much has happened
                page = self._read(None, NEWEST)
        except LaminaError as error:
            return Recent(error=None if isinstance(error, NotFound) else error)
        merged = {row.epoch: row for row in (*known.rows, *page.rows)}
        newest = sorted(merged.values(), key=lambda row: row.epoch)[-NEWEST:]
        return Recent(tuple(newest), page.skipped)

    def _read(self, before: int | None, limit: int) -> HistoryPage:
        if not self._subject.home:
            raise NotFound("no home is known of this store", advice="Start the page with --home")
        return history_at(history_places(self._subject.place), before=before, limit=limit)


def _middle(rows: Sequence[EpochRow]) -> EpochRow:
    return rows[len(rows) // 2]
