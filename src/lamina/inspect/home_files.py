"""Files of a home that are no segments: staged output and run files, each read to its last byte."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from lamina.disk.base import Disk
from lamina.errors import Corrupt, DigestMismatch, NotFound, SizeMismatch, Unsupported
from lamina.format.commit import StagedFile
from lamina.format.findings import Severity
from lamina.format.home_names import STATE, state_folder
from lamina.state.run_file import check_run, open_run
from lamina.wal.examination import Trouble
from lamina.wal.outputs import read_output, segment_of

Done = Callable[[str, int], None]
"""Told after each file: its path and how many bytes of it were read."""

RESTORE_STAGED = (
    "Restore it from a copy of the home: the epoch is committed, and a sink may lack it"
)
NOT_NEEDED = "Nothing: every sink has this epoch, and the file goes after the next checkpoint"
NEW_START = "Stop the pipeline and start it again: a start makes its run files anew"
_FETCHED = re.compile(r"[0-9]{6}-(?P<sha256>[0-9a-f]{16})")
_WINDOW = 1 << 20


def check_staged(disk: Disk, file: StagedFile, *, needed: bool, done: Done) -> Trouble | None:
    """Size and digest, as a sink proves them before it shows the rows.

    A file that no sink needs may be missing; if it is there and damaged, that is a warning.
    """
    severity = Severity.ERROR if needed else Severity.WARNING
    advice = RESTORE_STAGED if needed else NOT_NEEDED
    try:
        size, sha256 = _digest(disk, file.path)
    except NotFound as error:
        if not needed:
            return None
        message = "a staged file is missing"
        return Trouble(severity, error.code, file.path, 0, message, file.sha256, "", advice)
    done(file.path, size)
    if size != file.size:
        expected, actual = f"{file.size} bytes", f"{size} bytes"
        message = "a staged file does not have the size that its COMMIT names"
        return Trouble(severity, SizeMismatch.code, file.path, 0, message, expected, actual, advice)
    if sha256 != file.sha256:
        message = "a staged file does not have the SHA-256 that its COMMIT names"
        return Trouble(
            severity, DigestMismatch.code, file.path, 0, message, file.sha256, sha256, advice
        )
    return None


def run_files(disk: Disk) -> tuple[str, ...]:
    """Those of the process that has the home, and what a killed one has left behind."""
    return tuple(
        f"{state_folder(process)}/{name}"
        for process in disk.list(STATE)
        for name in disk.list(state_folder(process))
        if not name.startswith(".") and not name.endswith(".tmp")  # being written
    )


def check_run_file(disk: Disk, path: str, done: Done) -> Trouble | None:
    """Every block of a run, or the digest of a fetched file. A warning: a start uses none of them.

    Only a running process reads its run files; it stops at a damaged one.
    """
    try:
        done(path, _check_run(disk, path))
    except NotFound:
        return None  # compacted away meanwhile
    except (Corrupt, Unsupported) as error:
        return Trouble(Severity.WARNING, error.code, path, 0, error.message, advice=NEW_START)
    return None


def _check_run(disk: Disk, path: str) -> int:
    fetched = _FETCHED.fullmatch(path.rpartition("/")[2])
    if fetched is None:
        run = open_run(Path(disk.root) / path)
        check_run(run)
        return run.size
    size, sha256 = _digest(disk, path)
    if not sha256.startswith(fetched["sha256"]):
        message = f"its SHA-256 begins with {sha256[:16]}, not with {fetched['sha256']}"
        raise Corrupt(f"a file of a checkpoint is damaged on this disk: {message}")
    return size


def _digest(disk: Disk, path: str) -> tuple[int, str]:
    if segment_of(path) is not None:
        data = read_output(disk, path)
        return len(data), hashlib.sha256(data).hexdigest()
    digest, size = hashlib.sha256(), 0
    disk.size(path)  # NotFound is said by it, and not by a folder in its place
    for part in _parts(disk, path):
        digest.update(part)
        size += len(part)
    return size, digest.hexdigest()


def _parts(disk: Disk, path: str) -> Iterator[bytes]:
    at = 0
    while part := disk.read(path, at, _WINDOW):
        yield part
        at += len(part)
