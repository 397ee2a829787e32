"""The one manifest model: what a checkpoint is, whichever version wrote it.

CheckpointManifest
+-- source_offsets, table_offsets   name -> ConnectorCheckpoint
+-- sink_commit_statuses            name -> Pending | Committed | Failed
+-- operators                       name -> OperatorRuns -> partition -> Run, oldest first
+-- operator_states                 name -> OperatorCheckpoint, inline or a range of the Sidecar
+-- output                          sink -> OutputFile, what it has not published yet (R7)
+-- origin                          Origin, if LaminarDB wrote the file

Values only: nothing here reads, writes or judges. `extra` holds fields of a newer minor version,
so that reading and writing a manifest drops nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from lamina.format.canonical import Json, sha256_hex
from lamina.format.inline import checked, to_base64
from lamina.format.names import RunKind
from lamina.format.pipeline_record import PipelineRecord
from lamina.ids import CheckpointId

VNODE_COUNT = 256
KEYED_STATE = "keyed-state-1"
"""The feature that a manifest needs as soon as an operator has `keyed`."""
Extra: TypeAlias = Mapping[str, Json]


CONNECTOR_TYPE = "connector_type"
"""Of a connector's metadata: what it is read with."""


@dataclass(frozen=True, slots=True)
class ConnectorCheckpoint:
    """Where a source or reference table stands: a flat map of strings, the same for all kinds."""

    offsets: Mapping[str, str]
    epoch: int
    metadata: Mapping[str, str] = field(default_factory=dict)
    extra: Extra = field(default_factory=dict)

    @classmethod
    def new(cls, epoch: int) -> ConnectorCheckpoint:
        return cls({}, epoch)

    @classmethod
    def with_offsets(cls, epoch: int, offsets: Mapping[str, str]) -> ConnectorCheckpoint:
        return cls(dict(offsets), epoch)


@dataclass(frozen=True, slots=True)
class Pending:
    """Prepared, not known to be published: recovery drives it again."""


@dataclass(frozen=True, slots=True)
class SinkCommitted:
    """The outside system has it."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The last attempt failed; the sink is driven again, never skipped."""

    reason: str


SinkCommitStatus: TypeAlias = Pending | SinkCommitted | Failed


@dataclass(frozen=True, slots=True)
class StateColumn:
    """A column of keyed state; the type is as Arrow spells it."""

    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class KeyedState:
    """What never changes silently about an operator's keys (R9), and P as it is now (R13)."""

    partitions: int
    hash: str
    key: tuple[StateColumn, ...]
    value: tuple[StateColumn, ...]
    time: str | None = None  # the column that rows are expired by
    meanings: tuple[str, ...] = ()  # what each column holds, for people; keys first
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One immutable sorted batch of an operator partition: a file, or inline when it is small."""

    kind: RunKind
    first_epoch: int
    last_epoch: int
    size: int
    rows: int | None = None
    sha256: str | None = None  # None only in files of LaminarDB
    path: str | None = None  # relative to the base
    state_b64: str | None = None
    extra: Extra = field(default_factory=dict)
    ranks: tuple[int, int] | None = None  # of keyed state: the vnodes that count, first and last

    @classmethod
    def inline(
        cls, kind: RunKind, data: bytes, *, first_epoch: int, last_epoch: int, rows: int
    ) -> RunEntry:
        return cls(
            kind=kind,
            first_epoch=first_epoch,
            last_epoch=last_epoch,
            size=len(data),
            rows=rows,
            sha256=sha256_hex(data),
            state_b64=to_base64(data),
        )

    def decode_inline(self, where: str = "") -> bytes | None:
        """The bytes in the manifest; None if they are in a file. Corrupt if they are damaged."""
        return None if self.state_b64 is None else checked(self.state_b64, self.sha256, where)


@dataclass(frozen=True, slots=True)
class OperatorRuns:
    """The whole state of an operator: every partition's runs, oldest first."""

    partitions: Mapping[int, tuple[RunEntry, ...]] = field(default_factory=dict)
    extra: Extra = field(default_factory=dict)
    keyed: KeyedState | None = None

    @property
    def total_bytes(self) -> int:
        """Of keyed state each file once: after a change of P several partitions slice one."""
        runs = [run for listed in self.partitions.values() for run in listed]
        if self.keyed is None:
            return sum(run.size for run in runs)
        files = {run.path: run.size for run in runs if run.path is not None}
        return sum(files.values()) + sum(run.size for run in runs if run.path is None)


@dataclass(frozen=True, slots=True)
class OperatorCheckpoint:
    """State without a key space: inline as base64, or a range of the sidecar."""

    state_b64: str | None = None
    external: bool = False
    external_offset: int = 0
    external_length: int = 0
    sha256: str | None = None
    extra: Extra = field(default_factory=dict)

    @classmethod
    def inline(cls, data: bytes) -> OperatorCheckpoint:
        return cls(state_b64=to_base64(data), sha256=sha256_hex(data))

    @classmethod
    def in_sidecar(cls, offset: int, length: int, sha256: str | None = None) -> OperatorCheckpoint:
        """A reference to *length* bytes of the sidecar; the seed's `external`."""
        return cls(external=True, external_offset=offset, external_length=length, sha256=sha256)

    @classmethod
    def from_bytes(
        cls, data: bytes, threshold: int, current_offset: int
    ) -> tuple[OperatorCheckpoint, bytes | None]:
        """Inline up to *threshold* bytes; above, a reference and the bytes for the sidecar."""
        if len(data) <= threshold:
            return cls.inline(data), None
        return cls.in_sidecar(current_offset, len(data), sha256_hex(data)), data

    @property
    def external_end(self) -> int:
        return self.external_offset + self.external_length

    def decode_inline(self, where: str = "") -> bytes | None:
        """The inline bytes; None only if there are none here. Corrupt if they are damaged."""
        return None if self.state_b64 is None else checked(self.state_b64, self.sha256, where)


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The file that holds the external operator states, one after the other."""

    path: str
    size: int | None = None  # None only in files of LaminarDB, as is a missing digest
    sha256: str | None = None
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutputFile:
    """Output of an epoch that a sink behind it must still publish (R7)."""

    epoch: int
    path: str
    size: int
    sha256: str
    rows: int
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Origin:
    """The LaminarDB file this was read from; its paths are kept as they were written."""

    version: int
    checkpoint_id: str
    extra: Extra = field(default_factory=dict)


class Artifact(NamedTuple):
    """A file that a manifest names."""

    path: str
    size: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointManifest:
    """A point-in-time cut of the whole pipeline."""

    checkpoint_id: CheckpointId
    epoch: int
    timestamp_ms: int  # for people; no rule looks at it
    generation: int = 0
    parent_id: CheckpointId | None = None  # the checkpoint whose runs this one uses again
    parent_epoch: int | None = None  # the epoch this one follows (R4)
    commit_digest: str | None = None
    parent_commit_digest: str | None = None
    pipeline_id: str | None = None  # without `pipeline` it is a name: old releases had no ids
    pipeline_hash: str | None = None
    pipeline: PipelineRecord | None = None  # what it was when this was made
    source_offsets: Mapping[str, ConnectorCheckpoint] = field(default_factory=dict)
    table_offsets: Mapping[str, ConnectorCheckpoint] = field(default_factory=dict)
    sink_epochs: Mapping[str, int] = field(default_factory=dict)  # last epoch published
    sink_commit_statuses: Mapping[str, SinkCommitStatus] = field(default_factory=dict)
    operators: Mapping[str, OperatorRuns] = field(default_factory=dict)
    operator_states: Mapping[str, OperatorCheckpoint] = field(default_factory=dict)
    sidecar: Sidecar | None = None
    output: Mapping[str, tuple[OutputFile, ...]] = field(default_factory=dict)
    table_store_path: str | None = None
    watermark: int | None = None
    source_watermarks: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)  # what results depend on (R9)
    source_names: tuple[str, ...] = ()
    sink_names: tuple[str, ...] = ()
    vnode_count: int = VNODE_COUNT
    features: tuple[str, ...] = ()  # a reader that lacks one of these must refuse
    origin: Origin | None = None
    extra: Extra = field(default_factory=dict)

    @property
    def total_size_bytes(self) -> int:
        """Runs, sidecar and output. Never stored in the model, so that it cannot be wrong."""
        runs = sum(operator.total_bytes for operator in self.operators.values())
        output = sum(file.size for files in self.output.values() for file in files)
        sidecar = (self.sidecar.size or 0) if self.sidecar else 0
        return runs + output + sidecar

    def artifacts(self) -> tuple[Artifact, ...]:
        """Every file a restore needs besides the manifest, each once, sorted by path."""
        found = {
            Artifact(run.path, run.size, run.sha256)
            for operator in self.operators.values()
            for runs in operator.partitions.values()
            for run in runs
            if run.path is not None
        }
        for files in self.output.values():
            found.update(Artifact(file.path, file.size, file.sha256) for file in files)
        if self.sidecar:
            found.add(Artifact(self.sidecar.path, self.sidecar.size, self.sidecar.sha256))
        return tuple(sorted(found, key=lambda artifact: artifact.path))
