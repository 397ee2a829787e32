"""The JSON that scripts read; docs/cli.md lists every field.

Ids and digests are text, times ISO 8601 in UTC, sizes whole numbers of bytes. Fields may be added;
none is renamed or taken away.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lamina.checkpoint import (
    Checkpointer,
    CheckpointReport,
    CopyReport,
    FolderPlan,
    GcPlan,
    Problem,
    Savepoint,
    VerifyReport,
)
from lamina.cli.support.exits import error_shape
from lamina.cli.support.words import begun, utc
from lamina.format.findings import Finding
from lamina.format.log import Committed, Entry, encode_entry
from lamina.ids import CheckpointId
from lamina.protocol.history import History
from lamina.protocol.retention import Fate

Shape = dict[str, Any]

error = error_shape


def place(checkpointer: Checkpointer) -> Shape:
    """Which pipeline's folder an answer is about."""
    return {"store": checkpointer.store.url, "base": checkpointer.paths.base}


def checkpoint(committed: Committed, history: History) -> Shape:
    entry = committed.entry
    newest = history.newest
    return {
        "epoch": committed.epoch,
        "id": str(committed.id),
        "begun": begun(committed.id),
        "generation": committed.generation,
        "seq": committed.seq,
        "size_bytes": entry.total_size,
        "manifest_bytes": entry.manifest_size,
        "manifest_sha256": entry.manifest_sha256,
        "commit_digest": entry.commit_digest,
        "parent": _text(entry.parent),
        "savepoints": list(history.pinned(committed.id)),
        "newest": newest is not None and newest.id == committed.id,
        "stands_on": history.base == committed.id,
    }


def checkpoints(found: Sequence[Committed], history: History) -> Shape:
    newest = history.newest
    return {
        "generation": history.generation,
        "home": history.home,
        "epoch_max": history.epoch_max,
        "newest": _text(newest.id if newest else None),
        "stands_on": _text(history.base),
        "checkpoints": [checkpoint(each, history) for each in found],
    }


def finding(found: Finding) -> Shape:
    return {
        "severity": str(found.severity),
        "code": found.code,
        "field": found.field,
        "message": found.message,
    }


def log_entry(entry: Entry, digest: str) -> Shape:
    """The entry as it is stored, with its digest; the folded state is left out."""
    stored: Shape = json.loads(encode_entry(entry))
    return {
        "seq": entry.seq,
        "time": utc(entry.timestamp_ms),
        "kind": stored["kind"],
        "generation": entry.generation,
        "body": stored["body"],
        "writer": entry.writer,
        "sha256": digest,
        "previous": entry.previous,
    }


def problem(found: Problem) -> Shape:
    return {
        "severity": str(found.severity),
        "code": found.code,
        "where": found.where,
        "message": found.message,
    }


def checkpoint_report(report: CheckpointReport) -> Shape:
    return {
        "id": str(report.id),
        "epoch": report.epoch,
        "ok": report.ok,
        "objects": report.objects,
        "objects_read": report.objects_read,
        "bytes_read": report.bytes_read,
        "problems": [problem(each) for each in report.problems],
    }


def verification(report: VerifyReport, sample: float) -> Shape:
    return {
        "ok": report.ok,
        "sample": sample,
        "log_entries": report.entries,
        "log_problems": [problem(each) for each in report.log_problems],
        "checkpoints": [checkpoint_report(each) for each in report.checkpoints],
    }


def folder(plan: FolderPlan) -> Shape:
    return {
        "id": str(plan.id),
        "objects": len(plan.delete),
        "bytes": sum(info.size for info in plan.delete),
        "keys": [info.key for info in plan.delete],
        "shared": list(plan.shared),
    }


def gc(plan: GcPlan, *, retain: int, dry_run: bool) -> Shape:
    return {
        "dry_run": dry_run,
        "retain": retain,
        "forget": [str(id) for id in plan.forget],
        "held": [{"id": str(id), "why": why} for id, why in plan.held],
        "delete": [folder(each) for each in plan.folders if each.fate is Fate.GARBAGE],
        "objects": len(plan.delete),
        "bytes": plan.bytes,
        "in_flight": [str(each.id) for each in plan.folders if each.fate is Fate.IN_FLIGHT],
        "unknown": [str(each.id) for each in plan.folders if each.fate is Fate.UNKNOWN],
    }


def savepoint(found: Savepoint, history: History) -> Shape:
    return {"name": found.name, "checkpoint": checkpoint(found.checkpoint, history)}


def copy(report: CopyReport) -> Shape:
    return {
        "id": str(report.checkpoint.id),
        "epoch": report.checkpoint.epoch,
        "objects": report.objects,
        "bytes": report.bytes,
        "verified": checkpoint_report(report.verified),
    }


def _text(id: CheckpointId | None) -> str | None:
    return None if id is None else str(id)
