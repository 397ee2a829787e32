"""Checkpoints of keyed state, made beside further epochs: they read lists that never change.

If a log entry was put and no answer came, the next attempt looks first: what exists is used. If the
log continues from something else than this process thinks, or the parent's manifest is damaged, the
next checkpoint is a full one: it builds on nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from lamina.checkpoint.background import Background
from lamina.checkpoint.carrying import carry
from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.state import SavedState, save
from lamina.errors import Corrupt, NotFound, Refused
from lamina.format.commit import CommitRecord, Point
from lamina.format.log import Begin, Committed
from lamina.format.manifest import with_operators
from lamina.format.manifest_model import CheckpointManifest, SinkCommitStatus
from lamina.format.pipeline_record import PipelineRecord
from lamina.format.validation_state import is_sha256
from lamina.ids import CheckpointId
from lamina.state.local import RunFolder
from lamina.state.operator import OperatorState


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that exists, and what was made for it."""

    checkpoint: Committed
    manifest: CheckpointManifest
    state: SavedState


@dataclass(frozen=True, slots=True)
class PipelineFacts:
    """What a manifest says beside state and offsets, if there is a pipeline around them."""

    record: PipelineRecord | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    sink_epochs: Mapping[str, int] = field(default_factory=dict)
    sink_statuses: Mapping[str, SinkCommitStatus] = field(default_factory=dict)


NO_PIPELINE = PipelineFacts()


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A checkpoint that is complete but for its log entry."""

    begin: Begin
    manifest: CheckpointManifest
    state: SavedState


class Saver:
    """Makes the checkpoints of one process, one at a time."""

    def __init__(
        self, checkpointer: Checkpointer, folder: RunFolder, *, compression: str | None = None
    ) -> None:
        self._checkpointer = checkpointer
        self._folder = folder
        self._compression = compression
        self._unclear: _Attempt | None = None  # its entry may be in the log: no answer came

    def begin(
        self,
        commit: CommitRecord,
        operators: Mapping[str, OperatorState],
        *,
        base: CheckpointManifest | None,
        pipeline: PipelineFacts = NO_PIPELINE,
    ) -> Saving:
        """Start one; what it gives may be an earlier one, which turns out to exist already.

        *base* is the checkpoint that the state continues from.
        """
        work = _Work(commit, operators, base, pipeline)
        return Saving(commit.epoch, lambda: self._save(work))

    def _save(self, work: _Work) -> Saved:
        if landed := self._landed():
            return landed
        parent = self._usable(work.base.checkpoint_id if work.base else None)
        try:
            return self._make(work, parent)
        except Refused:
            if self._goes_on_from(parent):
                raise
            # An earlier attempt has come through after all, between our look and our entry.
            return self._landed() or self._make(work, None)

    def _landed(self) -> Saved | None:
        """The attempt that no answer came for, if the log continues from it."""
        unclear = self._unclear
        history = self._checkpointer.history()
        if unclear is None or history.base != unclear.begin.id:
            return None
        committed = history.find(unclear.begin.id)
        if committed is None:
            return None
        self._unclear = None
        return Saved(committed, unclear.manifest, unclear.state)

    def _usable(self, parent: CheckpointId | None) -> CheckpointId | None:
        """The parent, or None for a full checkpoint: if the log continues from another one, or if
        the manifest is damaged. All of the state is here, so there is no reason to stop.
        """
        if parent is None or not self._goes_on_from(parent):
            return None
        try:
            self._checkpointer.load_manifest(parent)
        except (Corrupt, NotFound):
            return None
        return parent

    def _goes_on_from(self, parent: CheckpointId | None) -> bool:
        return self._checkpointer.history().base in (None, parent)

    def _make(self, work: _Work, parent: CheckpointId | None) -> Saved:
        operators = work.operators if parent is not None else _unsaved(work.operators)
        begin = self._checkpointer.begin(parent, full=parent is None)
        state = save(
            self._checkpointer, begin, operators, self._folder, compression=self._compression
        )
        carried = carry(self._checkpointer, begin, work.base)
        head = replace(
            _head(begin, work),
            operator_states=carried.operator_states,
            sidecar=carried.sidecar,
            table_store_path=carried.table_store_path,
        )
        manifest = with_operators(head, {**carried.operators, **state.entries()})
        self._unclear = _Attempt(begin, manifest, state)
        committed = self._checkpointer.commit(begin, manifest)
        self._unclear = None
        return Saved(committed, manifest, state)


class Saving(Background[Saved]):
    """One checkpoint on its way, of *epoch*; `wait` gives it, or raises what went wrong."""

    def __init__(self, epoch: int, work: Callable[[], Saved]) -> None:
        self.epoch = epoch
        super().__init__("lamina-checkpoint", work)


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be saved: an epoch, and the state at its end."""

    commit: CommitRecord
    operators: Mapping[str, OperatorState]
    base: CheckpointManifest | None
    pipeline: PipelineFacts


def _unsaved(operators: Mapping[str, OperatorState]) -> dict[str, OperatorState]:
    """The same state, as if the store had nothing of it."""
    return {name: replace(operator, stored={}) for name, operator in operators.items()}


def _head(begin: Begin, work: _Work) -> CheckpointManifest:
    commit, pipeline, record = work.commit, work.pipeline, work.pipeline.record
    return CheckpointManifest(
        checkpoint_id=begin.id,
        epoch=commit.epoch,
        timestamp_ms=begin.timestamp_ms,
        generation=begin.generation,
        parent_id=begin.parent,
        parent_epoch=commit.parent.epoch if commit.parent else None,
        commit_digest=commit.digest,
        parent_commit_digest=_digest_of(commit.parent),
        source_offsets=commit.source_offsets,
        table_offsets=commit.table_offsets,
        watermark=commit.watermark,
        source_watermarks=commit.source_watermarks,
        pipeline_id=record.owner.id if record else None,
        pipeline_hash=record.hash if record else None,
        pipeline=record,
        settings=pipeline.settings,
        sink_epochs=pipeline.sink_epochs,
        sink_commit_statuses=pipeline.sink_statuses,
    )


def _digest_of(parent: Point | None) -> str | None:
    """None for a checkpoint that no COMMIT was made for: there its id stands for the digest."""
    return parent.digest if parent is not None and is_sha256(parent.digest) else None
