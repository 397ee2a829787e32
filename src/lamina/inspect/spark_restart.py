"""What a restart of a Structured Streaming query would do with its checkpoint.

The rules are those of Spark 4.3 (MicroBatchExecution.populateStartOffsets), tried out on damaged
checkpoints: the newest file in offsets/ says which batch was planned last, the newest in commits/
which was finished last. One behind: that batch is done again. Equal: the next one comes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from lamina.format.findings import Severity
from lamina.format.spark_log import SparkOffsets, offset_number
from lamina.inspect.spark_folder import COMMITS, METADATA, OFFSETS, SOURCES, STATE, SparkFolder
from lamina.inspect.spark_state import load_state


class Does(StrEnum):
    """What a restart does first."""

    BEGINS = "begins"  # nothing was planned yet
    CONTINUES = "continues"  # the next batch, with what is new
    REPEATS = "repeats"  # a batch that was planned and not committed
    LOSES = "loses"  # it continues, and passes over rows that are new
    TRUSTS = "trusts"  # bytes that were changed: it may fail, or go on with wrong values
    STOPS = "stops"  # before it does anything, or before it can commit


@dataclass(frozen=True, slots=True)
class SparkFinding:
    """One thing that is wrong, where, and what to do about it."""

    severity: Severity
    code: str
    where: str
    message: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Restart:
    """What a restart does, with which batch, and the files that it reads for that."""

    does: Does
    batch: int
    why: str
    needs: frozenset[str] = frozenset()


E, W, N = Severity.ERROR, Severity.WARNING, Severity.NOTE
RESTORE = "Restore the file from a copy"
LOSING, ALTERED = "S015", "S016"
_MILDER = {LOSING: (1, Does.LOSES), ALTERED: (2, Does.TRUSTS)}
"""Errors that do not stop Spark: what it does, and which of several counts."""
NEW_START = "or start the query with a new checkpoint folder and begin at offsets of your choice"


def plan_restart(folder: SparkFolder) -> tuple[Restart, tuple[SparkFinding, ...]]:
    """What the next start does, and everything that is in its way or that it passes over."""
    planned, done = folder.numbered(OFFSETS), folder.numbered(COMMITS)
    if not planned and not done:
        found = () if folder.query or METADATA not in folder.sizes else _unreadable(folder)
        return Restart(Does.BEGINS, 0, "no batch was planned yet"), found
    last, committed = max(planned, default=-1), max(done, default=-1)
    batch = last + 1 if committed == last else max(last, 0)
    logs = {METADATA, f"{OFFSETS}/{last}", f"{COMMITS}/{committed}"}
    if last > 0:
        logs.add(f"{OFFSETS}/{last - 1}")
    loaded = tuple(load_state(folder, batch))
    needs = frozenset(logs).union(
        _source_logs(folder), (key for each in loaded for key in each.files)
    )
    findings = [*_logs(folder, last, committed), *_sources(folder, last)]
    findings += [
        SparkFinding(
            E,
            "S010",
            each.place.folder,
            f"batch {batch} loads version {batch} of this state and does not find {each.missing}",
            f"{RESTORE}, or set the query back to a batch whose state is whole",
        )
        for each in loaded
        if not each.is_whole
    ]
    errors = [f for f in findings if f.severity is E]
    damaged = [(key, text) for key, text in folder.damaged.items() if key in needs]
    errors += [SparkFinding(E, damage_code(folder, key), key, text) for key, text in damaged]
    return _restart(last, committed, errors, needs), (*findings, *_undescribed(folder))


def _restart(
    last: int, committed: int, errors: list[SparkFinding], needs: frozenset[str]
) -> Restart:
    batch = last + 1 if committed == last else max(last, 0)
    for worst in sorted(errors, key=lambda each: _MILDER.get(each.code, (0, Does.STOPS))[0]):
        does = _MILDER.get(worst.code, (0, Does.STOPS))[1]
        return Restart(does, batch, f"{worst.where}: {worst.message}", needs)
    if committed == last:
        return Restart(Does.CONTINUES, batch, f"batch {last} is committed", needs)
    why = f"batch {last} was planned and is not committed; a sink may have its rows already"
    return Restart(Does.REPEATS, batch, why, needs)


def _logs(folder: SparkFolder, last: int, committed: int) -> Iterator[SparkFinding]:
    if METADATA not in folder.sizes:
        message = "the id of the query is gone: Spark 4.2 and later refuse to start"
        yield SparkFinding(E, "S001", METADATA, message, RESTORE)
    if last < 0:
        message = f"no offsets are left, and batch {committed} is committed"
        yield SparkFinding(
            E, "S002", OFFSETS, message, f"Restore the folder from a copy, {NEW_START}"
        )
        return
    if last > 0 and f"{OFFSETS}/{last - 1}" not in folder.sizes:
        message = f"missing: a start needs it to know where batch {last} begins"
        yield SparkFinding(E, "S003", f"{OFFSETS}/{last - 1}", message, f"{RESTORE}, {NEW_START}")
    if committed > last:
        message = f"batch {committed} is committed and has no offsets: Spark would do batch {last} "
        message += "again, give its rows to the sink a second time, and then stop"
        yield SparkFinding(E, "S004", f"{OFFSETS}/{committed}", message, RESTORE)
    if committed < last - 1:
        message = f"batches {committed + 1} to {last - 1} have offsets and no commit; Spark passes "
        message += f"over them and goes on with {last}: if one was not finished, its rows are lost"
        advice = "Compare the output with the source for these batches before you start"
        yield SparkFinding(W, "S005", f"{COMMITS}/{last - 1}", message, advice)
    yield from _gaps(folder, OFFSETS, last - 1)
    yield from _gaps(folder, COMMITS, committed)
    yield from _source_counts(folder, last)


def _gaps(folder: SparkFolder, log: str, end: int) -> Iterator[SparkFinding]:
    """Missing files between the oldest and *end*: only who goes back needs them."""
    there = folder.numbered(log)
    for batch in sorted(set(range(min(there, default=end), end)).difference(there)):
        message = "missing, between others; a start passes over it"
        advice = "The query cannot be set back to this batch"
        yield SparkFinding(W, "S006", f"{log}/{batch}", message, advice)


def _source_counts(folder: SparkFolder, last: int) -> Iterator[SparkFinding]:
    pair = [folder.offsets.get(batch) for batch in (last - 1, last)]
    counts = [len(each.sources) for each in pair if each is not None]
    if len(set(counts)) > 1:
        message = f"it has {counts[1]} sources, and the batch before has {counts[0]}"
        yield SparkFinding(E, "S007", f"{OFFSETS}/{last}", message, RESTORE)


def _source_logs(folder: SparkFolder) -> Iterator[str]:
    """What a start reads of the logs of sources: from the last file that sums up others on."""
    logs = defaultdict[str, list[tuple[int, str]]](list)
    for key in folder.sizes:
        head, _, name = key.rpartition("/")
        if head.startswith(f"{SOURCES}/") and name.removesuffix(".compact").isdecimal():
            logs[head].append((int(name.split(".")[0]), key))
    for files in logs.values():
        begin = max((number for number, key in files if key.endswith(".compact")), default=0)
        yield from (key for number, key in files if number >= begin)


def _sources(folder: SparkFolder, last: int) -> Iterator[SparkFinding]:
    """File sources: their own log must reach as far as the offsets say, without a gap."""
    offsets = folder.offsets.get(last)
    read = [offset for _, offset in offsets.sources] if offsets else []
    for at, offset in enumerate(read):
        reached, where = offset_number(offset), f"{SOURCES}/{at}"
        has_log = any(key.startswith(f"{where}/") for key in folder.sizes)
        if offset in read[:at] and not has_log:
            continue  # one source that the query reads twice: it has one log
        if reached is not None and reached >= 0:
            yield from _source_log(folder, where, reached, last)


def _source_log(folder: SparkFolder, where: str, reached: int, last: int) -> Iterator[SparkFinding]:
    read = [key for key in _source_logs(folder) if key.startswith(f"{where}/")]
    there = {int(key.rpartition("/")[2].split(".")[0]) for key in read}
    begin = min(there) if any(key.endswith(".compact") for key in read) else 0
    newest = max(there, default=-1)
    if 0 <= newest == reached - 1:
        message = f"missing, and batch {last} has read it: Spark gives its number to the files it "
        message += "finds next, and takes them for read. Their rows are lost, without an error"
        yield SparkFinding(E, LOSING, f"{where}/{reached}", message, RESTORE)
    elif newest < reached:
        message = f"the log of the files that were found ends at {newest}, and batch {last} has "
        message += f"read up to {reached}"
        yield SparkFinding(E, "S008", where, message, "Restore the folder from a copy")
    for missing in sorted(set(range(begin, newest)).difference(there)):
        message = "missing: a start reads the whole log of the files that were found"
        yield SparkFinding(E, "S009", f"{where}/{missing}", message, RESTORE)


def _unreadable(folder: SparkFolder) -> tuple[SparkFinding, ...]:
    return (SparkFinding(E, "S001", METADATA, folder.damaged.get(METADATA, ""), RESTORE),)


def _undescribed(folder: SparkFolder) -> Iterator[SparkFinding]:
    """A restart works without these, and can then not see that the query has changed."""
    for operator in sorted({each.operator for each in folder.state}):
        head = f"{STATE}/{operator}"
        inside = [key for key in folder.sizes if key.startswith(f"{head}/")]
        lacks = [name for name in ("metadata", "schema", "_stateSchema") if not _has(inside, name)]
        if "metadata" in lacks or {"schema", "_stateSchema"} <= set(lacks):
            message = f"the {'metadata' if 'metadata' in lacks else 'schema'} of this operator is "
            message += "missing: Spark cannot tell whether the query still fits its state"
            yield SparkFinding(W, "S014", head, message, RESTORE)


def _has(keys: list[str], name: str) -> bool:
    return any(f"/{name}/" in key or key.endswith(f"/_metadata/{name}") for key in keys)


def damage_code(folder: SparkFolder, key: str) -> str:
    """Whether Spark can see that a file is damaged, or takes it as it is."""
    return ALTERED if key in folder.altered else "S011"


def last_offsets(folder: SparkFolder) -> SparkOffsets | None:
    """The offsets of the newest batch that can be read."""
    return folder.offsets[max(folder.offsets)] if folder.offsets else None
