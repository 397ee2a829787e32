"""What is said about a pipeline's place: who writes, where a run is, what was staged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attempt:
    """Who writes: one attempt of one task, in one epoch of one process."""

    stream: str
    partition: int
    partitions: int
    epoch: int
    generation: int
    tag: str  # of this attempt alone: two copies of a task write to different files (R1)
    saved_epoch: int = 0  # a checkpoint has everything up to here: the log goes on in a new segment


@dataclass(frozen=True, slots=True)
class RunRef:
    """Where a run is: a range of the WAL, or a run file; and the slots of it that count."""

    path: str
    offset: int  # -1: a run file
    size: int
    crc: int
    first_epoch: int
    last_epoch: int
    first_slot: int
    last_slot: int

    @property
    def name(self) -> str:
        """As lists of runs call it."""
        return self.path if self.offset < 0 else f"{self.path}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Staged:
    """A file of output, synced."""

    path: str  # a name of the workspace
    size: int
    sha256: str
    rows: int
