"""A checkpoint of an embedded store, made beside its epochs: it reads lists that never change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Thread

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.state import SavedState, save
from lamina.format.commit import CommitRecord
from lamina.format.log import Committed
from lamina.format.manifest import with_operators
from lamina.format.manifest_model import CheckpointManifest
from lamina.ids import CheckpointId
from lamina.state.local import RunFolder
from lamina.state.operator import OperatorState


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that exists, and what was made for it."""

    checkpoint: Committed
    manifest: CheckpointManifest
    state: SavedState


class Saving:
    """One checkpoint on its way; `wait` gives it, or raises what went wrong."""

    def __init__(
        self,
        checkpointer: Checkpointer,
        commit: CommitRecord,
        operators: Mapping[str, OperatorState],
        folder: RunFolder,
        *,
        parent: CheckpointId | None,
    ) -> None:
        self._checkpointer = checkpointer
        self._commit = commit
        self._operators = operators
        self._folder = folder
        self._parent = parent
        self._saved: Saved | None = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="lamina-checkpoint", daemon=True)
        self._thread.start()

    @property
    def has_succeeded(self) -> bool:
        return self._saved is not None

    def join(self) -> None:
        """Wait until it is over, whatever came of it."""
        self._thread.join()

    def wait(self) -> Saved:
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._saved is not None
        return self._saved

    def _run(self) -> None:
        try:
            self._saved = self._save()
        except BaseException as error:  # noqa: BLE001  handed to whoever waits
            self._error = error

    def _save(self) -> Saved:
        begin = self._checkpointer.begin(self._parent, full=self._parent is None)
        saved = save(self._checkpointer, begin, self._operators, self._folder)
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
        )
        manifest = with_operators(head, saved.entries())
        return Saved(self._checkpointer.commit(begin, manifest), manifest, saved)
