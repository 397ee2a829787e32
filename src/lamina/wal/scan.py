"""What a folder of segments holds, by their headers: where a new writer may continue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lamina.disk.base import Disk
from lamina.errors import NotFound, WalDamaged
from lamina.format.home_names import (
    DRIVER,
    CoreSegment,
    DriverSegment,
    core_folder,
    parse_core_folder,
    parse_segment,
)
from lamina.format.wal import DRIVER_CORE, HEADER_SIZE, Kind, SegmentHeader
from lamina.wal.reader import Clean, Damaged, Proven, Record, SegmentReader, Torn


@dataclass(frozen=True, slots=True)
class End:
    """How one segment ends: what a writer needs to know to continue after it."""

    path: str
    header: SegmentHeader | None
    end: Clean | Torn | Damaged
    next_sequence: int
    epoch: int  # the highest of its records, and of its name
    durable: int  # up to where its own records prove that it was synced
    size: int


@dataclass(frozen=True, slots=True)
class Tail(End):
    """The end of one segment, and what is before it."""

    epoch_min: int  # the lowest of its records, TAKEOVERs and the like aside; 0 without any
    commit: Record | None  # the newest COMMIT before the end, without its payload
    records: int
    entries: int

    @property
    def committed(self) -> int:
        """The epoch of that COMMIT."""
        return self.commit.epoch if self.commit else 0


def segments_of(disk: Disk, core: int | None) -> tuple[str, ...]:
    """The paths of a core's segments, or the driver's (None), oldest first by what names say."""
    folder = DRIVER if core is None else core_folder(core)
    found = [(name_of(f"{folder}/{name}"), f"{folder}/{name}") for name in disk.list(folder)]
    return tuple(path for name, path in sorted((n, path) for n, path in found if n is not None))


def all_segments(disk: Disk) -> Iterator[str]:
    """The paths of all segments: the driver's, then core by core, each from the oldest."""
    try:
        for core in (None, *cores_of(disk)):
            yield from segments_of(disk, core)
    except NotFound as error:  # a folder that is missing is an empty one; this is a file
        message = "this should be a folder of segments, and is a file"
        raise WalDamaged(message, where=error.where) from error


def shared_segments(paths: Iterable[str]) -> tuple[str, ...]:
    """Those that were made under the lock of their core: the last one may be gone on with."""
    names = ((parse_segment(path), path) for path in paths)
    return tuple(p for name, p in names if isinstance(name, CoreSegment) and not name.own)


def name_of(path: str) -> tuple[int, int, str] | None:
    """The parts of a segment's name in their order; text alone would put a.000001 before a."""
    match parse_segment(path):
        case CoreSegment(_, generation, epoch, tag):
            return generation, epoch, tag
        case DriverSegment(generation, number):
            return generation, number, ""
        case None:
            return None


def cores_of(disk: Disk) -> tuple[int, ...]:
    """The cores that have a folder in this home."""
    found = (parse_core_folder(name) for name in disk.list(""))
    return tuple(sorted(core for core in found if core is not None))


def read_ends(disk: Disk, core: int, home: bytes) -> tuple[End, ...]:
    """The ends that a new writer must know for its epoch and sequence to rise; oldest first.

    Who makes a segment under the lock has looked at all before it: the name has no lower epoch
    than theirs and the header no lower sequence. So, of those made under the lock, one of a lower
    epoch than the newest was left for good before that one was made, and says nothing more. A
    newest one whose header never came says nothing either: then the one before it counts. Those
    made without the lock are all looked at: a late twin may have gone on in any of them.
    """
    paths = segments_of(disk, core)
    shared = set(shared_segments(paths))
    since: int | None = None
    found: list[End] = []
    for path in reversed(paths):
        epoch = _epoch_of(path)
        if path in shared and since is not None and epoch < since:
            continue
        try:
            end = read_end(disk, path, home)
        except NotFound:
            continue  # dropped meanwhile: never the newest one
        found.append(end)
        if path in shared and since is None and end.header is not None:
            since = epoch
    return tuple(reversed(found))


def read_end(disk: Disk, path: str, home: bytes) -> End:
    """How a segment ends, from its last record; by a walk over all only if there is none whole.

    That record says up to where the segment was synced. From there on every byte is read, and
    nothing before: what a COMMIT names there is proven when it is used (R1).
    """
    try:
        reader = SegmentReader(disk, path)
        last = reader.last()
    except WalDamaged:
        return read_tail(disk, path, home, judge=False)
    if last is None:
        return read_tail(disk, path, home, judge=False)
    check_home(reader, home)
    end: Clean | Torn | Damaged | None
    try:
        for _ in reader.records(last.header.durable):
            pass
        end = reader.end
    except WalDamaged as error:
        end = _damaged(reader, error)
    assert end is not None
    return End(
        path=path,
        header=reader.header,
        end=end,
        next_sequence=last.header.first_sequence + last.header.count,
        epoch=max(_epoch_of(path), last.epoch),
        durable=last.header.durable,
        size=reader.size,
    )


@dataclass
class _Walk:
    """What a walk over the headers of a segment has seen so far."""

    durable: int
    next_sequence: int
    epochs: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    commits: list[Record] = field(default_factory=list)
    entries: int = 0

    def take(self, record: Record) -> None:
        self.durable = max(self.durable, record.header.durable)
        self.next_sequence = record.header.first_sequence + record.header.count
        self.epochs.append(record.epoch)
        self.offsets.append(record.offset)
        self.entries += record.header.count
        if record.kind is Kind.COMMIT:
            self.commits.append(record)


def read_tail(
    disk: Disk, path: str, home: bytes, *, judge: bool = True, proven: Proven | None = None
) -> Tail:
    """Walk the headers of a segment; payloads only where nobody has proven them synced.

    Without *judge* damage is not raised but told by `end`: bytes that no COMMIT names do not
    exist, and those that one names are proven one by one (R1).
    """
    try:
        reader = SegmentReader(disk, path, proven)
    except WalDamaged as error:
        if judge:
            raise
        return _unreadable(disk, path, error)
    check_home(reader, home)
    walk = _Walk(HEADER_SIZE, reader.header.first_sequence if reader.header else 0)
    end: Clean | Torn | Damaged | None
    try:
        for record in reader.records(payloads=False):
            walk.take(record)
        unproven = next((offset for offset in walk.offsets if offset >= walk.durable), None)
        if unproven is not None:
            for _ in reader.records(unproven):
                pass
        end = reader.end
    except WalDamaged as error:
        if judge:
            raise
        end = _damaged(reader, error)
    assert end is not None
    before = [record for record in walk.commits if record.offset < end.end]
    return Tail(
        path=path,
        header=reader.header,
        end=end,
        next_sequence=walk.next_sequence,
        epoch=max([_epoch_of(path), *walk.epochs]),
        durable=walk.durable,
        size=reader.size,
        epoch_min=min((epoch for epoch in walk.epochs if epoch), default=0),
        commit=max(before, key=lambda record: record.epoch, default=None),
        records=len(walk.offsets),
        entries=walk.entries,
    )


def _unreadable(disk: Disk, path: str, error: WalDamaged) -> Tail:
    """A segment without a header: only its name speaks."""
    size = disk.size(path)
    return Tail(
        path=path,
        header=None,
        end=Damaged(0, size, f"damaged: {error.message}"),
        next_sequence=0,
        epoch=_epoch_of(path),
        durable=0,
        size=size,
        epoch_min=0,
        commit=None,
        records=0,
        entries=0,
    )


def _damaged(reader: SegmentReader, error: WalDamaged) -> Damaged:
    return Damaged(reader.position, reader.size - reader.position, f"damaged: {error.message}")


def _epoch_of(path: str) -> int:
    """The epoch that a core's segment was made in."""
    name = parse_segment(path)
    return name.epoch if isinstance(name, CoreSegment) else 0


def check_home(reader: SegmentReader, home: bytes) -> None:
    """A file of another home, core or generation does not belong here, whatever its name says."""
    header, name = reader.header, parse_segment(reader.path)
    if header is None:
        return
    if header.home != home:
        raise WalDamaged(
            f"the segment belongs to the home {header.home.hex()}, not {home.hex()}",
            where=reader.where(0),
        )
    if name is None:
        return
    core = name.core if isinstance(name, CoreSegment) else DRIVER_CORE
    if (header.core, header.generation) != (core, name.generation):
        raise WalDamaged(
            f"the segment is of core {header.core} and generation {header.generation}, its name "
            f"says {core} and {name.generation}",
            where=reader.where(0),
        )


def driver_generations(disk: Disk) -> list[int]:
    """The generations that have ever claimed this home, by the names of their segments."""
    found = (parse_segment(path) for path in segments_of(disk, None))
    return [name.generation for name in found if isinstance(name, DriverSegment)]


def newer_generations(disk: Disk, segment: str) -> list[int]:
    """Those of later segments: numbers in names have one width, so most need no look."""
    own = segment.rpartition("/")[2]
    found = (parse_segment(f"{DRIVER}/{name}") for name in disk.list(DRIVER) if name > own)
    return [name.generation for name in found if isinstance(name, DriverSegment)]
