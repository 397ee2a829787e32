"""Prefixes and levels: what `list` and `list_folder` mean, the same for every backend."""

from __future__ import annotations

from collections.abc import Iterable

from lamina.store.base import Folder, ObjectInfo, check_key


def check_prefix(prefix: str) -> str:
    """A folder as a key without a slash at its end; the empty text is the whole store."""
    prefix = prefix.rstrip("/")
    return check_key(prefix) if prefix else ""


def level_of(objects: Iterable[ObjectInfo], prefix: str) -> Folder:
    """The one level below *prefix* of a sorted listing of everything below it."""
    start = len(prefix) + 1 if prefix else 0
    here: list[ObjectInfo] = []
    folders: dict[str, None] = {}
    for info in objects:
        name, slash, _ = info.key[start:].partition("/")
        if slash:
            folders[name] = None
        else:
            here.append(info)
    return Folder(tuple(here), tuple(sorted(folders)))


def below(prefix: str, name: str) -> str:
    """The key or folder *name* directly below *prefix*."""
    return f"{prefix}/{name}" if prefix else name
