"""Small files that are whole and on disk, or not there; and folders whose names are."""

from __future__ import annotations

import os
from pathlib import Path

from lamina.errors import Diverged


def write(path: Path, data: bytes) -> None:
    """Durable and whole, or not there; what was there before is replaced."""
    _write_aside(path, data).replace(path)
    sync(path.parent)


def write_once(path: Path, data: bytes) -> None:
    """The same, but never over other bytes: that is another history of the epoch."""
    temporary = _write_aside(path, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        if path.read_bytes() != data:
            raise Diverged("the sink has another history of this epoch", where=str(path)) from None
    finally:
        temporary.unlink()
    sync(path.parent)


def make_folder(folder: Path) -> None:
    """With its parents, and every name that is new on disk: what is published lies below it."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in new:
        sync(each.parent)


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_aside(path: Path, data: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    sync(temporary)
    return temporary
