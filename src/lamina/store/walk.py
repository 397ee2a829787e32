"""Walking a folder of the local store in the order of keys."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from lamina.errors import Refused
from lamina.os_errors import typed_errors
from lamina.store.base import Folder, ObjectInfo
from lamina.store.folders import below

_NOT_A_KEY = re.compile(r"\.tmp|.*[\x00-\x1f\x7f\\\ud800-\udfff]", re.DOTALL)


def walk(folder: Path, prefix: str, after: str) -> Iterator[ObjectInfo]:
    """Every object below, depth first. A folder sorts as its name and a slash: `a-b` < `a/b`."""
    with typed_errors(folder):
        entries = sorted((_sort_name(entry), entry) for entry in _entries(folder))
    for name, entry in entries:
        key = below(prefix, name)
        if key.endswith("/"):
            if key > after or after.startswith(key):
                yield from walk(Path(entry.path), key[:-1], after)
        elif key > after and (info := _info(entry, key)):
            yield info


def level(folder: Path, prefix: str) -> Folder:
    """The objects of one folder, and those of its folders that hold any."""
    with typed_errors(folder):
        entries = sorted(_entries(folder), key=lambda entry: entry.name)
        files = [_info(each, below(prefix, each.name)) for each in entries]
        folders = [e.name for e in entries if _is_folder(e) and _holds_object(Path(e.path))]
    return Folder(tuple(info for info in files if info), tuple(folders))


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """What can be a key; a link is refused, because hiding it would be success with less."""
    try:
        with os.scandir(folder) as found:
            for entry in found:
                if entry.is_symlink():
                    raise refused_link(Path(entry.path))
                if not _NOT_A_KEY.match(entry.name):
                    yield entry
    except (FileNotFoundError, NotADirectoryError):
        return  # nothing below it, or deleted meanwhile


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _sort_name(entry: os.DirEntry[str]) -> str:
    return f"{entry.name}/" if _is_folder(entry) else entry.name


def _info(entry: os.DirEntry[str], key: str) -> ObjectInfo | None:
    """None for what is not a file, or was deleted meanwhile."""
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return ObjectInfo(key, found.st_size) if stat.S_ISREG(found.st_mode) else None


def _holds_object(folder: Path) -> bool:
    """Whether any file is below, found at the first one; a crash or a race can leave none."""
    folders = []
    for entry in _entries(folder):
        if entry.is_file(follow_symlinks=False):
            return True
        if _is_folder(entry):
            folders.append(Path(entry.path))
    return any(_holds_object(each) for each in folders)


def refused_link(path: Path) -> Refused:
    return Refused(
        "symbolic links inside a local store are not followed",
        where=str(path),
        advice="Replace the link by what it leads to, or open the store at its target",
    )
