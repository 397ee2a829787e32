"""The checkpoints of an embedded store: the last one, the one being made, the commits since."""

from __future__ import annotations

from collections.abc import Mapping

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.saving import Saved, Saver, Saving
from lamina.embedded.table import Table
from lamina.errors import RunDamaged
from lamina.format.commit import AdoptRecord, CheckpointRecord, CommitRecord
from lamina.format.log import Committed
from lamina.format.manifest_model import CheckpointManifest
from lamina.ids import CheckpointId
from lamina.protocol.retention import wal_floor
from lamina.recovery.manager import Recovered
from lamina.state.local import RunFolder
from lamina.wal.driver_log import drop_driver_segments


class Saves:
    """At most one is on its way."""

    def __init__(
        self,
        checkpointer: Checkpointer,
        recovered: Recovered,
        folder: RunFolder,
        tables: Mapping[str, Table],
        *,
        retain: int,
        compression: str | None,
    ) -> None:
        self._checkpointer = checkpointer
        self._recovered = recovered
        self._folder = folder
        self._tables = tables
        self._retain = retain
        self._saver = Saver(checkpointer, folder, compression=compression)
        self._saving: Saving | None = None
        self.base: CheckpointManifest | None = recovered.state.manifest
        self.commits = list(recovered.state.replayed)  # since the base

    @property
    def base_id(self) -> CheckpointId | None:
        return self.base.checkpoint_id if self.base else None

    def add(self, record: CommitRecord) -> None:
        """An epoch that the next checkpoint will have."""
        self.commits.append(record)

    def start_from(self, base: CheckpointManifest, record: CommitRecord) -> None:
        """After a rewind: *record* continues *base*."""
        self.base, self.commits = base, [record]

    def begin(self) -> None:
        """Start one, of all that is committed."""
        self._saving = self._begin()

    def wait(self) -> Committed | None:
        """Wait for the one that is being made, if one is, and use it."""
        made = None
        while self._saving is not None:
            made = self._take()
        return made

    def take_if_done(self) -> None:
        """One that has failed is not a reason not to commit: whoever asks for one hears of it."""
        if self._saving is not None and self._saving.has_succeeded:
            self._take()

    def join(self) -> None:
        """Wait for the one that is being made, and use it if it has succeeded."""
        if self._saving is not None:
            self._saving.join()
            self.take_if_done()

    def _begin(self) -> Saving:
        operators = {name: table.compacted() for name, table in self._tables.items()}
        return self._saver.begin(self.commits[-1], operators, base=self.base)

    def _take(self) -> Committed:
        """Use the one that was made; if it is one from before, begin the one that was wanted."""
        assert self._saving is not None
        wanted, saved = self._saving.epoch, self._saved()
        self._take_over(saved)
        if saved.manifest.epoch < wanted:
            self.begin()
        return saved.checkpoint

    def _saved(self) -> Saved:
        """What came of it; if a local file was damaged, of a second one, without that file."""
        assert self._saving is not None
        saving, self._saving = self._saving, None
        try:
            return saving.wait()
        except RunDamaged:
            for table in self._tables.values():
                table.rebuild()
            return self._begin().wait()

    def _take_over(self, saved: Saved) -> None:
        """It exists: note it, use its files, drop WAL that nobody needs."""
        entry = saved.checkpoint.entry
        self.base = saved.manifest
        self.commits = [c for c in self.commits if c.epoch > entry.epoch]
        for name, operator in saved.state.operators.items():
            self._tables[name].use_saved(operator)
        driver = self._recovered.driver
        driver.note_checkpoint(CheckpointRecord(entry.id, entry.epoch, entry.manifest_sha256))
        driver.rotate(AdoptRecord(driver.head, tuple(self.commits)))
        floor = wal_floor(self._checkpointer.history(), self._retain, ())
        drop_driver_segments(self._recovered.home, floor)
        self._folder.keep_only(run for t in self._tables.values() for run in t.compacted().runs())
