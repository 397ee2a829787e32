"""Random lives of a log, against a dict of what was acknowledged.

Acknowledged is what `sync` returned for. A kill takes what was not written; a power cut takes, of
what was not synced, any sectors and any tail. What comes back must be everything acknowledged, and
beyond it only whole epochs, in order.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lamina.disk import LocalDisk
from lamina.format.commit import CheckpointRecord, Point
from lamina.format.log import Committed
from lamina.wal import Home, Torn, check_segment, drop_segments, repair
from lamina.wal.scan import segments_of
from lamina.wal.standalone import replay_core
from tests.support.checkpoints import cid
from tests.support.examples import examples
from tests.support.recoveries import Pipeline, recovered_state
from tests.support.wal_logs import HOME, apply, batch_of, offsets, open_writer

KEYS = st.sampled_from([b"a", b"b", b"c", b"", b"long" * 50])
VALUES = st.sampled_from([b"", b"1", b"22", bytes(600), b"x" * 700, b"\1" + bytes(1200), None])
CHANGES = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)
SEGMENT_BYTES = 6_000
SHM = Path("/dev/shm")


def scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix="wal-machine-", dir=SHM if SHM.is_dir() else None))


@dataclass(frozen=True)
class Version:
    """The state after one COMMIT."""

    point: Point | None
    state: dict[bytes, bytes]


class CoreLogMachine(RuleBasedStateMachine):
    """One core's own log: puts, deletes, batches, commits, crashes of two kinds."""

    @initialize()
    def begin(self) -> None:
        self.root = scratch()
        self.disk = LocalDisk(self.root)
        self.acked = Version(None, {})
        self.base = self.acked  # what a checkpoint holds
        self.written: list[Version] = []  # committed, not synced: may come back, in order
        self.state: dict[bytes, bytes] = {}  # with what is not committed yet
        self.entries_synced = 0
        self.epoch = 0
        self.open()

    def teardown(self) -> None:
        if hasattr(self, "root"):
            self.writer.close()
            shutil.rmtree(self.root)

    def open(self) -> None:
        self.writer = open_writer(self.disk, segment_bytes=SEGMENT_BYTES)
        assert self.writer.epoch >= (self.acked.point.epoch if self.acked.point else 0)
        assert self.writer.sequence >= self.entries_synced

    def synced(self) -> None:
        """Everything written so far is acknowledged."""
        self.acked = self.written[-1] if self.written else self.acked
        self.written = []
        self.entries_synced = self.writer.sequence

    # appending

    @rule(changes=CHANGES)
    def put_and_delete(self, changes: dict[bytes, bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                self.writer.append_delete(key)
            else:
                self.writer.append_put(key, value)
        apply(self.state, batch_of(changes))

    @rule(changes=CHANGES)
    def append_batch(self, changes: dict[bytes, bytes | None]) -> None:
        self.writer.append_batch(batch_of(changes))
        apply(self.state, batch_of(changes))

    @rule()
    def barrier(self) -> None:
        self.writer.append_epoch_barrier()

    @rule(step=st.integers(1, 3), sync=st.booleans())
    def commit(self, step: int, sync: bool) -> None:
        self.epoch = self.writer.epoch + step
        self.writer.set_epoch(self.epoch)
        point = self.writer.append_commit(offsets(s=self.epoch), watermark=self.epoch)
        self.written.append(Version(point, dict(self.state)))
        if sync:
            self.sync()

    @rule()
    def sync(self) -> None:
        self.writer.sync()
        self.synced()

    @rule()
    def rotate(self) -> None:
        self.writer.rotate()
        self.synced()

    # checkpoints and dropping

    @precondition(lambda self: self.acked.point is not None and not self.written)
    @rule()
    def checkpoint(self) -> None:
        assert self.acked.point is not None
        epoch = self.acked.point.epoch
        self.writer.append_checkpoint(CheckpointRecord(cid(epoch), epoch, "a" * 64))
        self.sync()
        self.base = self.acked

    @precondition(lambda self: self.base.point is not None)
    @rule()
    def drop(self) -> None:
        assert self.base.point is not None
        drop_segments(Home(self.disk, HOME), self.base.point.epoch, keep={self.writer.segment})

    # crashes

    @rule()
    def kill(self) -> None:
        """The process goes; what it wrote is in the page cache."""
        self.writer.close()
        found = self.recover()
        written = [self.acked, *self.written]
        assert found == written[-1], "a kill takes nothing that was written"
        self.go_on(found)

    @rule(data=st.data())
    def power_cut(self, data: st.DataObject) -> None:
        """Of what was not synced, any sectors and any tail may be gone."""
        path, synced = self.root / self.writer.segment, self.writer.synced_position
        self.writer.close()
        whole = path.read_bytes()
        edges = [e for e in range(0, len(whole), 512) if e > synced]
        size = data.draw(st.sampled_from([synced, *edges, len(whole)]), label="size")
        left = bytearray(whole[:size])
        for edge in [synced, *edges]:
            end = min(edge // 512 * 512 + 512, size)
            if edge < size and data.draw(st.integers(0, 3), label=f"lost at {edge}") == 0:
                left[edge:end] = bytes(end - edge)
        path.write_bytes(left)
        self.go_on(self.recover())

    @precondition(lambda self: not self.written)
    @rule()
    def repair(self) -> None:
        """A person cuts torn tails; then the copies are damaged, and nobody minds."""
        self.writer.close()
        for path in segments_of(self.disk, 0):
            end = check_segment(self.disk, path).end
            torn = isinstance(end, Torn) and end.bytes > 0
            done = repair(self.disk, path)
            assert (done is not None) == torn
            if done is not None:
                (self.root / done.kept).write_bytes(b"rotten")
        self.go_on(self.recover())

    def recover(self) -> Version:
        """What comes back is acknowledged, or one of those that were written after it."""
        found = replay_core(self.disk, 0, HOME, base=self.base.point)
        state = dict(self.base.state)
        for _, batch in found.batches():
            apply(state, batch)
        point = found.commits[-1].point if found.commits else self.base.point
        version = Version(point, state)
        assert version in [self.acked, *self.written]
        if found.commits:
            assert found.commits[-1].source_offsets == offsets(s=found.commits[-1].epoch)
            assert found.commits[-1].watermark == found.commits[-1].epoch
        return version

    def go_on(self, found: Version) -> None:
        """A new process opens the log: what it found there is synced and therefore stays."""
        self.acked, self.written, self.state = found, [], dict(found.state)
        self.open()
        assert self.writer.head == found.point

    @invariant()
    def nothing_is_counted_twice(self) -> None:
        if hasattr(self, "writer"):
            assert self.writer.synced_position <= self.writer.position
            assert self.writer.entries_since_sync >= 0


class PipelineMachine(RuleBasedStateMachine):
    """Cores, driver log, checkpoints and recovery together."""

    @initialize()
    def begin(self) -> None:
        self.line = Pipeline(scratch())
        self.line.start()
        self.good: list[Committed] = []
        self.floor = 0

    def teardown(self) -> None:
        if hasattr(self, "line"):
            self.line.stop()
            shutil.rmtree(self.line.root)

    @property
    def next_epoch(self) -> int:
        head = self.line.recovered.driver.head
        return max(self.line.recovered.state.next_epoch, 1 + (head.epoch if head else 0))

    @rule(changes=CHANGES)
    def epoch(self, changes: dict[bytes, bytes | None]) -> None:
        self.line.epoch(max(self.next_epoch, self.line.logs.low_water_mark), changes)

    @rule(changes=CHANGES)
    def killed_before_the_commit(self, changes: dict[bytes, bytes | None]) -> None:
        self.line.prepare(max(self.next_epoch, self.line.logs.low_water_mark), changes)
        self.recover()

    @rule()
    def recover(self) -> None:
        self.line.stop()
        found = self.line.start()
        assert recovered_state(found) == self.line.state
        assert found.report.complete
        head = self.line.commits[-1].point if self.line.commits else None
        assert found.head == head

    @precondition(lambda self: self.line.recovered.driver.head is not None)
    @rule()
    def checkpoint(self) -> None:
        self.good.append(self.line.checkpoint())

    @rule()
    def rotate(self) -> None:
        for writer in self.line.logs.writers:
            writer.rotate()

    @precondition(lambda self: len(self.good) > 1)
    @rule()
    def drop(self) -> None:
        """As gc does: nothing that the checkpoint before the newest one needs."""
        self.floor = max(self.floor, self.good[-2].epoch)
        self.line.logs.drop_through(self.floor)

    @precondition(lambda self: self.good and self.may_lose_the_newest())
    @rule()
    def damage_the_newest_checkpoint(self) -> None:
        """The one before it and the WAL are equal to it."""
        self.line.damage(self.good.pop())
        self.recover()

    def may_lose_the_newest(self) -> bool:
        return self.floor == 0 or (len(self.good) > 1 and self.good[-2].epoch >= self.floor)

    @rule(core=st.integers(0, 1), tail=st.sampled_from([b"LREC", bytes(900), b"\0" * 64]))
    def torn_tail(self, core: int, tail: bytes) -> None:
        segment = self.line.logs[core].segment
        self.line.stop()
        with (Path(self.line.disk.root) / segment).open("ab") as file:
            file.write(tail)
        self.line.start()
        self.recover()


TestCoreLog = CoreLogMachine.TestCase
TestCoreLog.settings = settings(max_examples=examples(80), stateful_step_count=40, deadline=None)
TestPipeline = PipelineMachine.TestCase
TestPipeline.settings = settings(max_examples=examples(25), stateful_step_count=25, deadline=None)
