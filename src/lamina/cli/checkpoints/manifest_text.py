"""A manifest as people read it: facts, then one table per part that is not empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lamina.cli.support.screen import Screen
from lamina.cli.support.words import size, utc
from lamina.format.findings import Finding
from lamina.format.manifest import (
    CheckpointManifest,
    ConnectorCheckpoint,
    Failed,
    OperatorCheckpoint,
    OperatorRuns,
    Pending,
    SinkCommitStatus,
    SinkCommitted,
)


def print_manifest(
    screen: Screen, where: str, manifest: CheckpointManifest, findings: Sequence[Finding]
) -> None:
    """Everything a person asks of a checkpoint, without its bytes."""
    for name, value in _facts(where, manifest):
        screen.line(f"{name + ':':<12}{value}")
    _part(screen, "Sources", ("NAME", ">EPOCH", "OFFSETS", ">WATERMARK"), _sources(manifest))
    _part(screen, "Tables", ("NAME", ">EPOCH", "OFFSETS"), _connectors(manifest.table_offsets))
    _part(screen, "Sinks", ("NAME", ">EPOCH", "STATUS", ">UNPUBLISHED"), _sinks(manifest))
    columns = ("NAME", ">PARTITIONS", ">RUNS", ">ROWS", ">SIZE")
    _part(screen, "Operators", columns, map(_operator, sorted(manifest.operators.items())))
    states = map(_state, sorted(manifest.operator_states.items()))
    _part(screen, "Operator states", ("NAME", "WHERE", ">SIZE"), states)
    rows = ((str(f.severity), f.code, f.field, f.message) for f in findings)
    _part(screen, "Findings", ("SEVERITY", "CODE", "FIELD", "MESSAGE"), rows)


def _part(
    screen: Screen, title: str, columns: Sequence[str], rows: Iterable[tuple[str, ...]]
) -> None:
    found = list(rows)
    if found:
        screen.line()
        screen.line(f"{title}:")
        screen.table(columns, found)


def _facts(where: str, manifest: CheckpointManifest) -> Iterable[tuple[str, str]]:
    m = manifest
    parent = str(m.parent_id or "-")
    if m.parent_epoch is not None:
        parent += f", after epoch {m.parent_epoch}"
    files = m.artifacts()
    yield "checkpoint", str(m.checkpoint_id)
    yield "where", where
    yield "epoch", str(m.epoch)
    yield "created", utc(m.timestamp_ms)
    yield "generation", str(m.generation)
    yield "parent", parent
    whose = str(m.pipeline.owner) if m.pipeline else m.pipeline_id or "-"
    yield "pipeline", f"{whose}, hash {m.pipeline_hash or '-'}"
    yield "commit", m.commit_digest or "-"
    yield "watermark", "-" if m.watermark is None else str(m.watermark)
    yield "vnodes", str(m.vnode_count)
    yield "files", f"{len(files)}, {size(m.total_size_bytes)} in all"
    if m.features:
        yield "features", ", ".join(m.features)
    if m.origin is not None:
        yield "origin", f"LaminarDB, version {m.origin.version}, id {m.origin.checkpoint_id}"


def _sources(manifest: CheckpointManifest) -> Iterable[tuple[str, ...]]:
    watermarks = manifest.source_watermarks
    names = {*manifest.source_names, *manifest.source_offsets, *watermarks}
    for name in sorted(names):
        found = manifest.source_offsets.get(name)
        watermark = str(watermarks[name]) if name in watermarks else "-"
        yield (name, *_connector(found), watermark)


def _connectors(found: Mapping[str, ConnectorCheckpoint]) -> Iterable[tuple[str, ...]]:
    return ((name, *_connector(value)) for name, value in sorted(found.items()))


def _connector(value: ConnectorCheckpoint | None) -> tuple[str, str]:
    if value is None:
        return "-", "-"
    offsets = ", ".join(f"{key}={offset}" for key, offset in sorted(value.offsets.items()))
    return str(value.epoch), offsets or "-"


def _sinks(manifest: CheckpointManifest) -> Iterable[tuple[str, ...]]:
    statuses, output = manifest.sink_commit_statuses, manifest.output
    names = {*manifest.sink_names, *manifest.sink_epochs, *statuses, *output}
    for name in sorted(names):
        files = output.get(name, ())
        unpublished = f"{len(files)}, {size(sum(f.size for f in files))}" if files else "-"
        epoch = str(manifest.sink_epochs.get(name, "-"))
        yield name, epoch, _status(statuses.get(name)), unpublished


def _status(status: SinkCommitStatus | None) -> str:
    match status:
        case Pending():
            return "pending"
        case SinkCommitted():
            return "committed"
        case Failed(reason):
            return f"failed: {reason}"
        case None:
            return "-"


def _operator(item: tuple[str, OperatorRuns]) -> tuple[str, ...]:
    name, operator = item
    runs = [run for each in operator.partitions.values() for run in each]
    known = [run.rows for run in runs if run.rows is not None]
    rows = str(sum(known)) if len(known) == len(runs) else "-"
    total = size(operator.total_bytes)
    return name, str(len(operator.partitions)), str(len(runs)), rows, total


def _state(item: tuple[str, OperatorCheckpoint]) -> tuple[str, str, str]:
    name, state = item
    if state.external:
        place = f"sidecar, from {state.external_offset}"
        return name, place, size(state.external_length)
    return name, "inline", size(len(state.state_b64 or "") * 3 // 4)
