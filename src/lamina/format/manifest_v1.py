"""Reads LaminarDB's manifest version 1 (0.16 to 0.20) and its `state.bin`.

Its checkpoint id is a number: it becomes a CheckpointId made of the time and the number, and stays
readable in `origin`. Fields that version 3 has no place for (those of 0.18: wal_position,
inflight_data, parent_id ...) are kept as `v1.<name>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lamina.errors import Corrupt, DigestMismatch, NotFound, SizeMismatch, UsageError
from lamina.format.canonical import INTEGER_MIN, Json, sha256_hex
from lamina.format.fields import Fields
from lamina.format.inline import from_base64
from lamina.format.manifest_model import (
    CheckpointManifest,
    ConnectorCheckpoint,
    OperatorCheckpoint,
    Origin,
    Sidecar,
)
from lamina.format.manifest_v3 import read_connector, read_statuses
from lamina.ids import CheckpointId

VERSION = 1
SIDECAR_FILE = "state.bin"


def read(document: Json, where: str) -> CheckpointManifest:
    """A version 1 manifest, as the one model."""
    f = Fields(document, where)
    f.integer("version")
    number, timestamp_ms = f.integer("checkpoint_id"), f.integer("timestamp_ms")
    states = f.map_of("operator_states", _state)
    pipeline_hash = f.integer("pipeline_hash", None)
    return CheckpointManifest(
        checkpoint_id=_id(f, timestamp_ms, number),
        epoch=f.integer("epoch"),
        timestamp_ms=timestamp_ms,
        pipeline_hash=None if pipeline_hash is None else f"{pipeline_hash:016x}",
        source_offsets=f.map_of("source_offsets", _connector),
        table_offsets=f.map_of("table_offsets", _connector),
        sink_epochs=f.integer_map("sink_epochs", least=0),
        sink_commit_statuses=read_statuses(f),
        operator_states=states,
        sidecar=_sidecar(states, f.text("state_checksum", None)),
        table_store_path=f.text("table_store_checkpoint_path", None),
        watermark=f.integer("watermark", None, least=INTEGER_MIN),
        source_watermarks=f.integer_map("source_watermarks"),
        source_names=f.texts("source_names"),
        sink_names=f.texts("sink_names"),
        vnode_count=f.integer("vnode_count", 0),
        origin=Origin(VERSION, str(number)),
        extra=kept(f, VERSION),
    )


def kept(f: Fields, version: int) -> dict[str, Json]:
    """What version 3 has no place for, under names it will never use."""
    return {f"v{version}.{name}": value for name, value in f.rest().items()}


def _id(f: Fields, timestamp_ms: int, number: int) -> CheckpointId:
    try:
        return CheckpointId.from_parts(timestamp_ms, number)
    except UsageError as error:
        raise f.bad(f"timestamp_ms: {error.message}") from error


def _connector(f: Fields) -> ConnectorCheckpoint:
    return replace(read_connector(f), extra=kept(f, VERSION))


def _state(f: Fields) -> OperatorCheckpoint:
    text = f.text("state_b64", None)
    value = OperatorCheckpoint(
        state_b64=text,
        external=f.flag("external", False),
        external_offset=f.integer("external_offset", 0),
        external_length=f.integer("external_length", 0),
        extra=kept(f, VERSION),
    )
    if text is None:
        return value
    try:
        # Version 1 has no digest of inline states; from here on there is one.
        return replace(value, sha256=sha256_hex(from_base64(text, "")))
    except Corrupt as error:
        raise f.bad(error.message) from error


def _sidecar(states: Mapping[str, OperatorCheckpoint], checksum: str | None) -> Sidecar | None:
    if checksum is None and not any(state.external for state in states.values()):
        return None
    return Sidecar(SIDECAR_FILE, sha256=checksum)


def read_states(
    manifest: CheckpointManifest, sidecar: bytes | None, where: str
) -> dict[str, bytes]:
    """Every operator's bytes, from the manifest or from *sidecar*, all of them proven.

    *sidecar* is None if there is no such file. NotFound, SizeMismatch, DigestMismatch or Corrupt
    if one state is not there as it was written: never fewer states than the manifest names.
    """
    data = _checked_sidecar(manifest, sidecar, where)
    return {
        name: _bytes_of(state, data, f"{where} operator_states[{name!r}]")
        for name, state in manifest.operator_states.items()
    }


def _checked_sidecar(manifest: CheckpointManifest, data: bytes | None, where: str) -> bytes:
    named = manifest.sidecar
    if named is None:
        return b""
    if data is None:
        raise NotFound(
            f"the manifest names a sidecar, {named.path!r}, and it is not there", where=where
        )
    if named.size is not None and len(data) != named.size:
        raise SizeMismatch(f"the sidecar has {len(data)} bytes, not {named.size}", where=where)
    if named.sha256 is not None and (found := sha256_hex(data)) != named.sha256:
        raise DigestMismatch(f"the sidecar has SHA-256 {found}, not {named.sha256}", where=where)
    return data


def _bytes_of(state: OperatorCheckpoint, sidecar: bytes, where: str) -> bytes:
    inline = state.decode_inline(where)
    if state.external == (inline is not None):
        raise Corrupt("a state must be either inline or external", where=where)
    if inline is not None:
        return inline
    if state.external_end > len(sidecar):
        raise SizeMismatch(
            f"the state ends at byte {state.external_end}, the sidecar at {len(sidecar)}",
            where=where,
        )
    data = sidecar[state.external_offset : state.external_end]
    if state.sha256 is not None and (found := sha256_hex(data)) != state.sha256:
        raise DigestMismatch(f"the state has SHA-256 {found}, not {state.sha256}", where=where)
    return data
