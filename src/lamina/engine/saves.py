"""Checkpoints of a running pipeline: when one is due, and what becomes possible once it exists.

A store that fails stops no epoch: it is tried again with back-off, and holds the pipeline when the
last checkpoint is too far back. Everything else that goes wrong is raised.

No checkpoint is made while a sink is behind: so none has to carry output that one has still to get
(R7). After each, those that are beyond the retention go, beside further epochs; then sources are
told where the oldest that is left stands: rows before that are never asked for again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lamina.checkpoint.background import Background
from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.gc import run_gc
from lamina.checkpoint.saving import PipelineFacts, Saved, Saver, Saving
from lamina.clock import Clock
from lamina.engine.backoff import Backoff
from lamina.engine.plans import EngineSettings, FailPoint
from lamina.engine.ports import Source
from lamina.engine.publishing import Publisher
from lamina.engine.states import States
from lamina.errors import Corrupt, NotFound, StoreError
from lamina.format.commit import AdoptRecord, CheckpointRecord, CommitRecord
from lamina.format.manifest_model import CheckpointManifest, ConnectorCheckpoint
from lamina.ids import CheckpointId, fold
from lamina.protocol.retention import oldest_kept, wal_floor
from lamina.recovery.manager import Recovered
from lamina.store.base import Store
from lamina.workspace.base import Workspace


class Saves:
    """The checkpoints of one engine; at most one is on its way."""

    def __init__(
        self,
        checkpointer: Checkpointer,
        *,
        recovered: Recovered,
        states: States,
        space: Workspace,
        publisher: Publisher,
        sources: Mapping[str, Source],
        pipeline: PipelineFacts,
        settings: EngineSettings,
        clock: Clock,
        fail_point: FailPoint,
    ) -> None:
        state = recovered.state
        self._checkpointer = checkpointer
        self._recovered = recovered
        self._states = states
        self._space = space
        self._publisher = publisher
        self._sources = sources
        self._pipeline = pipeline
        self._settings = settings
        self._fail_point = fail_point
        self._commits = list(state.replayed)
        self._clock = clock
        self._backoff = Backoff(clock)
        self._saver = Saver(checkpointer, space.run_files)
        self._saving: Saving | None = None
        self._sweeping: Background[Mapping[str, ConnectorCheckpoint]] | None = None
        self._sweep_error = ""
        self._saved_at = clock.monotonic()
        self.last_seconds: float | None = None  # how long the last one took; None: not made here
        self._due_since: int | None = None  # how many epochs there were when one became due
        self._base: CheckpointManifest | None = state.manifest

    @property
    def base(self) -> CheckpointId | None:
        """The last checkpoint."""
        return self._base.checkpoint_id if self._base else None

    @property
    def base_epoch(self) -> int:
        return self._base.epoch if self._base else 0

    @property
    def store(self) -> Store:
        return self._checkpointer.store

    @property
    def last(self) -> CheckpointManifest | None:
        return self._base

    @property
    def error(self) -> str:
        """Why the last one failed, or why old ones stay, for people; empty if all is well."""
        return self._backoff.error or self._sweep_error

    @property
    def holds(self) -> bool:
        """Whether the last checkpoint is so far back that no epoch may come on top."""
        due = self._due_since
        return due is not None and self._unsaved - due >= self._settings.unsaved_max

    def add(self, commit: CommitRecord) -> None:
        """An epoch that the next checkpoint will have."""
        self._commits.append(commit)

    def advance(self) -> None:
        """Take over what is done, begin what is due; a store that fails is tried again later."""
        try:
            if self._saving is not None and self._saving.is_over:
                self._take_saved()
            if self._sweeping is not None and self._sweeping.is_over:
                self._take_swept()
        except StoreError as error:
            self._backoff.failed(error)
        if self._due_since is None and self._is_due:
            self._due_since = self._unsaved
        is_free = self._saving is None and self._sweeping is None and not self._publisher.behind
        if is_free and self._due_since is not None and self._backoff.is_over:
            self.begin()

    @property
    def _is_due(self) -> bool:
        every, seconds = self._settings.checkpoint_epochs, self._settings.checkpoint_s
        if every and self._unsaved >= every:
            return True
        is_old = seconds is not None and self._clock.monotonic() - self._saved_at >= seconds
        return is_old and bool(self._unsaved)

    def begin(self) -> None:
        """Start one, unless the last one has everything."""
        if not self._unsaved:
            return
        self._saved_at = self._clock.monotonic()
        self._saving = self._saver.begin(
            self._commits[-1],
            dict(self._states.operators),
            base=self._base,
            pipeline=replace(
                self._pipeline,
                sink_epochs=self._publisher.epochs(),
                sink_statuses=self._publisher.statuses(),
            ),
        )

    def save(self) -> None:
        """One of all there is, now; raises what goes wrong with it, not with one before it."""
        if self._saving is not None:
            try:
                self._take_saved()
            except StoreError as error:
                self._backoff.failed(error)
        self.finish()
        while self._unsaved:  # twice, if the first one turns out to exist from before
            self.begin()
            self.finish()

    def finish(self) -> None:
        """Wait for the one that is being made, if one is, and take it over."""
        if self._saving is not None:
            self._take_saved()
        if self._sweeping is not None:
            self._take_swept()

    def abandon(self) -> None:
        """Wait for the one that is being made, and leave it to the next process.

        What is being deleted may stop anywhere: the next process continues it.
        """
        if self._saving is not None:
            self._saving.join()

    def _take_saved(self) -> None:
        assert self._saving is not None
        saving, self._saving = self._saving, None
        self._take_over(saving.wait())
        self.last_seconds = self._clock.monotonic() - self._saved_at
        self._backoff.succeeded()
        retain, checkpointer = self._settings.retain, self._checkpointer
        self._sweeping = Background("lamina-gc", lambda: _sweep(checkpointer, retain))

    def _take_swept(self) -> None:
        assert self._sweeping is not None
        sweeping, self._sweeping = self._sweeping, None
        self._sweep_error = ""
        try:
            stood = {fold(name): at.offsets for name, at in sweeping.wait().items()}
            for name, source in self._sources.items():
                if fold(name) in stood:
                    source.acknowledge(stood[fold(name)])
        except (StoreError, Corrupt, NotFound) as error:  # an old one stays: no reason to stop
            self._sweep_error = f"old checkpoints stay: {error}"

    @property
    def _unsaved(self) -> int:
        """How many epochs the last checkpoint does not have."""
        return len(self._commits)

    def _take_over(self, saved: Saved) -> None:
        """It exists: note it, use its files, drop WAL and staged files that nobody needs."""
        entry = saved.checkpoint.entry
        self._base, self._due_since = saved.manifest, None
        self._commits = [commit for commit in self._commits if commit.epoch > entry.epoch]
        for name, operator in saved.state.operators.items():
            self._states.use_saved(name, operator)
        driver = self._recovered.driver
        self._fail_point("before note")
        driver.note_checkpoint(CheckpointRecord(entry.id, entry.epoch, entry.manifest_sha256))
        self._fail_point("before rotate")
        driver.rotate(AdoptRecord(driver.head, tuple(self._commits)))
        self._fail_point("after rotate")
        self._drop()

    def _drop(self) -> None:
        """Whole segments, staged files and run files; what a list still maps stays."""
        epochs = self._publisher.epochs().values()
        floor = wal_floor(self._checkpointer.history(), self._settings.retain, epochs)
        floor = min(floor, self._states.wal_epoch - 1)
        self._fail_point("before drop")
        for dropped in self._space.forget(floor):
            self._fail_point(f"dropped {dropped}")
        self._space.run_files.keep_only(
            run for operator in self._states.operators.values() for run in operator.runs()
        )
        self._fail_point("after sweep")


def _sweep(checkpointer: Checkpointer, retain: int) -> Mapping[str, ConnectorCheckpoint]:
    """Delete what is beyond the retention; then where sources stood in the oldest that is kept."""
    run_gc(checkpointer, retain=retain)
    oldest = oldest_kept(checkpointer.history(), retain)
    return checkpointer.load_manifest(oldest.id).source_offsets if oldest else {}
