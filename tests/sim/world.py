"""What happened in truth, and the ten guarantees as checks against it."""

from __future__ import annotations

from dataclasses import dataclass, field

from lamina.checkpoint.commit_log import CommitLog
from lamina.errors import LaminaError
from lamina.format.canonical import sha256_hex
from lamina.format.names import CheckpointPaths
from lamina.format.pipeline_record import Owner
from lamina.ids import CheckpointId
from lamina.protocol.driver import Commit, Point
from lamina.protocol.history import History
from lamina.protocol.sinks import Publish, SinkPosition, check_fence, decide_publish
from lamina.store.retry import RetryingStore, RetryPolicy
from lamina.testing.clock import ManualClock
from tests.sim.checkpoints import read_manifest
from tests.sim.disk import Disk
from tests.sim.scheduler import Scheduler
from tests.sim.store import SimStore
from tests.sim.tasks import Range

PIPELINE = Owner("sim")
HOMES = ("home-a", "home-b")
RETAIN = 2


class Broken(AssertionError):
    """A guarantee does not hold."""


@dataclass(frozen=True)
class Record:
    """A COMMIT as the driver log holds it: what the rules need, and where its bytes are."""

    commit: Commit
    content: str
    ranges: tuple[Range, ...]
    takes_back: bool = False  # of a rewind: sinks that can are to be as they were at its parent

    @property
    def point(self) -> Point:
        return self.commit.point


@dataclass
class Truth:
    record: Record
    state: tuple[str, ...]  # the contents of every epoch on its line
    shown: tuple[str, ...]  # what a sink shows that can take rows back


@dataclass
class Ack:
    point: Point
    generation: int


class Sink:
    """An outside system, with or without transactions."""

    def __init__(self, world: World, name: str, *, transactional: bool) -> None:
        self.name = name
        self.transactional = transactional
        self.applied: list[Point] = []
        self.shown: tuple[str, ...] = ()  # of one with transactions
        self.log: dict[str, tuple[str, ...]] = {}  # what it has shown at each epoch: its own memory
        self.position = SinkPosition(PIPELINE, 0, None)
        self._world = world

    def fence(self, generation: int) -> None:
        self._world.scheduler.pause(f"fence {self.name}")
        check_fence(self.position, generation)
        self.position = SinkPosition(PIPELINE, generation, self.position.point)

    def publish(self, record: Record, generation: int) -> None:
        """With a transaction the look and the change are one step; without one they are not."""
        commit = record.commit
        self._world.scheduler.pause(f"publish {commit.epoch} to {self.name}")
        if self._decide(commit, generation) is Publish.DONE:
            return
        self.applied.append(commit.point)
        self._show(record)
        if not self.transactional:
            self._world.scheduler.pause(f"{self.name} has the rows, not yet the position")
            if self._decide(commit, generation) is Publish.DONE:
                return
        self.position = SinkPosition(PIPELINE, generation, commit.point)

    def _show(self, record: Record) -> None:
        """The rows of an epoch more; or, of a rewind, those of the epoch it goes back to."""
        parent = record.commit.parent
        if record.takes_back:
            self.shown = self.log[parent.digest] if parent else ()
        else:
            self.shown = (*self.shown, record.content)
        self.log[record.point.digest] = self.shown

    def _decide(self, commit: Commit, generation: int) -> Publish:
        return decide_publish(self.position, commit, pipeline=PIPELINE, generation=generation)


@dataclass
class World:
    scheduler: Scheduler
    truth: dict[str, Truth] = field(default_factory=dict)
    acks: list[Ack] = field(default_factory=list)
    damaged: bool = False
    recoveries: int = 0
    rewinds: int = 0
    checkpoints: int = 0
    deleted: int = 0
    fallbacks: int = 0  # recoveries that used an older checkpoint and more WAL
    stopped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.paths = CheckpointPaths("pipeline")
        self.store = SimStore(self.scheduler)
        self.disks = {home: Disk(self.scheduler, home) for home in HOMES}
        self.sinks = [
            Sink(self, "ledger", transactional=True),
            Sink(self, "slow ledger", transactional=True),
            Sink(self, "files", transactional=False),
        ]
        self._seen_version = -1
        self._log = CommitLog(self.store.inner, self.paths, ManualClock(0))

    def open_store(self) -> RetryingStore:
        clock = ManualClock(self.scheduler.random.randrange(1 << 30))
        return RetryingStore(self.store, RetryPolicy(), clock)

    def history(self) -> History:
        """The log as it is in truth, read without anybody noticing."""
        return self._log.read()

    def record(self, record: Record, state: tuple[str, ...]) -> None:
        """A COMMIT is about to be written."""
        commit = record.commit
        before = commit.parent if record.takes_back else commit.follows
        shown = self.truth[before.digest].shown if before else ()
        if not record.takes_back:
            shown = (*shown, record.content)
        self.truth[record.point.digest] = Truth(record, state, shown)

    def ack(self, record: Record) -> None:
        """An epoch is acknowledged: its number was never acknowledged for another (R4)."""
        since = self.history().home_since
        for ack in self.acks:
            valid = min(ack.generation, record.commit.generation) >= since
            if valid and ack.point.epoch == record.commit.epoch:
                raise Broken(f"R4: epoch {record.commit.epoch} is acknowledged twice")
        self.acks.append(Ack(record.point, record.commit.generation))

    def check_recovered(self, head: Point | None, state: tuple[str, ...], home_since: int) -> None:
        """G2, G3, G4: nothing acknowledged is missing, and the state is that of the head.

        Epochs acknowledged in a home that a person gave up for lost are excused.
        """
        expected = self.truth[head.digest].state if head else ()
        if state != expected:
            raise Broken(f"G4: state of {head} is {state}, not {expected}")
        chain = set(self.chain(head))
        for ack in self.acks:
            if ack.generation >= home_since and ack.point not in chain:
                raise Broken(f"G3: acknowledged {ack.point} is not in the history of {head}")
        self.recoveries += 1

    def chain(self, head: Point | None) -> list[Point]:
        """The epochs in the order in which sinks get them, up to *head*."""
        walked: list[Point] = []
        at = head
        while at is not None:
            walked.append(at)
            at = self.truth[at.digest].record.commit.follows
        return walked[::-1]

    def check(self) -> None:
        """After every step: G1, G6, G8 on the store, G9 on the sinks."""
        if self.store.version != self._seen_version:
            self._seen_version = self.store.version
            self._check_checkpoints()
        for sink in self.sinks:
            if sink.transactional:
                self._check_sink(sink)

    def check_end(self) -> None:
        """When all is calm: every sink has exactly the history of the head, or at least it."""
        head = self.acks[-1].point if self.acks else None
        chain = self.chain(head)
        for sink in self.sinks:
            if sink.transactional and sink.applied != chain:
                raise Broken(f"G2: {sink.name} has {sink.applied}, not {chain}")
            if missing := set(chain) - set(sink.applied):
                raise Broken(f"G2: {sink.name} lacks {missing}")

    def _check_sink(self, sink: Sink) -> None:
        if sink.applied and sink.shown != self.truth[sink.applied[-1].digest].shown:
            raise Broken(f"G2: {sink.name} shows {sink.shown} at {sink.applied[-1]}")
        if len(sink.applied) < 2:
            return
        before, last = sink.applied[-2:]
        if self.truth[last.digest].record.commit.follows != before:
            raise Broken(f"G9: {sink.name} got {last} after {before}")
        if last in sink.applied[:-1]:
            raise Broken(f"G9: {sink.name} got {last} twice")

    def _check_checkpoints(self) -> None:
        try:
            history = self.history()
        except LaminaError as error:
            raise Broken(f"R3: the log cannot be read: {error}") from error
        for committed in history.checkpoints:
            self._check_checkpoint(committed.id, committed.entry.manifest_sha256)
        for name, id in history.pins.items():
            if history.find(id) is None:
                raise Broken(f"G8: savepoint {name} lost its checkpoint {id}")

    def _check_checkpoint(self, id: CheckpointId, digest: str) -> None:
        objects = self.store.inner
        try:
            data = objects.get(self.paths.manifest(id))
            if sha256_hex(data) != digest:
                raise Broken(f"G1: the manifest of {id} is not the one the log names")
            for path, sha256 in read_manifest(data, str(id)).files:
                whole = sha256_hex(objects.get(self.paths.absolute(path))) == sha256
                if not whole and not self.damaged:
                    raise Broken(f"G1: {path} of {id} is not what the manifest names")
        except LaminaError as error:
            raise Broken(f"G1, G8: checkpoint {id} exists without its files: {error}") from error
