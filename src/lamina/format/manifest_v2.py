"""Reads LaminarDB's manifest version 2: operators with partitions, typed source offsets.

It names no epochs of runs: a snapshot counts as all epochs up to the manifest's, a delta as that
one epoch. Paths are kept as written, glued or absolute as they may be; `origin` says so. Totals
were left to the caller there: they are kept as `v2.total_...`, and validation compares them.
"""

from __future__ import annotations

from lamina.format.canonical import INTEGER_MAX, INTEGER_MIN, Json
from lamina.format.fields import Fields
from lamina.format.manifest_model import (
    CONNECTOR_TYPE,
    CheckpointManifest,
    ConnectorCheckpoint,
    OperatorRuns,
    Origin,
    RunEntry,
)
from lamina.format.manifest_v1 import kept

VERSION = 2
_PARTITION_MAX = (1 << 32) - 1


def read(document: Json, where: str) -> CheckpointManifest:
    """A version 2 manifest, as the one model."""
    f = Fields(document, where)
    f.integer("version")
    epoch, id = f.integer("epoch"), f.checkpoint_id("checkpoint_id")
    manifest = CheckpointManifest(
        checkpoint_id=id,
        epoch=epoch,
        timestamp_ms=f.integer("timestamp_ms"),
        parent_id=f.checkpoint_id("parent_id", None),
        source_offsets=f.map_of("source_offsets", _connector),
        operators=f.map_of("operators", lambda operator: _operator(operator, epoch)),
        watermark=f.integer("watermark", None, least=INTEGER_MIN),
        vnode_count=0,  # not recorded
        origin=Origin(VERSION, str(id)),
        extra=kept(f, VERSION),
    )
    if manifest.total_size_bytes > INTEGER_MAX:
        raise f.bad("the sizes add up to more than 64 bits can hold")
    return manifest


def _connector(f: Fields) -> ConnectorCheckpoint:
    f.require("offsets")
    return ConnectorCheckpoint(
        offsets=f.text_map("offsets"),
        epoch=f.integer("epoch"),
        metadata={CONNECTOR_TYPE: f.text("source_type")},
        extra=kept(f, VERSION),
    )


def _operator(f: Fields, epoch: int) -> OperatorRuns:
    f.require("partitions")
    partitions: dict[int, tuple[RunEntry, ...]] = {}
    for partition, run in f.list_of("partitions", lambda entry: _run(entry, epoch)):
        partitions[partition] = (*partitions.get(partition, ()), run)
    return OperatorRuns(partitions, extra=kept(f, VERSION))


def _run(f: Fields, epoch: int) -> tuple[int, RunEntry]:
    is_delta, partition = f.flag("is_delta"), f.integer("partition_id")
    if partition > _PARTITION_MAX:
        raise f.bad(f"partition_id {partition} does not fit into 32 bits")
    return partition, RunEntry(
        kind="delta" if is_delta else "snap",
        first_epoch=epoch if is_delta else 0,
        last_epoch=epoch,
        size=f.integer("size_bytes"),
        sha256=f.text("sha256", None),
        path=f.text("path"),
        extra=kept(f, VERSION),
    )
