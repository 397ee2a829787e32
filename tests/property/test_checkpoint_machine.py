"""Two writers, a bad network and a tool with a broom, against a model of a few lines.

The model is a dict of the checkpoints that exist. Whatever hypothesis does, each of them loads bit
for bit, everything else is not found, and verify is content.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from lamina.checkpoint import Checkpointer, delete_checkpoint, plan_gc, run_gc, verify
from lamina.errors import (
    AlreadyExists,
    BadManifest,
    Fenced,
    NotFound,
    Refused,
    StillNeeded,
)
from lamina.format.log import Begin
from lamina.format.manifest import CheckpointManifest
from lamina.ids import CheckpointId
from lamina.protocol.retention import Fate
from lamina.store import MemoryStore, RetryingStore, RetryPolicy, Store
from lamina.testing import Fault, FaultKind, FaultyStore, ManualClock
from tests.support.checkpoints import (
    HOME,
    assert_loads_exactly,
    manifest_of,
    placed_runs,
    reader,
    save_runs,
)
from tests.support.examples import examples

UNCLEAR = [
    Fault("put_if_absent", FaultKind.TIMEOUT_AFTER, probability=0.1),
    Fault("put_if_absent", FaultKind.EXISTS_AFTER, probability=0.1),
    Fault("put_if_absent", FaultKind.TIMEOUT_BEFORE, probability=0.05),
    Fault("put", FaultKind.TIMEOUT_AFTER, probability=0.05),
    Fault("get", FaultKind.UNAVAILABLE, probability=0.03),
    Fault("delete", FaultKind.TIMEOUT_AFTER, probability=0.05),
    Fault("list", FaultKind.TIMEOUT_AFTER, probability=0.05),
]
NAMES = st.sampled_from(["monday", "tuesday", "before the move"])
WRITERS = st.integers(0, 1)


@dataclass(frozen=True)
class Attempt:
    """A checkpoint that was begun: by whom, and what its manifest will be."""

    writer: int
    begin: Begin
    manifest: CheckpointManifest


@dataclass
class Model:
    """What exists, and who may write."""

    epochs: dict[CheckpointId, int] = field(default_factory=dict)
    gone: set[CheckpointId] = field(default_factory=set)
    pins: dict[str, CheckpointId] = field(default_factory=dict)
    owner: int | None = None
    base: CheckpointId | None = None
    recovering: bool = False  # after a takeover or rewind, until the first checkpoint
    moves: int = 0  # takeovers, checkpoints and rewinds so far
    begun: dict[CheckpointId, int] = field(default_factory=dict)  # after how many moves
    epoch: int = 0
    newest: CheckpointId | None = None  # the last that was made, or rewound to

    def must_stay(self, id: CheckpointId) -> bool:
        stood_upon = id in (self.newest, self.base)
        return self.recovering or stood_upon or id in self.pins.values()


class Checkpoints(RuleBasedStateMachine):
    attempts = Bundle("attempts")

    @initialize(seed=st.integers(0, 1000))
    def open(self, seed: int) -> None:
        self.store = MemoryStore()
        self.model = Model()
        self.seeds = count(seed * 1_000)  # ids of two processes must differ
        self.writers = [self._process() for _ in range(2)]
        self.tool = self._process()

    def _process(self) -> Checkpointer:
        seed = next(self.seeds)
        faulty = FaultyStore(self.store, seed, UNCLEAR)
        store: Store = RetryingStore(faulty, RetryPolicy(), ManualClock(seed))
        return reader(store, seed=seed)

    # writers

    @rule(writer=WRITERS)
    def take_over(self, writer: int) -> None:
        self.writers[writer].log.take_over(HOME)
        self.model.owner, self.model.base = writer, None
        self.model.recovering = True
        self.model.moves += 1

    @precondition(lambda self: self.model.owner is not None)
    @rule(target=attempts, writer=WRITERS, full=st.booleans())
    def begin_and_save(self, writer: int, full: bool) -> object:
        process, model = self.writers[writer], self.model
        if not process.log.generation:
            return multiple()
        full = full or not model.epochs or bool(placed_from_the_future(process, model))
        parent = None if full else model.base or model.newest
        begin = process.begin(parent, full=full)
        model.epoch += 1
        runs = save_runs(process, begin, model.epoch)
        model.begun[begin.id] = model.moves
        return Attempt(writer, begin, manifest_of(model.epoch, runs))

    @rule(attempt=consumes(attempts))
    def commit(self, attempt: Attempt) -> None:
        model, id = self.model, attempt.begin.id
        if attempt.writer != model.owner:
            # A parent that was forgotten meanwhile or swept files may be noticed first.
            self._refused(attempt, (Fenced, Refused, NotFound, BadManifest))
        elif model.begun[id] != model.moves:
            self._refused(attempt, (Refused, Fenced, NotFound, BadManifest))
        else:
            committed = self.writers[attempt.writer].commit(attempt.begin, attempt.manifest)
            assert committed.id == id
            model.epochs[id] = attempt.manifest.epoch
            model.base = model.newest = id
            model.recovering = False
            model.moves += 1
            again = self.writers[attempt.writer].commit(attempt.begin, attempt.manifest)
            assert again == committed

    def _refused(self, attempt: Attempt, errors: tuple[type[Exception], ...]) -> None:
        try:
            self.writers[attempt.writer].commit(attempt.begin, attempt.manifest)
        except errors:
            self.model.gone.add(attempt.begin.id)
        else:
            raise AssertionError("a checkpoint that was overtaken is committed")

    @rule(attempt=consumes(attempts))
    def abandon(self, attempt: Attempt) -> None:
        self.model.gone.add(attempt.begin.id)

    @precondition(lambda self: self.model.owner is not None and self.model.epochs)
    @rule(data=st.data(), writer=WRITERS)
    def rewind(self, data: st.DataObject, writer: int) -> None:
        model = self.model
        to = data.draw(st.sampled_from(sorted(model.epochs)))
        if not self.writers[writer].log.generation:
            return
        model.epoch += 1
        try:
            self.writers[writer].log.rewind(to, epoch=model.epoch)
        except Fenced:
            assert writer != model.owner
            return
        assert writer == model.owner
        model.base = model.newest = to
        model.recovering = True
        model.moves += 1

    # people

    @precondition(lambda self: self.model.epochs)
    @rule(data=st.data(), name=NAMES)
    def pin(self, data: st.DataObject, name: str) -> None:
        known = sorted([*self.model.epochs, *self.model.gone])
        id = data.draw(st.sampled_from(known))
        try:
            self.tool.log.pin(name, id)
        except NotFound:
            assert id not in self.model.epochs
        except AlreadyExists:
            assert name in self.model.pins
        else:
            assert self.model.pins.setdefault(name, id) == id
            assert id in self.model.epochs

    @rule(name=NAMES)
    def unpin(self, name: str) -> None:
        try:
            self.tool.log.unpin(name)
        except NotFound:
            assert name not in self.model.pins
        else:
            del self.model.pins[name]

    @rule(retain=st.integers(1, 3))
    def gc(self, retain: int) -> None:
        planned = plan_gc(self.tool, retain=retain)
        done = run_gc(self.tool, retain=retain)
        assert done == planned
        for id in done.forget:
            assert not self.model.must_stay(id)
        for id in done.forget:
            del self.model.epochs[id]
            self.model.gone.add(id)
        assert len(self.model.epochs) >= min(retain, len(self.model.epochs) + len(done.forget))
        for folder in done.folders:
            assert folder.fate in (Fate.GARBAGE, Fate.IN_FLIGHT)
            if folder.fate is Fate.IN_FLIGHT:
                assert self.model.begun[folder.id] == self.model.moves
        assert run_gc(self.tool, retain=retain).delete == ()

    @precondition(lambda self: self.model.epochs)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.model.epochs)))
        try:
            delete_checkpoint(self.tool, id)
        except StillNeeded:
            assert self.model.must_stay(id)
        else:
            assert not self.model.must_stay(id)
            del self.model.epochs[id]
            self.model.gone.add(id)

    @rule(which=st.integers(0, 2))
    def restart(self, which: int) -> None:
        """A process forgets what it has read; a writer must take over again."""
        process = self._process()
        if which == 2:
            self.tool = process
        else:
            self.writers[which] = process
            if self.model.owner == which:
                self.model.owner = None

    # what must hold after every step

    @invariant()
    def what_exists_loads_exactly_and_nothing_else_does(self) -> None:
        look = reader(self.store, seed=1)
        by_epoch = [c.id for c in look.list_checkpoints()]
        assert set(by_epoch) == set(self.model.epochs)
        assert [self.model.epochs[id] for id in by_epoch] == sorted(self.model.epochs.values())
        for id in self.model.epochs:
            assert_loads_exactly(look, id)
        for id in [*self.model.gone, *self.model.begun]:
            if id not in self.model.epochs:
                try:
                    look.load_manifest(id)
                except NotFound:
                    continue
                raise AssertionError(f"{id} loads and does not exist")

    @invariant()
    def the_log_says_what_the_model_says(self) -> None:
        history = reader(self.store, seed=1).history()
        assert history.pins == self.model.pins
        newest = history.newest
        assert (newest.id if newest else None) == self.model.newest

    @invariant()
    def verify_is_content(self) -> None:
        report = verify(reader(self.store, seed=1, limit=1))
        assert report.ok, report.problems


def placed_from_the_future(process: Checkpointer, model: Model) -> list[object]:
    """Runs of the parent that end after the next epoch would: then only a full one fits."""
    parent = model.base or model.newest
    if parent is None or parent not in model.epochs:
        return [parent]
    manifest = process.load_manifest(parent)
    return [p for p in placed_runs(manifest) if p.run.last_epoch > model.epoch]


TestCheckpoints = Checkpoints.TestCase
TestCheckpoints.settings = settings(
    deadline=None,
    max_examples=examples(60),
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
