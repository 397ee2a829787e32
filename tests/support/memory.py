"""Folders of tests are in memory where there is enough: a sync of a disk takes milliseconds.

No test depends on what a sync does to a disk. Those of power cuts bring a disk of their own.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH = 4 << 30
NAME = "lamina-tests-"


def base_in_memory() -> Path | None:
    """For pytest's `--basetemp`; None where there is too little, or where nothing can be run."""
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)):
        return None
    drop_of_the_dead()
    found = os.statvfs(MEMORY)
    if found.f_bavail * found.f_frsize < ENOUGH or found.f_flag & os.ST_NOEXEC:
        return None
    return MEMORY / f"{NAME}{os.getpid()}"


def drop_of_the_dead() -> None:
    """What runs with failed tests have left, and runs that were killed."""
    for folder in MEMORY.glob(f"{NAME}*"):
        pid = folder.name.removeprefix(NAME)
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def drop(base: Path) -> None:
    with suppress(OSError):
        shutil.rmtree(base)
