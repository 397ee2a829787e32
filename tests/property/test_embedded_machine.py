"""Random lives of an embedded store, against one dict for every epoch.

Acknowledged is what `commit` returned for. A crash takes everything else; what comes back is the
last acknowledged epoch, whatever was being checkpointed, whatever P it is opened with, and also if
local files are damaged.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lamina.checkpoint import run_gc, verify
from lamina.checkpoint import state as checkpoint_state
from lamina.embedded import EmbeddedStore
from lamina.embedded import table as embedded_table
from lamina.embedded.compaction import LARGE_BYTES, Compaction
from lamina.embedded.table import PIECE_BYTES_MAX
from lamina.errors import RunDamaged
from lamina.state.local import RunFolder
from lamina.state.operator import OperatorState
from lamina.store import MemoryStore
from tests.support.embedded_stores import (
    KEY,
    SUM,
    VALUE,
    as_dict,
    flip,
    kill,
    local_runs,
    opened,
    replace,
    rows,
)
from tests.support.examples import examples

SHM = Path("/dev/shm")
POWERS = st.sampled_from([1, 2, 4, 16])
BYTES = st.sampled_from([b"", b"a", b"b", b"key", b"long" * 30])
VALUES = st.sampled_from([b"", b"1", b"x" * 500, bytes(900)])
KEYS = st.integers(0, 11)
SUMS = st.dictionaries(KEYS, st.integers(-5, 5), min_size=1, max_size=6)
TIMES = st.dictionaries(KEYS, st.integers(0, 20), min_size=1, max_size=6)
WHICH = st.integers(0, 20)  # of some things; how many there are may depend on threads
NEVER_INLINE, SOME_INLINE = -1, 64 * 1024


class Made(Compaction):
    """A merge beside the epochs that is over at once, but used later: lives can be repeated."""

    def __init__(self, state: OperatorState, folder: RunFolder) -> None:
        super().__init__(state, folder)
        self.join()


@dataclass
class State:
    """Everything that an epoch consists of."""

    state: dict[bytes, bytes] = field(default_factory=dict)
    sums: dict[int, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    floor: int = 0
    watermark: int | None = None


class EmbeddedMachine(RuleBasedStateMachine):
    inline_bytes_max = NEVER_INLINE

    @initialize(
        partitions=POWERS,
        retain=st.integers(1, 3),
        beside=st.booleans(),
        piece=st.sampled_from([1, 200, PIECE_BYTES_MAX]),
    )
    def begin(self, partitions: int, retain: int, beside: bool, piece: int) -> None:
        embedded_table.LARGE_BYTES = -1 if beside else LARGE_BYTES
        embedded_table.PIECE_BYTES_MAX = piece
        embedded_table.Compaction = Made  # type: ignore[misc]
        self.inline_before = checkpoint_state.INLINE_BYTES_MAX
        checkpoint_state.INLINE_BYTES_MAX = self.inline_bytes_max
        self.root = Path(tempfile.mkdtemp(prefix="embedded-", dir=SHM if SHM.is_dir() else None))
        self.objects = MemoryStore()
        self.retain = retain
        self.acked = State()
        self.now = State()  # with what is not committed yet
        self.epochs: dict[int, State] = {}
        self.points = 0
        self.store = self.open(partitions)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            kill(self.store)
            shutil.rmtree(self.root)
            checkpoint_state.INLINE_BYTES_MAX = self.inline_before
            embedded_table.LARGE_BYTES = LARGE_BYTES
            embedded_table.PIECE_BYTES_MAX = PIECE_BYTES_MAX
            embedded_table.Compaction = Compaction  # type: ignore[misc]

    def open(self, partitions: int | None) -> EmbeddedStore:
        store = opened(self.root, self.objects, partitions=partitions, retain=self.retain)
        self.sums = store.table("sums", KEY, VALUE, merges=SUM)
        self.times = store.table("times", KEY, VALUE, time="v")
        return store

    # changes

    @rule(key=BYTES, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        self.store.put(key, value)
        self.now.state[key] = value

    @rule(key=BYTES)
    def delete(self, key: bytes) -> None:
        self.store.delete(key)
        self.now.state.pop(key, None)

    @rule(added=SUMS)
    def add(self, added: dict[int, int]) -> None:
        self.sums.write(rows(added))
        for key, more in added.items():
            self.now.sums[key] = self.now.sums.get(key, 0) + more

    @rule(keys=st.sets(KEYS, min_size=1))
    def delete_sums(self, keys: set[int]) -> None:
        self.sums.delete(rows(dict.fromkeys(keys, 0)))
        for key in keys:
            self.now.sums.pop(key, None)

    @rule(times=TIMES)
    def write_times(self, times: dict[int, int]) -> None:
        late = {key: max(time, self.now.floor) for key, time in times.items()}
        self.times.write(rows(late))
        self.now.times |= late

    @rule(before=st.integers(0, 22))
    def expire(self, before: int) -> None:
        try:
            found = [row["k"] for batch in self.times.expire(before) for row in batch.to_pylist()]
        except RunDamaged:
            self.times.rebuild()
        else:
            gone = [key for key, time in self.now.times.items() if time < before]
            assert sorted(found) == sorted(gone)
        self.now.floor = max(self.now.floor, before)
        self.now.times = {k: t for k, t in self.now.times.items() if t >= self.now.floor}

    # epochs

    @rule(watermark=st.none() | st.integers(0, 100))
    def commit(self, watermark: int | None) -> None:
        before = self.store.epoch
        epoch = self.store.commit(watermark=watermark)
        assert epoch > before
        if watermark is not None:
            self.now.watermark = watermark
        self.acknowledge(epoch)

    @rule(each=st.lists(SUMS, min_size=2, max_size=7))
    def several_epochs(self, each: list[dict[int, int]]) -> None:
        """Enough for merges."""
        for added in each:
            self.add(added)
            self.commit(None)

    def acknowledge(self, epoch: int) -> None:
        self.acked = deepcopy(self.now)
        self.epochs[epoch] = self.acked

    @rule()
    def rollback(self) -> None:
        self.store.rollback()
        self.now = deepcopy(self.acked)

    # checkpoints

    @precondition(lambda self: self.store.epoch)
    @rule(wait=st.booleans())
    def checkpoint(self, wait: bool) -> None:
        made = self.store.checkpoint(wait=wait)
        if made is not None:
            assert self.epochs[made.epoch] == self.acked

    @precondition(lambda self: self.store.epoch)
    @rule()
    def savepoint(self) -> None:
        self.points += 1
        made = self.store.savepoint(f"point {self.points}")
        assert made.checkpoint.epoch == self.store.epoch

    @rule(which=WHICH)
    def rewind(self, which: int) -> None:
        self.rollback()
        self.store.wait_for_checkpoint()
        there = self.store._checkpointer.list_checkpoints()
        if not there:
            return
        target = there[which % len(there)]
        epoch = self.store.rewind(target.id)
        self.now = deepcopy(self.epochs[target.epoch])
        self.acknowledge(epoch)

    @rule(retain=st.integers(1, 3))
    def gc(self, retain: int) -> None:
        self.store.wait_for_checkpoint()
        run_gc(self.store._checkpointer, retain=retain)

    # the end of a process

    @rule(partitions=st.none() | POWERS, closed=st.booleans())
    def reopen(self, partitions: int | None, closed: bool) -> None:
        before = self.store.epoch
        self.store.close() if closed else kill(self.store)
        self.store = self.open(partitions)
        self.now = deepcopy(self.acked)
        assert self.store.epoch == before
        assert self.store.report.complete

    @rule(lives=st.lists(st.tuples(POWERS, SUMS, st.booleans()), min_size=2, max_size=4))
    def rescale(self, lives: list[tuple[int, dict[int, int], bool]]) -> None:
        """Short lives with another P each; the one after reads what they leave."""
        for partitions, added, saves in lives:
            self.reopen(partitions, closed=False)
            self.add(added)
            self.commit(None)
            if saves:
                self.checkpoint(wait=True)

    @rule(which=WHICH)
    def checkpoint_damaged_files(self, which: int) -> None:
        """What is uploaded has been looked at."""
        self.store.wait_for_checkpoint()
        self.commit(None)
        self.damage(which, replace)
        self.checkpoint(wait=True)
        self.reopen(None, closed=False)

    @rule(which=WHICH)
    def reopen_with_a_damaged_file(self, which: int) -> None:
        """Nothing of it has been read yet: who reads it first notices."""
        self.reopen(None, closed=False)
        self.damage(which, flip)

    @rule(which=WHICH)
    def damage_a_file_that_is_in_use(self, which: int) -> None:
        self.store.wait_for_checkpoint()
        self.damage(which, replace)

    def damage(self, which: int, how: Callable[[Path], None]) -> None:
        there = local_runs(self.root)
        if there:
            how(there[which % len(there)])

    # always

    @invariant()
    def everything_is_there(self) -> None:
        if not hasattr(self, "store"):
            return
        try:
            found = dict(self.store.scan())
        except RunDamaged:
            found = dict(self.store.scan())
        assert found == self.now.state
        assert as_dict(self.sums) == self.now.sums
        assert as_dict(self.times) == self.now.times
        assert self.store.watermark == self.acked.watermark
        asked = pa.record_batch({"k": pa.array(range(12), pa.int64())})
        looked = self.sums.get(asked)
        assert looked.found.tolist() == [key in self.now.sums for key in range(12)]

    @rule()
    def verify(self) -> None:
        self.store.wait_for_checkpoint()
        report = verify(self.store._checkpointer)
        assert report.ok, report.problems


class InlineMachine(EmbeddedMachine):
    inline_bytes_max = SOME_INLINE


TestFiles = EmbeddedMachine.TestCase
TestFiles.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestInline = InlineMachine.TestCase
TestInline.settings = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)
