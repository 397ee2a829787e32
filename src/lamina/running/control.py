"""How a running pipeline and the people around it talk: small files in its home.

<home>/status.json           what the process says of itself; for people, the logs are the truth
<home>/requests/stop         a person asks it to end; names the run that is meant
<home>/requests/checkpoint   a person asks it to save now; removed when that is done

A request names one run: what was left for an older one is removed, never obeyed. (A process id and
a host name do not name a run: in a new container both are often those of the one before.)
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path

from lamina.errors import Corrupt
from lamina.format import canonical
from lamina.format.canonical import Json
from lamina.format.home_names import STATUS, request_path
from lamina.workspace.notes import LocalNotes


class Ask(Enum):
    STOP = "stop"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class Process:
    """One process on one computer."""

    pid: int
    host: str

    @property
    def is_here(self) -> bool:
        return self.host == platform.node()


def this_process() -> Process:
    return Process(os.getpid(), platform.node())


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


@dataclass(frozen=True, slots=True)
class Status:
    """What a process says of itself after every epoch; rows are those since it began."""

    pipeline: str
    pid: int
    host: str
    phase: str  # starting, running, waiting, held, ended or failed
    started_ms: int
    updated_ms: int
    epoch: int = 0
    saved_epoch: int = 0
    rows: int = 0
    rows_per_s: int = 0
    rows_out: Mapping[str, int] = field(default_factory=dict)  # by sink
    late: int = 0
    late_sides: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Late rows of joins, by block: `left` and `right`."""
    without_time: int = 0
    ahead: int = 0  # rows too far ahead to move the watermark
    watermark: int | None = None
    keys: int = 0  # rows of the runs of all state: at least its keys
    sinks: Mapping[str, int] = field(default_factory=dict)  # the last epoch of each
    listings: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Of sources that list a server: `full` listings and `requests`, since this run began."""
    why: str = ""  # it is held, has failed, or tries something again
    refused: str = ""  # why the last checkpoint that a person asked for was not made
    interval_ms: int = 0  # minimum time between epoch starts
    checkpoint_epochs: int | None = None  # so many between checkpoints; 0: not by their number
    first_epoch_ms: int = 0  # from the start of the process to its first new epoch; 0: none yet
    run: str = ""  # which run this is; empty: of a release that had no names for runs

    @property
    def process(self) -> Process:
        return Process(self.pid, self.host)

    @property
    def is_over(self) -> bool:
        return self.phase in ("ended", "failed")

    def shape(self) -> dict[str, Json]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


def read_status(home: Path) -> Status | None:
    """What was said last; None if nothing was, or nothing that can be read."""
    notes = LocalNotes(home)
    data = notes.read(STATUS)
    try:
        found = None if data is None else canonical.decode(data, notes.where(STATUS))
        if not isinstance(found, dict):
            return None
        known = {each.name for each in fields(Status)}
        return Status(**{name: value for name, value in found.items() if name in known})
    except (Corrupt, TypeError):  # of another release: the logs say what matters
        return None


def write_status(home: Path, status: Status) -> None:
    """Whole or not at all; not synced: it is of no use after a power cut."""
    LocalNotes(home).write(STATUS, canonical.encode(status.shape()), durable=False)


def ask(home: Path, what: Ask, of: Status) -> None:
    """Leave a request for the run that says *of* itself in *home*."""
    legacy: dict[str, Json] = {"pid": of.pid, "host": of.host}  # all that older releases look at
    data = canonical.encode({"run": of.run} if of.run else legacy)
    LocalNotes(home).write(request_path(what.value), data, durable=False)


def is_asked(home: Path, what: Ask) -> bool:
    """Whether a request is there and not answered, whomever it is for."""
    return LocalNotes(home).read(request_path(what.value)) is not None


def take_request(home: Path, what: Ask, run: str) -> bool:
    """Whether this *run* is asked; a request for another one is from the past and is removed."""
    notes, name = LocalNotes(home), request_path(what.value)
    data = notes.read(name)
    if data is None:
        return False
    try:
        meant = canonical.decode(data, notes.where(name)) == {"run": run}
    except Corrupt:
        meant = False
    if not meant:
        answer(home, what)
    return meant


def answer(home: Path, what: Ask) -> None:
    """Done: the request goes, and whoever waits for that sees it."""
    LocalNotes(home).remove(request_path(what.value))
