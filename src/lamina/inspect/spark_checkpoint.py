"""Is the checkpoint of a Structured Streaming query whole, and what would a restart do with it?

Needs neither Spark nor Java, and changes nothing. The query may run meanwhile: then files come and
go, and only what every look has found is reported.

S001  the id of the query is missing           S008  the log of a source is behind its offsets
S002  no offsets, but commits                  S009  the log of a source has a gap
S003  the offsets before the last are missing  S010  a version of state is missing
S004  a commit without offsets                 S011  a file is damaged
S005  batches without a commit                 S012  left by a crash
S006  a gap in old offsets or commits          S013  the checkpoint changes while it is read
S007  the number of sources has changed        S014  an operator is not described
S015  the log of a source lacks its last entry S016  a file was changed, and Spark does not notice
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamina.checkpoint.progress import Report, silent
from lamina.errors import NotFound
from lamina.format.findings import Severity
from lamina.format.spark_log import SparkOffsets
from lamina.inspect.spark_folder import COMMITS, METADATA, OFFSETS, SparkFolder, read_folder
from lamina.inspect.spark_restart import (
    RESTORE,
    Does,
    E,
    N,
    Restart,
    SparkFinding,
    W,
    damage_code,
    last_offsets,
    plan_restart,
)
from lamina.store.base import Store

__all__ = ["Does", "Restart", "SparkFinding", "SparkReport", "verify_spark"]

LOOKS_MAX = 3
LEFTOVERS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class SparkReport:
    """What was found in one checkpoint."""

    query: str
    first_batch: int | None  # with offsets
    last_batch: int | None
    last_commit: int | None
    watermark_ms: int | None
    offsets: SparkOffsets | None  # of the last batch
    operators: tuple[tuple[int, str, int], ...]  # number, name, partitions
    files: int
    bytes_read: int
    restart: Restart
    findings: tuple[SparkFinding, ...]

    @property
    def ok(self) -> bool:
        return not any(each.severity is Severity.ERROR for each in self.findings)


def verify_spark(store: Store, *, report: Report = silent) -> SparkReport:
    """Read all of the checkpoint in *store*. NotFound if there is none."""
    sizes = _listed(store)
    agreed: tuple[SparkFinding, ...] | None = None
    for _ in range(LOOKS_MAX):
        folder = read_folder(store, sizes, report=report)
        restart, found = plan_restart(folder)
        found = (*found, *_damage(folder, restart), *_leftovers(folder))
        agreed = found if agreed is None else tuple(f for f in found if f in agreed)
        now = _listed(store)
        if now == sizes:
            return _reported(folder, restart, found)
        sizes = now
    return _reported(folder, restart, (*(agreed or ()), _changing()))


def _listed(store: Store) -> dict[str, int]:
    sizes = {info.key: info.size for info in store.list()}
    if not any(key == METADATA or key.startswith((f"{OFFSETS}/", f"{COMMITS}/")) for key in sizes):
        raise NotFound(
            "this is not a checkpoint of Structured Streaming: no metadata, offsets or commits",
            where=store.url,
            advice="Give the folder that the query has as its checkpointLocation",
        )
    return sizes


def _damage(folder: SparkFolder, restart: Restart) -> Iterator[SparkFinding]:
    for key, message in sorted(folder.damaged.items()):
        code = damage_code(folder, key)
        if key in restart.needs or key == METADATA:
            yield SparkFinding(E, code, key, message, RESTORE)
        else:
            advice = "A restart does not read it; the query cannot be set back to its batch"
            yield SparkFinding(W, code, key, message, advice)


def _leftovers(folder: SparkFolder) -> Iterator[SparkFinding]:
    left = folder.leftovers
    for key in left[:LEFTOVERS_SHOWN]:
        message = "left by a process that was killed while it wrote, or without the file it is for"
        yield SparkFinding(N, "S012", key, message, "It does no harm, and may be deleted")
    if len(left) > LEFTOVERS_SHOWN:
        more = len(left) - LEFTOVERS_SHOWN
        yield SparkFinding(N, "S012", "", f"and {more} more files like these")


def _changing() -> SparkFinding:
    message = f"it has changed during each of {LOOKS_MAX} looks: the query is running"
    return SparkFinding(N, "S013", "", message, "Stop the query to be sure of what a restart does")


def _reported(
    folder: SparkFolder, restart: Restart, findings: tuple[SparkFinding, ...]
) -> SparkReport:
    planned, done = folder.numbered(OFFSETS), folder.numbered(COMMITS)
    commit = folder.commits.get(max(done)) if done else None
    offsets = last_offsets(folder)
    watermark = commit.next_watermark_ms if commit else offsets.watermark_ms if offsets else 0
    return SparkReport(
        folder.query,
        planned[0] if planned else None,
        planned[-1] if planned else None,
        done[-1] if done else None,
        watermark or None,
        offsets,
        tuple(
            (each.id, each.name, max(each.stores.values(), default=0))
            for each in sorted(folder.operators.values(), key=lambda each: each.id)
        ),
        len(folder.sizes),
        folder.bytes_read,
        restart,
        tuple(sorted(findings, key=lambda f: (f.severity is not E, f.severity is N, f.code))),
    )
