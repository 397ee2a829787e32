"""Is a manifest sound? Typed findings, and by default every error is fatal.

`decode` has checked the form; here every part is compared with every other one it must agree with.
All checks of LaminarDB are here too, there they were messages that callers could ignore.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from lamina.errors import BadManifest
from lamina.format.findings import RULES, Finding, Severity
from lamina.format.manifest_model import (
    VNODE_COUNT,
    CheckpointManifest,
    Failed,
    Pending,
    SinkCommitted,
)
from lamina.format.validation_legacy import legacy
from lamina.format.validation_state import Found, is_sha256, operator_states, output, paths, runs

_HEX = frozenset("0123456789abcdef")


def validate(
    manifest: CheckpointManifest, *, expected_vnodes: int = VNODE_COUNT
) -> tuple[Finding, ...]:
    """All findings about *manifest*, in the order of its parts."""
    found = [item for check in _CHECKS for item in check(manifest)]
    found += _vnodes(manifest, expected_vnodes)
    rated = ((_severity(manifest, code), code, field, text) for code, field, text in found)
    return tuple(
        Finding(severity, code, field, message)
        for severity, code, field, message in rated
        if severity is not None
    )


def check(manifest: CheckpointManifest, *, expected_vnodes: int = VNODE_COUNT) -> None:
    """Raise BadManifest, with all errors in its message, if there is one."""
    errors = [
        finding
        for finding in validate(manifest, expected_vnodes=expected_vnodes)
        if finding.severity is Severity.ERROR
    ]
    if errors:
        raise BadManifest(
            f"the manifest is unsound: {'; '.join(map(str, errors[:20]))}"
            + (f"; and {len(errors) - 20} more" if len(errors) > 20 else ""),
            where=f"manifest of checkpoint {manifest.checkpoint_id}",
        )


def _severity(manifest: CheckpointManifest, code: str) -> Severity | None:
    rule = RULES[code]
    return rule.severity if manifest.origin is None else rule.legacy


def _identity(m: CheckpointManifest) -> Iterator[Found]:
    if m.origin and m.origin.checkpoint_id == "0":
        yield "M001", "checkpoint_id", "the id is 0"
    if m.epoch == 0:
        yield "M002", "epoch", "epochs begin with 1"
    if m.timestamp_ms == 0:
        yield "M003", "timestamp_ms", "the creation time is 0"
    if m.generation == 0:
        yield "M004", "generation", "generations begin with 1"
    if m.pipeline_hash is not None and not _is_pipeline_hash(m):
        yield "M010", "pipeline_hash", f"{m.pipeline_hash[:80]!r} is not a hash in hex"


def _is_pipeline_hash(m: CheckpointManifest) -> bool:
    text = m.pipeline_hash or ""
    return is_sha256(text) or (m.origin is not None and len(text) == 16 and set(text) <= _HEX)


def _parent(m: CheckpointManifest) -> Iterator[Found]:
    if m.parent_id == m.checkpoint_id:
        yield "M005", "parent_id", f"{m.parent_id} names itself"
    if m.parent_epoch is not None and m.parent_epoch >= m.epoch:
        yield "M006", "parent_epoch", f"{m.parent_epoch} is not below {m.epoch}"
    if m.parent_commit_digest is not None and None in (m.parent_epoch, m.commit_digest):
        yield "M007", "parent_commit_digest", "parent_epoch and commit_digest belong to it"
    for name in ("commit_digest", "parent_commit_digest"):
        digest = getattr(m, name)
        if digest is not None and not is_sha256(digest):
            yield "M009", name, f"{digest[:80]!r} is not 64 hex digits"


def _names(m: CheckpointManifest) -> Iterator[Found]:
    for field in ("source_names", "sink_names", "features"):
        listed: tuple[str, ...] = getattr(m, field)
        for name, times in Counter(listed).items():
            if times > 1:
                yield "M011", field, f"{name!r} is listed {times} times"
        if any(left > right for left, right in pairwise(listed)):
            yield "M012", field, "not in the order of code points"


def _sources(m: CheckpointManifest) -> Iterator[Found]:
    if m.source_names or m.origin is None:  # LaminarDB did not always record its topology
        for name in sorted(m.source_offsets.keys() - set(m.source_names)):
            yield "M013", f"source_offsets[{name!r}]", f"{name!r} not in source_names"
        for name in sorted(m.source_watermarks.keys() - set(m.source_names)):
            yield "M015", f"source_watermarks[{name!r}]", f"{name!r} not in source_names"
    for name in m.source_names:
        if name not in m.source_offsets:
            yield "M014", f"source_offsets[{name!r}]", f"the source {name!r} has no offsets"


def _offset_epochs(m: CheckpointManifest) -> Iterator[Found]:
    for field, offsets in (
        ("source_offsets", m.source_offsets),
        ("table_offsets", m.table_offsets),
    ):
        for name, container in offsets.items():
            text = f"epoch {container.epoch}, the manifest has {m.epoch}"
            if container.epoch > m.epoch:
                yield "M016", f"{field}[{name!r}].epoch", text
            elif container.epoch < m.epoch:
                yield "M017", f"{field}[{name!r}].epoch", text


def _vnodes(m: CheckpointManifest, expected: int) -> Iterator[Found]:
    if m.origin and m.origin.version == 2:
        yield "M020", "vnode_count", "version 2 does not record how keys were placed"
    elif m.vnode_count == 0:
        advice = "missing or a legacy checkpoint: replay from the sources, do not load its state"
        yield "M018", "vnode_count", advice
    elif m.vnode_count != expected:
        text = f"the checkpoint has {m.vnode_count}, {expected} are expected"
        yield "M019", "vnode_count", f"{text}: open it with the vnode count it was written with"


def _sinks(m: CheckpointManifest) -> Iterator[Found]:
    statuses = m.sink_commit_statuses
    if statuses or m.origin is None:
        for sink in sorted(m.sink_epochs.keys() - statuses.keys()):
            yield "M021", f"sink_commit_statuses[{sink!r}]", f"sink {sink!r} has no commit status"
    if m.sink_names or m.origin is None:
        used = m.sink_epochs.keys() | statuses.keys() | m.output.keys()
        for sink in sorted(used - set(m.sink_names)):
            yield "M023", "sink_names", f"{sink!r} is used and not in sink_names"
    for sink, epoch in m.sink_epochs.items():
        if epoch > m.epoch:
            yield "M024", f"sink_epochs[{sink!r}]", f"epoch {epoch}, the manifest has {m.epoch}"


def _statuses(m: CheckpointManifest) -> Iterator[Found]:
    for sink, status in m.sink_commit_statuses.items():
        field, epoch = f"sink_commit_statuses[{sink!r}]", m.sink_epochs.get(sink)
        match status:
            case Failed(reason):
                yield "M026", field, f"sink {sink!r} failed: {reason[:200]}"
            case SinkCommitted() if epoch is None:
                yield "M022", field, f"sink {sink!r} is committed, sink_epochs does not name it"
            case SinkCommitted() if epoch is not None and epoch < m.epoch:
                yield "M025", field, f"committed, and the sink is at epoch {epoch} of {m.epoch}"
            case Pending() if epoch == m.epoch:
                yield "M025", field, f"pending, and the sink is at epoch {epoch} already"
            case _:
                pass


_CHECKS: tuple[Callable[[CheckpointManifest], Iterator[Found]], ...] = (
    _identity,
    _parent,
    _names,
    _sources,
    _offset_epochs,
    _sinks,
    _statuses,
    operator_states,
    runs,
    output,
    paths,
    legacy,
)
