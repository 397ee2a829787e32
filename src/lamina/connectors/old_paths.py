"""The memory of files as older versions kept it, by whole paths, told by paths below the folder.

A pipeline may have read its folder by several paths (`../p/in`, a link), and the project may have
been moved since. So a whole path is understood, in this order:

1. it begins with the folder as it is called today, or leads into it
2. it has the folder as the pipeline names it (`path 'data/in'`) in it: the project was moved
3. it is of another folder; a file that looks like it is refused, neither read again nor passed over
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath

from lamina.connectors.file_status import FileStatus, look


@dataclass(frozen=True, slots=True)
class OldPaths:
    """What was understood, and what was not."""

    files: dict[str, FileStatus] = field(default_factory=dict)  # by the path below the folder
    understood: list[str] = field(default_factory=list)  # whole paths, which are done with
    elsewhere: dict[tuple[str, int, int], str] = field(default_factory=dict)

    def like(self, file: FileStatus) -> str | None:
        """A file of another folder with the name, size and time of *file*."""
        return self.elsewhere.get(_likeness(file))


def is_old(path: str) -> bool:
    return path.startswith("/")


def understand(old: Iterable[FileStatus], folder: Path, written: str) -> OldPaths:
    """*folder* as it is called today; *written* as the pipeline names it."""
    found, certain = OldPaths(), set[str]()
    resolved = folder.resolve()
    roots = {str(folder), os.path.normpath(folder), str(resolved)}
    resolve = cache(os.path.realpath)

    def inside(path: str) -> str | None:
        """The path below today's folder, if it leads there."""
        for root in roots:
            if path.startswith(f"{root}/"):
                return path[len(root) + 1 :]
        parent, _, name = path.rpartition("/")
        way = os.path.relpath(resolve(parent), resolved)
        return None if way.startswith("..") else os.path.normpath(f"{way}/{name}")

    for file in old:
        exact = inside(file.path)
        below = exact or _moved(file, resolved, _tail(written))
        if below is None:
            found.elsewhere[_likeness(file)] = file.path
            continue
        found.understood.append(file.path)
        if exact or below not in certain:
            found.files[below] = FileStatus(below, file.size, file.changed_us)
        if exact:
            certain.add(below)
    return found


def _moved(file: FileStatus, folder: Path, tail: str) -> str | None:
    """The path below the folder if *file* was read from where the project was."""
    below = list(_below(file.path, tail)) if tail else []
    present = (path for path in below if look(folder, path) is not None)
    return next(present, below[-1] if below else None)


def _below(path: str, tail: str) -> Iterator[str]:
    """What may follow the folder's own name, which may be in the path more than once."""
    at = path.find(f"/{tail}/")
    while at >= 0:
        yield path[at + len(tail) + 2 :]
        at = path.find(f"/{tail}/", at + 1)


def _tail(written: str) -> str:
    """The end of a path that stays when a project is moved."""
    path = PurePosixPath(written)
    parts = [path.name] if path.is_absolute() else [part for part in path.parts if part != ".."]
    return "/".join(parts)


def _likeness(file: FileStatus) -> tuple[str, int, int]:
    return file.path.rpartition("/")[2], file.size, file.changed_us
