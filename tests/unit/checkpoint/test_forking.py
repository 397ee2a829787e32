"""A fork shares the files of its origin: neither of the two can take them from the other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from lamina.checkpoint import (
    Checkpointer,
    copy_checkpoint,
    delete_checkpoint,
    drop_savepoint,
    list_savepoints,
    plan_gc,
    run_gc,
    verify,
)
from lamina.checkpoint.forking import fork_checkpoint, plan_fork
from lamina.errors import (
    AlreadyExists,
    Corrupt,
    Fenced,
    LogDamaged,
    NotFound,
    Refused,
    StillNeeded,
    UsageError,
)
from lamina.format.log import Committed
from lamina.format.names import CheckpointPaths
from lamina.format.origin import decode_origin
from lamina.store import MemoryStore, Store, open_store
from lamina.testing import Fault, FaultKind, FaultyStore, Killed, ManualClock
from tests.support.checkpoints import assert_loads_exactly, keys, take_checkpoint


def at(store: Store, seed: int) -> Checkpointer:
    return Checkpointer(store, CheckpointPaths("p"), clock=ManualClock(seed=seed))


def pipeline_at(folder: Path, *, seed: int = 1) -> Checkpointer:
    return at(open_store(str(folder)), seed)


def look(folder: Path, *, seed: int = 500) -> Checkpointer:
    return at(open_store(str(folder), writable=False), seed)


def origin_of(tmp_path: Path) -> tuple[Checkpointer, list[Committed]]:
    """The second checkpoint shares runs of the first."""
    pipeline = pipeline_at(tmp_path / "a")
    pipeline.log.take_over("home-a")
    made = [take_checkpoint(pipeline, 1), take_checkpoint(pipeline, 2, partitions=[0])]
    return pipeline, made


def forked(tmp_path: Path) -> tuple[Checkpointer, list[Committed]]:
    pipeline, made = origin_of(tmp_path)
    fork_checkpoint(pipeline, made[1].id, pipeline_at(tmp_path / "b", seed=70))
    return pipeline, made


def test_a_fork_has_the_checkpoint_and_none_of_its_files(tmp_path: Path) -> None:
    pipeline, made = origin_of(tmp_path)
    plan = plan_fork(pipeline, made[1].id, None)
    report = fork_checkpoint(pipeline, made[1].id, pipeline_at(tmp_path / "b", seed=70))
    assert report.plan == plan
    files = pipeline.load_manifest(made[1].id).artifacts()
    assert plan.files == len(files) > 2
    assert plan.bytes == sum(file.size or 0 for file in files)
    fork = look(tmp_path / "b")
    assert not {f"p/{file.path}" for file in files} & set(keys(fork.store))
    assert_loads_exactly(fork, made[1].id)
    assert fork.load_manifest(made[1].id) == pipeline.load_manifest(made[1].id)
    assert verify(fork).problems == ()
    assert [s.name for s in list_savepoints(pipeline)] == [report.savepoint]


def test_the_origin_keeps_what_the_fork_shares(tmp_path: Path) -> None:
    pipeline, made = forked(tmp_path)
    for epoch in range(3, 8):
        take_checkpoint(pipeline, epoch)
    run_gc(pipeline, retain=1)
    with pytest.raises(StillNeeded, match="fork-"):
        delete_checkpoint(pipeline, made[1].id)
    assert pipeline.history().find(made[0].id) is None, "its runs stay all the same"
    assert_loads_exactly(look(tmp_path / "b"), made[1].id)


def test_a_fork_that_needs_its_origin_no_more_lets_go_of_it(tmp_path: Path) -> None:
    pipeline, made = forked(tmp_path)
    fork = pipeline_at(tmp_path / "b", seed=71)
    fork.log.take_over("home-b")
    take_checkpoint(fork, 3, partitions=[0], parent=made[1].id)
    run_gc(fork, retain=1)
    assert list_savepoints(pipeline), "runs of the origin are in the newest checkpoint"
    last = take_checkpoint(fork, 4, full=True)
    plan_gc(fork, retain=1)
    assert list_savepoints(pipeline), "a plan changes nothing"
    run_gc(fork, retain=1)
    assert list_savepoints(pipeline) == ()
    assert fork.paths.origin() not in keys(fork.store)
    assert_loads_exactly(fork, last.id)
    for epoch in range(3, 6):
        take_checkpoint(pipeline, epoch)
    run_gc(pipeline, retain=1)
    assert verify(look(tmp_path / "a")).ok
    assert verify(look(tmp_path / "b")).ok


def test_nothing_that_one_of_them_does_changes_the_other(tmp_path: Path) -> None:
    pipeline, made = forked(tmp_path)
    before = {key: pipeline.store.get(key) for key in keys(pipeline.store)}
    fork = pipeline_at(tmp_path / "b", seed=71)
    fork.log.take_over("home-b")
    take_checkpoint(fork, 3, partitions=[0], parent=made[1].id)
    for epoch in range(4, 7):
        take_checkpoint(fork, epoch, partitions=[0])
    run_gc(fork, retain=2)
    assert {key: pipeline.store.get(key) for key in keys(pipeline.store)} == before
    assert_loads_exactly(pipeline, made[1].id)


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("operation", ["put", "put_if_absent"])
@pytest.mark.parametrize("kind", [FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER])
def test_killed_at_any_write_there_is_the_fork_or_none_and_the_same_call_goes_on(
    tmp_path: Path, side: str, operation: str, kind: FaultKind
) -> None:
    for call in range(1, 100):
        here = tmp_path / str(call)
        _, made = origin_of(here)
        stores: dict[str, Store] = {end: open_store(str(here / end)) for end in ("a", "b")}
        stores[side] = FaultyStore(stores[side], faults=[Fault(operation, kind, call=call)])
        is_over = True
        try:
            fork_checkpoint(at(stores["a"], 60), made[1].id, at(stores["b"], 70))
        except Killed:
            is_over = False
        if look(here / "b").list_checkpoints():
            assert_loads_exactly(look(here / "b"), made[1].id)
            assert list_savepoints(look(here / "a"))
        again = pipeline_at(here / "a", seed=61), pipeline_at(here / "b", seed=72)
        fork_checkpoint(again[0], made[1].id, again[1])
        assert_loads_exactly(look(here / "b"), made[1].id)
        assert len(list_savepoints(look(here / "a"))) == 1
        if is_over:
            assert call > 1
            return
    pytest.fail("a fork has fewer calls than that")


def test_a_fork_of_a_fork_and_a_copy_of_it(tmp_path: Path) -> None:
    _, made = forked(tmp_path)
    second = pipeline_at(tmp_path / "c", seed=80)
    fork_checkpoint(pipeline_at(tmp_path / "b", seed=71), made[1].id, second)
    assert_loads_exactly(look(tmp_path / "c"), made[1].id)
    copied = pipeline_at(tmp_path / "d", seed=90)
    copy_checkpoint(look(tmp_path / "c"), made[1].id, copied)
    shutil.rmtree(tmp_path / "a")
    assert_loads_exactly(look(tmp_path / "d"), made[1].id)


def test_both_can_be_moved_together(tmp_path: Path) -> None:
    _, made = forked(tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    assert_loads_exactly(look(tmp_path / "new" / "b"), made[1].id)


@pytest.mark.parametrize("lost", ["store", "file"])
def test_an_origin_that_is_gone_is_named(tmp_path: Path, lost: str) -> None:
    pipeline, made = forked(tmp_path)
    if lost == "store":
        shutil.rmtree(tmp_path / "a")
    else:
        first = pipeline.load_manifest(made[1].id).artifacts()[0]
        pipeline.store.delete(pipeline.paths.absolute(first.path))
    [report] = verify(look(tmp_path / "b"), (made[1].id,)).checkpoints
    assert not report.ok
    assert "shares with its origin" in report.problems[0].message
    assert str(tmp_path / "a") in report.problems[0].where


def test_a_fork_whose_savepoint_or_origin_is_gone_lets_go_all_the_same(tmp_path: Path) -> None:
    for lose in ("savepoint", "origin"):
        here = tmp_path / lose
        pipeline, _ = forked(here)
        fork = pipeline_at(here / "b", seed=71)
        fork.log.take_over("home-b")
        take_checkpoint(fork, 3, full=True)
        if lose == "savepoint":
            drop_savepoint(pipeline, list_savepoints(pipeline)[0].name)
        else:
            shutil.rmtree(here / "a")
        run_gc(fork, retain=1)
        assert fork.paths.origin() not in keys(fork.store)
        assert (here / "a").exists() == (lose == "savepoint"), "no folder is made there"


def test_a_damaged_origin_is_named_and_nothing_is_guessed(tmp_path: Path) -> None:
    _, made = forked(tmp_path)
    file = tmp_path / "b" / "p" / "origin.json"
    data = file.read_bytes()
    for at in range(len(data)):
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(Corrupt) as found:
            decode_origin(file.read_bytes(), str(file))
        assert found.value.where == str(file)
    [report] = verify(look(tmp_path / "b"), (made[1].id,)).checkpoints
    assert any("origin.json" in problem.where for problem in report.problems)


def test_what_cannot_be_forked_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    pipeline, made = origin_of(tmp_path)
    id = made[1].id
    with pytest.raises(UsageError, match="a place of its own"):
        fork_checkpoint(pipeline, id, pipeline_at(tmp_path / "a", seed=70))
    with pytest.raises(UsageError, match="same bucket"):
        fork_checkpoint(pipeline, id, Checkpointer(MemoryStore(), CheckpointPaths("p")))
    running = pipeline_at(tmp_path / "b", seed=70)
    running.log.take_over("home-b")
    with pytest.raises(Refused, match="a pipeline with its home in home-b"):
        fork_checkpoint(pipeline, id, running)
    copied = pipeline_at(tmp_path / "c", seed=80)
    copy_checkpoint(pipeline, id, copied)
    with pytest.raises(Refused, match="checkpoints at the target already"):
        fork_checkpoint(pipeline, id, copied)
    assert list_savepoints(pipeline) == ()
    fork_checkpoint(pipeline, id, pipeline_at(tmp_path / "d", seed=81))
    with pytest.raises(AlreadyExists, match=str(id)):
        fork_checkpoint(pipeline, made[0].id, pipeline_at(tmp_path / "d", seed=82))
    with pytest.raises(NotFound):
        plan_fork(look(tmp_path / "d"), made[0].id, None)


def test_two_forks_at_one_address_do_not_share_a_savepoint(tmp_path: Path) -> None:
    """Two machines may call a folder the same, and a fork may be put elsewhere: each has its own.

    With one name for both, the first that lets go takes the files of the other.
    """
    pipeline, made = forked(tmp_path)
    (tmp_path / "b").rename(tmp_path / "c")
    fork_checkpoint(pipeline, made[1].id, pipeline_at(tmp_path / "b", seed=72))
    assert len(list_savepoints(pipeline)) == 2
    second = pipeline_at(tmp_path / "b", seed=73)
    second.log.take_over("home-b")
    take_checkpoint(second, 3, full=True)
    run_gc(second, retain=1)
    for epoch in range(3, 6):
        take_checkpoint(pipeline, epoch)
    run_gc(pipeline, retain=1)
    assert_loads_exactly(look(tmp_path / "c"), made[1].id)


class _Beside:
    """A store in which somebody else does something right before a write."""

    def __init__(self, inner: Store, call: int, act: Callable[[], object]) -> None:
        self._inner, self._left, self._act = inner, call, act

    def __getattr__(self, name: str) -> object:
        if name in ("put", "put_if_absent"):
            self._left -= 1
            if self._left == 0:
                self._act()
        return getattr(self._inner, name)

    @property
    def is_over(self) -> bool:
        return self._left > 0


def test_a_gc_of_the_target_beside_a_fork_does_not_let_its_origin_go(tmp_path: Path) -> None:
    for call in range(1, 100):
        here = tmp_path / str(call)
        pipeline, made = origin_of(here)
        gc = pipeline_at(here / "b", seed=90)
        store = _Beside(open_store(str(here / "b")), call, lambda gc=gc: run_gc(gc, retain=1))
        with suppress(Fenced, Refused):
            fork_checkpoint(pipeline, made[1].id, at(cast("Store", store), 70))
        if look(here / "b").list_checkpoints():
            for epoch in range(3, 6):
                take_checkpoint(pipeline, epoch)
            run_gc(pipeline, retain=1)
            assert_loads_exactly(look(here / "b"), made[1].id)
        if store.is_over:
            assert call > 4
            return
    pytest.fail("a fork has fewer writes than that")


def test_the_log_of_a_fork_does_not_pass_for_that_of_its_origin(tmp_path: Path) -> None:
    """Only files are shared: a missing log entry is damage, wherever the origin has one."""
    forked(tmp_path)
    (tmp_path / "b" / "p" / "log" / f"{2:020d}.json").unlink()
    with pytest.raises(LogDamaged):
        look(tmp_path / "b").history()
