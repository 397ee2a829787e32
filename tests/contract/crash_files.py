"""A file system in memory for sinks: it records every call, and can be killed or cut off at each.

A name is durable when its folder was synced after it changed; the bytes of a file when `create`
has returned. A power cut keeps any part of what was not synced yet.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BufferedIOBase, BytesIO
from pathlib import Path

from lamina.testing.faulty import Killed

Change = dict[str, "File | Folder | None"]


@dataclass
class File:
    data: bytes


@dataclass
class Folder:
    """Names as they are now, as the disk has them, and the changes in between."""

    names: dict[str, File | Folder] = field(default_factory=dict)
    durable: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        _apply(self.names, change)
        self.pending.append(change)

    def sync(self) -> None:
        self.durable, self.pending = dict(self.names), []


@dataclass
class Platter:
    """What outlives processes; *calls* are all that were made, each with its moment."""

    root: Folder = field(default_factory=Folder)
    calls: list[str] = field(default_factory=list)

    def cut_states(self) -> Iterator[Platter]:
        """What a power cut may leave: nothing unsynced, all of it, and each change alone or not."""
        total = sum(len(folder.pending) for folder in _folders(self.root))
        if total <= 5:
            choices = set(itertools.product((False, True), repeat=total))
        else:
            choices = {(False,) * total, (True,) * total}
            for at in range(total):
                choices.add(tuple(i == at for i in range(total)))
                choices.add(tuple(i != at for i in range(total)))
        for choice in sorted(choices):
            yield Platter(_cut(self.root, iter(choice)))

    def synced(self) -> Platter:
        """What is there for certain."""
        return Platter(_cut(self.root, itertools.repeat(False)))

    def find(self, path: Path) -> File | Folder | None:
        node: File | Folder | None = self.root
        for name in path.parts[1:]:
            if not isinstance(node, Folder):
                return None
            node = node.names.get(name)
        return node

    def tree(self, path: Path) -> dict[str, bytes]:
        """Every file below a folder, by its path."""
        node = self.find(path)
        return dict(_files(node, "")) if isinstance(node, Folder) else {}


class CrashFiles:
    """One process's calls; *hook* hears of each before and after it, and may raise."""

    def __init__(
        self, platter: Platter, tag: str, hook: Callable[[str], None] = lambda _: None
    ) -> None:
        self.platter = platter
        self.tag = tag
        self._hook = hook
        self._is_dead = False

    def names(self, folder: Path) -> list[str]:
        self._tell("names", folder)
        node = self.platter.find(folder)
        return sorted(node.names) if isinstance(node, Folder) else []

    def exists(self, path: Path) -> bool:
        self._tell("exists", path)
        return self.platter.find(path) is not None

    def open(self, path: Path) -> BufferedIOBase:
        self._tell("open", path)
        node = self.platter.find(path)
        if not isinstance(node, File):
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return BytesIO(node.data)

    def mkdir(self, folder: Path) -> None:
        with self._call("mkdir", folder):
            if self.platter.find(folder) is None:
                self._folder(folder.parent).change({folder.name: Folder()})

    def create(self, path: Path, source: BufferedIOBase) -> None:
        self._tell("create", path)
        folder = self._folder(path.parent)
        if path.name in folder.names:
            raise FileExistsError(errno.EEXIST, "is there", str(path))
        data = source.read()
        file = File(data[: len(data) // 2])
        folder.change({path.name: file})
        self._tell("half", path)
        file.data = data
        self._tell("created", path)

    def link(self, source: Path, target: Path) -> None:
        self._tell("link", target)
        node = self.platter.find(source)
        if node is None:
            node = File(source.read_bytes())  # a staged file of the real disk
        folder = self._folder(target.parent)
        if target.name in folder.names:
            raise FileExistsError(errno.EEXIST, "is there", str(target))
        folder.change({target.name: node})
        self._tell("linked", target)

    def rename(self, source: Path, target: Path) -> None:
        with self._call("rename", source):
            folder = self._folder(source.parent)
            assert source.parent == target.parent, "the sink renames within one folder"
            node, there = folder.names.get(source.name), folder.names.get(target.name)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(source))
            if isinstance(there, Folder) and there.names:
                raise OSError(errno.ENOTEMPTY, "not empty", str(target))
            folder.change({source.name: None, target.name: node})

    def unlink(self, path: Path) -> None:
        with self._call("unlink", path):
            folder = self.platter.find(path.parent)
            if isinstance(folder, Folder) and path.name in folder.names:
                folder.change({path.name: None})

    def remove(self, folder: Path) -> None:
        node = self.platter.find(folder)
        if isinstance(node, Folder):
            for name in sorted(node.names):
                self.unlink(folder / name)
            with self._call("rmdir", folder):
                self._folder(folder.parent).change({folder.name: None})

    def sync(self, folder: Path) -> None:
        with self._call("sync", folder):
            self._folder(folder).sync()

    def _folder(self, path: Path) -> Folder:
        node = self.platter.find(path)
        if not isinstance(node, Folder):
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(path))
        return node

    def _tell(self, call: str, path: Path) -> None:
        if self._is_dead:
            raise Killed(call)
        self.platter.calls.append(f"{call} {path.name}")
        try:
            self._hook(f"{call} {path.name}")
        except Killed:
            self._is_dead = True
            raise

    def _call(self, call: str, path: Path) -> _Call:
        return _Call(self, call, path)


@dataclass
class _Call:
    files: CrashFiles
    call: str
    path: Path

    def __enter__(self) -> None:
        self.files._tell(self.call, self.path)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.files._tell(f"{self.call} done", self.path)


def _apply(names: dict[str, File | Folder], change: Change) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _folders(root: Folder) -> Iterator[Folder]:
    """Every folder that the disk may hold, each once, in an order that does not change."""
    seen: dict[int, Folder] = {}
    _collect(root, seen)
    yield from seen.values()


def _collect(folder: Folder, seen: dict[int, Folder]) -> None:
    if id(folder) in seen:
        return
    seen[id(folder)] = folder
    nodes = [*folder.durable.values(), *(n for c in folder.pending for n in c.values() if n)]
    for node in nodes:
        if isinstance(node, Folder):
            _collect(node, seen)


def _cut(root: Folder, kept: Iterator[bool]) -> Folder:
    """The tree as a power cut leaves it; *kept* says of each pending change whether it stays."""
    after: dict[int, dict[str, File | Folder]] = {}
    for folder in _folders(root):
        names = dict(folder.durable)
        for change in folder.pending:
            if next(kept):
                _apply(names, change)
        after[id(folder)] = names
    return _copied(root, after)


def _copied(folder: Folder, after: dict[int, dict[str, File | Folder]]) -> Folder:
    names = {
        name: _copied(node, after) if isinstance(node, Folder) else File(node.data)
        for name, node in after[id(folder)].items()
    }
    return Folder(names, dict(names))


def _files(folder: Folder, path: str) -> Iterator[tuple[str, bytes]]:
    for name, node in sorted(folder.names.items()):
        if isinstance(node, Folder):
            yield from _files(node, f"{path}{name}/")
        else:
            yield f"{path}{name}", node.data
