"""A manifest as JSON, always in version 3; the fields are FORMAT.md section 4.

Null values are left out, empty maps and lists are not: a reader can tell "none" from "lost".
Totals are computed here, by the writer, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

from lamina.errors import UsageError
from lamina.format.canonical import Json
from lamina.format.manifest_model import (
    CheckpointManifest,
    ConnectorCheckpoint,
    Extra,
    Failed,
    KeyedState,
    OperatorCheckpoint,
    OperatorRuns,
    Origin,
    OutputFile,
    Pending,
    RunEntry,
    Sidecar,
    SinkCommitStatus,
    SinkCommitted,
    StateColumn,
)
from lamina.format.pipeline_record import encode_record

VERSION = 3


def to_json(manifest: CheckpointManifest) -> Json:
    """The JSON value of a manifest, always in this version."""
    m = manifest
    return _object(
        {
            "version": VERSION,
            "checkpoint_id": str(m.checkpoint_id),
            "epoch": m.epoch,
            "timestamp_ms": m.timestamp_ms,
            "generation": m.generation,
            "parent_id": None if m.parent_id is None else str(m.parent_id),
            "parent_epoch": m.parent_epoch,
            "commit_digest": m.commit_digest,
            "parent_commit_digest": m.parent_commit_digest,
            "pipeline_id": m.pipeline_id,
            "pipeline_hash": m.pipeline_hash,
            "pipeline": None if m.pipeline is None else encode_record(m.pipeline),
            "source_offsets": {k: _connector(v) for k, v in m.source_offsets.items()},
            "table_offsets": {k: _connector(v) for k, v in m.table_offsets.items()},
            "sink_epochs": m.sink_epochs,
            "sink_commit_statuses": {k: _status(v) for k, v in m.sink_commit_statuses.items()},
            "operators": {k: _operator(v) for k, v in m.operators.items()},
            "operator_states": {k: _state(v) for k, v in m.operator_states.items()},
            "sidecar": None if m.sidecar is None else _sidecar(m.sidecar),
            "output": {k: [_output(file) for file in v] for k, v in m.output.items()},
            "table_store_path": m.table_store_path,
            "watermark": m.watermark,
            "source_watermarks": m.source_watermarks,
            "settings": dict(m.settings) or None,
            "source_names": list(m.source_names),
            "sink_names": list(m.sink_names),
            "vnode_count": m.vnode_count,
            "features": list(m.features),
            "origin": None if m.origin is None else _origin(m.origin),
            "total_size_bytes": m.total_size_bytes,
        },
        m.extra,
    )


def _connector(value: ConnectorCheckpoint) -> Json:
    known: dict[str, Json] = {
        "offsets": value.offsets,
        "epoch": value.epoch,
        "metadata": value.metadata,
    }
    return _object(known, value.extra)


def _status(value: SinkCommitStatus) -> Json:
    match value:
        case Pending():
            return "Pending"
        case SinkCommitted():
            return "Committed"
        case Failed(reason):
            return {"Failed": reason}


def _operator(value: OperatorRuns) -> Json:
    partitions = {str(number): [_run(r) for r in runs] for number, runs in value.partitions.items()}
    known: dict[str, Json] = {
        "partitions": partitions,
        "total_bytes": value.total_bytes,
        "keyed": None if value.keyed is None else _keyed(value.keyed),
    }
    return _object(known, value.extra)


def _keyed(value: KeyedState) -> Json:
    known: dict[str, Json] = {
        "partitions": value.partitions,
        "hash": value.hash,
        "key": [_column(column) for column in value.key],
        "value": [_column(column) for column in value.value],
        "time": value.time,
        "meanings": list(value.meanings) or None,
    }
    return _object(known, value.extra)


def _column(column: StateColumn) -> Json:
    return {"name": column.name, "type": column.type, "nullable": column.nullable}


def _run(run: RunEntry) -> Json:
    known: dict[str, Json] = {
        "kind": run.kind,
        "first_epoch": run.first_epoch,
        "last_epoch": run.last_epoch,
        "size": run.size,
        "rows": run.rows,
        "sha256": run.sha256,
        "path": run.path,
        "state_b64": run.state_b64,
        "ranks": None if run.ranks is None else list(run.ranks),
    }
    return _object(known, run.extra)


def _state(value: OperatorCheckpoint) -> Json:
    # An inline state has no range; one that names a range all the same must not lose it.
    ranged = value.external or value.external_end > 0
    known: dict[str, Json] = {
        "state_b64": value.state_b64,
        "external": value.external or None,
        "external_offset": value.external_offset if ranged else None,
        "external_length": value.external_length if ranged else None,
        "sha256": value.sha256,
    }
    return _object(known, value.extra)


def _sidecar(value: Sidecar) -> Json:
    return _object({"path": value.path, "size": value.size, "sha256": value.sha256}, value.extra)


def _output(file: OutputFile) -> Json:
    known: dict[str, Json] = {
        "epoch": file.epoch,
        "path": file.path,
        "size": file.size,
        "sha256": file.sha256,
        "rows": file.rows,
    }
    return _object(known, file.extra)


def _origin(value: Origin) -> Json:
    return _object({"version": value.version, "checkpoint_id": value.checkpoint_id}, value.extra)


def _object(known: Mapping[str, Json], extra: Extra) -> dict[str, Json]:
    if taken := known.keys() & extra.keys():
        raise UsageError(f"extra fields {sorted(taken)} have a place of their own in the manifest")
    return {k: v for k, v in known.items() if v is not None} | dict(extra)
