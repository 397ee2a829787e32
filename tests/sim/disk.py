"""A home's disk: files are lists of records; a power cut takes what was not synced."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.sim.scheduler import Scheduler

TORN = "torn"


@dataclass
class File:
    records: list[Any] = field(default_factory=list)
    synced: int = 0
    entry_synced: bool = False


class Disk:
    """Names to files. `append` is two steps, so that a kill can leave half a record."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._scheduler = scheduler
        self.name = name
        self.files: dict[str, File] = {}
        self.locks: dict[str, str] = {}  # flock: name to holder, gone with the holder

    def create_exclusive(self, path: str) -> bool:
        self._pause(f"create {path}")
        if path in self.files:
            return False
        self.files[path] = File()
        return True

    def sync_folder(self, *paths: str) -> None:
        self._pause("sync folder")
        for path in paths:
            if path in self.files:
                self.files[path].entry_synced = True

    def append(self, path: str, record: Any) -> int:
        """Returns the index at which the record landed."""
        self._pause(f"append {path}")
        file = self.files.get(path, File())  # writing to an unlinked file is no error
        index = len(file.records)
        file.records.append(TORN)
        self._pause(f"mid-append {path}")
        file.records[index] = record
        return index

    def truncate(self, path: str, length: int) -> None:
        """Only a mutant calls this: no task and no recovery cuts a WAL file (R1)."""
        file = self.files[path]
        del file.records[length:]
        file.synced = min(file.synced, length)

    def sync(self, path: str) -> None:
        self._pause(f"fdatasync {path}")
        file = self.files.get(path, File())
        file.synced = len(file.records)

    def read(self, path: str) -> tuple[Any, ...]:
        """Everything up to a torn tail."""
        records = self.files[path].records
        return tuple(r for r in records if r is not TORN) if records else ()

    def at(self, path: str, index: int) -> Any:
        file = self.files.get(path)
        if file is None or index >= len(file.records):
            return None
        return file.records[index]

    def ends_whole(self, path: str) -> bool:
        records = self.files[path].records
        return not records or records[-1] is not TORN

    def paths(self, prefix: str) -> list[str]:
        return sorted(p for p in self.files if p.startswith(prefix))

    def drop(self, path: str) -> None:
        self._pause(f"unlink {path}")
        self.files.pop(path, None)

    def power_cut(self) -> None:
        """Keep what was synced and a random part of the rest; the last kept one may be torn."""
        for path, file in list(self.files.items()):
            if not file.entry_synced and self._scheduler.random.random() < 0.7:
                del self.files[path]
                continue
            keep = self._scheduler.random.randint(file.synced, len(file.records))
            lost = keep < len(file.records)
            file.records = file.records[:keep]
            if lost and self._scheduler.random.random() < 0.5:
                file.records.append(TORN)
            file.synced = len(file.records)
            file.entry_synced = True
        self.locks.clear()

    def _pause(self, what: str) -> None:
        self._scheduler.pause(f"{self.name}: {what}")
