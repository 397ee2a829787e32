"""Takes a checkpoint of LaminarDB (manifest version 1 or 2) into a store, as one of Lamina's.

Its id and its epoch stay, and so do offsets, watermarks and every state, byte for byte: a pipeline
that starts there begins at its offsets, and carries on what it cannot read. Refused is what would
not be whole: a checkpoint that needs its parent, events in flight, a table store beside it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lamina.checkpoint import artifacts
from lamina.checkpoint.carrying import Carried
from lamina.checkpoint.checkpointer import Checkpointer, PartitionData
from lamina.checkpoint.progress import Progress, Report, silent
from lamina.checkpoint.transfer import CopyReport, claim
from lamina.checkpoint.verify import verify
from lamina.clock import new_writer_id
from lamina.errors import Corrupt, Fenced, NotFound, Refused, UsageError
from lamina.format import manifest as manifests
from lamina.format import validation
from lamina.format.inline import INLINE_BYTES_MAX
from lamina.format.log import Begin, Committed
from lamina.format.manifest_model import (
    VNODE_COUNT,
    Artifact,
    CheckpointManifest,
    OperatorRuns,
    RunEntry,
)
from lamina.format.manifest_v1 import read_states
from lamina.format.names import path_problem
from lamina.os_errors import typed_errors
from lamina.store.base import Store

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class LaminarCheckpoint:
    """A checkpoint of LaminarDB: its manifest, and the store that its files are in."""

    store: Store
    manifest: CheckpointManifest
    prefix: str = ""  # what stands before `manifest.json`: some releases forgot a slash there

    def locate(self, path: str) -> str:
        """The key of a file that the manifest names, by the path it had where it was written."""
        id = str(self.manifest.checkpoint_id)
        tail = path.rpartition(id)[2].lstrip("/")
        tried = [key for key in (path, tail, self.prefix + tail) if not path_problem(key)]
        for key in dict.fromkeys(tried):
            if self._is_there(key):
                return key
        raise NotFound(
            f"the manifest names {path[:200]!r}, which is not here",
            where=self.store.url,
            advice="Name the folder of the checkpoint, with all the files that LaminarDB wrote",
        )

    def _is_there(self, key: str) -> bool:
        try:
            self.store.head(key)
        except NotFound:
            return False
        return True


def read_checkpoint(store: Store, key: str = MANIFEST) -> LaminarCheckpoint:
    """The checkpoint whose manifest is under *key*; raises why it cannot be imported."""
    where = f"{store.url}/{key}"
    manifest = manifests.decode(store.get(key), where)
    if manifest.origin is None:
        raise UsageError(
            "this is already a checkpoint of Lamina",
            where=where,
            advice="`lamina copy` takes it to another store",
        )
    _check_whole(manifest, where)
    # Without a count nothing in it is placed by vnodes.
    manifest = replace(manifest, vnode_count=manifest.vnode_count or VNODE_COUNT)
    validation.check(manifest, expected_vnodes=manifest.vnode_count)
    return LaminarCheckpoint(store, manifest, key.rpartition("/")[2].removesuffix(MANIFEST))


def import_checkpoint(
    source: LaminarCheckpoint, target: Checkpointer, *, report: Report = silent
) -> CopyReport:
    """Make it exist at the target, and verify it there.

    Killed on the way, the target has no checkpoint; the same call continues, and a call after
    that finds it.
    """
    id = source.manifest.checkpoint_id
    committed = target.history().find(id) or _import(source, target, report)
    verified = verify(target, (id,)).checkpoints[0]
    if not verified.ok:
        raise Corrupt(
            f"checkpoint {id} is damaged at the target: {verified.problems[0].message}",
            where=verified.problems[0].where,
        )
    manifest = target.load_manifest(id)
    return CopyReport(committed, len(manifest.artifacts()) + 1, manifest.total_size_bytes, verified)


def _check_whole(manifest: CheckpointManifest, where: str) -> None:
    """What a Lamina that starts from it would miss."""
    if manifest.extra.get("v1.is_incremental") or any(
        run.kind == "delta" for run in _runs(manifest)
    ):
        raise Refused(
            "this checkpoint is incremental: without its parent it is incomplete",
            where=where,
            advice="Make a full checkpoint in LaminarDB, and import that one",
        )
    if manifest.table_store_path is not None:
        raise Refused(
            f"this checkpoint has a table store beside it, {manifest.table_store_path[:200]!r}, "
            "which only LaminarDB can read",
            where=where,
            advice="Make a checkpoint of a pipeline without that table, and import it",
        )


def _runs(manifest: CheckpointManifest) -> Iterator[RunEntry]:
    for operator in manifest.operators.values():
        for runs in operator.partitions.values():
            yield from runs


def _import(source: LaminarCheckpoint, target: Checkpointer, report: Report) -> Committed:
    id = source.manifest.checkpoint_id
    begin = claim(target, id, source.store.url)
    if begin is None:
        return target.find(id)
    carried = _upload(source, target, begin, report)
    # Nothing of this process in it: an interrupted import is gone on with by the same bytes.
    manifest = replace(
        source.manifest,
        parent_id=None,
        operators=carried.operators,
        operator_states=carried.operator_states,
        sidecar=carried.sidecar,
    )
    saved = target.save_manifest(manifest)
    history = target.log.checkpoint(
        begin,
        epoch=manifest.epoch,
        manifest_sha256=saved.sha256,
        manifest_size=saved.size,
        total_size=manifest.total_size_bytes,
    )
    committed = history.find(id)
    if committed is None:
        raise Fenced("the checkpoint was imported, but another process has already forgotten it")
    return committed


def _upload(
    source: LaminarCheckpoint, target: Checkpointer, begin: Begin, report: Report
) -> Carried:
    """Every file, proven by what the manifest says of it, and saved under the names of Lamina."""
    manifest = source.manifest
    sidecar: bytes | None = None
    if manifest.sidecar is not None:
        key = source.locate(manifest.sidecar.path)
        sidecar = artifacts.download(source.store, key, manifest.sidecar)
    states, saved = target.save_states(
        begin.id,
        read_states(manifest, sidecar, source.store.url),
        inline_bytes_max=INLINE_BYTES_MAX,
    )
    operators: dict[str, dict[int, tuple[RunEntry, ...]]] = {}
    done = 0
    for place, run in _upload_runs(source, target, begin):
        done += run.size
        report(Progress(done, manifest.total_size_bytes, "bytes", run.path or ""))
        partitions = operators.setdefault(place[0], {})
        partitions[place[1]] = (*partitions.get(place[1], ()), run)
    extras = {name: operator.extra for name, operator in manifest.operators.items()}
    runs = {name: OperatorRuns(operators.get(name, {}), extra=extras[name]) for name in extras}
    return Carried(runs, states, saved)


def _upload_runs(
    source: LaminarCheckpoint, target: Checkpointer, begin: Begin
) -> Iterator[tuple[tuple[str, int], RunEntry]]:
    with (
        typed_errors(tempfile.gettempdir()),
        tempfile.TemporaryDirectory(prefix="lamina-import-") as folder,
    ):
        for name, operator in sorted(source.manifest.operators.items()):
            for number, runs in sorted(operator.partitions.items()):
                for run in runs:
                    assert run.path is not None, "version 2 has no inline runs"
                    local = Path(folder) / new_writer_id(target.clock)
                    expected = Artifact(run.path, run.size, run.sha256)
                    key = source.locate(run.path)
                    artifacts.download_into(source.store, key, expected, local, target.clock)
                    part = PartitionData(
                        name, number, run.kind, run.first_epoch, run.last_epoch, 0, local
                    )
                    (saved,) = target.save_partitions(begin.id, [part])
                    local.unlink()
                    yield (name, number), replace(saved.run, rows=None, extra=run.extra)
