"""A checkpoint of keyed state, made beside further epochs: it reads lists that never change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lamina.checkpoint.background import Background
from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.state import SavedState, save
from lamina.format.commit import CommitRecord
from lamina.format.log import Committed
from lamina.format.manifest import with_operators
from lamina.format.manifest_model import CheckpointManifest, SinkCommitStatus
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
class Pipeline:
    """What a manifest says beside state and offsets, if there is a pipeline around them."""

    id: str | None = None
    hash: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    sink_epochs: Mapping[str, int] = field(default_factory=dict)
    sink_statuses: Mapping[str, SinkCommitStatus] = field(default_factory=dict)


NO_PIPELINE = Pipeline()


class Saving(Background[Saved]):
    """One checkpoint on its way; `wait` gives it, or raises what went wrong."""

    def __init__(
        self,
        checkpointer: Checkpointer,
        commit: CommitRecord,
        operators: Mapping[str, OperatorState],
        folder: RunFolder,
        *,
        parent: CheckpointId | None,
        pipeline: Pipeline = NO_PIPELINE,
        compression: str | None = None,
    ) -> None:
        self._checkpointer = checkpointer
        self._commit = commit
        self._operators = operators
        self._folder = folder
        self._parent = parent
        self._pipeline = pipeline
        self._compression = compression
        super().__init__("lamina-checkpoint", self._save)

    def _save(self) -> Saved:
        begin = self._checkpointer.begin(self._parent, full=self._parent is None)
        saved = save(
            self._checkpointer,
            begin,
            self._operators,
            self._folder,
            compression=self._compression,
        )
        commit = self._commit
        head = CheckpointManifest(
            checkpoint_id=begin.id,
            epoch=commit.epoch,
            timestamp_ms=begin.timestamp_ms,
            generation=begin.generation,
            parent_id=begin.parent,
            parent_epoch=commit.parent.epoch if commit.parent else None,
            commit_digest=commit.digest,
            parent_commit_digest=commit.parent.digest if commit.parent else None,
            source_offsets=commit.source_offsets,
            table_offsets=commit.table_offsets,
            watermark=commit.watermark,
            source_watermarks=commit.source_watermarks,
            pipeline_id=self._pipeline.id,
            pipeline_hash=self._pipeline.hash,
            settings=self._pipeline.settings,
            sink_epochs=self._pipeline.sink_epochs,
            sink_commit_statuses=self._pipeline.sink_statuses,
        )
        manifest = with_operators(head, saved.entries())
        return Saved(self._checkpointer.commit(begin, manifest), manifest, saved)
