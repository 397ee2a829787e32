"""Epoch after epoch until there is a reason to stop; then sinks get the rest, and a checkpoint.

Between epochs it looks for requests and says how it is going. It decides nothing: what an epoch is
and when it counts is the engine's.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from lamina.clock import Clock
from lamina.engine.plans import EpochReport
from lamina.engine.ports import Listing
from lamina.errors import SparkLost, StoreError
from lamina.ids import CheckpointId
from lamina.recovery.state import RecoveryReport
from lamina.running.control import Ask, Status
from lamina.running.presence import Presence

if TYPE_CHECKING:
    from lamina.format.commit import StagedFile

Rows: TypeAlias = Any  # a pyarrow.Table, which has no types
POLL_S = 0.5
SAY_AGAIN_S = 5.0
ROWS_SEEN = 8


class Publishing(Protocol):
    """What the loop asks of the engine's publisher."""

    @property
    def behind(self) -> int: ...

    def epochs(self) -> dict[str, int]: ...

    def sample(self, sink: str, files: Iterable[StagedFile], rows_max: int) -> Rows | None: ...


class Running(Protocol):
    """What the loop asks of an engine."""

    @property
    def epoch(self) -> int: ...

    @property
    def saved_epoch(self) -> int: ...

    @property
    def held(self) -> str: ...

    @property
    def trouble(self) -> str: ...

    @property
    def sources(self) -> Mapping[str, object]: ...

    @property
    def publisher(self) -> Publishing: ...

    @property
    def report(self) -> RecoveryReport: ...

    @property
    def notes(self) -> Sequence[str]: ...

    def step(self) -> EpochReport | None: ...

    def checkpoint(self) -> CheckpointId | None: ...

    def drain(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Until:
    """When a run ends without being stopped."""

    once: bool = False  # after one epoch, or when there is nothing for one
    available_now: bool = False  # when everything there is has been read
    epoch: int | None = None  # when this one is committed

    def is_reached(self, epoch: int) -> bool:
        return self.epoch is not None and epoch >= self.epoch

    @property
    def ends_without_input(self) -> bool:
        return self.once or self.available_now


@dataclass(slots=True)
class Watcher:
    """Functions that are called as a run progresses."""

    recovered: Callable[[RecoveryReport], None] = lambda _: None
    note: Callable[[str], None] = lambda _: None
    epoch: Callable[[EpochReport], None] = lambda _: None
    status: Callable[[Status], None] = lambda _: None
    rows: Callable[[str, Rows], None] | None = None  # some rows of the sink that is peeked at


class Loop:
    """One run of an engine that is open."""

    def __init__(
        self,
        engine: Running,
        *,
        here: Presence,
        clock: Clock,
        stop: threading.Event,
        watcher: Watcher | None = None,
        until: Until | None = None,
        interval_s: float = 0.0,
        peek: str = "",
        checkpoint_epochs: int | None = None,
    ) -> None:
        """*peek* is the sink of which the watcher sees some rows of each epoch."""
        self._engine = engine
        self._here = here
        self._clock = clock
        self._stop = stop
        self._watcher = watcher or Watcher()
        self._until = until or Until()
        self._interval_s = interval_s
        self._peek = peek
        self._checkpoint_epochs = checkpoint_epochs
        self._said_at = clock.monotonic()

    def run(self) -> Status:
        """Run to the end and say so; an end by an error is said by who made the presence."""
        saved = self._engine.report.checkpoint_epoch
        pace = {
            "interval_ms": round(self._interval_s * 1000),
            "checkpoint_epochs": self._checkpoint_epochs,
        }
        self._say("running", saved_epoch=saved, **pace)
        self._watcher.recovered(self._engine.report)
        for note in self._engine.notes:
            self._watcher.note(note)
        self._epochs()
        self._engine.drain()
        made = self._engine.checkpoint()
        self._say("ended", saved_epoch=self._engine.epoch if made is not None else 0, why="")
        return self._here.status

    def _epochs(self) -> None:
        while not self._is_over():
            started = self._clock.monotonic()
            try:
                report = self._engine.step()
            except SparkLost:
                if self._stop.is_set():  # whoever stops this run has ended its JVM first
                    return
                raise
            if report is not None:
                self._note(report)
                if self._until.once:
                    return
            elif self._until.ends_without_input and self._has_all():
                return
            else:
                self._idle()
            spent = self._clock.monotonic() - started
            self._rest(max(self._interval_s - spent, 0.0 if report is not None else POLL_S))

    def _is_over(self) -> bool:
        if self._here.is_asked(Ask.STOP):
            self._stop.set()
        if self._here.is_asked(Ask.CHECKPOINT):
            self._save_now()
        return self._stop.is_set() or self._until.is_reached(self._engine.epoch)

    def _has_all(self) -> bool:
        """Nothing was read because there is nothing, not because a sink or the store is slow."""
        return not self._engine.held and not self._engine.publisher.behind

    def _rest(self, seconds: float) -> None:
        """In small pieces: a request is not kept waiting by a long interval."""
        while seconds > 0 and not self._stop.is_set():
            piece = min(seconds, POLL_S)
            self._clock.wait(piece, self._stop)
            seconds -= piece
            if seconds > 0 and self._is_over():
                return

    def _save_now(self) -> None:
        """A checkpoint that a person asked for; if the store fails now, the pipeline continues."""
        try:
            self._engine.drain()
            made = self._engine.checkpoint()
        except StoreError as error:
            self._say("running", refused=str(error))
        else:
            saved = self._engine.epoch if made is not None else 0
            self._say("running", saved_epoch=saved, refused="")
        self._here.answer(Ask.CHECKPOINT)

    # what it says

    def _note(self, report: EpochReport) -> None:
        status = self._here.status
        read = sum(report.rows.values())
        self._say(
            "running",
            saved_epoch=max(self._engine.saved_epoch, status.saved_epoch),
            rows=status.rows + read,
            rows_per_s=round(read / report.seconds) if report.seconds > 0 else 0,
            late=status.late + report.late,
            late_sides={
                name: _added(status.late_sides.get(name, {}), sides)
                for name, sides in sorted(report.late_sides.items())
            },
            without_time=status.without_time + report.without_time,
            ahead=status.ahead + report.ahead,
            watermark=report.watermark,
            keys=report.keys,
            rows_out=_added(status.rows_out, report.rows_out),
            why=self._engine.trouble,
            first_epoch_ms=status.first_epoch_ms or self._here.age_ms(),
        )
        self._watcher.epoch(report)
        for note in report.notes:
            self._watcher.note(note)
        if self._watcher.rows is not None and self._peek:
            rows = self._engine.publisher.sample(self._peek, report.staged, ROWS_SEEN)
            if rows is not None:
                self._watcher.rows(self._peek, rows)

    def _idle(self) -> None:
        held = self._engine.held
        phase, why = "held" if held else "waiting", held or self._engine.trouble
        late = self._clock.monotonic() - self._said_at >= SAY_AGAIN_S
        if late or (phase, why) != (self._here.status.phase, self._here.status.why):
            self._say(phase, why=why)

    def _say(self, phase: str, **changes: object) -> None:
        self._said_at = self._clock.monotonic()
        sinks = self._engine.publisher.epochs()
        listings = _listings(self._engine.sources)
        epoch = self._engine.epoch
        self._here.say(phase, epoch=epoch, sinks=sinks, listings=listings, **changes)


def _added(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {name: before.get(name, 0) + rows for name, rows in sorted(now.items())}


def _listings(sources: Mapping[str, object]) -> dict[str, dict[str, int]]:
    listing = ((name, each) for name, each in sorted(sources.items()) if isinstance(each, Listing))
    return {name: asdict(source.listings) for name, source in listing}


@contextmanager
def stopping(stop: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set *stop*, if this is the main thread; a second SIGINT interrupts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
