"""Entries of the commit log, the hint that points at its end, and begin.json.

The log is what says that a checkpoint exists: `log/<seq, 20 digits>.json`, create-only, dense
from 1, each naming the digest of its predecessor. FORMAT.md section 3 is the specification; what
an entry may say is judged in lamina.protocol.history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lamina.errors import Corrupt, LogDamaged, Unsupported
from lamina.format import canonical
from lamina.format.canonical import Json
from lamina.format.fields import Fields
from lamina.format.pipeline_record import PipelineRecord, decode_record, encode_record
from lamina.ids import CheckpointId

LOG_VERSION = 1
ENTRY_BYTES_MAX = 64 * 1024 * 1024
STATE_EVERY = 32
"""Every entry whose seq is a multiple of this carries the folded state of the log."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """From here on *generation* owns the pipeline; its WAL is in *home*.

    *tip* is the newest checkpoint that counts, where a recovery has given up what stood above it:
    its id, or empty if none counts. None leaves it as it is.
    """

    generation: int
    home: str
    pipeline: PipelineRecord | None = None
    tip: str | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint *id* exists: this is the one small object that says so."""

    id: CheckpointId
    epoch: int
    parent: CheckpointId | None
    after: int  # seq of the TAKEOVER, CHECKPOINT or REWIND it was begun after
    begin_sha256: str
    manifest_sha256: str
    manifest_size: int
    total_size: int  # of every file the manifest names, for people
    commit_digest: str | None = None


@dataclass(frozen=True, slots=True)
class Rewind:
    """Epoch *epoch* continues from the checkpoint *to*, which holds epoch *to_epoch*."""

    epoch: int
    to: CheckpointId
    to_epoch: int


@dataclass(frozen=True, slots=True)
class Pin:
    """The savepoint *name* is the checkpoint *id*."""

    name: str
    id: CheckpointId


@dataclass(frozen=True, slots=True)
class Unpin:
    name: str


@dataclass(frozen=True, slots=True)
class Forget:
    """These checkpoints exist no more; their files may be deleted."""

    ids: tuple[CheckpointId, ...]


Body = Takeover | Checkpoint | Rewind | Pin | Unpin | Forget


@dataclass(frozen=True, slots=True)
class LogState:
    """The log folded up to one entry, so that opening it does not read it from the start."""

    generation: int
    home: str
    home_since: int
    lineage_seq: int
    lineage_kind: str
    base: CheckpointId | None
    epoch_max: int
    checkpoints: tuple[Committed, ...]
    pins: tuple[tuple[str, CheckpointId], ...]
    pipeline: PipelineRecord | None = None
    tip: str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """A checkpoint that exists, as its CHECKPOINT entry named it."""

    seq: int
    generation: int
    entry: Checkpoint

    @property
    def id(self) -> CheckpointId:
        return self.entry.id

    @property
    def epoch(self) -> int:
        return self.entry.epoch


@dataclass(frozen=True, slots=True)
class Entry:
    seq: int
    previous: str | None
    generation: int
    writer: str
    timestamp_ms: int
    body: Body
    state: LogState | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """The first object of a checkpoint: who writes it, on top of what, since when."""

    id: CheckpointId
    generation: int
    parent: CheckpointId | None
    after: int
    writer: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Hint:
    """Where the log ended when somebody last looked: a place to start reading."""

    seq: int
    sha256: str
    checkpoint: CheckpointId | None


def encode_entry(entry: Entry) -> bytes:
    value: dict[str, Json] = {
        "version": LOG_VERSION,
        "seq": entry.seq,
        "previous": entry.previous,
        "generation": entry.generation,
        "writer": entry.writer,
        "timestamp_ms": entry.timestamp_ms,
        "kind": kind_of(entry.body),
        "body": _encode_body(entry.body),
    }
    if entry.state is not None:
        value["state"] = _encode_state(entry.state)
    return canonical.encode(value)


def decode_entry(data: bytes, where: str) -> Entry:
    """Read one entry; unlike a manifest it is never written again, so nothing extra is kept."""
    fields = _open(data, where, ENTRY_BYTES_MAX)
    kind = fields.text("kind")
    state = fields.raw("state", None)
    return Entry(
        seq=fields.integer("seq", least=1),
        previous=fields.text("previous", None),
        generation=fields.integer("generation"),
        writer=fields.text("writer"),
        timestamp_ms=fields.integer("timestamp_ms"),
        body=_decode_body(kind, fields.object("body"), where),
        state=None if state is None else _decode_state(state, where),
    )


def encode_begin(begin: Begin) -> bytes:
    return canonical.encode(
        {
            "version": LOG_VERSION,
            "id": str(begin.id),
            "generation": begin.generation,
            "parent": _text(begin.parent),
            "after": begin.after,
            "writer": begin.writer,
            "timestamp_ms": begin.timestamp_ms,
        }
    )


def decode_begin(data: bytes, where: str) -> Begin:
    fields = _open(data, where, 64 * 1024)
    return Begin(
        id=fields.checkpoint_id("id"),
        generation=fields.integer("generation"),
        parent=fields.checkpoint_id("parent", None),
        after=fields.integer("after"),
        writer=fields.text("writer"),
        timestamp_ms=fields.integer("timestamp_ms"),
    )


def encode_hint(hint: Hint) -> bytes:
    value: dict[str, Json] = {
        "version": LOG_VERSION,
        "seq": hint.seq,
        "sha256": hint.sha256,
        "checkpoint": _text(hint.checkpoint),
    }
    return canonical.encode_checked(value)


def decode_hint(data: bytes, where: str) -> Hint | None:
    """The hint, or None if it is damaged: then the log itself is listed.

    Its checksum tells the two apart: one that is whole and names an entry which is not there is
    no damaged hint, but the proof of a damaged log.
    """
    try:
        fields = _open(data, where, 64 * 1024)
        hint = Hint(
            seq=fields.integer("seq", least=1),
            sha256=fields.text("sha256"),
            checkpoint=fields.checkpoint_id("checkpoint", None),
        )
    except (Corrupt, Unsupported):
        return None
    return hint if encode_hint(hint) == data else None


def kind_of(body: Body) -> str:
    return type(body).__name__.upper()


def _open(data: bytes, where: str, size_max: int) -> Fields:
    if len(data) > size_max:
        raise LogDamaged(f"{len(data)} bytes, {size_max} at most", where=where)
    try:
        value = canonical.decode(data, where)
    except Corrupt as error:
        raise LogDamaged(error.message, where=where) from None
    fields = Fields(value, where, error=LogDamaged)
    version = fields.integer("version", least=1)
    if version > LOG_VERSION:
        raise Unsupported(f"log format {version}; this Lamina reads {LOG_VERSION}", where=where)
    return fields


def _encode_body(body: Body) -> Mapping[str, Json]:
    match body:
        case Takeover():
            named: dict[str, Json] = {"generation": body.generation, "home": body.home}
            return named | _encode_line(body)
        case Checkpoint():
            return _encode_checkpoint(body)
        case Rewind(epoch, to, to_epoch):
            return {"epoch": epoch, "to": str(to), "to_epoch": to_epoch}
        case Pin(name, id):
            return {"name": name, "id": str(id)}
        case Unpin(name):
            return {"name": name}
        case Forget(ids):
            return {"ids": [str(id) for id in ids]}


def _decode_body(kind: str, fields: Fields, where: str) -> Body:
    match kind:
        case "TAKEOVER":
            return Takeover(
                fields.integer("generation", least=1), fields.text("home"), *_decode_line(fields)
            )
        case "CHECKPOINT":
            return _decode_checkpoint(fields)
        case "REWIND":
            return Rewind(
                fields.integer("epoch"), fields.checkpoint_id("to"), fields.integer("to_epoch")
            )
        case "PIN":
            return Pin(fields.text("name"), fields.checkpoint_id("id"))
        case "UNPIN":
            return Unpin(fields.text("name"))
        case "FORGET":
            return Forget(tuple(_id(text, fields) for text in fields.texts("ids")))
        case _:
            raise Unsupported(f"a log entry of the unknown kind {kind[:40]!r}", where=where)


def _encode_checkpoint(entry: Checkpoint) -> dict[str, Json]:
    return {
        "id": str(entry.id),
        "epoch": entry.epoch,
        "parent": _text(entry.parent),
        "after": entry.after,
        "begin_sha256": entry.begin_sha256,
        "manifest_sha256": entry.manifest_sha256,
        "manifest_size": entry.manifest_size,
        "total_size": entry.total_size,
        "commit_digest": entry.commit_digest,
    }


def _decode_checkpoint(fields: Fields) -> Checkpoint:
    return Checkpoint(
        id=fields.checkpoint_id("id"),
        epoch=fields.integer("epoch"),
        parent=fields.checkpoint_id("parent", None),
        after=fields.integer("after"),
        begin_sha256=fields.text("begin_sha256"),
        manifest_sha256=fields.text("manifest_sha256"),
        manifest_size=fields.integer("manifest_size"),
        total_size=fields.integer("total_size"),
        commit_digest=fields.text("commit_digest", None),
    )


def _encode_state(state: LogState) -> Mapping[str, Json]:
    folded: dict[str, Json] = {
        "generation": state.generation,
        "home": state.home,
        "home_since": state.home_since,
        "lineage_seq": state.lineage_seq,
        "lineage_kind": state.lineage_kind,
        "base": _text(state.base),
        "epoch_max": state.epoch_max,
        "checkpoints": [
            {"seq": c.seq, "generation": c.generation} | _encode_checkpoint(c.entry)
            for c in state.checkpoints
        ],
        "pins": {name: str(id) for name, id in state.pins},
    }
    return folded | _encode_line(state)


def _decode_state(value: Any, where: str) -> LogState:
    fields = Fields(value, where, "state", error=LogDamaged)
    pipeline, tip = _decode_line(fields)
    return LogState(
        generation=fields.integer("generation"),
        home=fields.text("home"),
        home_since=fields.integer("home_since"),
        lineage_seq=fields.integer("lineage_seq"),
        lineage_kind=fields.text("lineage_kind"),
        base=fields.checkpoint_id("base", None),
        epoch_max=fields.integer("epoch_max"),
        checkpoints=fields.list_of("checkpoints", _decode_committed),
        pins=tuple(
            (name, _id(text, fields)) for name, text in sorted(fields.text_map("pins").items())
        ),
        pipeline=pipeline,
        tip=tip,
    )


def _encode_line(of: Takeover | LogState) -> dict[str, Json]:
    """Left out where nothing is said: older entries have the bytes they always had."""
    record: dict[str, Json] = {}
    if of.pipeline is not None:
        record["pipeline"] = encode_record(of.pipeline)
    if of.tip is not None:
        record["tip"] = of.tip
    return record


def _decode_line(fields: Fields) -> tuple[PipelineRecord | None, str | None]:
    record = fields.optional_object("pipeline")
    tip = fields.text("tip", None)
    if tip:
        fields.parsed("tip", tip, CheckpointId.parse)
    return None if record is None else decode_record(record), tip


def _decode_committed(fields: Fields) -> Committed:
    return Committed(
        seq=fields.integer("seq", least=1),
        generation=fields.integer("generation"),
        entry=_decode_checkpoint(fields),
    )


def _id(text: str, fields: Fields) -> CheckpointId:
    return fields.parsed("id", text, CheckpointId.parse)


def _text(id: CheckpointId | None) -> str | None:
    return None if id is None else str(id)
