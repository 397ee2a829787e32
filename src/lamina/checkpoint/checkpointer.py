"""Writes and reads checkpoints in an object store.

begin        begin.json, the first object: from here on the id is in flight
save_*       runs, output and sidecar, each create-only, hashed on the way
commit       proves that everything is there, saves the manifest, then one log entry: it exists
load_*       size, then digest; what does not match is never returned
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lamina.checkpoint import artifacts
from lamina.checkpoint.commit_log import CommitLog
from lamina.checkpoint.parallel import run_bounded
from lamina.clock import Clock, SystemClock, new_checkpoint_id, new_writer_id
from lamina.errors import BadManifest, Fenced, NotFound, UploadFailed, UsageError
from lamina.format import manifest as manifests
from lamina.format import validation
from lamina.format.log import Begin, Checkpoint, Committed, encode_begin
from lamina.format.manifest import (
    MANIFEST_BYTES_MAX,
    VNODE_COUNT,
    Artifact,
    CheckpointManifest,
    OperatorCheckpoint,
    OutputFile,
    PlacedEntry,
    RunEntry,
    Sidecar,
)
from lamina.format.names import CheckpointPaths, RunKind, RunName, relative
from lamina.ids import CheckpointId
from lamina.protocol.history import History
from lamina.store.base import Data, Store

MAX_CONCURRENT_UPLOADS = 8


@dataclass(frozen=True, slots=True)
class PartitionData:
    """One run to be saved: a snapshot is a bottom run, a delta is above one."""

    operator: str
    partition: int
    kind: RunKind
    first_epoch: int
    last_epoch: int
    rows: int
    data: Data


class Checkpointer:
    """One pipeline's checkpoints below one base. Not shared between threads."""

    def __init__(
        self,
        store: Store,
        paths: CheckpointPaths | None = None,
        *,
        max_concurrent_uploads: int = MAX_CONCURRENT_UPLOADS,
        vnode_count: int | None = VNODE_COUNT,
        clock: Clock | None = None,
    ) -> None:
        if max_concurrent_uploads < 1:
            raise UsageError(f"{max_concurrent_uploads} uploads at once: it must be 1 or more")
        self.store = store
        self.paths = paths or CheckpointPaths()
        self.max_concurrent = max_concurrent_uploads
        self.vnode_count = vnode_count
        self.clock = clock or SystemClock()
        self.log = CommitLog(store, self.paths, self.clock)

    # writing

    def begin(self, parent: CheckpointId | None = None, *, full: bool = False) -> Begin:
        """Start a checkpoint on top of *parent*: by default of what the log builds on.

        A *full* one builds on nothing: it saves every run itself.
        """
        if not self.log.generation:
            raise UsageError(
                "this process has not taken the pipeline over",
                advice="Call log.take_over(home) once, before the first checkpoint",
            )
        self.log.check_process()
        history = self.log.read()
        begin = Begin(
            id=new_checkpoint_id(self.clock),
            generation=self.log.generation,
            parent=None if full else parent or history.base,
            after=history.lineage_seq,
            writer=new_writer_id(self.clock),
            timestamp_ms=self.clock.now_ms(),
        )
        self.store.put_if_absent(self.paths.begin(begin.id), encode_begin(begin))
        return begin

    def save_snapshot(
        self,
        id: CheckpointId,
        operator: str,
        partition: int,
        data: Data,
        *,
        first_epoch: int,
        last_epoch: int,
        rows: int,
    ) -> RunEntry:
        """Save a bottom run; returns what the manifest says about it."""
        part = PartitionData(operator, partition, "snap", first_epoch, last_epoch, rows, data)
        return self._save_run(id, part)

    def save_delta(
        self,
        id: CheckpointId,
        operator: str,
        partition: int,
        data: Data,
        *,
        first_epoch: int,
        last_epoch: int,
        rows: int,
    ) -> RunEntry:
        """Save a run that is above others."""
        part = PartitionData(operator, partition, "delta", first_epoch, last_epoch, rows, data)
        return self._save_run(id, part)

    def save_partitions(
        self, id: CheckpointId, parts: Sequence[PartitionData]
    ) -> tuple[PlacedEntry, ...]:
        """Save many runs at once; every one comes back, sorted by operator, partition and epoch.

        If one fails, no new one starts, those under way are waited for, and UploadFailed names
        what has been uploaded.
        """
        paths = [relative(_name(id, part)) for part in parts]
        if len(set(paths)) != len(paths):
            twice = next(path for path in paths if paths.count(path) > 1)
            raise UsageError(f"two runs would be saved under one name, {twice}")
        saved: dict[int, RunEntry] = {}
        errors: list[Exception] = []
        with run_bounded(
            range(len(parts)),
            lambda index: self._save_run(id, parts[index]),
            limit=self.max_concurrent,
            stop_on_error=True,
        ) as jobs:
            for done in jobs:
                if done.error is not None:
                    errors.append(done.error)
                else:
                    assert done.result is not None
                    saved[done.item] = done.result
        if errors:
            raise self._upload_failed(errors, saved.values(), len(parts)) from errors[0]
        placed = (PlacedEntry(p.operator, p.partition, saved[i]) for i, p in enumerate(parts))
        return tuple(sorted(placed, key=lambda p: (p.operator, p.partition, p.run.last_epoch)))

    def save_output(
        self, id: CheckpointId, sink: str, data: Data, *, epoch: int, file: str, rows: int
    ) -> OutputFile:
        """Save output that *sink* has not published yet (R7)."""
        if epoch < 0 or rows < 0:
            raise UsageError(f"output of epoch {epoch} with {rows} rows: both must be 0 or more")
        key = self.paths.output(id, sink, epoch=epoch, file=file)
        digest = artifacts.upload(self.store, key, data)
        return OutputFile(epoch, self._relative(key), digest.size, digest.sha256, rows)

    def save_states(
        self, id: CheckpointId, states: Mapping[str, bytes], *, inline_bytes_max: int
    ) -> tuple[dict[str, OperatorCheckpoint], Sidecar | None]:
        """Save states without a key space: small ones inline, the others in one sidecar."""
        entries: dict[str, OperatorCheckpoint] = {}
        sidecar = bytearray()
        for name in sorted(states):
            entries[name], large = OperatorCheckpoint.from_bytes(
                states[name], inline_bytes_max, len(sidecar)
            )
            sidecar += large or b""
        if not sidecar:
            return entries, None
        key = self.paths.sidecar(id)
        digest = artifacts.upload(self.store, key, bytes(sidecar))
        return entries, Sidecar(self._relative(key), digest.size, digest.sha256)

    def save_manifest(self, manifest: CheckpointManifest) -> artifacts.Digest:
        """Save a sound manifest, create-only. The checkpoint does not exist yet."""
        validation.check(manifest, expected_vnodes=self.expected_vnodes(manifest))
        data = manifests.encode(manifest)
        return artifacts.upload(self.store, self.paths.manifest(manifest.checkpoint_id), data)

    def commit(self, begin: Begin, manifest: CheckpointManifest) -> Committed:
        """Make the checkpoint exist: all or nothing, decided by one create-only log entry."""
        manifest = replace(
            manifest,
            checkpoint_id=begin.id,
            generation=begin.generation,
            parent_id=begin.parent,
        )
        self._check_complete(begin, manifest)
        saved = self.save_manifest(manifest)
        history = self.log.checkpoint(
            begin,
            epoch=manifest.epoch,
            manifest_sha256=saved.sha256,
            manifest_size=saved.size,
            total_size=manifest.total_size_bytes,
            commit_digest=manifest.commit_digest,
        )
        committed = history.find(begin.id)
        if committed is None:
            raise Fenced("the checkpoint was made, but a process that took over has forgotten it")
        return committed

    # reading

    def list_checkpoints(self) -> tuple[Committed, ...]:
        """Those that exist, by epoch; the cost does not depend on how many files they have."""
        return tuple(sorted(self.log.read().checkpoints, key=lambda c: (c.epoch, c.seq)))

    def find(self, id: CheckpointId) -> Committed:
        """The log's word on one checkpoint; NotFound if it says nothing."""
        committed = self.log.read().find(id)
        if committed is None:
            raise NotFound(
                f"no checkpoint {id}",
                where=self.store.url,
                advice="`lamina list` shows those that exist; a manifest without an entry in the "
                "log was never committed",
            )
        return committed

    def load_manifest(self, id: CheckpointId) -> CheckpointManifest:
        """The manifest that the log names, proven by size and digest."""
        entry = self.find(id).entry
        key = self.paths.manifest(id)
        if entry.manifest_size > MANIFEST_BYTES_MAX:
            raise BadManifest(f"a manifest of {entry.manifest_size} bytes", where=key)
        expected = Artifact(key, entry.manifest_size, entry.manifest_sha256)
        data = artifacts.download(self.store, key, expected)
        manifest = manifests.decode(data, f"{self.store.url}/{key}")
        check_entry(manifest, entry, key)
        validation.check(manifest, expected_vnodes=self.expected_vnodes(manifest))
        return manifest

    def load_artifact(
        self, artifact: Artifact | RunEntry | OutputFile | Sidecar, into: Path | None = None
    ) -> bytes:
        """The bytes a manifest names; or, streamed and in bounded memory, *into* a file.

        With *into* the result is empty: the file is there, whole and proven, or not at all.
        """
        inline = artifact.decode_inline() if isinstance(artifact, RunEntry) else None
        if inline is not None:
            if into is not None:
                artifacts.write_into(inline, into, self.clock)
                return b""
            return inline
        if artifact.path is None:
            raise BadManifest("a run has neither a path nor inline bytes")
        key = self.paths.absolute(artifact.path)
        if into is None:
            return artifacts.download(self.store, key, artifact)
        artifacts.download_into(self.store, key, artifact, into, self.clock)
        return b""

    # the hint

    def update_latest(self) -> None:
        """Let `_latest` point at the end of the log as it is now."""
        self.log.write_hint()
        if self.log.hint_error is not None:
            raise self.log.hint_error

    def read_latest(self) -> CheckpointId | None:
        """The newest checkpoint; a missing or damaged hint only makes this a little slower."""
        newest = self.log.read().newest
        return None if newest is None else newest.id

    # steps

    def _save_run(self, id: CheckpointId, part: PartitionData) -> RunEntry:
        path = relative(_name(id, part))
        digest = artifacts.upload(self.store, self.paths.absolute(path), part.data)
        return RunEntry(
            kind=part.kind,
            first_epoch=part.first_epoch,
            last_epoch=part.last_epoch,
            size=digest.size,
            rows=part.rows,
            sha256=digest.sha256,
            path=path,
        )

    def _upload_failed(
        self, errors: Sequence[Exception], saved: Iterable[RunEntry], total: int
    ) -> UploadFailed:
        uploaded = tuple(sorted(run.path for run in saved if run.path))
        return UploadFailed(
            f"{len(errors)} of {total} uploads failed, {len(uploaded)} succeeded; "
            f"the first failure: {errors[0]}",
            where=self.store.url,
            uploaded=uploaded,
        )

    def _check_complete(self, begin: Begin, manifest: CheckpointManifest) -> None:
        """Everything the manifest names is in the store, or was already its parent's (R11)."""
        own = {i.key: i.size for i in self.store.list(self.paths.checkpoint_dir(begin.id))}
        shared = self._parent_artifacts(begin)
        for artifact in manifest.artifacts():
            if artifact in shared:
                continue
            key = self.paths.absolute(artifact.path)
            if key not in own:
                raise BadManifest(
                    "the manifest names a file that was not saved under this checkpoint, nor is "
                    "its parent's",
                    where=key,
                    advice="Save it first, or begin the checkpoint on top of the one that has it",
                )
            artifacts.check_size(own[key], artifact, key)

    def _parent_artifacts(self, begin: Begin) -> frozenset[Artifact]:
        if begin.parent is None:
            return frozenset()
        return frozenset(self.load_manifest(begin.parent).artifacts())

    def _relative(self, key: str) -> str:
        path = self.paths.relative(key)
        assert path is not None
        return path

    def expected_vnodes(self, manifest: CheckpointManifest) -> int:
        """The count a manifest must have; a tool (None) takes each manifest's own."""
        return manifest.vnode_count if self.vnode_count is None else self.vnode_count

    def history(self) -> History:
        """What the log says now."""
        return self.log.read()


def check_entry(manifest: CheckpointManifest, entry: Checkpoint, where: str) -> None:
    """A manifest and the log entry that names it say the same."""
    said = (manifest.checkpoint_id, manifest.epoch, manifest.commit_digest)
    if said != (entry.id, entry.epoch, entry.commit_digest):
        raise BadManifest(
            f"the manifest is that of {manifest.checkpoint_id}, epoch {manifest.epoch}; the log "
            f"says {entry.id}, epoch {entry.epoch}",
            where=where,
        )


def _name(id: CheckpointId, part: PartitionData) -> RunName:
    if not 0 <= part.first_epoch <= part.last_epoch or part.partition < 0:
        raise UsageError(
            f"invalid run: partition {part.partition}, epochs {part.first_epoch} to "
            f"{part.last_epoch}"
        )
    return RunName(id, part.operator, part.partition, part.first_epoch, part.last_epoch, part.kind)
