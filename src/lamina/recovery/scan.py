"""What recovery looks at: the home's logs, the store's log, the sinks. Reading only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from lamina.errors import LogDamaged, NotFound
from lamina.format.commit import CommitRecord
from lamina.format.pipeline_record import Owner
from lamina.protocol.driver import accepted_head
from lamina.protocol.history import History
from lamina.protocol.recovery import Found, has_lost_its_log
from lamina.protocol.sinks import SinkPosition
from lamina.recovery.state import LeftAside
from lamina.wal.driver_log import DriverSegmentContent, read_driver_log
from lamina.wal.home import Home
from lamina.wal.reader import Clean, Proven
from lamina.wal.scan import cores_of, read_tail, segments_of


class RecoverableSink(Protocol):
    """What recovery asks of a sink."""

    @property
    def name(self) -> str: ...

    def position(self) -> SinkPosition:
        """What the outside system itself says it has."""
        ...

    def fence(self, generation: int, pipeline: Owner) -> SinkPosition:
        """Let nobody of a lower generation publish, nor another pipeline; then the position."""
        ...


@dataclass(frozen=True, slots=True)
class Scan:
    """Everything a plan is made of, and the COMMITs in full."""

    found: Found
    commits: Mapping[str, CommitRecord]
    driver: tuple[DriverSegmentContent, ...]
    left_aside: tuple[LeftAside, ...]
    entries: int  # in all core logs
    home: str
    moving: bool  # another home owns the pipeline
    core_segments: frozenset[str]
    proven: Proven  # records whose checksums were looked at on the way


def scan_home(
    home: Home,
    look: Callable[[], History],
    sinks: Mapping[str, SinkPosition],
    *,
    own_generation: int,
) -> Scan:
    """Read the logs of a home, then the store's: a checkpoint made in between is not damage.

    *own_generation* is left out: it has just been claimed. In a home that does not own the
    pipeline, what its driver log holds has been given up (R2); only its numbers still count (R4).
    """
    proven: Proven = set()
    driver = _driver_log(home, own_generation, proven)
    history = look()
    if _behind(driver, history):  # nobody is fenced: it has gone on meanwhile
        driver = _driver_log(home, own_generation, proven)
    commits = {digest: c for segment in driver for digest, c in segment.known().items()}
    moving = history.home not in ("", home.name)
    check_markers(driver, history)
    cores = [
        read_tail(home.disk, path, home.identity, judge=False, proven=proven)
        for core in cores_of(home.disk)
        for path in segments_of(home.disk, core)
    ]
    ends = [(s.path, s.end) for s in driver] + [(t.path, t.end) for t in cores]
    segments = tuple(segment.rules() for segment in driver)
    found = Found(
        history=history,
        segments=segments,
        sinks=sinks,
        damaged={},
        dropped=_dropped(home, commits),
        wal_epoch=max((tail.epoch for tail in cores), default=0),
        void=moving,
        driver_lost=(not driver and bool(cores))
        or has_lost_its_log(history, home.name, segments, own=own_generation),
    )
    left = tuple(
        LeftAside(path, end.end, end.bytes, end.reason)
        for path, end in ends
        if not isinstance(end, Clean) and end.bytes
    )
    return Scan(
        found=found,
        commits=commits,
        driver=driver,
        left_aside=left,
        entries=sum(tail.entries for tail in cores),
        home=home.name,
        moving=moving,
        core_segments=frozenset(tail.path for tail in cores),
        proven=proven,
    )


def _driver_log(
    home: Home, own_generation: int, proven: Proven
) -> tuple[DriverSegmentContent, ...]:
    found = read_driver_log(home.disk, home.identity, proven)
    return tuple(segment for segment in found if segment.generation != own_generation)


def _behind(driver: tuple[DriverSegmentContent, ...], history: History) -> bool:
    head = accepted_head(segment.rules() for segment in driver)
    return history.newest is not None and (head is None or head.epoch < history.newest.epoch)


def check_markers(driver: tuple[DriverSegmentContent, ...], history: History) -> None:
    """The store must still know what the home was told about it."""
    newest = history.highest
    for segment in driver:
        for marker in segment.checkpoints:
            known = history.find(marker.id)
            if known is not None and known.entry.manifest_sha256 != marker.manifest_sha256:
                raise LogDamaged(
                    f"checkpoint {marker.id} in the store is not the one this home's log knows",
                    where=segment.path,
                    advice="Is this the right store for this home?",
                )
            if known is None and (newest is None or marker.epoch > newest.epoch):
                raise LogDamaged(
                    f"this home's log knows checkpoint {marker.id} of epoch {marker.epoch}; the "
                    f"store's newest is of epoch {newest.epoch if newest else 0}",
                    where=segment.path,
                    advice="Is this the right store for this home? Has its log/ lost entries?",
                )


def _dropped(home: Home, commits: Mapping[str, CommitRecord]) -> dict[str, tuple[str, ...]]:
    """The COMMITs that name segments which are not there, and those segments; each asked once."""
    named = {place.segment for commit in commits.values() for place in commit.ranges}
    gone = {path for path in named if not _is_there(home, path)}
    found = {
        digest: tuple(sorted({place.segment for place in commit.ranges} & gone))
        for digest, commit in commits.items()
    }
    return {digest: paths for digest, paths in found.items() if paths}


def _is_there(home: Home, path: str) -> bool:
    try:
        home.disk.size(path)
    except NotFound:
        return False
    return True
