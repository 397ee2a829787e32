"""One look at a pipeline: what all its files say now. What is damaged is told beside what is not.

What its process says of itself costs nothing and is read each time. What a start would do is
planned anew only if the logs have changed; of a running pipeline not more often than its logs are
worth: an open page must not cost the pipeline its processor.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.clock import Clock
from lamina.console.kept import Kept
from lamina.console.reading.definition import Definition, DefinitionReader
from lamina.console.subjects import Subject
from lamina.disk.base import Disk
from lamina.errors import LaminaError, NotFound
from lamina.format.holder import Holder
from lamina.front.homes import seen
from lamina.protocol.history import EMPTY, History
from lamina.recovery import Proof, Rehearsal, rehearse
from lamina.running.control import Process, Status, read_status
from lamina.running.holder import find_holder, is_own_status
from lamina.wal.home import is_home, read_home
from lamina.wal.scan import all_segments

FRESH_S, FRESH_REMOTE_S = 1.0, 15.0
PLAN_AGAIN_S, PLAN_COSTS_FACTOR = 10.0, 30.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that could not be read, and what to do about it."""

    part: str  # home, store, plan or file
    code: str
    message: str
    where: str = ""
    advice: str = ""

    @classmethod
    def of(cls, part: str, error: LaminaError) -> Trouble:
        return cls(part, error.code, error.message, error.where, error.advice)


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment; parts that could not be read are None or empty."""

    subject: Subject
    at_ms: int
    said: Status | None = None
    holder: Process | None = None
    had_by: Holder | None = None  # of a home in an object store
    history: History | None = None
    rehearsal: Rehearsal | None = None
    segments: tuple[tuple[str, int], ...] = ()  # with their sizes
    definition: Definition = field(default_factory=Definition)
    troubles: tuple[Trouble, ...] = ()

    @property
    def is_running(self) -> bool:
        return self.holder is not None

    @property
    def own_status(self) -> Status | None:
        """What the process that runs now says of itself."""
        if self.holder is None or not is_own_status(self.said, self.holder):
            return None
        return self.said

    @property
    def logs_seen(self) -> Hashable:
        """Changes with what the logs say, in the store and in the home."""
        return self.history.digest if self.history else None, self.segments

    @property
    def version(self) -> str:
        """Changes with everything that a page shows."""
        said = (self.said.updated_ms, self.said.epoch, self.said.phase) if self.said else ()
        history = (self.history.digest,) if self.history else ()
        codes = tuple((each.part, each.code, each.where) for each in self.troubles)
        parts = (said, self.holder, history, self.segments, self.definition.stamp, codes)
        return f"{hash(parts) & (2**64 - 1):016x}"


@dataclass(slots=True)
class _Plan:
    """A rehearsal and what it was made of."""

    made_of: object
    at_s: float
    cost_s: float
    rehearsal: Rehearsal | None
    trouble: Trouble | None


class PipelineReader:
    """Looks at one pipeline, for everybody who asks. Safe to use from many threads."""

    def __init__(self, subject: Subject, clock: Clock) -> None:
        self.subject = subject
        self._clock = clock
        self._checkpointer: Checkpointer | None = None
        self._lock = threading.Lock()
        self._plan: _Plan | None = None
        self._definition = DefinitionReader(subject)
        remote = bool(subject.remote) or "://" in subject.store
        fresh_s = FRESH_REMOTE_S if remote else FRESH_S
        self._kept: Kept[Look] = Kept(lambda _: self._read(), clock, fresh_s=fresh_s)

    def look(self) -> Look:
        return self._kept.get()

    def glimpse(self) -> Look | None:
        """What was seen last, at once; if that is old, somebody looks again meanwhile."""
        self._kept.renew_if_stale()
        return self._kept.last

    def expire(self) -> None:
        self._kept.expire()

    @contextmanager
    def checkpointer(self) -> Iterator[Checkpointer]:
        """To read with, for one thread at a time; opened again after a failure."""
        with self._lock:
            if self._checkpointer is None:
                store = self.subject.open_store()
                self._checkpointer = Checkpointer(store, self.subject.paths, vnode_count=None)
            try:
                yield self._checkpointer
            except LaminaError:
                self._checkpointer = None
                raise

    @contextmanager
    def disk(self) -> Iterator[tuple[Disk, Holder | None]]:
        """The home, or a copy of what is in the store; NotFound if there is none."""
        if not self.subject.home:
            raise NotFound("no home is known of this store", advice="Start the page with --home")
        with seen(self.subject.place) as found:
            if not is_home(found.disk):
                raise NotFound("this folder is not a home", where=found.disk.root)
            yield found.disk, found.had_by

    # steps

    def _read(self) -> Look:
        troubles: list[Trouble] = []
        said, holder = self._process()
        history = self._history(troubles)
        segments: tuple[tuple[str, int], ...] = ()
        rehearsal, had_by = None, None
        if self.subject.home:
            try:
                with self.disk() as (disk, had_by):
                    segments = tuple(_sizes(disk))
                    if history is not None:
                        made_of = (segments, history.digest)
                        rehearsal = self._planned(disk, made_of, holder is not None, troubles)
            except LaminaError as error:
                if holder is None or not isinstance(error, NotFound):
                    troubles.append(Trouble.of("home", error))
        definition = self._definition.read()
        if definition.error is not None:
            troubles.append(Trouble.of("file", definition.error))
        return Look(
            subject=self.subject,
            at_ms=self._clock.now_ms(),
            said=said,
            holder=holder,
            had_by=had_by,
            history=history,
            rehearsal=rehearsal,
            segments=segments,
            definition=definition,
            troubles=tuple(troubles),
        )

    def _process(self) -> tuple[Status | None, Process | None]:
        folder = self.subject.folder
        if folder is None:
            return None, None
        try:
            said = read_status(folder)
        except LaminaError:  # no right to read it: what is said of the home says so, too
            return None, None
        return said, find_holder(folder, said)

    def _history(self, troubles: list[Trouble]) -> History | None:
        if not self.subject.store:
            return EMPTY
        try:
            with self.checkpointer() as checkpointer:
                history = checkpointer.history()
        except LaminaError as error:
            troubles.append(Trouble.of("store", error))
            return None
        if not history.seq and not self.subject.home:
            missing = NotFound("there is no commit log here", where=self.subject.store)
            troubles.append(Trouble.of("store", missing))
        return history

    def _planned(
        self, disk: Disk, made_of: object, is_running: bool, troubles: list[Trouble]
    ) -> Rehearsal | None:
        """What a start would do, as it was planned last if that is still worth something."""
        now, plan = self._clock.monotonic(), self._plan
        if plan is None or (plan.made_of != made_of and not (is_running and _is_young(plan, now))):
            plan = self._plan = self._make_plan(disk, made_of, now)
        if plan.trouble is not None:
            troubles.append(plan.trouble)
        return plan.rehearsal

    def _make_plan(self, disk: Disk, made_of: object, now: float) -> _Plan:
        rehearsal, trouble = None, None
        try:
            with self.checkpointer() as checkpointer:
                home = read_home(disk)
                rehearsal = rehearse(home, checkpointer, proof=Proof(verify=False))
        except LaminaError as error:
            trouble = Trouble.of("plan", error)
        return _Plan(made_of, now, self._clock.monotonic() - now, rehearsal, trouble)


def _is_young(plan: _Plan, now: float) -> bool:
    return now - plan.at_s < max(PLAN_AGAIN_S, plan.cost_s * PLAN_COSTS_FACTOR)


def _sizes(disk: Disk) -> Iterator[tuple[str, int]]:
    for path in all_segments(disk):
        try:
            yield path, disk.size(path)
        except NotFound:
            continue  # a running pipeline has dropped it meanwhile
