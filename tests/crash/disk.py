"""A disk in memory that knows what a power cut may leave of it.

Every byte of a file is synced or not, every name in a folder is durable or not. A hook sees each
call before it happens, in the middle of an append, and after it: it may wait, kill or fail there.
`crash_images` enumerates the legal states after a power cut:

tails    cut at each 512-byte boundary; any sector below the cut may be missing (it reads as zeros)
         or hold what it held after an earlier append
names    any subset of the creations, unlinks and renames that no `sync_folder` has made durable
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from lamina.disk.base import Bytes
from lamina.errors import AlreadyExists, NotFound, StoreError

SECTOR = 512
PAGE = 4096
SECTORS_IN_FULL = 6
"""Up to so many unsynced sectors every subset is tried."""
SAMPLES = 16
"""Beyond, each single sector and page is lost, and so many random sets of them."""
CHANGES = frozenset(
    ("make_folder", "create", "append", "sync", "truncate", "sync_folder", "unlink", "rename")
)

Image: TypeAlias = Mapping[str, bytes]
"""What is on the disk after a power cut: every file by its path; a folder ends with `/`."""


class PowerCut(BaseException):
    """The process is gone: no handler may eat it."""


class Call(NamedTuple):
    """One call to the disk. *moment* is before, mid (half an append is in the file) or after."""

    number: int
    process: str
    operation: str
    path: str
    moment: str

    @property
    def changes(self) -> bool:
        return self.operation in CHANGES

    def __str__(self) -> str:
        return f"#{self.number} {self.moment} {self.operation} {self.path} by {self.process}"


Hook: TypeAlias = Callable[[Call], None]


def no_hook(call: Call) -> None:
    pass


@dataclass(eq=False)
class Inode:
    """A file's bytes, whatever names it has."""

    data: bytearray = field(default_factory=bytearray)
    synced: int = 0
    ends: list[int] = field(default_factory=list)  # where appends since the last sync ended
    forgotten: list[tuple[int, int]] = field(default_factory=list)
    """Ranges whose sync failed: Linux then takes them for clean, and no later sync writes them."""

    def write(self, data: bytes) -> None:
        self.data += data

    def appended(self) -> None:
        """A whole append is in the page cache: the disk may get a sector as it is now."""
        self.ends.append(len(self.data))

    def sync(self) -> None:
        self.synced = len(self.data)
        self.ends = []

    def sync_failed(self) -> None:
        if self.synced < len(self.data):
            self.forgotten.append((self.synced, len(self.data)))

    def truncate(self, size: int) -> None:
        """With the fsync that the real one does."""
        del self.data[size:]
        self.sync()

    def after_power_cut(self, random: Random) -> list[bytes]:
        """Everything the file may hold: nothing of the tail comes first, all of it last."""
        found = {bytes(tail): None for tail in _tails(self, random)}
        for start, end in self.forgotten:
            for tail in list(found):
                found[_blank(tail, start, end)] = None
        return sorted(found, key=lambda tail: (len(tail), -tail.count(0)))


Assignment: TypeAlias = tuple[str, Inode | None]


@dataclass
class Platter:
    """What all processes of one machine share."""

    files: dict[str, Inode] = field(default_factory=dict)
    durable: dict[str, Inode] = field(default_factory=dict)
    pending: list[tuple[Assignment, ...]] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)
    locks: dict[str, RecordingLock] = field(default_factory=dict)
    calls: int = 0
    forgetful: bool = True  # whether what a failed sync left behind is lost to later ones

    @classmethod
    def of(cls, image: Image) -> Platter:
        """The machine starts again with what the power cut left."""
        files = {
            path: Inode(bytearray(data), len(data))
            for path, data in image.items()
            if not path.endswith("/")
        }
        folders = {path[:-1] for path in image if path.endswith("/")}
        return cls(files=files, durable=dict(files), folders=folders)

    def assign(self, *changes: Assignment) -> None:
        """Change names at once; durable with the next `sync_folder`."""
        _apply(self.files, changes)
        self.pending.append(changes)

    def sync_names(self, folder: str) -> None:
        kept = []
        for changes in self.pending:
            if folder_of(changes[0][0]) == folder:
                _apply(self.durable, changes)
            else:
                kept.append(changes)
        self.pending = kept

    def image(self) -> Image:
        """Everything as it is now: a kill without a power cut."""
        return self._image(self.files, {})

    def crash_images(self, random: Random, *, at_most: int) -> Iterator[Image]:
        """The states that a power cut now may leave, each once; a sample if they are too many."""
        names = _subsets(self.pending, random)
        dirty = [inode for inode in self._reachable() if _is_dirty(inode)]
        axes = [inode.after_power_cut(random) for inode in dirty]
        seen: set[frozenset[tuple[str, bytes]]] = set()
        for chosen in _choices([len(names), *map(len, axes)], random, at_most):
            mapping = dict(self.durable)
            for changes in names[chosen[0]]:
                _apply(mapping, changes)
            picked = zip(dirty, axes, chosen[1:], strict=True)
            image = self._image(mapping, {id(i): axis[at] for i, axis, at in picked})
            key = frozenset(image.items())
            if key not in seen:
                seen.add(key)
                yield image

    def power_cut(self, random: Random) -> None:
        """One of those states, drawn at random; the machine starts again with it."""
        mapping = dict(self.durable)
        for changes in self.pending:
            if random.random() < 0.5:
                _apply(mapping, changes)
        tails = {id(i): _random_tail(i, random) for i in self._reachable() if _is_dirty(i)}
        after = Platter.of(self._image(mapping, tails))
        self.files, self.durable, self.pending = after.files, after.durable, []
        self.locks = {}

    def _reachable(self) -> list[Inode]:
        named = [inode for changes in self.pending for _, inode in changes if inode is not None]
        return list({id(inode): inode for inode in (*self.durable.values(), *named)}.values())

    def _image(self, mapping: Mapping[str, Inode], contents: Mapping[int, bytes]) -> Image:
        image = {f"{folder}/": b"" for folder in self.folders}
        for path, inode in sorted(mapping.items()):
            image[path] = contents.get(id(inode), bytes(inode.data))
        return image


class RecordingDisk:
    """One process's view of the disk; `process` gives another one the same files."""

    def __init__(
        self, platter: Platter | None = None, *, name: str = "process", hook: Hook = no_hook
    ) -> None:
        self.platter = Platter() if platter is None else platter
        self.name = name
        self.hook = hook
        self.alive = True

    def process(self, name: str, hook: Hook = no_hook) -> RecordingDisk:
        return RecordingDisk(self.platter, name=name, hook=hook)

    def kill(self) -> None:
        """kill -9: its locks are free, and it makes no call any more."""
        self.alive = False
        held = self.platter.locks
        self.platter.locks = {p: lock for p, lock in held.items() if lock.disk is not self}

    @property
    def root(self) -> str:
        return "memory:"

    def make_folder(self, path: str) -> None:
        self.tell("make_folder", path)
        parts = path.split("/")
        self.platter.folders |= {"/".join(parts[:n]) for n in range(len(parts) + 1)}
        self.tell("make_folder", path, "after")

    def create(self, path: str) -> RecordingFile:
        self.tell("create", path)
        if path in self.platter.files:
            raise AlreadyExists("the file exists", where=path)
        self._check_folder(path)
        inode = Inode()
        self.platter.assign((path, inode))
        self.tell("create", path, "after")
        return RecordingFile(self, path, inode)

    def open(self, path: str) -> RecordingFile:
        self.tell("open", path)
        return RecordingFile(self, path, self._inode(path))

    def sync_folder(self, path: str) -> None:
        self.tell("sync_folder", path)
        self.platter.sync_names(path)
        self.tell("sync_folder", path, "after")

    def read(self, path: str, offset: int, size: int) -> bytes:
        self.tell("read", path)
        return bytes(self._inode(path).data[offset : offset + size])

    def map(self, path: str) -> pa.Buffer:
        self.tell("map", path)
        return pa.py_buffer(bytes(self._inode(path).data))

    def size(self, path: str) -> int:
        self.tell("size", path)
        return len(self._inode(path).data)

    def list(self, folder: str) -> tuple[str, ...]:
        self.tell("list", folder)
        paths = (*self.platter.files, *filter(None, self.platter.folders))
        return tuple(sorted(p.rpartition("/")[2] for p in paths if folder_of(p) == folder))

    def unlink(self, path: str) -> None:
        self.tell("unlink", path)
        if path in self.platter.files:
            self.platter.assign((path, None))
        self.tell("unlink", path, "after")

    def rename(self, path: str, target: str) -> None:
        self.tell("rename", path)
        self.platter.assign((path, None), (target, self._inode(path)))
        self.tell("rename", path, "after")

    def try_lock(self, path: str) -> RecordingLock | None:
        self.tell("try_lock", path)
        if path not in self.platter.files:
            self._check_folder(path)
            self.platter.assign((path, Inode()))
        if path in self.platter.locks:
            return None
        lock = self.platter.locks[path] = RecordingLock(self, path)
        self.tell("try_lock", path, "after")
        return lock

    def tell(self, operation: str, path: str, moment: str = "before") -> None:
        """Count the call and let the hook do what it likes."""
        if not self.alive:
            raise PowerCut
        if moment == "before":
            self.platter.calls += 1
        self.hook(Call(self.platter.calls, self.name, operation, path, moment))
        if not self.alive:
            raise PowerCut

    def _inode(self, path: str) -> Inode:
        inode = self.platter.files.get(path)
        if inode is None:
            raise NotFound("no such file", where=path)
        return inode

    def _check_folder(self, path: str) -> None:
        if folder_of(path) not in self.platter.folders:
            raise NotFound("no such folder", where=path)


class RecordingFile:
    """Open in append mode, with its own idea of the size, as a real descriptor has."""

    def __init__(self, disk: RecordingDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._size = len(inode.data)
        self._open = True

    @property
    def size(self) -> int:
        return self._size

    def append(self, parts: Sequence[Bytes]) -> None:
        """In two halves: a kill or a full disk in between leaves a torn record."""
        self._check_open()
        data = b"".join(bytes(part) for part in parts)
        self._disk.tell("append", self.path)
        self._write(data[: len(data) // 2])
        self._disk.tell("append", self.path, "mid")
        self._write(data[len(data) // 2 :])
        self._inode.appended()
        self._disk.tell("append", self.path, "after")

    def sync(self) -> None:
        self._check_open()
        try:
            self._disk.tell("sync", self.path)
        except StoreError:
            if self._disk.platter.forgetful:
                self._inode.sync_failed()
            raise
        self._inode.sync()
        self._disk.tell("sync", self.path, "after")

    def truncate(self, size: int) -> None:
        self._check_open()
        self._disk.tell("truncate", self.path)
        self._inode.truncate(size)
        self._size = size
        self._disk.tell("truncate", self.path, "after")

    def close(self) -> None:
        self._open = False

    def _write(self, data: bytes) -> None:
        self._inode.write(data)
        self._size += len(data)

    def _check_open(self) -> None:
        if not self._open:
            raise StoreError("Bad file descriptor (errno 9, EBADF)", where=self.path)


class RecordingLock:
    def __init__(self, disk: RecordingDisk, path: str) -> None:
        self.disk = disk
        self._path = path

    def release(self) -> None:
        if self.disk.platter.locks.get(self._path) is self:
            del self.disk.platter.locks[self._path]


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _apply(names: dict[str, Inode], changes: Sequence[Assignment]) -> None:
    for path, inode in changes:
        if inode is None:
            names.pop(path, None)
        else:
            names[path] = inode


def _is_dirty(inode: Inode) -> bool:
    return inode.synced < len(inode.data) or bool(inode.forgotten)


def _blank(data: bytes, start: int, end: int) -> bytes:
    """What a lost range reads as, within the length that was kept."""
    end = min(end, len(data))
    return data[:start] + bytes(max(0, end - start)) + data[end:]


def _tails(inode: Inode, random: Random) -> Iterator[bytes]:
    """Every cut of the unsynced tail; then sectors and pages that never reached the disk."""
    start, end = inode.synced, len(inode.data)
    whole = bytes(inode.data)
    first = (start // SECTOR + 1) * SECTOR
    for cut in (start, *range(first, end, SECTOR), end):
        yield whole[:cut]
        pieces = range(start - start % SECTOR, cut, SECTOR)
        if len(pieces) <= SECTORS_IN_FULL:
            yield from _mixed(inode, pieces, cut, random, at_most=1 << SECTORS_IN_FULL)
    for step in (SECTOR, PAGE):
        for at in range(start - start % step, end, step):
            yield _blank(whole, max(start, at), at + step)
    if end - start > SECTOR * SECTORS_IN_FULL:
        for _ in range(SAMPLES):
            yield _random_tail(inode, random)


def _mixed(
    inode: Inode, sectors: Sequence[int], cut: int, random: Random, *, at_most: int
) -> Iterator[bytes]:
    """Every combination of what the sectors below *cut* may hold."""
    start = inode.synced
    options = [_versions(inode, max(start, at), min(cut, at + SECTOR)) for at in sectors]
    for chosen in _choices([len(o) for o in options], random, at_most):
        middle = (option[at] for option, at in zip(options, chosen, strict=True))
        yield bytes(inode.data[:start]) + b"".join(middle)


def _random_tail(inode: Inode, random: Random) -> bytes:
    start, end = inode.synced, len(inode.data)
    cut = random.choice((start, end, random.randint(start, end) // SECTOR * SECTOR))
    data = bytes(inode.data[: max(start, cut)])
    for at in range(start - start % SECTOR, len(data), SECTOR):
        if random.random() < 0.2:
            data = _blank(data, max(start, at), at + SECTOR)
    return data


def _versions(inode: Inode, low: int, high: int) -> list[bytes]:
    """What one sector may hold: nothing, what it held after an earlier append, everything."""
    ends = [end for end in inode.ends if low < end < high]
    data = bytes(inode.data)
    return [data[low:end] + bytes(high - end) for end in (low, *ends, high)]


def _subsets(
    pending: Sequence[tuple[Assignment, ...]], random: Random
) -> list[list[tuple[Assignment, ...]]]:
    """Which changes of names persisted, in their order; none first, all last."""
    chosen = sorted(_choices([2] * len(pending), random, 32), key=sum)
    return [list(itertools.compress(pending, kept)) for kept in chosen]


def _choices(sizes: Sequence[int], random: Random, at_most: int) -> Iterator[tuple[int, ...]]:
    """Index tuples below *sizes*: all of them, or the telling ones and a sample of the rest.

    Telling: everything lost, everything kept, and each alternative of each axis with the others
    lost and with the others kept.
    """
    total = 1
    for size in sizes:
        total *= size
    if total <= at_most:
        yield from itertools.product(*map(range, sizes))
        return
    seen: set[tuple[int, ...]] = set()
    for others in ((0,) * len(sizes), tuple(size - 1 for size in sizes)):
        for axis, size in enumerate(sizes):
            for at in range(size):
                seen.add((*others[:axis], at, *others[axis + 1 :]))
    for _ in range(max(at_most // 4, at_most - len(seen))):
        seen.add(tuple(random.randrange(size) for size in sizes))
    yield from sorted(seen)
