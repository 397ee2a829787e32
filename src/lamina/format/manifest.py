"""The manifest of a checkpoint, from and to bytes. FORMAT.md section 4 is the specification.

What Lamina or LaminarDB ever wrote is read for ever, as the one model of manifest_model.py; what is
written is always version 3, canonical: the same value gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from lamina.errors import BadManifest, Corrupt, Unsupported, UsageError
from lamina.format import canonical, manifest_v1, manifest_v2, manifest_v3, manifest_writer
from lamina.format.canonical import Json
from lamina.format.fields import Fields
from lamina.format.manifest_model import (
    KEYED_STATE,
    VNODE_COUNT,
    Artifact,
    CheckpointManifest,
    ConnectorCheckpoint,
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
from lamina.format.manifest_v1 import read_states

__all__ = [
    "KEYED_STATE",
    "KNOWN_FEATURES",
    "MANIFEST_BYTES_MAX",
    "VERSION",
    "VNODE_COUNT",
    "Artifact",
    "CheckpointManifest",
    "ConnectorCheckpoint",
    "Failed",
    "KeyedState",
    "OperatorCheckpoint",
    "OperatorRuns",
    "Origin",
    "OutputFile",
    "Pending",
    "PlacedEntry",
    "RunEntry",
    "Sidecar",
    "SinkCommitStatus",
    "SinkCommitted",
    "StateColumn",
    "decode",
    "encode",
    "pipeline_hash",
    "read_states",
    "with_operators",
    "with_runs",
]

VERSION = manifest_writer.VERSION
MANIFEST_BYTES_MAX = 64 * 1024 * 1024
KNOWN_FEATURES: frozenset[str] = frozenset({KEYED_STATE})
_READERS = {1: manifest_v1.read, 2: manifest_v2.read, 3: manifest_v3.read}


def encode(manifest: CheckpointManifest) -> bytes:
    """The one byte string of a manifest, in version 3."""
    data = canonical.encode(manifest_writer.to_json(manifest))
    if len(data) > MANIFEST_BYTES_MAX:
        raise UsageError(
            f"a manifest of {len(data)} bytes is too large: {MANIFEST_BYTES_MAX} at most"
        )
    return data


def decode(data: bytes, where: str) -> CheckpointManifest:
    """Read a manifest of any version; *where* names it in errors.

    BadManifest if these bytes are none, Unsupported if a newer Lamina is needed to understand
    them. A value that is returned has the right form; `validation.check` says if it is sound.
    """
    if not data:
        raise BadManifest("the manifest is empty", where=where)
    if len(data) > MANIFEST_BYTES_MAX:
        raise BadManifest(
            f"{len(data)} bytes are too many for a manifest: {MANIFEST_BYTES_MAX} at most",
            where=where,
        )
    document = _parse(data, where)
    return _READERS[_version(document, where)](document, where)


def _parse(data: bytes, where: str) -> Json:
    try:
        return canonical.decode(data, where)
    except Corrupt as error:
        raise BadManifest(error.message, where=where) from error


def _version(document: Json, where: str) -> int:
    # First of all: nothing else of a newer file may be believed to mean what it means here.
    f = Fields(document, where)
    version: int = f.integer("version", least=1)
    if version not in _READERS:
        raise Unsupported(f"manifest version {version}; this Lamina reads up to 3", where=where)
    if version == VERSION and (lacking := set(f.texts("features")) - KNOWN_FEATURES):
        raise Unsupported(
            f"the manifest needs the features {', '.join(sorted(lacking))}",
            where=where,
        )
    return version


def pipeline_hash(definition: Json) -> str:
    """What a pipeline is, as hex text: the same in every process and release."""
    return canonical.digest_of(definition)


class PlacedEntry(NamedTuple):
    operator: str
    partition: int
    run: RunEntry


def with_runs(head: CheckpointManifest, runs: Iterable[PlacedEntry]) -> CheckpointManifest:
    """*head* with these runs as its state, and every list in its canonical order.

    Runs may come in any order, as uploads end. Names that offsets, epochs, statuses or output
    mention are added to the topology. The same run twice is refused.
    """
    operators = {name: OperatorRuns(parts) for name, parts in _grouped(runs).items()}
    return with_operators(head, operators)


def with_operators(
    head: CheckpointManifest, operators: Mapping[str, OperatorRuns]
) -> CheckpointManifest:
    """*head* with this state, and every list in its canonical order."""
    keyed = any(operator.keyed is not None for operator in operators.values())
    needed = {KEYED_STATE} if keyed else set()
    sources = {*head.source_names, *head.source_offsets}
    sinks = {*head.sink_names, *head.sink_epochs, *head.sink_commit_statuses, *head.output}
    return replace(
        head,
        operators=dict(sorted(operators.items())),
        source_names=tuple(sorted(sources)),
        sink_names=tuple(sorted(sinks)),
        features=tuple(sorted({*head.features, *needed})),
        output={
            sink: tuple(sorted(files, key=lambda file: (file.epoch, file.path)))
            for sink, files in sorted(head.output.items())
        },
    )


def _grouped(runs: Iterable[PlacedEntry]) -> Mapping[str, Mapping[int, tuple[RunEntry, ...]]]:
    grouped: dict[str, dict[int, tuple[RunEntry, ...]]] = {}
    placed = sorted(runs, key=lambda p: (p.operator, p.partition, p.run.last_epoch))
    for operator, partition, run in placed:
        below = grouped.setdefault(operator, {}).get(partition, ())
        if below and below[-1].last_epoch == run.last_epoch:
            raise UsageError(
                f"two runs of operator {operator!r}, partition {partition} end with epoch "
                f"{run.last_epoch}"
            )
        grouped[operator][partition] = (*below, run)
    return grouped
