"""Tables in epochs, without Spark: each epoch has one version, which its COMMIT names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from lamina.engine.engine import EnginePlan, EngineSettings, StreamPlan
from lamina.engine.model import StreamResult, StreamWork, TableVersion
from lamina.engine.ports import Runner, Table
from lamina.errors import StoreUnavailable
from lamina.format.commit import CommitRecord
from lamina.testing import ManualClock
from lamina.testing.faulty import Killed
from tests.engine.pipelines import LIMITS, ORDERS, Bomb, World, kill, run_out
from tests.support.in_process import InProcessRunner, LocalStream

PLAN = EnginePlan(
    pipeline="p",
    pipeline_hash="ab" * 32,
    streams=(StreamPlan("priced", ("orders",), frozenset({"orders"})),),
    sinks={"priced": "priced"},
    delays_us={},
)
PLACES = ("before priced", "after stage", "after priced", "before COMMIT", "after COMMIT")


@dataclass
class Factors:
    """A table of one number, by which amounts are multiplied; its version is that number."""

    now: int = 1
    problem: str = ""
    lost: bool = False
    versions: list[int] = field(default_factory=list)  # that were planned

    def version(self) -> TableVersion:
        if self.problem:
            raise StoreUnavailable(self.problem)
        self.versions.append(self.now)
        identity = {"version": str(self.now)}
        return TableVersion("factors", "toy", identity, rows=1, rises="version")

    def confirm(self, version: TableVersion) -> None:
        if self.lost:
            raise StoreUnavailable("the copy is gone")

    def close(self) -> None:
        """It holds nothing."""


class FactorRunner(InProcessRunner):
    factor = 0

    def run(self, work: StreamWork) -> StreamResult:
        (version,) = work.tables
        self.factor = int(version.identity["version"])
        return super().run(work)


@dataclass
class TableWorld(World):
    factors: Factors = field(default_factory=Factors)
    plan: EnginePlan = PLAN
    settings: EngineSettings = field(
        default_factory=lambda: EngineSettings(
            partitions=1, limits=LIMITS, checkpoint_epochs=0, unsaved_max=1000
        )
    )

    def __post_init__(self) -> None:
        self.data = {"orders": ORDERS}

    def references(self) -> dict[str, Table]:
        return {"factors": self.factors}

    def runner(self, fail_point: Callable[[str], None]) -> Runner:
        def priced(rows: pa.Table) -> pa.Table:
            amounts = [amount * runner.factor for amount in rows["amount"].to_pylist()]
            return pa.table({"key": rows["key"], "amount": pa.array(amounts, pa.int64())})

        runner = FactorRunner(self.read, {"priced": LocalStream(priced)}, {}, fail_point)
        return runner

    def commits(self) -> Sequence[CommitRecord]:
        engine = self.open()
        commits = engine._recovered.state.replayed
        engine.close()
        return commits

    def check(self) -> list[str]:
        """Every epoch is the batch join with the version that its COMMIT names; the versions."""
        assert LIMITS.rows is not None
        commits, versions = self.commits(), list[str]()
        for number, commit in enumerate(commits):
            version = commit.table_offsets["factors"].offsets["version"]
            rows = ORDERS[number * LIMITS.rows : (number + 1) * LIMITS.rows]
            wanted = [(key, amount * int(version)) for key, amount, _ in rows]
            (table,) = self.tables["priced"].epochs[commit.epoch]
            found = [(row["key"], row["amount"]) for row in table.to_pylist()]
            assert sorted(found) == sorted(wanted), commit.epoch
            versions.append(version)
        assert len(versions) * LIMITS.rows >= len(ORDERS), "all rows have come"
        return versions


def test_an_epoch_keeps_its_version_whatever_happens_to_the_table(tmp_path: Path) -> None:
    world = TableWorld(tmp_path)

    def change(place: str) -> None:
        if place == "before priced":
            world.factors.now += 1

    engine = world.open(change)
    reports = run_out(engine)
    engine.close()
    assert world.check() == [str(n + 1) for n in range(len(reports))]
    assert [each.notes for each in reports[:2]] == [
        (),
        ("the table 'factors' has changed: 1 rows (version 2)",),
    ]


@pytest.mark.parametrize("place", PLACES)
def test_killed_at_any_step_and_changed_meanwhile(place: str, tmp_path: Path) -> None:
    """A version that no COMMIT names was never joined, as far as anybody can see."""
    world = TableWorld(tmp_path)
    for nth in (1, 2):
        engine = world.open(Bomb(place, nth))
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
        world.factors.now += 10
    engine = world.open()
    run_out(engine)
    engine.close()
    versions = world.check()
    assert versions[-1] == "21"
    assert versions == sorted(versions, key=int)


def test_a_version_that_stays_says_since_which_epoch(tmp_path: Path) -> None:
    world = TableWorld(tmp_path)
    engine = world.open()
    run_out(engine, epochs=2)
    world.factors.now = 7
    run_out(engine)
    engine.close()
    since = [commit.table_offsets["factors"].epoch for commit in world.commits()]
    assert since[:2] == [1, 1]
    assert set(since[2:]) == {3}
    assert world.commits()[0].table_offsets["factors"].metadata == {"connector_type": "toy"}


def test_a_table_that_goes_back_is_told(tmp_path: Path) -> None:
    world = TableWorld(tmp_path, factors=Factors(now=9))
    engine = world.open()
    run_out(engine, epochs=1)
    world.factors.now = 8
    (report,) = run_out(engine, epochs=1)
    engine.close()
    assert report.notes == ("the table 'factors' has gone back: it was at version 9, and is at 8",)


def test_a_table_that_vanishes_is_waited_for(tmp_path: Path) -> None:
    world, clock = TableWorld(tmp_path), ManualClock()
    engine = world.open(clock=clock)
    run_out(engine, epochs=1)
    world.factors.problem = "the table is not there"
    assert engine.step() is None
    assert "the table is not there" in engine.held
    world.factors.problem = ""
    clock.wait(10)
    run_out(engine)
    engine.close()
    world.check()


def test_a_table_that_was_never_there_stops_the_pipeline(tmp_path: Path) -> None:
    world = TableWorld(tmp_path, factors=Factors(problem="the table is not there"))
    engine = world.open()
    with pytest.raises(StoreUnavailable, match="the table is not there"):
        engine.step()
    engine.close()


def test_an_epoch_whose_copy_was_lost_is_not_decided(tmp_path: Path) -> None:
    world, clock = TableWorld(tmp_path), ManualClock()
    engine = world.open(clock=clock)
    run_out(engine, epochs=1)
    world.factors.lost, world.factors.now = True, 5
    assert engine.step() is None
    assert engine.epoch == 1
    world.factors.lost, world.factors.now = False, 6
    clock.wait(10)
    run_out(engine)
    engine.close()
    assert world.check()[:2] == ["1", "6"]


def test_a_table_that_leaves_the_pipeline_is_still_named(tmp_path: Path) -> None:
    """And so it is by the checkpoint, from which a later start goes on."""
    world = TableWorld(tmp_path)
    world.factors.now = 3
    engine = world.open()
    run_out(engine, epochs=1)
    engine.checkpoint()
    engine.close()
    plain = World(tmp_path, store=world.store, data=world.data, plan=replace(PLAN))
    plain.streams, plain.settings = {"priced": LocalStream(lambda rows: rows)}, world.settings
    plain.tables = world.tables
    engine = plain.open()
    run_out(engine, epochs=1)
    engine.close()
    (commit,) = plain.open()._recovered.state.replayed
    assert commit.table_offsets["factors"].offsets == {"version": "3"}
