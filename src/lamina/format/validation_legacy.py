"""What only files of LaminarDB can have: fields of 0.18, and totals left to the caller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lamina.format.manifest_model import CheckpointManifest
from lamina.format.validation_state import Found


def legacy(m: CheckpointManifest) -> Iterator[Found]:
    """Findings about a manifest that was upgraded; nothing for others."""
    if m.origin is None:
        return
    yield "M008", "origin", f"LaminarDB version {m.origin.version}, id {m.origin.checkpoint_id}"
    yield from _incremental(m)
    if m.extra.get("v1.inflight_data"):
        yield "M073", "v1.inflight_data", "restoring without these events would lose them"
    yield from _vnode_map(m)
    yield from _totals(m)


def _incremental(m: CheckpointManifest) -> Iterator[Found]:
    if m.extra.get("v1.is_incremental"):
        parent = m.extra.get("v1.parent_id")
        if parent is None:
            yield "M071", "v1.parent_id", "an incremental checkpoint names no parent"
        else:
            yield "M072", "v1.parent_id", f"restore checkpoint {parent} first"


def _vnode_map(m: CheckpointManifest) -> Iterator[Found]:
    nodes = m.extra.get("v1.vnode_map")
    if isinstance(nodes, Mapping):
        for vnode in nodes:
            if not vnode.isdecimal() or int(vnode[:10]) >= m.vnode_count:
                text = f"{vnode[:40]!r} is not below the vnode count {m.vnode_count}"
                yield "M075", "v1.vnode_map", text


def _totals(m: CheckpointManifest) -> Iterator[Found]:
    # A file that never set its total has 0 there; that is no claim.
    stated = m.extra.get("v2.total_size_bytes")
    if stated and stated != m.total_size_bytes:
        text = f"{stated} is stated, the files have {m.total_size_bytes}"
        yield "M074", "v2.total_size_bytes", text
    for name, operator in m.operators.items():
        stated = operator.extra.get("v2.total_bytes")
        if stated and stated != operator.total_bytes:
            text = f"{stated} is stated, the files have {operator.total_bytes}"
            yield "M074", f"operators[{name!r}].v2.total_bytes", text
