"""A copy is the same checkpoint, whole, at another place; or there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from lamina.checkpoint import Checkpointer, Progress, copy_checkpoint, plan_gc, run_gc, verify
from lamina.errors import (
    AlreadyExists,
    Corrupt,
    Fenced,
    NotFound,
    Refused,
    StoreFull,
    StoreUnavailable,
)
from lamina.format.log import Committed
from lamina.protocol.history import COPY_HOME
from lamina.store import Data, MemoryStore, Store
from lamina.store.base import PART_SIZE_BYTES
from lamina.testing import Fault, FaultKind, FaultyStore, Killed
from tests.support.checkpoints import (
    WatchedStore,
    assert_loads_exactly,
    cid,
    copy_of,
    keys,
    manifest_of,
    open_pipeline,
    reader,
    snapshot_of,
    take_checkpoint,
    with_run,
)


def three() -> tuple[Checkpointer, list[Committed]]:
    """The third shares runs of the first and the second."""
    pipeline = open_pipeline(base="live")
    made = [
        take_checkpoint(pipeline, 1),
        take_checkpoint(pipeline, 2, partitions=[0]),
        take_checkpoint(pipeline, 3, partitions=[1]),
    ]
    return pipeline, made


def target(store: Store | None = None, *, seed: int = 70, limit: int = 4) -> Checkpointer:
    return reader(store or MemoryStore(), base="archive/2026", seed=seed, limit=limit)


def test_a_copy_has_the_same_manifest_and_the_same_bytes() -> None:
    pipeline, made = three()
    there = target()
    report = copy_checkpoint(pipeline, made[2].id, there)
    assert report.verified.ok
    look = target(there.store)
    [copied] = look.list_checkpoints()
    assert copied == report.checkpoint
    assert copied.epoch == 3
    assert copied.entry.manifest_sha256 == made[2].entry.manifest_sha256
    assert copied.entry.total_size == made[2].entry.total_size
    assert look.load_manifest(made[2].id) == pipeline.load_manifest(made[2].id)
    assert_loads_exactly(look, made[2].id)
    assert verify(look).problems == ()


def test_runs_of_ancestors_come_along_and_nothing_else() -> None:
    pipeline, made = three()
    there = target()
    report = copy_checkpoint(pipeline, made[2].id, there)
    manifest = pipeline.load_manifest(made[2].id)
    files = {f"archive/2026/{a.path}" for a in manifest.artifacts()}
    folders = {path.split("/")[2] for path in files}
    assert folders == {str(c.id) for c in made}
    begins = {f"archive/2026/{folder}/begin.json" for folder in folders}
    own = {there.paths.manifest(made[2].id), there.paths.latest_pointer()}
    log = {there.paths.log_entry(1), there.paths.log_entry(2)}
    assert set(keys(there.store)) == files | begins | own | log
    assert report.objects == len(files) + 1
    assert report.bytes == manifest.total_size_bytes


def test_the_source_is_not_changed() -> None:
    pipeline, made = three()
    before = snapshot_of(pipeline.store)
    copy_checkpoint(reader(pipeline.store, base="live"), made[2].id, target())
    assert snapshot_of(pipeline.store) == before


def test_to_copy_twice_is_to_copy_once() -> None:
    pipeline, made = three()
    there = target()
    first = copy_checkpoint(pipeline, made[2].id, there)
    before = snapshot_of(there.store)
    assert copy_checkpoint(pipeline, made[2].id, target(there.store)) == first
    assert snapshot_of(there.store) == before


def test_several_checkpoints_can_be_copied_to_one_base_in_any_order() -> None:
    pipeline, made = three()
    there = target()
    for committed in (made[2], made[0], made[1]):
        copy_checkpoint(pipeline, committed.id, there)
    look = target(there.store)
    assert [c.epoch for c in look.list_checkpoints()] == [1, 2, 3]
    assert look.read_latest() == made[2].id
    assert verify(look).ok
    for committed in made:
        assert_loads_exactly(look, committed.id)


def test_a_copy_of_a_copy_is_a_copy() -> None:
    pipeline, made = three()
    there = target()
    copy_checkpoint(pipeline, made[2].id, there)
    further = reader(MemoryStore(), base="", seed=90)
    copy_checkpoint(target(there.store), made[2].id, further)
    assert_loads_exactly(further, made[2].id)


def test_a_copy_may_stay_in_the_same_store_below_another_base() -> None:
    pipeline, made = three()
    there = target(pipeline.store)
    copy_checkpoint(pipeline, made[1].id, there)
    assert [c.epoch for c in there.list_checkpoints()] == [2]
    assert [c.epoch for c in reader(pipeline.store, base="live").list_checkpoints()] == [1, 2, 3]


def test_a_base_with_a_live_pipeline_is_refused_and_unchanged() -> None:
    pipeline, made = three()
    other = open_pipeline(base="archive/2026", seed=9)
    take_checkpoint(other, 1)
    before = snapshot_of(other.store)
    with pytest.raises(Refused, match="home-a"):
        copy_checkpoint(pipeline, made[2].id, target(other.store))
    assert snapshot_of(other.store) == before


def test_a_pipeline_can_go_on_from_a_copy_and_then_no_more_copies_come() -> None:
    pipeline, made = three()
    there = target()
    copy_checkpoint(pipeline, made[2].id, there)
    moved = open_pipeline(there.store, base="archive/2026", seed=11)
    grown = take_checkpoint(moved, 4, partitions=[0], parent=made[2].id)
    assert_loads_exactly(target(there.store), grown.id)
    with pytest.raises(Refused):
        copy_checkpoint(pipeline, made[1].id, target(there.store))


def test_what_does_not_exist_cannot_be_copied() -> None:
    pipeline, _ = three()
    there = target()
    with pytest.raises(NotFound):
        copy_checkpoint(pipeline, cid(99), there)
    assert keys(there.store) == []


# damage and trouble


def test_a_damaged_source_gives_an_error_and_no_checkpoint() -> None:
    pipeline, made = three()
    objects = snapshot_of(pipeline.store)
    artifacts = pipeline.load_manifest(made[2].id).artifacts()
    names = [pipeline.paths.manifest(made[2].id), *(f"live/{a.path}" for a in artifacts)]
    for name in names:
        for wrong in (None, b"", bytes([objects[name][0] ^ 1]) + objects[name][1:]):
            store = copy_of(objects)
            store.delete(name)
            if wrong is not None:
                store.put(name, wrong)
            there = target()
            with pytest.raises((Corrupt, NotFound)) as caught:
                copy_checkpoint(reader(store, base="live"), made[2].id, there)
            assert name in caught.value.where
            assert target(there.store).list_checkpoints() == ()


def test_other_bytes_at_the_target_are_not_overwritten() -> None:
    pipeline, made = three()
    there = target()
    [first, *_] = pipeline.load_manifest(made[2].id).artifacts()
    there.store.put(f"archive/2026/{first.path}", b"precious")
    with pytest.raises(AlreadyExists):
        copy_checkpoint(pipeline, made[2].id, there)
    assert there.store.get(f"archive/2026/{first.path}") == b"precious"
    assert target(there.store).list_checkpoints() == ()


def test_a_target_that_is_full_gives_an_error_and_no_checkpoint() -> None:
    pipeline, made = three()

    class Full(WatchedStore):
        def put_if_absent(self, key: str, data: Data) -> None:
            if "/operators/" in key:
                raise StoreFull("no space left", where=key)
            super().put_if_absent(key, data)

    inner = MemoryStore()
    with pytest.raises(StoreFull):
        copy_checkpoint(pipeline, made[2].id, target(Full(inner, lambda *_: None)))
    assert target(inner).list_checkpoints() == ()


def _calls(act: Callable[[Store], object]) -> dict[str, int]:
    probe = FaultyStore(MemoryStore())
    act(probe)
    return dict(probe.calls)


def test_killed_at_any_call_and_repeated_the_copy_is_whole() -> None:
    pipeline, made = three()
    source = snapshot_of(pipeline.store)

    def copy(store: Store, seed: int = 70) -> None:
        origin = reader(copy_of(source), base="live")
        copy_checkpoint(origin, made[2].id, target(store, seed=seed, limit=1))

    for operation, count in _calls(copy).items():
        for call in range(1, count + 1):
            for kind in (FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER):
                store = MemoryStore()
                try:
                    copy(FaultyStore(store, faults=[Fault(operation, kind, call=call)]))
                except Killed:
                    pass
                else:  # after a read that found nothing there is nothing to die of
                    assert kind is FaultKind.KILL_AFTER
                for committed in target(store).list_checkpoints():
                    assert_loads_exactly(target(store), committed.id)
                copy(store, seed=71)
                look = target(store)
                assert [c.id for c in look.list_checkpoints()] == [made[2].id]
                assert verify(look).ok, (operation, call, kind)
                assert_loads_exactly(look, made[2].id)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_store_that_fails_is_told_and_the_same_call_again_goes_on(side: str) -> None:
    pipeline, made = three()
    fault = Fault("get_range" if side == "source" else "put_if_absent", FaultKind.UNAVAILABLE, 4)
    store = MemoryStore()
    origin: Store = pipeline.store
    goal: Store = store
    if side == "source":
        origin = FaultyStore(origin, faults=[fault])
    else:
        goal = FaultyStore(goal, faults=[fault])
    with pytest.raises(StoreUnavailable):
        copy_checkpoint(reader(origin, base="live"), made[2].id, target(goal))
    assert target(store).list_checkpoints() == ()
    copy_checkpoint(reader(origin, base="live"), made[2].id, target(goal, seed=71))
    assert verify(target(store)).ok


# gc where copies are


def test_gc_at_the_target_keeps_what_copies_share() -> None:
    pipeline, made = three()
    there = target()
    for committed in made:
        copy_checkpoint(pipeline, committed.id, there)
    plan = plan_gc(target(there.store), retain=1)
    assert plan.forget == (made[0].id, made[1].id)
    assert run_gc(target(there.store), retain=1) == plan
    look = target(there.store)
    assert [c.id for c in look.list_checkpoints()] == [made[2].id]
    assert verify(look).ok
    assert_loads_exactly(look, made[2].id)


def test_a_copy_that_was_given_up_is_swept_when_another_has_come() -> None:
    pipeline, made = three()
    store = MemoryStore()
    fault = Fault("put_if_absent", FaultKind.KILL_AFTER, call=3)
    with pytest.raises(Killed):
        copy_checkpoint(pipeline, made[2].id, target(FaultyStore(store, faults=[fault])))
    copy_checkpoint(pipeline, made[0].id, target(store, seed=71))
    run_gc(target(store), retain=1)
    look = target(store)
    assert [c.id for c in look.list_checkpoints()] == [made[0].id]
    assert verify(look).ok
    assert not [key for key in keys(store) if str(made[2].id) in key]


def test_a_copy_that_lost_files_is_made_whole_by_copying_again() -> None:
    pipeline, made = three()
    there = target()
    copy_checkpoint(pipeline, made[2].id, there)
    lost = [key for key in keys(there.store) if "/operators/" in key]
    there.store.delete(lost[0])
    copy_checkpoint(pipeline, made[2].id, target(there.store, seed=71))
    assert verify(target(there.store)).ok


def test_a_copy_with_wrong_bytes_stays_an_error_and_is_not_overwritten() -> None:
    pipeline, made = three()
    there = target()
    copy_checkpoint(pipeline, made[2].id, there)
    rotten = next(key for key in keys(there.store) if "/operators/" in key)
    there.store.put(rotten, b"rot")
    with pytest.raises(Corrupt) as caught:
        copy_checkpoint(pipeline, made[2].id, target(there.store, seed=71))
    assert rotten in caught.value.where
    assert there.store.get(rotten) == b"rot"


def test_a_gc_at_the_target_during_a_copy_fences_it_and_the_copy_repeated_is_whole() -> None:
    """The folders of ancestors are known there from a copy that died: they are garbage to gc."""
    pipeline, made = three()
    died = MemoryStore()
    fault = Fault("put_if_absent", FaultKind.KILL_AFTER, call=3)
    with pytest.raises(Killed):
        copy_checkpoint(pipeline, made[2].id, target(FaultyStore(died, faults=[fault]), limit=1))
    start = snapshot_of(died)
    counted = FaultyStore(copy_of(start))
    copy_checkpoint(pipeline, made[2].id, target(counted, seed=71, limit=1))
    for stop in range(1, counted.calls.total() + 1):
        store = copy_of(start)
        countdown = iter([*[False] * (stop - 1), True])

        def meanwhile(
            operation: str, key: str, store: Store = store, at: Iterator[bool] = countdown
        ) -> None:
            if next(at, False):
                run_gc(target(store, seed=500), retain=1)

        watched = WatchedStore(store, meanwhile)
        with suppress(Fenced, Refused):
            copy_checkpoint(pipeline, made[2].id, target(watched, seed=71, limit=1))
        copy_checkpoint(pipeline, made[2].id, target(store, seed=72, limit=1))
        look = target(store)
        assert verify(look).ok, stop
        assert_loads_exactly(look, made[2].id)


# large files and progress


def test_a_file_of_more_than_one_part_is_copied_through_a_file() -> None:
    pipeline = open_pipeline(base="live")
    begin = pipeline.begin()
    content = bytes(PART_SIZE_BYTES) + b"the end"
    run = pipeline.save_snapshot(begin.id, "sum", 0, content, first_epoch=1, last_epoch=1, rows=1)
    pipeline.commit(begin, with_run(manifest_of(1), run))
    there = target()
    copy_checkpoint(pipeline, begin.id, there)
    assert there.load_artifact(run) == content


def test_progress_ends_with_all_bytes() -> None:
    pipeline, made = three()
    seen: list[Progress] = []
    copy_checkpoint(pipeline, made[2].id, target(), report=seen.append)
    assert seen[-1].done == seen[-1].total == made[2].entry.total_size


def test_copies_live_in_nobodys_home() -> None:
    pipeline, made = three()
    there = target()
    copy_checkpoint(pipeline, made[2].id, there)
    assert there.history().home.startswith(COPY_HOME)
