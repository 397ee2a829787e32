"""Folders of the local file system: their names made durable, and removed with all that is in."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """The names in a folder survive a power cut from here on."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_tree(folder: Path) -> None:
    """Remove a folder that nobody needs, though another process may write into it or remove it."""
    while folder.exists():
        try:
            shutil.rmtree(folder)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise
