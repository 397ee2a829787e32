"""Files in a home that Lamina has not named: nobody reads them; one may be a misnamed segment."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lamina.disk.base import Disk
from lamina.format.findings import Severity
from lamina.format.home_names import (
    DRIVER,
    HISTORY,
    HOME_LOCK,
    IDENTITY,
    JOURNALS,
    REQUESTS,
    SINKS,
    SOURCES,
    STAGED,
    STATE,
    STATUS,
    core_folder,
    parse_cut,
    parse_segment,
)
from lamina.wal.examination import Trouble
from lamina.wal.scan import cores_of

# What a kill may leave of a file that was being made, and of a question to executors.
_ASIDE = re.compile(r"home\.json\.[0-9a-f]{32}|\.status\.json\.[0-9a-f]+|preflight-[^/]+")
_PIPELINES = {
    STAGED,
    STATE,
    STATUS,
    REQUESTS,
    SINKS,
    SOURCES,
    JOURNALS,
    HISTORY,
}  # beside the log: docs/FORMAT.md


def strangers(disk: Disk) -> Iterator[Trouble]:
    """A warning for every file or folder whose name is not one of Lamina's."""
    folders = [core_folder(core) for core in cores_of(disk)]
    known = {IDENTITY, HOME_LOCK, DRIVER, *folders, *_PIPELINES}
    names = [name for name in disk.list("") if not _ASIDE.fullmatch(name)]
    yield from (_stranger(name) for name in names if name not in known)
    for folder in (DRIVER, *folders):
        for name in disk.list(folder):
            path = f"{folder}/{name}"
            is_lock = name == HOME_LOCK and folder != DRIVER
            if not (is_lock or parse_segment(path) or parse_cut(path)):
                yield _stranger(path)


def _stranger(path: str) -> Trouble:
    message = "Lamina does not know this name and never reads the file"
    return Trouble(Severity.WARNING, "", path, 0, message)
