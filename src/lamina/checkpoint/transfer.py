"""Copies a checkpoint to another store or base, byte for byte, and verifies it there.

Paths in a manifest are relative to the base, so the copy has the same manifest and digest. The
target is a base of its own: it may hold other copies, never a pipeline that runs there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from lamina.checkpoint import artifacts
from lamina.checkpoint.artifacts import Digest
from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.parallel import run_all
from lamina.checkpoint.progress import Progress, Report, silent
from lamina.checkpoint.verify import CheckpointReport, verify
from lamina.clock import new_writer_id
from lamina.errors import AlreadyExists, Corrupt, Fenced, Refused, UsageError
from lamina.format.log import Begin, Committed, encode_begin
from lamina.format.manifest import Artifact, CheckpointManifest
from lamina.format.names import parse_id
from lamina.ids import CheckpointId
from lamina.os_errors import typed_errors
from lamina.protocol.history import COPY_HOME, GC_HOME, History
from lamina.store.base import PART_SIZE_BYTES


@dataclass(frozen=True, slots=True)
class CopyReport:
    checkpoint: Committed
    objects: int
    bytes: int
    verified: CheckpointReport


def copy_checkpoint(
    source: Checkpointer, id: CheckpointId, target: Checkpointer, *, report: Report = silent
) -> CopyReport:
    """Copy what the checkpoint needs, make it exist at the target, verify it there.

    Killed on the way, the target has no checkpoint; the same call continues.
    """
    if is_same_place(source, target):
        raise UsageError("source and target are the same", where=target.store.url)
    manifest = source.load_manifest(id)
    return arrive(
        target,
        manifest,
        raw_manifest(source, id),
        source.store.url,
        put_files=lambda: _copy_files(source, manifest, target, report),
    )


def raw_manifest(source: Checkpointer, id: CheckpointId) -> Digest:
    """The manifest as bytes, as the commit log vouches for it."""
    entry = source.find(id).entry
    return Digest(entry.manifest_sha256, entry.manifest_size)


def arrive(
    target: Checkpointer,
    manifest: CheckpointManifest,
    raw: Digest,
    origin: str,
    *,
    put_files: Callable[[], None],
) -> CopyReport:
    """Make it exist, by `place`, and read it back."""
    id = manifest.checkpoint_id
    committed = target.history().find(id)
    if committed is None:
        committed = place(target, manifest, raw, origin, put_files=put_files)
    if committed.entry.manifest_sha256 != raw.sha256:
        raise AlreadyExists(
            f"the target has another checkpoint {id}: its manifest is not the one that arrives",
            where=target.store.url,
            advice="Bring it to an empty place, and compare the two",
        )
    verified = verify(target, (id,)).checkpoints[0]
    if not verified.ok:
        # Files lost at the target, or swept by a gc there before the log named them, come again;
        # wrong ones are not overwritten.
        with suppress(AlreadyExists):
            put_files()
        verified = verify(target, (id,)).checkpoints[0]
    if not verified.ok:
        raise Corrupt(
            f"the copy of checkpoint {id} is incomplete or damaged: {verified.problems[0].message}",
            where=verified.problems[0].where,
        )
    return CopyReport(committed, len(manifest.artifacts()) + 1, manifest.total_size_bytes, verified)


def is_same_place(source: Checkpointer, target: Checkpointer) -> bool:
    """Two stores in memory have one address and are not the same."""
    url = target.store.url
    same_store = source.store is target.store or (source.store.url == url and url != "memory://")
    return same_store and source.paths.base == target.paths.base


def place(
    target: Checkpointer,
    manifest: CheckpointManifest,
    raw: Digest,
    origin: str,
    *,
    put_files: Callable[[], None],
) -> Committed:
    """Make a checkpoint of elsewhere exist at the target, once *put_files* has put its files.

    *raw* is what its manifest is as bytes. It is found, and nothing put, if it exists already.
    """
    begin = claim(target, manifest.checkpoint_id, origin)
    if begin is None:
        return target.find(manifest.checkpoint_id)
    mark_folders(target, begin, manifest)
    put_files()
    return exist(begin, manifest, raw, target)


def exist(
    begin: Begin, manifest: CheckpointManifest, raw: Digest, target: Checkpointer
) -> Committed:
    """An entry in the log of the target: from here on the checkpoint is there."""
    history = target.log.checkpoint(
        begin,
        epoch=manifest.epoch,
        manifest_sha256=raw.sha256,
        manifest_size=raw.size,
        total_size=manifest.total_size_bytes,
        commit_digest=manifest.commit_digest,
    )
    committed = history.find(begin.id)
    if committed is None:
        raise Fenced("the copy was made, but another process has already forgotten it")
    return committed


def check_target(now: History, target: Checkpointer) -> None:
    """Only an empty base, or one of copies, takes another one."""
    if now.home == GC_HOME:
        raise Refused(
            "a gc of the target is running, or was interrupted",
            where=target.store.url,
            advice="Wait for it, or run `lamina gc` there again",
        )
    if now.home and not now.home.startswith(COPY_HOME):
        raise Refused(
            f"a pipeline with its home in {now.home} is at the target",
            where=target.store.url,
            advice="Copy to an empty base, or to one that holds only copies",
        )


def claim(target: Checkpointer, id: CheckpointId, origin: str) -> Begin | None:
    """Take the target over as nobody's home; None if it has the checkpoint already.

    A pipeline that lives there is left alone.
    """

    def nobody(now: History) -> str:
        """Judged on the log that the TAKEOVER is written to, not on an earlier look."""
        check_target(now, target)
        return f"{COPY_HOME}{origin}"

    history = target.log.take_over(nobody)
    if history.find(id) is not None:
        return None  # another copy was quicker: its begin.json must stand
    begin = Begin(
        id=id,
        generation=target.log.generation,
        parent=None,
        after=history.lineage_seq,
        writer=new_writer_id(target.clock),
        timestamp_ms=target.clock.now_ms(),
    )
    # Overwrites the begin.json of an interrupted copy: the TAKEOVER has just made that one dead.
    target.store.put(target.paths.begin(id), encode_begin(begin))
    return begin


def mark_folders(target: Checkpointer, begin: Begin, manifest: CheckpointManifest) -> None:
    """Runs of ancestors are in folders of their own ids: in flight like the copy itself.

    What an earlier copy has left there is dead, and gc would take it for garbage.
    """
    folders = {artifact.path.split("/")[0] for artifact in manifest.artifacts()}
    existing = target.history()
    for folder in sorted(folders - {str(begin.id)}):
        id = parse_id(folder)
        assert id is not None, "the manifest was validated"
        if existing.find(id) is None:  # else its log entry names the begin.json that is there
            target.store.put(target.paths.begin(id), encode_begin(replace(begin, id=id)))


def _copy_files(
    source: Checkpointer, manifest: CheckpointManifest, target: Checkpointer, report: Report
) -> None:
    total = manifest.total_size_bytes
    done_bytes = 0
    with (
        typed_errors(tempfile.gettempdir()),
        tempfile.TemporaryDirectory(prefix="lamina-copy-") as folder,
    ):

        def note(artifact: Artifact, _: None) -> None:
            nonlocal done_bytes
            done_bytes += artifact.size or 0
            report(Progress(done_bytes, total, "bytes", artifact.path))

        run_all(
            manifest.artifacts(),
            lambda artifact: copy_file(source, artifact, target, Path(folder)),
            limit=target.max_concurrent,
            each=note,
        )
    copy_manifest(source, manifest.checkpoint_id, target)


def copy_manifest(source: Checkpointer, id: CheckpointId, target: Checkpointer) -> None:
    """The very bytes: the copy has the digest of the original."""
    entry = source.find(id).entry
    key = source.paths.manifest(id)
    expected = Artifact(key, entry.manifest_size, entry.manifest_sha256)
    raw = artifacts.download(source.store, key, expected)
    target.store.put_if_absent(target.paths.manifest(id), raw)


def copy_file(source: Checkpointer, artifact: Artifact, target: Checkpointer, tmp: Path) -> None:
    """Small files through memory, large ones through a file: checked on the way either way."""
    key = target.paths.absolute(artifact.path)
    if (artifact.size or 0) <= PART_SIZE_BYTES:
        target.store.put_if_absent(key, source.load_artifact(artifact))
        return
    local = tmp / new_writer_id(source.clock)
    source.load_artifact(artifact, into=local)
    target.store.put_if_absent(key, local)
    local.unlink()
