"""Random lives of many tasks on one core: the ends that are read say as much as a walk over all."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lamina.disk import LocalDisk
from lamina.format.home_names import CoreSegment, segment_path
from lamina.wal import Home, drop_segments
from lamina.wal.scan import read_ends, read_tail, segments_of
from lamina.wal.standalone import CoreWalWriter
from tests.support.examples import examples
from tests.support.wal_logs import HOME, batch_of, open_writer

SHM = Path("/dev/shm")


class ManyTasks(RuleBasedStateMachine):
    """Tasks with and without the lock, of several generations, that live as long as they like."""

    @initialize()
    def begin(self) -> None:
        folder = tempfile.mkdtemp(prefix="wal-ends-", dir=SHM if SHM.is_dir() else None)
        self.root = Path(folder)
        self.disk = LocalDisk(self.root)
        self.alive: list[CoreWalWriter] = []
        self.epoch = 1
        self.highest = (0, 0)

    def teardown(self) -> None:
        if hasattr(self, "root"):
            for writer in self.alive:
                writer.close()
            shutil.rmtree(self.root)

    @rule(
        generation=st.integers(1, 3),
        tag=st.sampled_from("abc"),
        late=st.integers(0, 2),
        partitions=st.integers(1, 2),
        small=st.booleans(),
    )
    def open(self, generation: int, tag: str, late: int, partitions: int, small: bool) -> None:
        writer = open_writer(
            self.disk,
            generation=generation,
            partitions=partitions,
            epoch=max(0, self.epoch - late),
            tag=tag,
            segment_bytes=700 if small else 1 << 20,
            commits_here=False,
        )
        self.alive.append(writer)
        assert (writer.epoch, writer.sequence) >= self.highest
        assert writer.sequence >= self.highest[1]

    @precondition(lambda self: self.alive)
    @rule(which=st.integers(0, 9), entries=st.integers(1, 30), sync=st.booleans())
    def append(self, which: int, entries: int, sync: bool) -> None:
        writer = self.alive[which % len(self.alive)]
        writer.append_batch(batch_of({b"%d" % i: b"" for i in range(entries)}))
        if sync:
            writer.sync()

    @precondition(lambda self: self.alive)
    @rule(which=st.integers(0, 9))
    def rotate(self, which: int) -> None:
        self.alive[which % len(self.alive)].rotate()

    @precondition(lambda self: self.alive)
    @rule(which=st.integers(0, 9))
    def end(self, which: int) -> None:
        self.alive.pop(which % len(self.alive)).close()

    @precondition(lambda self: self.alive)
    @rule(which=st.integers(0, 9), step=st.integers(1, 2))
    def next_epoch(self, which: int, step: int) -> None:
        self.epoch += step
        writer = self.alive[which % len(self.alive)]
        writer.set_epoch(max(writer.epoch, self.epoch))

    @rule(generation=st.integers(1, 3), tag=st.sampled_from("abc"), left=st.integers(0, 63))
    def killed_while_it_began_a_segment(self, generation: int, tag: str, left: int) -> None:
        path = self.root / segment_path(CoreSegment(0, generation, self.epoch, tag))
        if path.parent.is_dir() and not path.exists():
            path.write_bytes(bytes(left))

    @precondition(lambda self: not self.alive)
    @rule(back=st.integers(0, 2))
    def drop(self, back: int) -> None:
        drop_segments(Home(self.disk, HOME), self.epoch - back, keep=set())
        self.highest = (0, 0)

    @invariant()
    def the_ends_say_as_much_as_everything(self) -> None:
        if not hasattr(self, "root"):
            return
        every = [read_tail(self.disk, path, HOME) for path in segments_of(self.disk, 0)]
        ends = read_ends(self.disk, 0, HOME)
        for what in ("epoch", "next_sequence"):
            known = max((getattr(end, what) for end in ends), default=0)
            assert known == max((getattr(tail, what) for tail in every), default=0), what
        self.highest = (
            max((tail.epoch for tail in every), default=0),
            max((tail.next_sequence for tail in every), default=0),
        )


ManyTasks.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
TestManyTasks = ManyTasks.TestCase
