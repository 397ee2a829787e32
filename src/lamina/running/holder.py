"""Who holds the lock of a home. Only the lock decides whether a pipeline runs.

Linux lists all locks of this computer in /proc/locks. Where that shows nobody (another container,
another computer, no Linux) and the last status does not say that the run is over, the lock itself
is tried for an instant; a starting pipeline tries more than once for that reason (`presence`).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from lamina.format.home_names import HOME_LOCK
from lamina.running.control import Process, Status, this_process

LOCKS = Path("/proc/locks")


def find_holder(home: Path, status: Status | None, *, locks: Path = LOCKS) -> Process | None:
    """The process that runs the pipeline of *home*; None if nobody holds its lock."""
    pid = next(_pids(home / HOME_LOCK, locks), None)
    if pid is not None:
        return Process(pid, this_process().host)
    if status is None or status.is_over:
        return None
    return status.process if _is_locked(home / HOME_LOCK) else None


def is_own_status(status: Status | None, holder: Process) -> bool:
    """Whether *status* is what *holder* said, and not what was left by a run before it.

    From another container a process has another name: there the status has to be believed.
    """
    if status is None or status.is_over:
        return False
    return status.process == holder or not status.process.is_here


def _is_locked(lock: Path) -> bool:
    """Whether anybody holds it; False also where that cannot be found out."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def _pids(lock: Path, locks: Path) -> Iterator[int]:
    """Processes with an flock on the file: `1: FLOCK  ADVISORY  WRITE 4711 fd:00:1234 0 EOF`."""
    try:
        inode = lock.stat().st_ino
        lines = locks.read_text().splitlines()
    except OSError:
        return
    for words in (line.split() for line in lines):
        if len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):
            pid = int(words[4])
            if pid > 0 and _has_open(pid, lock):
                yield pid


def _has_open(pid: int, file: Path) -> bool:
    """Another file system may have the same number for another file."""
    try:
        return any(link.samefile(file) for link in _links(Path(f"/proc/{pid}/fd")))
    except PermissionError:  # somebody else's process: the number has to do
        return True
    except OSError:  # it is gone
        return False


def _links(folder: Path) -> Iterator[Path]:
    for link in folder.iterdir():
        if link.exists():
            yield link
