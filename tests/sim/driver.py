"""One process of the pipeline: claim, look, plan, adopt, publish, then epoch after epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lamina.checkpoint.commit_log import CommitLog
from lamina.clock import new_checkpoint_id
from lamina.errors import Fenced, LaminaError, StoreUnavailable
from lamina.format.canonical import digest_of, sha256_hex
from lamina.format.log import Begin, encode_begin
from lamina.ids import CheckpointId
from lamina.protocol.driver import (
    Adopt,
    Commit,
    Point,
    Segment,
    check_not_superseded,
    next_generation,
)
from lamina.protocol.history import History
from lamina.protocol.identity import check_claim
from lamina.protocol.recovery import Found, Plan, plan_recovery, point_of
from lamina.protocol.retention import wal_floor
from lamina.testing.clock import ManualClock
from tests.sim.checkpoints import SimManifest, load_state, save_state
from tests.sim.scheduler import Actor
from tests.sim.tasks import Run, start_tasks
from tests.sim.tools import Tool
from tests.sim.world import RETAIN, Ack, Broken, Record, World

CORES = 2


class Driver:
    """Everything it knows it has read from its disk, the store and the sinks."""

    def __init__(self, world: World, home: str, *, other_home: bool = False) -> None:
        self.world = world
        self.home = home
        self.other_home = other_home
        self.disk = world.disks[home]
        self.clock = ManualClock(world.scheduler.random.randrange(1 << 30))
        self.store = world.open_store()
        self.log = CommitLog(self.store, world.paths, self.clock)
        self.generation = 0
        self.claimed = 0  # the generation it took over with, before any move
        self.head: Point | None = None
        self.state: tuple[str, ...] = ()
        self.next_epoch = 1
        self.pending: dict[str, list[Record]] = {}
        self.base: tuple[CheckpointId, SimManifest, tuple[str, ...]] | None = None
        self.checkpointing: Actor | None = None
        self.actor: Actor | None = None
        self.epochs = 0
        self.recovered = False

    def run(self) -> None:
        try:
            if not self._lock():
                return
            self._claim()
            self._recover()
            while not (self.world.scheduler.calm and self._finished()):
                self._epoch()
        except LaminaError as error:
            self.world.stop(self, error)
        finally:
            if self.disk.locks.get("home") == str(id(self)):
                del self.disk.locks["home"]

    # claim, then look, then copy (R5)

    def _lock(self) -> bool:
        """The lock of the home, for life; now and then one that another host does not see."""
        if "home" in self.disk.locks:
            return self.world.scheduler.chance(0.5)
        self.disk.locks["home"] = str(id(self))
        return True

    def _claim(self) -> None:
        """Lock, segment, TAKEOVER, fences. A pipeline of another home is only fenced so far."""
        history = self.log.read()
        check_claim(history, self.home, other_home=self.other_home)
        self.generation = next_generation(
            (
                history.generation,
                *self._segment_generations(),
                *(s.position.generation for s in self.world.sinks),
            )
        )
        while not self.disk.create_exclusive(self._segment(self.generation)):
            self.generation += 1
        self.disk.sync_folder(self._segment(self.generation))
        self.claimed = self.generation
        self.log.take_over(self._owner, generation=self.generation)
        for sink in self.world.sinks:
            sink.fence(self.generation)

    def _owner(self, now: History) -> str:
        """Asked again for the log as it is when TAKEOVER is written: it may have moved (R2)."""
        check_claim(now, self.home, other_home=self.other_home)
        return now.home or self.home

    def _recover(self) -> None:
        history = self.log.read()
        moving = history.home != self.home
        loaded = {c.id: load_state(self.store, self.world.paths, c.id) for c in history.checkpoints}
        good = {id: found for id, found in loaded.items() if not isinstance(found, str)}
        records = self._records()
        found = Found(
            history=history,
            segments=self._segments(),
            void=moving,
            sinks={s.name: s.position for s in self.world.sinks},
            damaged={id: why for id, why in loaded.items() if isinstance(why, str)},
            carried={id: manifest.carried for id, (manifest, _) in good.items()},
            dropped={d: ("a segment",) for d, r in records.items() if not self._has_runs(r)},
        )
        # Whoever took over meanwhile may have moved sinks: no plan of ours could explain that.
        if (newest := self.log.read().generation) != self.generation:
            raise Fenced(f"generation {newest} has taken over since the claim")
        plan = plan_recovery(found)
        self.world.fallbacks += bool(plan.skipped)
        if moving:
            self._move()
        self._restore(plan, good, records)
        home_since = self.generation if moving else history.home_since
        self.world.check_recovered(plan.head, self.state, home_since)
        if moving and plan.head is not None:
            self.world.acks.append(Ack(plan.head, self.generation))  # the new home's own promise
        self._adopt(plan, records)
        self.recovered = True
        self._publish()

    def _move(self) -> None:
        """The plan holds without the other home's WAL: only now does the pipeline change homes.

        Until here that home could simply be started again, with all its epochs.
        """
        self.generation += 1
        while not self.disk.create_exclusive(self._segment(self.generation)):
            self.generation += 1
        self.disk.sync_folder(self._segment(self.generation))

        def still_ours(now: History) -> str:
            if now.generation != self.claimed:
                raise Fenced(f"generation {now.generation} has taken over meanwhile")
            return self.home

        self.log.take_over(still_ours, generation=self.generation)

    def _restore(
        self,
        plan: Plan,
        good: Mapping[CheckpointId, tuple[SimManifest, tuple[str, ...]]],
        records: Mapping[str, Record],
    ) -> None:
        self.head, self.next_epoch = plan.head, plan.next_epoch
        if plan.checkpoint is not None:
            manifest, self.state = good[plan.checkpoint.id]
            self.base = (plan.checkpoint.id, manifest, self.state)
        for commit in plan.replay:
            self.state = self._replayed(records[commit.point.digest])
        self.pending = {
            name: [self._pending_record(c, records) for c in chain]
            for name, chain in plan.publish.items()
        }

    def _replayed(self, record: Record) -> tuple[str, ...]:
        """Apply a COMMIT: every range it names must read back with its checksum."""
        for place in record.ranges:
            run = self.disk.at(place.path, place.index)
            if not isinstance(run, Run) or run.content != place.checksum:
                raise Broken(f"G3: the range {place} of {record.point} reads {run}")
        return (*self.state, record.content)

    def _has_runs(self, record: Record) -> bool:
        return bool(record.ranges) and all(p.path in self.disk.files for p in record.ranges)

    def _pending_record(self, commit: Commit, records: Mapping[str, Record]) -> Record:
        """A manifest carries the output of an epoch: not where its runs are."""
        return records.get(commit.point.digest) or replace(
            self.world.truth[commit.point.digest].record, ranges=()
        )

    def _adopt(self, plan: Plan, records: Mapping[str, Record]) -> None:
        copied = tuple(self._pending_record(c, records) for c in plan.adopt.commits)
        path = self._segment(self.generation)
        self.disk.append(path, (plan.adopt, copied))
        self.disk.sync(path)
        check_not_superseded(self.generation, self._segment_generations())

    # one epoch

    def _epoch(self) -> None:
        random = self.world.scheduler.random
        self.epochs += 1
        if random.random() < 0.12 and not self.world.scheduler.calm:
            self._rewind()
        else:
            self._commit(self.head, self.state)
        self._publish()
        if random.random() < 0.4:
            self._start_checkpoint()
        if random.random() < 0.3:
            self._trim()

    def _commit(
        self, parent: Point | None, state: tuple[str, ...], *, takes_back: bool = False
    ) -> None:
        epoch, self.next_epoch = self.next_epoch, self.next_epoch + 1
        content = f"e{epoch}-g{self.generation}"
        ranges = self._run_tasks(epoch, content)
        digest = digest_of([epoch, content, parent.digest if parent else "", self.clock.now_ms()])
        commit = Commit(Point(epoch, digest), parent, self.head, self.generation)
        record = Record(commit, content, ranges, takes_back)
        after = (*state, content)
        self.world.record(record, after)
        path = self._segment(self.generation)
        self.disk.append(path, record)
        self.disk.sync(path)
        check_not_superseded(self.generation, self._segment_generations())
        self.world.ack(record)
        self.head, self.state = commit.point, after
        for chain in self.pending.values():
            chain.append(record)

    def _run_tasks(self, epoch: int, content: str) -> tuple:  # type: ignore[type-arg]
        runs = [Run(epoch, core, f"{content}/c{core}") for core in range(CORES)]
        tag = f"g{self.generation}-e{epoch}"
        sets = start_tasks(self.world.scheduler, self.disk, runs, tag=tag)
        while any(s.result is None for s in sets):
            self.world.scheduler.pause(f"waiting for the tasks of epoch {epoch}")
            if self.world.scheduler.chance(0.01):
                raise StoreUnavailable("a task was lost: the epoch is abandoned")
        return tuple(s.result for s in sets)

    def _publish(self) -> None:
        for sink in self.world.sinks:
            chain = self.pending.setdefault(sink.name, [])
            if sink.name.startswith("slow") and self.world.scheduler.chance(0.8):
                continue
            while chain:
                sink.publish(chain[0], self.generation)
                del chain[0]

    def _rewind(self) -> None:
        """Go on from an older checkpoint: REWIND first, so that gc keeps the target.

        Of every other one sinks take back what came after it.
        """
        history = self.log.read()
        if not history.checkpoints:
            return
        target = self.world.scheduler.random.choice(history.checkpoints)
        loaded = load_state(self.store, self.world.paths, target.id)
        if isinstance(loaded, str):
            return
        self.next_epoch = max(self.next_epoch, history.epoch_max + 1)
        self.log.rewind(target.id, epoch=self.next_epoch)
        self.base = (target.id, *loaded)
        self.world.rewinds += 1
        self._commit(point_of(target), loaded[1], takes_back=self.next_epoch % 2 == 0)

    # checkpoints

    def _start_checkpoint(self) -> None:
        if self.head is None or (self.checkpointing and self.checkpointing.alive):
            return
        head, state = self.head, self.state
        carried = {r.commit.epoch: r.commit for chain in self.pending.values() for r in chain}
        name = f"checkpoint of epoch {head.epoch} by g{self.generation}"
        self.checkpointing = self.world.scheduler.spawn(
            name,
            self.home,
            lambda: self._checkpoint(head, state, tuple(carried[e] for e in sorted(carried))),
        )
        if self.actor:
            self.actor.children.append(self.checkpointing)

    def _checkpoint(self, head: Point, state: tuple[str, ...], carried: tuple[Commit, ...]) -> None:
        log = CommitLog(self.store, self.world.paths, self.clock)
        log.generation = self.generation
        try:
            history = log.read()
            base = self.base
            begin = self._begin(history)
            self.store.put_if_absent(self.world.paths.begin(begin.id), encode_begin(begin))
            manifest = save_state(
                self.store,
                self.world.paths,
                begin.id,
                epoch=head.epoch,
                state=state,
                parent=base[1:] if base and begin.parent else None,
                carried=carried,
            )
            log.checkpoint(
                begin,
                epoch=head.epoch,
                manifest_sha256=sha256_hex(manifest),
                manifest_size=len(manifest),
                total_size=0,
                commit_digest=head.digest,
            )
        except LaminaError as error:
            return self.world.stop(self, error)
        loaded = load_state(self.store, self.world.paths, begin.id)
        assert not isinstance(loaded, str) or self.world.damaged, loaded
        if not isinstance(loaded, str):
            self.base = (begin.id, *loaded)
        self.world.checkpoints += 1
        if self.world.scheduler.random.random() < 0.5:  # a FORGET is possible now, so people try
            self.world.scheduler.spawn("gc tool", "", Tool(self.world).gc)
            self.world.scheduler.spawn("savepoint tool", "", Tool(self.world).savepoint)
        return None

    def _begin(self, history: History) -> Begin:
        base = self.base[0] if self.base else None
        return Begin(
            id=new_checkpoint_id(self.clock),
            generation=self.generation,
            parent=base if base and history.find(base) else None,
            after=history.lineage_seq,
            writer="sim",
            timestamp_ms=0,
        )

    def _trim(self) -> None:
        """Drop whole driver and core segments below the floor of R7; never one in use."""
        history = self.log.read()
        epochs = [s.position.point.epoch if s.position.point else 0 for s in self.world.sinks]
        floor = wal_floor(history, RETAIN, epochs)
        for path in self.disk.paths("driver/"):
            if path not in self.disk.files:
                continue  # dropped since the listing, by a driver that trims at the same time
            records = [r for r in self.disk.read(path) if isinstance(r, Record)]
            old = path < self._segment(self.generation)
            if old and all(r.commit.epoch <= floor for r in records):
                self.disk.drop(path)
        for core in range(CORES):
            for path in self.disk.paths(f"core-{core}/")[:-1]:
                if path not in self.disk.files:
                    continue
                runs = [r for r in self.disk.read(path) if isinstance(r, Run)]
                if runs and all(r.epoch <= floor for r in runs):
                    self.disk.drop(path)

    # the driver log on disk

    def _segment(self, generation: int) -> str:
        return f"driver/{generation:06d}"

    def _segment_generations(self) -> list[int]:
        return [int(path.rpartition("/")[2]) for path in self.disk.paths("driver/")]

    def _segments(self) -> tuple[Segment, ...]:
        found = []
        for generation in self._segment_generations():
            if generation == self.generation:
                continue
            records = self.disk.read(self._segment(generation))
            adopts = [r[0] for r in records if isinstance(r, tuple) and isinstance(r[0], Adopt)]
            commits = tuple(r.commit for r in records if isinstance(r, Record))
            found.append(Segment(generation, adopts[0] if adopts else None, commits))
        return tuple(found)

    def _records(self) -> dict[str, Record]:
        found: dict[str, Record] = {}
        for generation in self._segment_generations():
            for item in self.disk.read(self._segment(generation)):
                for record in (item,) if isinstance(item, Record) else item[1]:
                    if record.ranges or record.point.digest not in found:
                        found[record.point.digest] = record
        return found

    def _finished(self) -> bool:
        return self.epochs >= 2 and not any(self.pending.values())
