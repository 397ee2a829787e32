"""What starts that failed have left in a home: bytes that no COMMIT names do not exist (R1).

Dropped by who has claimed the home, after its ADOPT: then nobody older decides any more. A late
task of a process that is fenced may still write to a file that goes: nobody will ever name it.
"""

from __future__ import annotations

from collections.abc import Iterable

from lamina.format.home_names import CoreSegment, parse_segment
from lamina.wal.driver_log import DriverSegmentContent, read_driver_log
from lamina.wal.dropping import in_use
from lamina.wal.home import Home
from lamina.wal.reader import Damaged
from lamina.wal.scan import cores_of, read_tail, segments_of


def drop_leftovers(home: Home, head: int) -> tuple[str, ...]:
    """Remove segments that only held what was never decided; *head* is the last epoch that was."""
    driver = read_driver_log(home.disk, home.identity)
    named = {place.segment for part in driver for c in part.known().values() for place in c.ranges}
    dropped = (*unnamed_segments(home, head, named), *superseded_segments(driver, named))
    for path in dropped:
        home.disk.unlink(path)
    for folder in sorted({path.rpartition("/")[0] for path in dropped}):
        home.disk.sync_folder(folder)
    return dropped


def unnamed_segments(home: Home, head: int, named: set[str]) -> tuple[str, ...]:
    """Core segments that were begun after *head*, and that nothing names or may append to."""
    found: list[str] = []
    for core in cores_of(home.disk):
        paths = segments_of(home.disk, core)
        begun = [path for path in paths if _begun_in(path) > head and path not in named]
        if len(begun) < 2:
            continue  # the newest one stays in any case
        tails = [read_tail(home.disk, path, home.identity, judge=False) for path in begun]
        kept = in_use(paths, tails)
        found += [
            tail.path
            for tail in tails
            if tail.path not in kept and tail.commit is None and not isinstance(tail.end, Damaged)
        ]
    return tuple(found)


def _begun_in(path: str) -> int:
    name = parse_segment(path)
    assert isinstance(name, CoreSegment), path
    return name.epoch


def superseded_segments(driver: Iterable[DriverSegmentContent], named: set[str]) -> tuple[str, ...]:
    """Driver segments of processes that decided nothing, and know nothing that others do not.

    The newest one with an ADOPT is the truth, and stays with everything after it.
    """
    kept = list(driver)
    adopted = [part for part in kept if part.adopt is not None]
    dropped: list[str] = []
    for part in kept[: kept.index(adopted[-1])] if adopted else ():
        others = [each for each in kept if each.path not in dropped and each is not part]
        known = {digest for each in others for digest in each.known()}
        decided = part.commits or part.checkpoints or part.path in named
        if not decided and known.issuperset(part.known()):
            dropped.append(part.path)
    return tuple(dropped)
