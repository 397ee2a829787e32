"""What COMMIT, ADOPT, TAKEOVER, MOVED and CHECKPOINT records of the WAL say: canonical JSON.

The digest of an epoch is the SHA-256 of its COMMIT's bytes; each names its parent's, so that a
history is a chain. FORMAT.md section 7 is the specification.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lamina.errors import Corrupt, Unsupported, UsageError, WalDamaged
from lamina.format import canonical
from lamina.format.canonical import Json
from lamina.format.fields import Fields
from lamina.format.manifest_model import ConnectorCheckpoint
from lamina.format.pipeline_record import PipelineRecord, decode_record, encode_record
from lamina.ids import CheckpointId

T = TypeVar("T")

ADOPT_BYTES_MAX = 32 << 20
"""How many bytes of COMMITs one ADOPT record holds; what has more is written as several."""


@dataclass(frozen=True, slots=True)
class Point:
    """One epoch of one history: the number and the digest of its COMMIT."""

    epoch: int
    digest: str


OPERATOR = "state"
"""Whose state puts, deletes and batches are, unless a batch says otherwise."""


@dataclass(frozen=True, slots=True)
class WalRange:
    """Where one record of an epoch is, with its checksum."""

    operator: str
    core: int
    segment: str
    offset: int
    size: int
    crc: int
    entries: int


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Output of this epoch that a sink is to publish."""

    sink: str
    path: str
    size: int
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """The decision of one epoch: everything it changes moves with this record, or not at all."""

    epoch: int
    generation: int
    parent: Point | None = None  # the epoch whose state it continues
    follows: Point | None = None  # the epoch after which sinks get it
    partitions: int = 1
    source_offsets: Mapping[str, ConnectorCheckpoint] = field(default_factory=dict)
    table_offsets: Mapping[str, ConnectorCheckpoint] = field(default_factory=dict)
    watermark: int | None = None
    source_watermarks: Mapping[str, int] = field(default_factory=dict)
    ranges: tuple[WalRange, ...] = ()
    staged: tuple[StagedFile, ...] = ()
    sinks: tuple[str, ...] = ()  # whom it was decided for, sorted; none: nobody says
    takes_back: Mapping[str, Point] = field(default_factory=dict)
    """Of a rewind, by sink: the epoch that the sink is to be at again, without what came after."""
    _digest: str = field(default="", init=False, repr=False, compare=False)

    @property
    def digest(self) -> str:
        if not self._digest:
            object.__setattr__(self, "_digest", canonical.sha256_hex(encode_commit(self)))
        return self._digest

    @property
    def point(self) -> Point:
        return Point(self.epoch, self.digest)


@dataclass(frozen=True, slots=True)
class SinkAhead:
    """A sink that holds an epoch which a person gave up, and what it counts as from then on."""

    at: Point  # what the outside system really holds
    counts_as: Point | None  # where recovery landed


@dataclass(frozen=True, slots=True)
class AdoptRecord:
    """What a new process accepted of its predecessors: all of it is there, or none (R5)."""

    head: Point | None
    commits: tuple[CommitRecord, ...]
    sinks: Mapping[str, SinkAhead] = field(default_factory=dict)
    more: bool = False  # the record behind this one goes on with it


@dataclass(frozen=True, slots=True)
class TakeoverRecord:
    """Who begins a driver segment, and what the pipeline is that it decides for, if it is one."""

    generation: int
    home: str
    pipeline: PipelineRecord | None = None


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A checkpoint of this epoch exists in the store: its manifest must have this digest."""

    id: CheckpointId
    epoch: int
    manifest_sha256: str


@dataclass(frozen=True, slots=True)
class MovedRecord:
    """The home is elsewhere now: nobody decides here any more."""

    to: str
    arrival: str  # which move; the new place says the same of itself


def encode_commit(commit: CommitRecord) -> bytes:
    return canonical.encode(_commit(commit))


def decode_commit(data: bytes, where: str) -> CommitRecord:
    commit = _read_commit(_open(data, where))
    _check_whole(encode_commit(commit), data, where)
    return commit


def checked_commit(commit: CommitRecord) -> bytes:
    """The bytes of a COMMIT that every reader takes; UsageError if there are none."""
    return _checked(commit, encode_commit, decode_commit)


def encode_adopt(adopt: AdoptRecord) -> bytes:
    fields: dict[str, Json] = {
        "head": _point(adopt.head),
        "commits": [_commit(c) for c in adopt.commits],
    }
    if adopt.sinks:
        fields["sinks"] = {name: _ahead(ahead) for name, ahead in adopt.sinks.items()}
    if adopt.more:
        fields["more"] = True
    return canonical.encode(fields)


def decode_adopt(data: bytes, where: str) -> AdoptRecord:
    fields = _open(data, where)
    adopt = AdoptRecord(
        _read_point(fields, "head"),
        fields.list_of("commits", _read_commit),
        fields.map_of("sinks", _read_ahead),
        fields.flag("more", False),
    )
    if adopt.more and adopt.sinks:
        raise fields.bad("only the last record of an ADOPT says what sinks count as")
    _check_whole(encode_adopt(adopt), data, where)
    return adopt


def checked_adopt(adopt: AdoptRecord) -> tuple[bytes, ...]:
    """The bytes of the records of an ADOPT; UsageError if there are none that readers take."""
    assert not adopt.more, "an ADOPT as a whole"
    try:
        parts = _split(adopt)
    except (AttributeError, TypeError) as error:
        raise UsageError(f"this cannot be stored: {error}") from error
    return tuple(_checked(part, encode_adopt, decode_adopt) for part in parts)


def join_adopt(parts: Sequence[AdoptRecord]) -> AdoptRecord | None:
    """The ADOPT that its records make; None as long as the last of them is not there."""
    if not parts or parts[-1].more:
        return None
    commits = tuple(commit for part in parts for commit in part.commits)
    return AdoptRecord(parts[-1].head, commits, parts[-1].sinks)


def _split(adopt: AdoptRecord) -> list[AdoptRecord]:
    """Records of bounded size, in order; only the last one says what sinks count as."""
    groups: list[list[CommitRecord]] = [[]]
    size = 0
    for commit in adopt.commits:
        added = len(encode_commit(commit))
        if groups[-1] and size + added > ADOPT_BYTES_MAX:
            groups.append([])
            size = 0
        groups[-1].append(commit)
        size += added
    parts = [AdoptRecord(adopt.head, tuple(group), more=True) for group in groups]
    return [*parts[:-1], replace(adopt, commits=tuple(groups[-1]))]


def encode_takeover(takeover: TakeoverRecord) -> bytes:
    value: dict[str, Json] = {"generation": takeover.generation, "home": takeover.home}
    if takeover.pipeline is not None:
        value["pipeline"] = encode_record(takeover.pipeline)
    return canonical.encode(value)


def decode_takeover(data: bytes, where: str) -> TakeoverRecord:
    fields = _open(data, where)
    record = fields.optional_object("pipeline")
    pipeline = None if record is None else decode_record(record)
    return TakeoverRecord(fields.integer("generation"), fields.text("home"), pipeline)


def encode_moved(record: MovedRecord) -> bytes:
    return canonical.encode({"to": record.to, "arrival": record.arrival})


def decode_moved(data: bytes, where: str) -> MovedRecord:
    fields = _open(data, where)
    return MovedRecord(fields.text("to"), fields.text("arrival"))


def encode_checkpoint(record: CheckpointRecord) -> bytes:
    return canonical.encode(
        {
            "id": str(record.id),
            "epoch": record.epoch,
            "manifest_sha256": record.manifest_sha256,
        }
    )


def decode_checkpoint(data: bytes, where: str) -> CheckpointRecord:
    fields = _open(data, where)
    return CheckpointRecord(
        fields.checkpoint_id("id"), fields.integer("epoch"), fields.text("manifest_sha256")
    )


def _checked(value: T, encode: Callable[[T], bytes], decode: Callable[[bytes, str], T]) -> bytes:
    try:
        data = encode(value)
        decode(data, "")
    except (AttributeError, TypeError) as error:
        raise UsageError(f"this cannot be stored: {error}") from error
    except (Corrupt, Unsupported) as error:
        raise UsageError(f"this record would not be readable: {error.message}") from error
    return data


def _open(data: bytes, where: str) -> Fields:
    try:
        return Fields(canonical.decode(data, where), where, error=WalDamaged)
    except Corrupt as error:
        raise WalDamaged(error.message, where=where) from error


def _check_whole(again: bytes, data: bytes, where: str) -> None:
    """An epoch's digest is that of its bytes: one that we would write differently is not ours."""
    if again != data:
        raise Unsupported(
            "a COMMIT or ADOPT has fields that this Lamina does not know", where=where
        )


def _commit(commit: CommitRecord) -> dict[str, Json]:
    newer: dict[str, Json] = {"sinks": list(commit.sinks)} if commit.sinks else {}
    if commit.takes_back:
        newer["takes_back"] = {name: _point(to) for name, to in commit.takes_back.items()}
    return newer | {
        "epoch": commit.epoch,
        "generation": commit.generation,
        "parent": _point(commit.parent),
        "follows": _point(commit.follows),
        "partitions": commit.partitions,
        "source_offsets": {k: _connector(v) for k, v in commit.source_offsets.items()},
        "table_offsets": {k: _connector(v) for k, v in commit.table_offsets.items()},
        "watermark": commit.watermark,
        "source_watermarks": commit.source_watermarks,
        "ranges": [_range(r) for r in commit.ranges],
        "staged": [_staged(s) for s in commit.staged],
    }


def _read_commit(fields: Fields) -> CommitRecord:
    return CommitRecord(
        epoch=fields.integer("epoch", least=1),
        generation=fields.integer("generation"),
        parent=_read_point(fields, "parent"),
        follows=_read_point(fields, "follows"),
        partitions=fields.integer("partitions", least=1),
        source_offsets=fields.map_of("source_offsets", _read_connector),
        table_offsets=fields.map_of("table_offsets", _read_connector),
        watermark=fields.integer("watermark", None, least=-(1 << 63)),
        source_watermarks=fields.integer_map("source_watermarks"),
        ranges=fields.list_of("ranges", _read_range),
        staged=fields.list_of("staged", _read_staged),
        sinks=fields.texts("sinks"),
        takes_back=fields.map_of("takes_back", _read_place),
    )


def _point(point: Point | None) -> Json:
    return None if point is None else {"epoch": point.epoch, "digest": point.digest}


def _read_point(fields: Fields, name: str) -> Point | None:
    found = fields.optional_object(name)
    return None if found is None else Point(found.integer("epoch"), found.text("digest"))


def _read_place(fields: Fields) -> Point:
    return Point(fields.integer("epoch"), fields.text("digest"))


def _ahead(ahead: SinkAhead) -> Json:
    return {"at": _point(ahead.at), "counts_as": _point(ahead.counts_as)}


def _read_ahead(fields: Fields) -> SinkAhead:
    at = _read_point(fields, "at")
    if at is None:
        raise fields.bad("a sink without a point that it is at")
    return SinkAhead(at, _read_point(fields, "counts_as"))


def _connector(value: ConnectorCheckpoint) -> Json:
    return {"offsets": value.offsets, "epoch": value.epoch, "metadata": value.metadata}


def _read_connector(fields: Fields) -> ConnectorCheckpoint:
    return ConnectorCheckpoint(
        fields.text_map("offsets"), fields.integer("epoch"), fields.text_map("metadata")
    )


def _range(value: WalRange) -> Json:
    return {
        "operator": value.operator,
        "core": value.core,
        "segment": value.segment,
        "offset": value.offset,
        "size": value.size,
        "crc": value.crc,
        "entries": value.entries,
    }


def _read_range(fields: Fields) -> WalRange:
    return WalRange(
        fields.text("operator"),
        fields.integer("core"),
        fields.text("segment"),
        fields.integer("offset"),
        fields.integer("size"),
        fields.integer("crc"),
        fields.integer("entries"),
    )


def _staged(value: StagedFile) -> Json:
    return {
        "sink": value.sink,
        "path": value.path,
        "size": value.size,
        "sha256": value.sha256,
        "rows": value.rows,
    }


def _read_staged(fields: Fields) -> StagedFile:
    return StagedFile(
        fields.text("sink"),
        fields.text("path"),
        fields.integer("size"),
        fields.text("sha256"),
        fields.integer("rows"),
    )
