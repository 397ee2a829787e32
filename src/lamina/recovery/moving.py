"""Moves a home to another place: a folder or an object store, in either direction.

    claim    the old place, in a generation of its own: whoever runs there is fenced
    copy     log, runs and output that COMMITs name, notes; the new place says that it is arriving
    prove    all of it, read back: the log byte by byte, runs and output by their checksums
    decide   a MOVED record in the log of the old place: THE decision
    settle   the new place says that it has arrived; if not, its next start asks the old one

Before the decision the home is at the old place, and after it at the new one. The identity stays,
and so do all names that COMMITs use. Checkpoints stay where they are, or are copied and proven
before the decision, too (moving_stores.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lamina.checkpoint.progress import Progress, Report, silent
from lamina.clock import Clock, new_writer_id
from lamina.errors import AlreadyExists, Corrupt, NotFound, Refused
from lamina.format.canonical import sha256_hex
from lamina.format.commit import CommitRecord, MovedRecord, StagedFile, WalRange
from lamina.format.home_file import HomeFile
from lamina.format.home_names import (
    HISTORY,
    SINKS,
    SOURCES,
    DriverSegment,
    parse_output_path,
    parse_segment,
)
from lamina.format.pipeline_record import Owner
from lamina.format.wal import HEADER_SIZE
from lamina.protocol.driver import accepted_head, next_generation
from lamina.recovery.destinations import Destination
from lamina.recovery.moving_stores import StoreMove
from lamina.wal.driver_log import DriverLog, DriverSegmentContent, read_driver_log
from lamina.wal.home import Home, read_identity
from lamina.workspace.arriving import has_arrived
from lamina.workspace.base import Workspace
from lamina.workspace.model import Staged
from lamina.workspace.ranges import RangeReader

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class MoveReport:
    """What was moved, or would be."""

    home: str
    pipeline: Owner
    source: str
    target: str
    epoch: int  # the last one that was decided
    files: int
    bytes: int
    moved: bool  # False: nothing was changed
    store: str = (
        ""  # where the checkpoints are after it; empty: where they were, which is not known
    )
    objects: int = 0  # of checkpoints, that were copied
    store_bytes: int = 0
    forks: tuple[str, ...] = ()  # savepoints at the old place whose files forks read there


@dataclass(frozen=True, slots=True)
class Belongings:
    """What a home has that a start needs."""

    driver: tuple[DriverSegmentContent, ...]
    ranges: tuple[WalRange, ...]
    staged: tuple[StagedFile, ...]
    notes: tuple[str, ...]

    @property
    def segments(self) -> tuple[str, ...]:
        """Of the cores."""
        names = {place.segment for place in self.ranges}
        return tuple(sorted(n for n in names if not isinstance(parse_segment(n), DriverSegment)))

    @property
    def epoch(self) -> int:
        head = accepted_head(part.rules() for part in self.driver)
        return head.epoch if head else 0


def move_home(
    source: Workspace,
    target: Destination,
    *,
    clock: Clock,
    report: Report = silent,
    dry_run: bool = False,
    stores: StoreMove | None = None,
) -> MoveReport:
    """Move; killed anywhere, the same call goes on. With *dry_run* nothing is changed.

    *stores*: its checkpoints go along.
    """
    arriving = target.identity()
    if arriving is not None and _is_from(arriving, source) and has_arrived(arriving):
        if not dry_run:
            target.settle(arriving)
        return _finished(arriving, source, target, stores)
    if not source.exists():
        raise NotFound("there is no home here to move", where=source.where)
    with ExitStack() as stack:
        home = source.claim(clock)
        stack.callback(home.release)
        _check_target(home, source, target, arriving)
        if stores is not None:
            stores.check(home.name)
        move = _Move(source, target, home, clock=clock, report=report, stores=stores)
        if dry_run:
            return move.look()
        return move.run(stack)


class _Move:
    """One move of a home that is locked."""

    def __init__(
        self,
        source: Workspace,
        target: Destination,
        home: Home,
        *,
        clock: Clock,
        report: Report,
        stores: StoreMove | None,
    ) -> None:
        self._source, self._target = source, target
        self._home, self._clock, self._report = home, clock, report
        self._done = self._files = self._total = 0
        self._stores = stores
        goes = stores is not None and stores.has_target and stores.belongs_to(home.name)
        self._moving = stores if goes else None

    def look(self) -> MoveReport:
        has = self._collect()
        sizes = [*self._segment_sizes(has).values(), *(file.size for file in has.staged)]
        return self._told(has, len(sizes) + len(has.notes), sum(sizes), moved=False)

    def run(self, stack: ExitStack) -> MoveReport:
        driver = self._claim(stack)
        if self._moving is not None:
            self._moving.claim(driver.generation)
            self._moving.copy()
        has = self._collect()
        for _ in RangeReader(self._home.disk).records(has.ranges):
            pass  # proven where it is: damage has to be mended there
        self._total = sum(self._segment_sizes(has).values()) + sum(f.size for f in has.staged)
        file = read_identity(self._home.disk)
        assert file is not None, "it is claimed"
        file = replace(file, arrival=new_writer_id(self._clock), arrives_from=address(self._source))
        self._target.begin(file)
        self._copy(has)
        self._prove(has)
        if self._moving is not None:
            self._moving.prove()
        driver.leave(MovedRecord(self._target.where, file.arrival))  # THE decision
        self._target.settle(file)
        self._source.leave()
        return self._told(has, self._files, self._done, moved=True)

    def _claim(self, stack: ExitStack) -> DriverLog:
        known = read_driver_log(self._home.disk, self._home.identity)
        pipeline = next((part.pipeline for part in reversed(known) if part.pipeline), None)
        generation = next_generation(tuple(self._source.generations()))
        while True:
            try:
                driver = self._source.open_log(
                    self._home, generation, partitions=1, pipeline=pipeline
                )
            except AlreadyExists:
                generation += 1
            else:
                stack.callback(driver.close)
                return driver

    def _collect(self) -> Belongings:
        """What the log names and is still there."""
        disk = self._home.disk
        driver = read_driver_log(disk, self._home.identity)
        known: dict[str, CommitRecord] = {}
        for part in driver:
            known |= part.known()
        there = {
            path: _exists(self._home, path)
            for path in sorted({place.segment for c in known.values() for place in c.ranges})
        }
        ranges = {p for c in known.values() for p in c.ranges if there[p.segment]}
        staged = {file.path: file for c in known.values() for file in c.staged}
        files = (f for path, f in sorted(staged.items()) if parse_output_path(path) is None)
        return Belongings(
            driver=driver,
            ranges=tuple(sorted(ranges, key=lambda p: (p.segment, p.offset, p.operator))),
            staged=tuple(file for file in files if self._output(file) is not None),
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        """Of sinks and sources; the others are about a process."""
        for folder in (SINKS, SOURCES, HISTORY):
            for name in sorted(self._source.notes.names(folder)):
                if not name.startswith("."):
                    yield f"{folder}/{name}"

    def _copy(self, has: Belongings) -> None:
        for part in has.driver:
            if part.end.end >= HEADER_SIZE:
                self._put_segment(part.path, part.end.end)
        for path in has.segments:
            self._put_segment(path, self._home.disk.size(path))
        for file in has.staged:
            data = self._output(file)
            if data is None or len(data) != file.size or sha256_hex(data) != file.sha256:
                message = "staged output is not what its task wrote"
                raise Corrupt(message, where=f"{self._source.where}/{file.path}")
            self._target.put_output(file.path, data)
            self._say(file.path, file.size)
        for note in has.notes:
            data = self._source.notes.read(note)
            if data is not None:
                self._target.notes.write(note, data)
                self._say(note, 0)

    def _put_segment(self, path: str, size: int) -> None:
        data: pa.Buffer = self._home.disk.map(path)
        self._target.put_segment(path, data[:size])
        self._say(path, size)

    def _prove(self, has: Belongings) -> None:
        """The new place has what the old one has: the log as bytes, the rest by its checksums."""
        disk = self._target.disk()
        there = {part.path: part for part in read_driver_log(disk, self._home.identity)}
        for part in has.driver:
            found = there.get(part.path)
            if found is None and not part.known() and not part.run_epoch:
                continue  # a claim and nothing behind it: it need not be found again
            if found is None or found.end.end != part.end.end:
                raise self._incomplete(part.path)
            theirs = self._home.disk.map(part.path)[: part.end.end]
            if not disk.map(part.path)[: part.end.end].equals(theirs):
                raise self._incomplete(part.path)
        for _ in RangeReader(disk).records(has.ranges):
            pass
        for file in has.staged:
            if sha256_hex(self._target.read_output(file.path)) != file.sha256:
                raise self._incomplete(file.path)
        for note in has.notes:
            if self._target.notes.read(note) != self._source.notes.read(note):
                raise self._incomplete(note)

    # steps

    def _output(self, file: StagedFile) -> bytes | None:
        """None if every sink has it, and it was dropped."""
        wanted = Staged(file.path, file.size, file.sha256, file.rows)
        try:
            with self._source.staged.open(wanted) as opened:
                return opened.read()
        except NotFound:
            return None

    def _segment_sizes(self, has: Belongings) -> dict[str, int]:
        sizes = {part.path: part.end.end for part in has.driver if part.end.end >= HEADER_SIZE}
        return sizes | {path: self._home.disk.size(path) for path in has.segments}

    def _say(self, what: str, size: int) -> None:
        self._done += size
        self._files += 1
        self._report(Progress(self._done, max(self._total, self._done), "bytes", what))

    def _incomplete(self, path: str) -> Corrupt:
        return Corrupt(
            "what was written here does not read back as it was",
            where=f"{self._target.where}/{path}",
            advice="The home is still at the old place; run `lamina move` again",
        )

    def _told(self, has: Belongings, files: int, size: int, *, moved: bool) -> MoveReport:
        return MoveReport(
            home=self._home.name,
            pipeline=self._home.pipeline,
            source=address(self._source),
            target=self._target.where,
            epoch=has.epoch,
            files=files,
            bytes=size,
            moved=moved,
            store=self._stores.where_for(self._home.name) if self._stores else "",
            objects=self._moving.objects if self._moving else 0,
            store_bytes=self._moving.bytes if self._moving else 0,
            forks=self._moving.forks if self._moving else (),
        )


def address(space: Workspace) -> str:
    """As --home has it."""
    return space.where.rstrip("/")


def _is_from(arriving: HomeFile, source: Workspace) -> bool:
    return bool(arriving.arrival) and arriving.arrives_from == address(source)


def _check_target(
    home: Home, source: Workspace, target: Destination, arriving: HomeFile | None
) -> None:
    if address(source) == target.where:
        raise Refused("the home is here already", where=target.where)
    if arriving is None:
        return
    if _is_from(arriving, source) and arriving.identity == home.identity:
        return  # an interrupted move: it begins again
    raise Refused(
        "there is a home here already",
        where=target.where,
        advice="Move the home to a place that is empty",
    )


def _finished(
    file: HomeFile, source: Workspace, target: Destination, stores: StoreMove | None
) -> MoveReport:
    """The move was decided, and its process was killed before it could say so."""
    return MoveReport(
        home=file.identity.hex(),
        pipeline=file.pipeline,
        source=address(source),
        target=target.where,
        epoch=0,
        files=0,
        bytes=0,
        moved=True,
        store=stores.where_for(file.identity.hex()) if stores else "",
        forks=stores.forks if stores and stores.has_target else (),
    )


def _exists(home: Home, path: str) -> bool:
    try:
        home.disk.size(path)
    except NotFound:
        return False
    return True
