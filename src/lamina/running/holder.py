"""Who has the lock of a home, found out without touching it.

Trying the lock would do, but for an instant it would keep a pipeline from starting. Linux lists all
locks in /proc/locks; elsewhere what the process said of itself has to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lamina.format.home_names import HOME_LOCK
from lamina.running.control import Process, Status, this_process

LOCKS = Path("/proc/locks")


def find_holder(home: Path, status: Status | None, *, locks: Path = LOCKS) -> Process | None:
    """The process that runs the pipeline of *home*; None if nobody seems to."""
    pid = next(_pids(home / HOME_LOCK, locks), None)
    if pid is not None:
        return Process(pid, this_process().host)
    if status is None or status.is_over or not status.process.may_live:
        return None
    # It says that it runs. Here /proc/locks would show it, where there is one.
    return None if status.process.is_here and locks.exists() else status.process


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
