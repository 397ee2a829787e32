"""How far a pipeline has come, from its files alone: the same whether it runs or not.

Epoch, offsets, watermark and checkpoint are read from the logs, as a start would read them. What
the process says of itself (status.json) only adds what no log has: rows a second, and how it ended.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.disk.base import Disk
from lamina.errors import NotFound
from lamina.format.holder import Holder
from lamina.front.costs import EVERY, pace_of
from lamina.front.places import PipelinePlace
from lamina.recovery import Proof, Rehearsal, rehearse
from lamina.running.control import Process, Status, read_status
from lamina.running.holder import find_holder
from lamina.running.request_costs import shape
from lamina.wal.home import Home
from lamina.wal.scan import all_segments
from lamina.workspace.base import Notes


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """All that the files say."""

    home: str
    store: str
    rehearsal: Rehearsal | None  # None: it starts for the first time, there is no log yet
    holder: Process | None  # the process that runs it now
    said: Status | None
    segments: int
    wal_bytes: int
    sinks: Mapping[str, int]  # the last epoch that each has
    folder: str = ""  # of this machine: where the process would be seen
    remote: str = ""  # the address of a home in an object store
    had_by: Holder | None = None  # of a home in an object store: who has claimed it last

    @property
    def epoch(self) -> int:
        """The last committed one; 0 if there is none."""
        head = self.rehearsal.state.head if self.rehearsal else None
        return head.epoch if head else 0

    @property
    def is_had_elsewhere(self) -> bool:
        """By another machine, or from another folder of this one."""
        here = (platform.node(), self.folder)
        return self.had_by is not None and (self.had_by.host, self.had_by.scratch) != here

    @property
    def saved_epoch(self) -> int:
        """That of the newest checkpoint; 0 if there is none."""
        newest = self.rehearsal.history.newest if self.rehearsal else None
        return newest.epoch if newest else 0

    def requests(self) -> dict[str, Any] | None:
        """What its home in an object store asks of it in a month; None of a folder.

        How often is what the last process on this machine said, or else the default; an interval
        of 0 is as fast as epochs come, which nobody can price.
        """
        interval_s = self.said.interval_ms / 1000 if self.said else None
        if not self.remote or interval_s == 0:
            return None
        manifest = self.rehearsal.state.manifest if self.rehearsal else None
        states = manifest.operators.values() if manifest else ()
        files = sum(len(state.partitions) for state in states)
        every = self.said.checkpoint_epochs if self.said else None
        every = EVERY if every is None else every
        return shape(self.remote, pace_of(interval_s, every=every, files=files))


def look_up(
    home: Path,
    store: str,
    opened: Callable[[], tuple[Home, Checkpointer]],
    sinks: Mapping[str, int] | None = None,
    *,
    remote: str = "",
    had_by: Holder | None = None,
) -> PipelineStatus:
    """Read the logs as a start would, and see who is there now; nothing is claimed or changed.

    *opened* opens home and store to read. If it raises NotFound while a process holds the home,
    that process is just starting. Without *sinks* they are those that the last process named.
    """
    said, folder = read_status(home), str(home.absolute())
    holder = find_holder(home, said)
    known = sinks if sinks is not None else dict(said.sinks) if said else {}
    try:
        found, checkpointer = opened()
    except NotFound:
        if holder is None:
            raise
        return PipelineStatus(
            folder, store, None, holder, said, 0, 0, known, folder, remote, had_by
        )
    rehearsal = rehearse(found, checkpointer, proof=Proof(verify=False))
    sizes = list(_sizes(found.disk))
    return PipelineStatus(
        home=found.disk.root,
        store=checkpointer.store.url,
        rehearsal=rehearsal,
        holder=holder,
        said=said,
        segments=len(sizes),
        wal_bytes=sum(sizes),
        sinks=known,
        folder=folder,
        remote=remote,
        had_by=had_by,
    )


def sink_epochs(place: PipelinePlace, notes: Notes) -> dict[str, int]:
    """The last epoch of each sink of a pipeline file, as the sink itself says."""
    from lamina.connectors.opening import close_sinks, open_sinks  # noqa: PLC0415  slow to import

    pipeline = place.read()
    file = str(place.file)
    opened = open_sinks(pipeline, place.folder, notes=notes, file=file)
    try:
        positions = {name: sink.position() for name, sink in opened.items()}
    finally:
        close_sinks(opened)
    return {name: at.point.epoch if at.point else 0 for name, at in positions.items()}


def _sizes(disk: Disk) -> Iterator[int]:
    for path in all_segments(disk):
        try:
            yield disk.size(path)
        except NotFound:
            continue  # a running pipeline has dropped it meanwhile
