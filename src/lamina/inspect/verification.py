"""Is everything still there, and as it was written, that the next start of a pipeline would read?

home.json          its checksum
driver/, core-*/   every record of every segment; that no segment is gone which a start needs
staged/            what COMMITs name, by size and digest
state/             run files of a running process, block by block; a start makes them anew
sinks              where each says it stands
the store          log, manifests and files (checkpoint/verify.py)
the plan           that a start would find a way to the last acknowledged epoch

Nothing is claimed and nothing is changed, so a pipeline may run meanwhile. What it changes between
one read and the next could look like damage: so whatever is found is looked for again, and only
what two looks in a row agree on is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.progress import Progress, Report, silent
from lamina.checkpoint.verify import VerifyReport, verify
from lamina.disk.base import Disk
from lamina.errors import (
    Corrupt,
    Diverged,
    LaminaError,
    NotFound,
    Refused,
    Unsupported,
    WalDamaged,
    WouldLose,
)
from lamina.format.commit import StagedFile
from lamina.format.findings import Severity
from lamina.format.home_file import ADVICE
from lamina.format.home_names import DRIVER, IDENTITY
from lamina.ids import CheckpointId
from lamina.inspect.home_files import check_run_file, check_staged, run_files
from lamina.protocol.recovery import Plan
from lamina.recovery.rehearsal import look, plan_start
from lamina.recovery.scan import RecoverableSink, Scan
from lamina.wal.examination import Examined, Trouble, examine_all, missing_ranges, place_of
from lamina.wal.home import read_home
from lamina.wal.lost_segments import lost_segments
from lamina.wal.outputs import segment_of
from lamina.wal.scan import all_segments

LOOKS_MAX = 5
JUDGED = (Corrupt, Diverged, NotFound, Refused, Unsupported, WouldLose)
"""What a damaged or incomplete pipeline raises; a disk or store that fails is no finding."""


@dataclass(frozen=True, slots=True)
class HomeReport:
    """What one look at a home has found."""

    identity: bytes | None  # None if home.json is damaged
    segments: tuple[Examined, ...]
    staged_files: int
    run_files: int
    bytes_read: int
    start_epoch: int | None  # where a start would land; None if it would not, or nobody knows
    troubles: tuple[Trouble, ...]

    @property
    def ok(self) -> bool:
        return not any(each.severity is Severity.ERROR for each in self.troubles)


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """The home and the store of a pipeline; None where there is none to look at."""

    home: HomeReport | None
    store: VerifyReport | None

    @property
    def ok(self) -> bool:
        return all(part is None or part.ok for part in (self.home, self.store))


def verify_pipeline(
    disk: Disk,
    checkpointer: Checkpointer | None = None,
    *,
    sinks: Sequence[RecoverableSink] | None = None,
    sample: float = 1.0,
    report: Report = silent,
) -> PipelineReport:
    """Verify a home and, with a *checkpointer*, its store; NotFound if there is no home.

    Without *sinks* nobody knows what they have: every staged file that a COMMIT names is then taken
    for one that is needed, if it is there.
    """
    store = verify(checkpointer, sample=sample, report=report) if checkpointer else None
    return PipelineReport(verify_home(disk, checkpointer, store, sinks=sinks, report=report), store)


def verify_home(
    disk: Disk,
    checkpointer: Checkpointer | None,
    store: VerifyReport | None,
    *,
    sinks: Sequence[RecoverableSink] | None = None,
    report: Report = silent,
) -> HomeReport:
    """Look until nothing is wrong, or until two looks in a row say the same."""
    looks = _Look(disk, checkpointer, sinks, report)
    last = looks.at_home(store)
    for _ in range(LOOKS_MAX):
        if not _doubted(last):
            return last
        before, last = last, looks.at_home(store)
        both = tuple(t for t in last.troubles if t in before.troubles or t not in _doubted(last))
        agreed, last = set(_doubted(before)) == set(_doubted(last)), replace(last, troubles=both)
        if agreed:
            return last
    return last


def _doubted(found: HomeReport) -> tuple[Trouble, ...]:
    return tuple(each for each in found.troubles if each.severity is not Severity.NOTE)


@dataclass(frozen=True, slots=True)
class _Plans:
    """What a start would do; without a plan `publish` is not known."""

    plan: Plan | None = None
    scan: Scan | None = None

    def needed(self) -> set[StagedFile]:
        """What sinks have still to get."""
        if self.plan is None or self.scan is None:
            return set()
        return {
            file
            for sink, commits in self.plan.publish.items()
            for commit in commits
            for file in self.scan.commits[commit.point.digest].staged
            if file.sink == sink
        }


class _Look:
    """One home, looked at as often as it takes."""

    def __init__(
        self,
        disk: Disk,
        checkpointer: Checkpointer | None,
        sinks: Sequence[RecoverableSink] | None,
        report: Report,
    ) -> None:
        self._disk = disk
        self._checkpointer = checkpointer
        self._sinks = sinks
        self._report = report
        self._done = self._total = 0

    def at_home(self, store: VerifyReport | None) -> HomeReport:
        troubles: list[Trouble] = []
        self._begin()
        identity = self._identity(troubles)
        examined = self._segments(identity)
        troubles += [trouble for each in examined.values() for trouble in each.troubles]
        troubles += missing_ranges(examined)
        plans = _Plans()
        if identity is not None:
            troubles += lost_segments(self._disk, identity)
            damaged = {} if store is None else _damaged(store)
            plans = self._plan(damaged, troubles)
        staged = self._staged(examined, plans, troubles)
        runs = run_files(self._disk)
        found = (check_run_file(self._disk, path, self._count) for path in runs)
        troubles += [trouble for trouble in found if trouble is not None]
        return HomeReport(
            identity=identity,
            segments=tuple(examined.values()),
            staged_files=staged,
            run_files=len(runs),
            bytes_read=self._done,
            start_epoch=_landing(plans.plan),
            troubles=tuple(_once(troubles)),
        )

    def _identity(self, troubles: list[Trouble]) -> bytes | None:
        """Without home.json the segments can still be read: its damage is the first finding."""
        try:
            return read_home(self._disk).identity
        except NotFound:
            if not any(True for _ in all_segments(self._disk)):
                raise
            message = "home.json is missing, and there are segments"
            troubles.append(_trouble(WalDamaged(message, advice=ADVICE), IDENTITY))
        except (Corrupt, Unsupported) as error:
            troubles.append(_trouble(error, IDENTITY))
        return None

    def _segments(self, identity: bytes | None) -> dict[str, Examined]:
        examined: dict[str, Examined] = {}
        for each in examine_all(
            self._disk, all_segments(self._disk), identity, lambda _path, _done: None
        ):
            examined[each.path] = each
            self._count(each.path, each.size)
        return examined

    def _plan(self, damaged: Mapping[CheckpointId, str], troubles: list[Trouble]) -> _Plans:
        """Scan and plan as a start does, with the sinks that say where they stand."""
        if self._checkpointer is None:
            return _Plans()
        sinks = list(self._answering(troubles))
        try:
            scan = look(read_home(self._disk), self._checkpointer, sinks)
            scan = replace(scan, found=replace(scan.found, damaged=damaged))
            troubles += _unknown_owner(scan)
            return _Plans(plan_start(scan), scan)
        except JUDGED as error:
            troubles.append(_trouble(error, self._relative(error)))
            return _Plans()

    def _answering(self, troubles: list[Trouble]) -> Iterator[RecoverableSink]:
        for sink in self._sinks or ():
            try:
                sink.position()
            except JUDGED as error:
                troubles.append(_trouble(error, f"sink {sink.name}"))
            else:
                yield sink

    def _staged(
        self, examined: Mapping[str, Examined], plans: _Plans, troubles: list[Trouble]
    ) -> int:
        """Every staged file that a COMMIT names, once; and those that are needed must be there."""
        named = {
            file
            for each in examined.values()
            for _, commit in each.commits.values()
            for file in commit.staged
        }
        needed, known = plans.needed(), plans.plan is not None and self._sinks is not None
        by_path = {file.path: file for file in sorted(named | needed, key=lambda f: f.path)}
        looked = 0
        for file in by_path.values():
            is_there = _size(self._disk, segment_of(file.path) or file.path) is not None
            looked += is_there
            must = any(file.path == each.path for each in needed) if known else is_there
            trouble = check_staged(self._disk, file, needed=must, done=self._count)
            troubles += [trouble] if trouble else []
        return looked

    def _relative(self, error: LaminaError) -> str:
        """Where an error was found, as a path of the home if it is one."""
        return error.where.partition(", byte ")[0].removeprefix(f"{self._disk.root}/")

    def _begin(self) -> None:
        paths = (*all_segments(self._disk), *run_files(self._disk))
        self._done, self._total = 0, sum(_size(self._disk, path) or 0 for path in paths)

    def _count(self, path: str, size: int) -> None:
        self._done += size
        self._report(Progress(self._done, max(self._done, self._total), "bytes", path))


def _size(disk: Disk, path: str) -> int | None:
    """None if the file is gone."""
    try:
        return disk.size(path)
    except NotFound:
        return None


def _once(troubles: Iterable[Trouble]) -> Iterator[Trouble]:
    """Each place once: the plan stops at damage that the segments have told already."""
    seen: set[tuple[str, str, int]] = set()
    for trouble in troubles:
        place = (trouble.code, trouble.path, trouble.offset)
        if place not in seen:
            yield trouble
        seen.add(place)


def _damaged(store: VerifyReport) -> dict[CheckpointId, str]:
    """The checkpoints that a start would not use, and why."""
    return {each.id: each.problems[0].message for each in store.checkpoints if not each.ok}


def _unknown_owner(scan: Scan) -> Iterator[Trouble]:
    """Who takes a home over makes a driver segment first, and the newest one is never dropped.

    A warning: a process of another home may have claimed the pipeline and moved nothing.
    """
    history, known = scan.found.history, [segment.generation for segment in scan.driver]
    if history.home == scan.home and history.generation > max(known, default=0):
        message = (
            f"the store says that generation {history.generation} has this pipeline, and the "
            f"driver log of this home ends with generation {max(known, default=0)}"
        )
        advice = "If a file of driver/ is lost, restore it from a copy before the next start"
        yield Trouble(Severity.WARNING, WalDamaged.code, DRIVER, 0, message, advice=advice)


def _landing(plan: Plan | None) -> int | None:
    if plan is None:
        return None
    return plan.head.epoch if plan.head else 0


def _trouble(error: LaminaError, path: str) -> Trouble:
    """A rule that forbids a start is not damage: a warning."""
    severity = Severity.WARNING if isinstance(error, Refused) else Severity.ERROR
    offset = place_of(error, 0)
    return Trouble(severity, error.code, path, offset, error.message, advice=error.advice)
