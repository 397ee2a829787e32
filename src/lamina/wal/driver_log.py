"""The log of decisions: a COMMIT per epoch, synced, is what "acknowledged" means.

Every process that claims the home begins a segment of its own (O_EXCL), says what it accepts of
its predecessors in an ADOPT, and then appends COMMITs. Between the sync of a COMMIT and its first
effect it looks for a segment of a newer generation: then it is fenced (R5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lamina.disk.base import Disk
from lamina.errors import Refused, UsageError, WalDamaged
from lamina.format.canonical import sha256_hex
from lamina.format.commit import (
    OPERATOR,
    AdoptRecord,
    CheckpointRecord,
    CommitRecord,
    MovedRecord,
    Point,
    SinkAhead,
    TakeoverRecord,
    WalRange,
    checked_adopt,
    checked_commit,
    decode_adopt,
    decode_checkpoint,
    decode_commit,
    decode_takeover,
    encode_adopt,
    encode_checkpoint,
    encode_moved,
    encode_takeover,
    join_adopt,
)
from lamina.format.home_names import (
    DRIVER,
    DriverSegment,
    output_path,
    parse_segment,
    segment_path,
)
from lamina.format.pipeline_record import PipelineRecord
from lamina.format.wal import DRIVER_CORE, Kind, SegmentHeader
from lamina.protocol.driver import Adopt, Commit, Segment, check_not_superseded
from lamina.wal.home import Home
from lamina.wal.reader import Clean, Proven, Record, SegmentReader, Torn
from lamina.wal.scan import check_home, newer_generations, segments_of
from lamina.wal.segment import SegmentWriter
from lamina.wal.whole import Whole

if TYPE_CHECKING:
    import pyarrow as pa


class DriverLog:
    """The owner's end of the log. Not shared between threads."""

    def __init__(
        self,
        home: Home,
        generation: int,
        *,
        partitions: int = 1,
        pipeline: PipelineRecord | None = None,
    ) -> None:
        """Claim: a new segment with a TAKEOVER, durable. AlreadyExists if the number is taken."""
        self._home = home
        self.generation = generation
        self._partitions = partitions
        self._pipeline = pipeline
        self._number = 0
        self._sequence = 0
        self._head: Point | None = None
        self._sinks: Mapping[str, SinkAhead] = {}
        self._adopted = False
        self._whole = Whole()
        self._segment = self._create()

    @property
    def head(self) -> Point | None:
        return self._head

    @property
    def sinks(self) -> Mapping[str, SinkAhead]:
        """Sinks that are ahead of what a person gave up: `decide_publish` wants to know."""
        return self._sinks

    @property
    def segment(self) -> str:
        return self._segment.path

    @property
    def size(self) -> int:
        return self._segment.position

    def adopt(self, adopt: AdoptRecord) -> None:
        """Say what is accepted of older segments, before the first effect."""
        if self._adopted:
            raise Refused("this log has begun: an ADOPT is the first of its segment")
        records = checked_adopt(adopt)
        with self._whole.step():
            self._adopt(records, adopt)
        self._check_owner()

    def append_run(
        self, batch: pa.RecordBatch, *, epoch: int, operator: str = OPERATOR, core: int = 0
    ) -> WalRange:
        """A RUN in this log itself: if one process does all the work, a commit costs one sync."""
        from lamina.wal.runs import serialize  # noqa: PLC0415  slow to import; readers need none

        return self.append_payload(
            serialize(batch), batch.num_rows, epoch=epoch, operator=operator, core=core
        )

    def append_payload(
        self,
        payload: list[bytes | pa.Buffer],
        entries: int,
        *,
        epoch: int,
        operator: str,
        core: int,
    ) -> WalRange:
        """A RUN that somebody has serialized."""
        self._whole.check()
        first = self._sequence
        self._sequence += entries
        at = self._segment.append(
            Kind.RUN, payload, epoch=epoch, first_sequence=first, count=entries
        )
        return WalRange(operator, core, at.segment, at.offset, at.size, at.crc, at.entries)

    def append_output(self, data: bytes, *, epoch: int) -> str:
        """A file of output in this log itself; its name, for the COMMIT (FORMAT.md section 7)."""
        self._whole.check()
        at = self._segment.append(
            Kind.OUTPUT, [data], epoch=epoch, first_sequence=self._sequence, count=0
        )
        return output_path(at.segment, at.offset)

    def commit(self, commit: CommitRecord, *, wait: bool = True) -> Point:
        """THE decision. When it returns, or without *wait* when `settle` does, the epoch is
        acknowledged and its effects may begin."""
        self._segment.check_usable()
        self._check_adopted()
        self._check_commit(commit)
        data = checked_commit(commit)
        point = Point(commit.epoch, sha256_hex(data))
        with self._whole.step():
            self._ensure_adopted()
            self._append(Kind.COMMIT, data, commit.epoch)
            self._segment.begin_sync()
            self._head = point
        if wait:
            self.settle()
        return point

    def settle(self) -> None:
        """Wait until the last commit is durable; Fenced if somebody has taken over."""
        with self._whole.step():
            self._segment.sync()
        self._check_owner()

    def note_checkpoint(self, record: CheckpointRecord) -> None:
        """From here on the store can be held to this checkpoint."""
        with self._whole.step():
            self._append(Kind.CHECKPOINT, encode_checkpoint(record), record.epoch)
            self._segment.sync()

    def rotate(self, adopt: AdoptRecord) -> None:
        """Continue in a new part that begins with what still matters; older ones can be dropped.

        If the new part cannot be made, the old one continues. What sinks count as is carried on.
        """
        if adopt.head != self._head:
            raise Refused(
                f"the new part would begin at epoch {_epoch(adopt.head)}, this log is at "
                f"epoch {_epoch(self._head)}"
            )
        adopt = replace(adopt, sinks={**self._sinks, **adopt.sinks})
        records = checked_adopt(adopt)
        with self._whole.step():
            self._number += 1
            created = self._create()
            self._segment.close()
            self._segment, self._adopted = created, False
            self._adopt(records, adopt)
        self._check_owner()

    def leave(self, record: MovedRecord) -> None:
        """THE decision of a move: from here on nobody starts in this home."""
        with self._whole.step():
            self._append(Kind.MOVED, encode_moved(record), 0)
            self._segment.sync()
        self._check_owner()

    def close(self) -> None:
        self._segment.close()

    def _create(self) -> SegmentWriter:
        header = SegmentHeader(
            self._home.identity, self.generation, DRIVER_CORE, self._partitions, self._sequence
        )
        path = segment_path(DriverSegment(self.generation, self._number))
        segment = SegmentWriter.create(self._home.disk, path, header)
        takeover = TakeoverRecord(self.generation, self._home.name, self._pipeline)
        data = [encode_takeover(takeover)]
        try:
            segment.append(Kind.TAKEOVER, data, epoch=0, first_sequence=self._sequence, count=0)
            segment.sync()
        except BaseException:
            segment.close()
            raise
        return segment

    def _adopt(self, records: tuple[bytes, ...], adopt: AdoptRecord) -> None:
        for data in records:
            self._append(Kind.ADOPT, data, _epoch(adopt.head))
        self._segment.sync()
        self._head, self._sinks, self._adopted = adopt.head, adopt.sinks, True

    def _append(self, kind: Kind, payload: bytes, epoch: int) -> None:
        self._segment.append(kind, [payload], epoch=epoch, first_sequence=self._sequence, count=0)

    def _check_commit(self, commit: CommitRecord) -> None:
        """Readers take a log of one generation in which each COMMIT follows the one before."""
        epoch, head = commit.epoch, self._head
        if epoch <= _epoch(head):
            raise Refused(f"epoch {epoch} after epoch {_epoch(head)}: epochs only rise")
        if commit.generation != self.generation:
            raise Refused(
                f"a COMMIT of generation {commit.generation} in generation {self.generation}'s log"
            )
        if _epoch(commit.parent) >= epoch:
            raise Refused(f"epoch {epoch} cannot continue epoch {_epoch(commit.parent)}")
        if commit.follows != head:
            raise Refused(
                f"epoch {epoch} says that it follows epoch {_epoch(commit.follows)}; this log is "
                f"at epoch {_epoch(head)}",
                advice="Make it with follows=head",
            )

    def _check_adopted(self) -> None:
        if not self._adopted and segments_of(self._home.disk, None) != (self.segment,):
            raise UsageError("there are older driver segments: call adopt before the first commit")

    def _ensure_adopted(self) -> None:
        """A segment counts from its ADOPT on; the first one of a home has nothing to accept."""
        if not self._adopted:
            self._append(Kind.ADOPT, encode_adopt(AdoptRecord(None, ())), 0)
            self._adopted = True  # durable with the COMMIT behind it

    def _check_owner(self) -> None:
        newer = newer_generations(self._home.disk, self.segment)
        check_not_superseded(self.generation, newer)


@dataclass(frozen=True, slots=True)
class DriverSegmentContent:
    """One segment of the driver log, as far as it could be read."""

    path: str
    generation: int
    number: int
    adopt: AdoptRecord | None
    commits: tuple[CommitRecord, ...]
    checkpoints: tuple[CheckpointRecord, ...]
    end: Clean | Torn
    records: int
    size: int
    run_epoch: int = 0  # the highest of its RUNs, committed or not
    pipeline: PipelineRecord | None = None  # what its writer ran, if it has said so

    def rules(self) -> Segment:
        """What the rules of recovery need of it."""
        adopt = None
        if self.adopt is not None:
            copied = tuple(map(rule_commit, self.adopt.commits))
            adopt = Adopt(self.adopt.head, copied, self.adopt.sinks)
        commits = tuple(map(rule_commit, self.commits))
        return Segment(self.generation, adopt, commits, self.number)

    def known(self) -> dict[str, CommitRecord]:
        """Every COMMIT in it, copied or its own, by digest."""
        copied = self.adopt.commits if self.adopt else ()
        return {commit.digest: commit for commit in (*copied, *self.commits)}


@dataclass
class _Content:
    adopts: list[AdoptRecord] = field(default_factory=list)  # the records of one ADOPT
    commits: list[CommitRecord] = field(default_factory=list)
    checkpoints: list[CheckpointRecord] = field(default_factory=list)
    records: int = 0
    run_epoch: int = 0
    pipeline: PipelineRecord | None = None


def read_driver_segment(
    disk: Disk, path: str, home: bytes, proven: Proven | None = None
) -> DriverSegmentContent:
    """Read one segment; a torn tail is left aside and reported, damage is raised."""
    name = parse_segment(path)
    assert isinstance(name, DriverSegment), path
    reader = SegmentReader(disk, path, proven)
    check_home(reader, home)
    content = _Content()
    for record in reader.records():
        content.records += 1
        _take(content, record, reader)
    assert reader.end is not None
    return DriverSegmentContent(
        path,
        name.generation,
        name.number,
        join_adopt(content.adopts),
        tuple(content.commits),
        tuple(content.checkpoints),
        reader.end,
        content.records,
        reader.size,
        content.run_epoch,
        content.pipeline,
    )


def read_driver_log(
    disk: Disk, home: bytes, proven: Proven | None = None
) -> tuple[DriverSegmentContent, ...]:
    """Every segment of the home's driver log, oldest first."""
    paths = segments_of(disk, None)
    return tuple(read_driver_segment(disk, path, home, proven) for path in paths)


def drop_driver_segments(home: Home, floor: int) -> tuple[str, ...]:
    """Drop old segments whose COMMITs and RUNs are all of epochs up to *floor* (R7).

    The newest one with an ADOPT is the truth, and stays with everything after it. Of older ones
    only the headers are read: an ADOPT's has the highest epoch that it copies.
    """
    paths = list(segments_of(home.disk, None))
    while paths and read_driver_segment(home.disk, paths[-1], home.identity).adopt is None:
        paths.pop()
    dropped = tuple(path for path in paths[:-1] if _highest_epoch(home, path) <= floor)
    for path in dropped:
        home.disk.unlink(path)
    if dropped:
        home.disk.sync_folder(DRIVER)
    return dropped


def _highest_epoch(home: Home, path: str) -> int:
    reader = SegmentReader(home.disk, path)
    check_home(reader, home.identity)
    return max((record.epoch for record in reader.records(payloads=False)), default=0)


def rule_commit(record: CommitRecord) -> Commit:
    return Commit(
        record.point, record.parent, record.follows, record.generation, frozenset(record.sinks)
    )


def _take(content: _Content, record: Record, reader: SegmentReader) -> None:
    assert record.payload is not None
    data, where = bytes(record.payload), reader.where(record.offset)
    open_adopt = bool(content.adopts) and content.adopts[-1].more
    if open_adopt and record.kind is not Kind.ADOPT:
        raise WalDamaged(f"a {record.kind.name} in the middle of an ADOPT", where=where)
    match record.kind:
        case Kind.ADOPT:
            if content.commits or (content.adopts and not open_adopt):
                raise WalDamaged("an ADOPT that is not the first of its segment", where=where)
            adopt = decode_adopt(data, where)
            if open_adopt and adopt.head != content.adopts[0].head:
                raise WalDamaged("a record of one ADOPT in the middle of another", where=where)
            content.adopts.append(adopt)
        case Kind.COMMIT:
            content.commits.append(decode_commit(data, where))
        case Kind.CHECKPOINT:
            content.checkpoints.append(decode_checkpoint(data, where))
        case Kind.RUN | Kind.OUTPUT:
            content.run_epoch = max(content.run_epoch, record.epoch)
        case Kind.TAKEOVER:
            content.pipeline = decode_takeover(data, where).pipeline
        case Kind.BARRIER | Kind.MOVED:
            pass


def _epoch(point: Point | None) -> int:
    return 0 if point is None else point.epoch
