"""What a pipeline consists of, as Arrow tables: checkpoints, their files, offsets, COMMITs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from lamina.disk import LocalDisk
from lamina.errors import NotFound
from lamina.format.manifest_model import CheckpointManifest, ConnectorCheckpoint
from lamina.inspect.archive import Archive
from lamina.inspect.reach import At
from lamina.inspect.view import View
from lamina.recovery.rehearsal import look, plan_start
from lamina.wal.home import read_home

Row = dict[str, Any]
TIME = pa.timestamp("ms", "UTC")
_TEXTS = pa.map_(pa.string(), pa.string())
SCHEMAS: Mapping[str, pa.Schema] = {
    "checkpoints": pa.schema(
        [
            ("epoch", pa.int64()),
            ("id", pa.string()),
            ("begun", TIME),
            ("generation", pa.int64()),
            ("parent", pa.string()),
            ("size_bytes", pa.int64()),
            ("savepoints", pa.list_(pa.string())),
            ("newest", pa.bool_()),
        ]
    ),
    "files": pa.schema(
        [
            ("path", pa.string()),
            ("stream", pa.string()),
            ("partition", pa.int32()),
            ("kind", pa.string()),
            ("first_epoch", pa.int64()),
            ("last_epoch", pa.int64()),
            ("rows", pa.int64()),
            ("size_bytes", pa.int64()),
            ("sha256", pa.string()),
        ]
    ),
    "offsets": pa.schema(
        [
            ("kind", pa.string()),
            ("name", pa.string()),
            ("epoch", pa.int64()),
            ("offsets", _TEXTS),
            ("watermark", pa.timestamp("us", "UTC")),
        ]
    ),
    "commits": pa.schema(
        [
            ("epoch", pa.int64()),
            ("generation", pa.int64()),
            ("digest", pa.string()),
            ("parent_epoch", pa.int64()),
            ("partitions", pa.int32()),
            ("watermark", pa.timestamp("us", "UTC")),
            ("entries", pa.int64()),
            ("wal_bytes", pa.int64()),
            ("output_files", pa.int64()),
        ]
    ),
}
"""By table; a column may be added, none is renamed or taken away."""


def metadata(archive: Archive, table: str, at: At = None) -> pa.Table:
    """One of the tables; `files` and `offsets` are those of a checkpoint, or of an epoch."""
    rows = _TABLES[table](archive, at)
    return pa.Table.from_pylist(list(rows), SCHEMAS[table])


def _checkpoints(archive: Archive, _: At) -> Iterator[Row]:
    history = archive.checkpointer.history()
    for each in archive.checkpointer.list_checkpoints():
        yield {
            "epoch": each.epoch,
            "id": str(each.id),
            "begun": each.id.milliseconds,
            "generation": each.generation,
            "parent": str(each.entry.parent) if each.entry.parent else None,
            "size_bytes": each.entry.total_size,
            "savepoints": list(history.pinned(each.id)),
            "newest": history.newest is not None and history.newest.id == each.id,
        }


def _files(archive: Archive, at: At) -> Iterator[Row]:
    manifest = _manifest(archive.view(at))
    states: set[str] = set()
    for name, operator in sorted(manifest.operators.items()):
        for number, runs in sorted(operator.partitions.items()):
            for run in runs:
                states.add(run.path or "")
                yield {
                    "path": run.path,
                    "stream": name,
                    "partition": number,
                    "kind": run.kind,
                    "first_epoch": run.first_epoch,
                    "last_epoch": run.last_epoch,
                    "rows": run.rows,
                    "size_bytes": run.size,
                    "sha256": run.sha256,
                }
    for artifact in manifest.artifacts():
        if artifact.path not in states:
            yield {
                "path": artifact.path,
                "kind": "other",
                "size_bytes": artifact.size,
                "sha256": artifact.sha256,
            }


def _offsets(archive: Archive, at: At) -> Iterator[Row]:
    view = archive.view(at)
    known = view.commits[-1] if view.commits else _manifest(view)
    for kind, found in (("source", known.source_offsets), ("table", known.table_offsets)):
        for name, each in sorted(found.items()):
            mark = known.source_watermarks.get(name) if kind == "source" else None
            yield {"kind": kind, "name": name, "watermark": mark} | _offset(each)


def _offset(each: ConnectorCheckpoint) -> Row:
    return {"epoch": each.epoch, "offsets": sorted(each.offsets.items())}


def _commits(archive: Archive, _: At) -> Iterator[Row]:
    """Those on the line of the head that the log still has."""
    if archive.home is None:
        raise NotFound(
            "COMMITs are in the log of a home, and none was given",
            where=archive.checkpointer.store.url,
            advice="Give the pipeline file, or the option home",
        )
    scan = look(read_home(LocalDisk(archive.home)), archive.checkpointer)
    head = plan_start(scan).head
    found, at = [], head
    while at is not None and (commit := scan.commits.get(at.digest)) is not None:
        found.append(commit)
        at = commit.parent
    for commit in reversed(found):
        yield {
            "epoch": commit.epoch,
            "generation": commit.generation,
            "digest": commit.digest,
            "parent_epoch": commit.parent.epoch if commit.parent else None,
            "partitions": commit.partitions,
            "watermark": commit.watermark,
            "entries": sum(place.entries for place in commit.ranges),
            "wal_bytes": sum(place.size for place in commit.ranges),
            "output_files": len(commit.staged),
        }


def _manifest(view: View) -> CheckpointManifest:
    if view.manifest is None:
        raise NotFound("this epoch has no checkpoint before it")
    return view.manifest


_TABLES: Mapping[str, Callable[[Archive, At], Iterator[Row]]] = {
    "checkpoints": _checkpoints,
    "files": _files,
    "offsets": _offsets,
    "commits": _commits,
}
