"""The real log, recovery, checkpointer and gc under the scheduler: what happened, and the checks.

The same guarantees as in world.py, for the code that ships: every call of it to a disk or to the
store is a place at which somebody else may run, a process may die, or the power may go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lamina.checkpoint import Checkpointer
from lamina.checkpoint.commit_log import CommitLog
from lamina.errors import (
    AlreadyExists,
    Diverged,
    Fenced,
    LaminaError,
    NotFound,
    Refused,
    StoreError,
    WouldLose,
)
from lamina.format.canonical import sha256_hex
from lamina.format.commit import CommitRecord, Point
from lamina.format.home_names import DRIVER, HOME_LOCK, IDENTITY, DriverSegment, parse_segment
from lamina.format.names import CheckpointPaths
from lamina.protocol.history import History
from lamina.recovery import RecoveredState
from lamina.store.base import Data
from lamina.store.retry import RetryingStore, RetryPolicy
from lamina.testing.clock import ManualClock
from tests.crash.disk import Call, Platter, RecordingDisk, RecordingFile, RecordingLock
from tests.crash.pipeline import Broken, Ledger, Truth
from tests.sim.scheduler import Killed, Scheduler
from tests.sim.store import SimStore

HOMES = ("home-a", "home-b")
RETAIN = 2
EXPECTED = (StoreError, Refused, NotFound)
"""How a process may end: the network, a rule, or somebody who deleted what it was looking at."""


class PausingDisk(RecordingDisk):
    """A process's view of its home: it gives way before every call, and in every append."""

    def __init__(self, scheduler: Scheduler, platter: Platter, name: str) -> None:
        super().__init__(platter, name=name, hook=self._pause)
        self._scheduler = scheduler
        self.generation = 0  # of the first driver segment that this process made: its claim

    def create(self, path: str) -> RecordingFile:
        made = super().create(path)
        segment = parse_segment(path)
        if isinstance(segment, DriverSegment):
            self.generation = self.generation or segment.generation
        return made

    def try_lock(self, path: str) -> RecordingLock | None:
        """Now and then the lock of the home is one that another host does not see.

        Only once the home has its identity: to make a home, the lock must work.
        """
        lock = super().try_lock(path)
        made = IDENTITY in self.platter.durable
        if lock is None and path == HOME_LOCK and made and self._scheduler.chance(0.5):
            return RecordingLock(self, path)
        return lock

    def _pause(self, call: Call) -> None:
        if call.moment == "after":
            return
        try:
            self._scheduler.pause(f"{call.moment} {call.operation} {call.path}")
        except Killed:
            self.kill()
            raise


class WatchedSimStore(SimStore):
    """Notes when a check of all checkpoints is due: after a log entry or a deletion."""

    suspect = False

    def create(self, key: str, data: Data) -> None:
        super().create(key, data)
        self.suspect |= "/log/" in f"/{key}"

    def delete(self, key: str) -> None:
        super().delete(key)
        self.suspect = True


@dataclass(frozen=True)
class Ack:
    point: Point
    generation: int


@dataclass(frozen=True)
class Loss:
    """A process that a person started with --lose-after; it may die before it counts."""

    disk: PausingDisk
    after: int

    def excuses(self, epoch: int, generation: int) -> bool:
        return generation < self.disk.generation and epoch > self.after


@dataclass
class RealWorld:
    """Two homes, one store, one sink, and the truth about what was acknowledged."""

    scheduler: Scheduler
    scratch: Path
    truth: Truth = field(default_factory=Truth)
    acks: list[Ack] = field(default_factory=list)
    recoveries: int = 0
    replayed: int = 0
    checkpoints: int = 0
    dropped: int = 0
    forgotten: int = 0
    moves: int = 0
    losses: list[Loss] = field(default_factory=list)
    cuts: int = 0
    kills: int = 0

    def __post_init__(self) -> None:
        self.paths = CheckpointPaths("p")
        self.store = WatchedSimStore(self.scheduler)
        self.platters = {home: Platter() for home in HOMES}
        self.ledger = Ledger(pause=self.scheduler.pause)
        self._log = CommitLog(self.store.inner, self.paths, ManualClock(0))
        self._reader = Checkpointer(self.store.inner, self.paths, clock=ManualClock(0))

    def open_store(self) -> RetryingStore:
        return RetryingStore(self.store, RetryPolicy(), ManualClock(self.draw()))

    def draw(self) -> int:
        return self.scheduler.random.randrange(1 << 30)

    def history(self) -> History:
        """The log as it is in truth, read without anybody noticing."""
        return self._log.read()

    def owner(self) -> str:
        """The home that the log's last TAKEOVER names; the first one if there is none."""
        name = self.history().home.encode()
        named = [home for home in HOMES if name and name in self._identity(home)]
        return named[0] if named else HOMES[0]

    def _identity(self, home: str) -> bytes:
        found = self.platters[home].files.get(IDENTITY)
        return bytes(found.data) if found else b""

    # what processes tell

    def acked(self, commit: CommitRecord) -> None:
        """R4: a number that still counts is acknowledged once."""
        since = self.history().home_since
        for ack in self.acks:
            valid = min(ack.generation, commit.generation) >= since
            if valid and ack.point.epoch == commit.epoch:
                raise Broken(f"R4: epoch {commit.epoch} is acknowledged twice")
        self.acks.append(Ack(commit.point, commit.generation))

    def check_recovered(self, found: RecoveredState, *, home_since: int) -> None:
        """G2, G3, G4. What a home acknowledged that a person gave up for lost is excused."""
        promised = [
            ack.point
            for ack in self.acks
            if home_since <= ack.generation <= found.generation
            and not self.excused(ack.point.epoch, ack.generation)
        ]
        self.truth.check(found, promised)
        self.recoveries += 1
        self.replayed += len(found.replayed)

    def excused(self, epoch: int, generation: int) -> bool:
        """Whether a person may have given this epoch up."""
        return any(loss.excuses(epoch, generation) for loss in self.losses)

    def _given_up(self) -> set[Point]:
        commits = (meant.commit for meant in self.truth.meant.values())
        return {c.point for c in commits if self.excused(c.epoch, c.generation)}

    def stopped(self, disk: PausingDisk, error: LaminaError, *, flagged: bool) -> None:
        """A process ends with an error: is it one that its user would accept?"""
        self.scheduler.note(f"{disk.name} ends with {error}")
        if isinstance(error, Fenced):
            self._check_fenced(disk, error)
        elif isinstance(error, Diverged) and flagged and self.losses:
            pass  # what a sink counts as is in the home that was lost (decision 0008)
        elif isinstance(error, WouldLose):
            if not flagged:
                raise Broken(f"R12: recovery stops without a reason: {error}") from error
        elif not isinstance(error, EXPECTED) or isinstance(error, AlreadyExists):
            raise Broken(f"an error nobody expected: {error}") from error

    def _check_fenced(self, disk: PausingDisk, error: Fenced) -> None:
        held = disk.platter.locks.get(HOME_LOCK)
        if held is not None and held.disk is not disk and not disk.generation:
            return
        own = disk.generation
        claims = {(home, g) for home in HOMES for g in self._generations(home) if g >= own}
        known = max(self.history().generation, self.ledger.at.generation, *(g for _, g in claims))
        if known < own or (known == own and len(claims) <= 1):
            raise Broken(f"G9: generation {own} is fenced by nobody: {error}") from error

    def _generations(self, home: str) -> set[int]:
        paths = (p for p in self.platters[home].files if p.startswith(f"{DRIVER}/"))
        return {s.generation for p in paths if isinstance(s := parse_segment(p), DriverSegment)}

    # after every step

    def check(self) -> None:
        """G9 on the sink; G1 and G8 on the store, when something may have changed there."""
        applied = self.ledger.applied
        if len(applied) > 1:
            before, last = applied[-2:]
            follows = self.truth.meant[last.digest].commit.follows
            if follows != before and before not in self._given_up():
                raise Broken(f"G9: the sink got {last} after {before}")
        if self.store.suspect:
            self.store.suspect = False
            self._check_checkpoints()

    def _check_checkpoints(self) -> None:
        try:
            for committed in self.history().checkpoints:
                manifest = self._reader.load_manifest(committed.id)
                for artifact in manifest.artifacts():
                    data = self.store.inner.get(self.paths.absolute(artifact.path))
                    assert sha256_hex(data) == artifact.sha256
        except LaminaError as error:
            raise Broken(f"G1, G8: a checkpoint without its files: {error}") from error

    def check_end(self, head: Point | None) -> None:
        """When all is calm the sink has exactly the history of the head, each epoch once."""
        chain = self.truth.chain(head)
        applied, given_up = self.ledger.applied, self._given_up() - set(chain)
        counted = [point for point in applied if point not in given_up]
        if counted != chain or len(set(applied)) != len(applied):
            raise Broken(f"G2: the sink has {applied}, not {chain}")
