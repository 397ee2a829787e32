"""What is said about a pipeline's place: who writes, where a run is, what was staged."""

from __future__ import annotations

from dataclasses import dataclass

from lamina.format.commit import WalRange


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
class Origin:
    """Where the bytes of a run are, for who does not see the driver's disk."""

    key: str  # of an object; empty: they are in *data*, and nowhere else
    start: int  # in the object
    size: int
    sha256: str = ""  # of a run file; a record of the log has a CRC of its own
    header: bytes = b""  # of the segment that a record is in
    data: bytes = b""  # the bytes themselves, if they are new and few
    is_saved: bool = False  # the object is a checkpoint's


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
    origin: Origin | None = None  # where a task gets it that does not see the driver's disk

    @property
    def name(self) -> str:
        """As lists of runs call it."""
        return self.path if self.offset < 0 else f"{self.path}:{self.offset}"


@dataclass(frozen=True, slots=True)
class SentRun:
    """A compacted run, for a driver that may not see its file: an object, or its bytes."""

    key: str = ""
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Staged:
    """A file of output, synced."""

    path: str  # a name of the workspace
    size: int
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True)
class CarriedRange(WalRange):
    """A run that travels to the driver with the result of its task: the driver writes it."""

    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class CarriedStaged(Staged):
    """Output that travels to the driver with the result of its task: the driver writes it."""

    data: bytes = b""
