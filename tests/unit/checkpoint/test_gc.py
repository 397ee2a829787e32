"""R11: nothing is deleted that anybody needs, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lamina.checkpoint import Checkpointer, delete_checkpoint, plan_gc, run_gc, verify
from lamina.errors import (
    Corrupt,
    NotFound,
    StillNeeded,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from lamina.format.log import Committed
from lamina.protocol.retention import Fate
from lamina.store import MemoryStore, Store
from lamina.testing import Fault, FaultKind, FaultyStore, Killed
from tests.support.checkpoints import (
    WatchedStore,
    assert_loads_exactly,
    cid,
    copy_of,
    keys,
    manifest_of,
    open_pipeline,
    placed_runs,
    reader,
    save_runs,
    snapshot_of,
    take_checkpoint,
)


def listed(look: Checkpointer) -> list[int]:
    return [c.epoch for c in look.list_checkpoints()]


def folder(look: Checkpointer, id: object) -> list[str]:
    return [i.key for i in look.store.list(f"p/{id}")]


def assert_all_whole(store: Store) -> None:
    look = reader(store)
    report = verify(look)
    assert report.ok, report.problems
    for committed in look.list_checkpoints():
        assert_loads_exactly(look, committed.id)


def full_line(count: int) -> tuple[Checkpointer, list[Committed]]:
    pipeline = open_pipeline()
    return pipeline, [take_checkpoint(pipeline, epoch + 1, full=True) for epoch in range(count)]


# what stays and what goes


def test_the_newest_stay_and_the_folders_of_the_others_are_empty_afterwards() -> None:
    pipeline, made = full_line(5)
    done = run_gc(pipeline, retain=2)
    assert done.forget == tuple(c.id for c in made[:3])
    assert listed(reader(pipeline.store)) == [4, 5]
    for committed in made[:3]:
        assert folder(pipeline, committed.id) == []
    assert_all_whole(pipeline.store)
    again = run_gc(pipeline, retain=2)
    assert (again.forget, again.delete) == ((), ())


def test_only_committed_checkpoints_count() -> None:
    """B5: with attempts that were never committed the only committed one was pruned."""
    pipeline = open_pipeline()
    kept = take_checkpoint(pipeline, 1)
    for epoch in (2, 3, 4):
        begin = pipeline.begin()
        runs = save_runs(pipeline, begin, epoch)
        if epoch == 4:  # a manifest without a log entry does not count either
            wanted = manifest_of(epoch, runs)
            pipeline.store.put(pipeline.paths.manifest(begin.id), repr(wanted).encode())
    run_gc(pipeline, retain=1)
    assert listed(reader(pipeline.store)) == [1]
    assert_loads_exactly(reader(pipeline.store), kept.id)


def test_a_savepoint_stays_until_it_is_dropped() -> None:
    pipeline, made = full_line(4)
    pipeline.log.pin("monday", made[0].id)
    done = run_gc(pipeline, retain=1)
    assert listed(reader(pipeline.store)) == [1, 4]
    [(id, why)] = done.held
    assert id == made[0].id
    assert "monday" in why
    pipeline.log.unpin("monday")
    run_gc(pipeline, retain=1)
    assert listed(reader(pipeline.store)) == [4]
    assert folder(pipeline, made[0].id) == []


def test_runs_that_children_share_stay_after_their_checkpoint_is_forgotten() -> None:
    pipeline = open_pipeline()
    first = take_checkpoint(pipeline, 1)
    second = take_checkpoint(pipeline, 2, partitions=[0])
    third = take_checkpoint(pipeline, 3, partitions=[0])
    shared = {f"p/{p.run.path}" for p in placed_runs(pipeline.load_manifest(third.id))}
    done = run_gc(pipeline, retain=1)
    assert done.forget == (first.id, second.id)
    assert shared <= set(keys(pipeline.store))
    assert_all_whole(pipeline.store)
    # manifests of the forgotten are gone, begin.json stays: the folder is known as garbage
    assert pipeline.paths.manifest(first.id) not in keys(pipeline.store)
    assert pipeline.paths.begin(first.id) in keys(pipeline.store)
    by_id = {plan.id: plan for plan in done.folders}
    assert set(by_id[first.id].shared) | set(by_id[second.id].shared) <= shared
    # once nobody shares them they go, long after the FORGET
    fourth = take_checkpoint(pipeline, 4, full=True)
    run_gc(pipeline, retain=1)
    assert folder(pipeline, first.id) == folder(pipeline, second.id) == []
    assert listed(reader(pipeline.store)) == [4]
    assert_loads_exactly(reader(pipeline.store), fourth.id)


def test_a_checkpoint_in_flight_is_left_alone_and_can_be_committed_afterwards() -> None:
    pipeline, made = full_line(3)
    begin = pipeline.begin()
    runs = save_runs(pipeline, begin, 4)
    tool = reader(pipeline.store)
    done = run_gc(tool, retain=1)
    fates = {plan.id: plan.fate for plan in done.folders}
    assert fates[begin.id] is Fate.IN_FLIGHT
    assert made[-1].id not in fates
    pipeline.commit(begin, manifest_of(4, runs))
    assert_loads_exactly(reader(pipeline.store), begin.id)


@pytest.mark.parametrize("by", ["another checkpoint", "a rewind", "a takeover"])
def test_abandoned_attempts_and_dead_generations_are_swept(by: str) -> None:
    pipeline, made = full_line(2)
    begin = pipeline.begin()
    save_runs(pipeline, begin, 3)
    if by == "another checkpoint":
        take_checkpoint(pipeline, 3, full=True)
    elif by == "a rewind":
        pipeline.log.rewind(made[0].id, epoch=9)
    else:
        open_pipeline(pipeline.store, seed=9)
    run_gc(reader(pipeline.store), retain=9)
    assert folder(pipeline, begin.id) == []
    assert_all_whole(pipeline.store)


def test_nothing_is_forgotten_while_a_new_owner_may_be_recovering() -> None:
    pipeline, made = full_line(4)
    new = open_pipeline(pipeline.store, seed=9)
    done = run_gc(reader(pipeline.store), retain=1)
    assert done.forget == ()
    assert [id for id, _ in done.held] == [c.id for c in made[:3]]
    take_checkpoint(new, 5, parent=made[-1].id)
    run_gc(reader(pipeline.store), retain=1)
    assert listed(reader(pipeline.store)) == [5]
    assert_all_whole(pipeline.store)


def test_folders_without_a_readable_begin_json_are_reported_and_left_alone() -> None:
    pipeline, _ = full_line(2)
    store = pipeline.store
    store.put(f"p/{cid(77)}/operators/sum/partition-0-1-1.snap", b"whose?")
    store.put(f"p/{cid(78)}/begin.json", b"rot")
    store.put(f"p/{cid(78)}/manifest.json", b"x")
    store.put("p/notes/todo.txt", b"not ours")
    store.put("p/readme.txt", b"not ours")
    done = run_gc(pipeline, retain=1)
    fates = {plan.id: plan.fate for plan in done.folders if plan.fate is Fate.UNKNOWN}
    assert set(fates) == {cid(77), cid(78)}
    left = set(keys(store))
    assert {f"p/{cid(78)}/manifest.json", "p/notes/todo.txt", "p/readme.txt"} <= left
    assert f"p/{cid(77)}/operators/sum/partition-0-1-1.snap" in left


def test_other_pipelines_next_door_are_not_touched() -> None:
    store = MemoryStore()
    one = open_pipeline(store, base="p")
    two = open_pipeline(store, base="p2", seed=5)
    for epoch in (1, 2, 3):
        take_checkpoint(one, epoch, full=True)
        take_checkpoint(two, epoch, full=True)
    run_gc(one, retain=1)
    assert listed(reader(store, base="p2")) == [1, 2, 3]
    assert verify(reader(store, base="p2")).ok


@pytest.mark.parametrize("retain", [0, -3])
def test_to_keep_none_is_refused(retain: int) -> None:
    pipeline, _ = full_line(2)
    before = snapshot_of(pipeline.store)
    for act in (plan_gc, run_gc):
        with pytest.raises(UsageError):
            act(pipeline, retain=retain)
    assert snapshot_of(pipeline.store) == before


# damage stops it


@pytest.mark.parametrize("damage", [b"", b"rot", None])
def test_a_kept_manifest_that_cannot_be_read_stops_gc_before_anything_happens(
    damage: bytes | None,
) -> None:
    """Neither deleted nor forgotten: the older ones may be all that can still be restored."""
    pipeline, made = full_line(3)
    key = pipeline.paths.manifest(made[-1].id)
    pipeline.store.delete(key)
    if damage is not None:
        pipeline.store.put(key, damage)
    before = snapshot_of(pipeline.store)
    for act in (
        lambda: run_gc(reader(pipeline.store), retain=1),
        lambda: plan_gc(reader(pipeline.store), retain=1),
        lambda: delete_checkpoint(reader(pipeline.store), made[0].id),
    ):
        with pytest.raises(Corrupt, match=str(made[-1].id)) as caught:
            act()
        assert "Nothing was deleted" in caught.value.advice
    assert snapshot_of(pipeline.store) == before


def test_a_damaged_manifest_that_goes_anyway_does_not_stop_gc() -> None:
    pipeline, made = full_line(3)
    pipeline.store.put(pipeline.paths.manifest(made[0].id), b"rot")
    run_gc(pipeline, retain=1)
    assert listed(reader(pipeline.store)) == [3]
    assert folder(pipeline, made[0].id) == []


def test_a_log_with_a_hole_stops_gc() -> None:
    pipeline, _ = full_line(3)
    pipeline.store.delete(pipeline.paths.log_entry(2))
    before = snapshot_of(pipeline.store)
    with pytest.raises(Corrupt):
        run_gc(reader(pipeline.store), retain=1)
    assert snapshot_of(pipeline.store) == before


# shown, then done


def scenery() -> MemoryStore:
    """Savepoint, shared runs, an abandoned attempt, an unknown folder, one in flight."""
    store = MemoryStore()
    pipeline = open_pipeline(store)
    first = take_checkpoint(pipeline, 1)
    take_checkpoint(pipeline, 2, partitions=[0])
    pipeline.log.pin("monday", first.id)
    abandoned = pipeline.begin()
    save_runs(pipeline, abandoned, 3)
    take_checkpoint(pipeline, 3, full=True)
    take_checkpoint(pipeline, 4, partitions=[1])
    take_checkpoint(pipeline, 5, partitions=[0])
    store.put(f"p/{cid(77)}/manifest.json", b"whose?")
    in_flight = pipeline.begin()
    save_runs(pipeline, in_flight, 6)
    return store


def test_a_plan_changes_nothing_and_is_what_the_run_does() -> None:
    store = scenery()
    before = snapshot_of(store)
    plan = plan_gc(reader(store), retain=1)
    assert snapshot_of(store) == before
    done = run_gc(reader(store), retain=1)
    assert done == plan
    gone = before.keys() - set(keys(store))
    assert gone == {info.key for info in plan.delete}
    assert plan.bytes == sum(len(before[key]) for key in gone)
    assert {plan.fate for plan in done.folders} == {Fate.GARBAGE, Fate.IN_FLIGHT, Fate.UNKNOWN}


def test_progress_counts_every_object_once() -> None:
    seen: list[tuple[int, int]] = []
    store = scenery()
    done = run_gc(reader(store), retain=1, report=lambda p: seen.append((p.done, p.total)))
    total = len(done.delete)
    assert seen == [(number, total) for number in range(1, total + 1)]


# killed at every call


def _calls(store: dict[str, bytes], act: Callable[[Store], object]) -> dict[str, int]:
    probe = FaultyStore(copy_of(store))
    act(probe)
    return dict(probe.calls)


def _deaths(operation: str) -> tuple[FaultKind, ...]:
    """After a read nothing has changed that was not so before it."""
    changes = operation in ("put", "put_if_absent", "delete", "copy")
    return (FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER) if changes else (FaultKind.KILL_BEFORE,)


def test_killed_at_any_call_and_run_again_the_result_is_the_same() -> None:
    start = snapshot_of(scenery())

    def collect(store: Store) -> None:
        run_gc(reader(store, limit=1), retain=1)

    finished = copy_of(start)
    collect(finished)
    expected = keys(finished)
    deaths = 0
    for operation, count in _calls(start, collect).items():
        for call in range(1, count + 1):
            for kind in _deaths(operation):
                store = copy_of(start)
                with pytest.raises(Killed):
                    collect(FaultyStore(store, faults=[Fault(operation, kind, call=call)]))
                deaths += 1
                look = reader(store)
                for committed in look.list_checkpoints():
                    assert_loads_exactly(look, committed.id)
                assert not [p for p in verify(look).problems if p.severity.value == "error"]
                collect(store)
                assert keys(store) == expected, (operation, call, kind)
    assert deaths > 60


@pytest.mark.parametrize("kind", [FaultKind.TIMEOUT_BEFORE, FaultKind.TIMEOUT_AFTER])
def test_a_store_that_fails_in_the_middle_is_told_and_the_next_run_goes_on(
    kind: FaultKind,
) -> None:
    start = snapshot_of(scenery())
    finished = copy_of(start)
    run_gc(reader(finished), retain=1)
    for call in (1, 3, 6):
        store = copy_of(start)
        with pytest.raises(StoreUnavailable):
            run_gc(reader(FaultyStore(store, faults=[Fault("delete", kind, call)])), retain=1)
        assert_all_whole(store)
        run_gc(reader(store), retain=1)
        assert keys(store) == keys(finished)


# others at work meanwhile


def test_a_pin_that_comes_first_is_honoured_although_gc_had_already_chosen() -> None:
    pipeline, made = full_line(3)
    rival = reader(pipeline.store, seed=50)
    once = iter([1])

    def pin(operation: str, key: str) -> None:
        if operation == "put_if_absent" and key.startswith("p/log/") and next(once, None):
            rival.log.pin("saved", made[0].id)

    run_gc(reader(WatchedStore(pipeline.store, pin)), retain=1)
    assert listed(reader(pipeline.store)) == [1, 3]
    assert_all_whole(pipeline.store)


def test_runs_of_a_checkpoint_that_was_made_and_forgotten_during_gc_stay_for_its_child() -> None:
    """gc looks at folder after folder; meanwhile C is committed, D on top of it, C forgotten."""
    pipeline, _ = full_line(2)
    begin = pipeline.begin(full=True)
    runs = save_runs(pipeline, begin, 3)
    once = iter([1])

    def meanwhile(operation: str, key: str) -> None:
        if operation == "get" and key == pipeline.paths.begin(begin.id) and next(once, None):
            pipeline.commit(begin, manifest_of(3, runs))
            take_checkpoint(pipeline, 4, partitions=[0])
            pipeline.log.forget(lambda _: (begin.id,))

    run_gc(reader(WatchedStore(pipeline.store, meanwhile)), retain=1)
    assert_all_whole(pipeline.store)
    assert 4 in listed(reader(pipeline.store))


def test_two_collectors_at_once_do_not_take_each_other_for_damage() -> None:
    """The other one forgets and deletes between our look at the log and at the manifest."""
    pipeline, made = full_line(3)
    pipeline.log.pin("monday", made[0].id)
    take_checkpoint(pipeline, 4, full=True)
    once = iter([1])

    def meanwhile(operation: str, key: str) -> None:
        if key == pipeline.paths.manifest(made[0].id) and next(once, None):
            pipeline.log.unpin("monday")
            run_gc(pipeline, retain=1)

    run_gc(reader(WatchedStore(pipeline.store, meanwhile)), retain=1)
    assert listed(reader(pipeline.store)) == [4]
    assert_all_whole(pipeline.store)


# one checkpoint


def test_a_deleted_checkpoint_leaves_nothing_behind() -> None:
    """A1, A38: delete answered success and removed nothing."""
    pipeline, made = full_line(3)
    plan = delete_checkpoint(pipeline, made[0].id)
    assert plan.shared == ()
    assert folder(pipeline, made[0].id) == []
    assert listed(reader(pipeline.store)) == [2, 3]
    assert_all_whole(pipeline.store)


def test_a_deleted_parent_leaves_what_its_child_uses() -> None:
    pipeline = open_pipeline()
    first = take_checkpoint(pipeline, 1)
    take_checkpoint(pipeline, 2, partitions=[0])
    plan = delete_checkpoint(pipeline, first.id)
    assert len(plan.shared) == 2
    assert set(folder(pipeline, first.id)) == {*plan.shared, pipeline.paths.begin(first.id)}
    assert_all_whole(pipeline.store)


def _pinned(pipeline: Checkpointer, made: list[Committed]) -> Committed:
    pipeline.log.pin("monday", made[0].id)
    return made[0]


def _newest(_: Checkpointer, made: list[Committed]) -> Committed:
    return made[-1]


def _stood_upon(pipeline: Checkpointer, made: list[Committed]) -> Committed:
    pipeline.log.rewind(made[0].id, epoch=9)
    return made[0]


def _recovering(pipeline: Checkpointer, made: list[Committed]) -> Committed:
    open_pipeline(pipeline.store, seed=8)
    return made[0]


@pytest.mark.parametrize("choose", [_pinned, _newest, _stood_upon, _recovering])
def test_what_is_needed_cannot_be_deleted(
    choose: Callable[[Checkpointer, list[Committed]], Committed],
) -> None:
    pipeline, made = full_line(3)
    victim = choose(pipeline, made)
    before = snapshot_of(pipeline.store)
    with pytest.raises(StillNeeded):
        delete_checkpoint(reader(pipeline.store), victim.id)
    assert snapshot_of(pipeline.store) == before


def test_what_does_not_exist_cannot_be_deleted() -> None:
    pipeline, made = full_line(2)
    with pytest.raises(NotFound):
        delete_checkpoint(pipeline, cid(99))
    delete_checkpoint(pipeline, made[0].id)
    with pytest.raises(NotFound):
        delete_checkpoint(pipeline, made[0].id)


def test_an_in_flight_checkpoint_cannot_be_deleted() -> None:
    pipeline, _ = full_line(1)
    begin = pipeline.begin()
    with pytest.raises(NotFound):
        delete_checkpoint(reader(pipeline.store), begin.id)
    assert folder(pipeline, begin.id)


def test_a_folder_that_is_not_empty_after_the_deletion_is_told() -> None:
    pipeline, made = full_line(2)
    stray = f"p/{made[0].id}/operators/sum/partition-9-1-1.snap"
    once = iter([1])

    def late_writer(operation: str, key: str) -> None:
        if operation == "delete" and next(once, None):
            pipeline.store.put(stray, b"late")

    with pytest.raises(StoreError, match="still there") as caught:
        delete_checkpoint(reader(WatchedStore(pipeline.store, late_writer)), made[0].id)
    assert caught.value.where == stray


def test_a_checkpoint_whose_begin_json_is_lost_can_be_deleted_all_the_same() -> None:
    """The log says that it existed and is forgotten: nobody can be writing there."""
    pipeline, made = full_line(2)
    pipeline.store.delete(pipeline.paths.begin(made[0].id))
    delete_checkpoint(pipeline, made[0].id)
    assert folder(pipeline, made[0].id) == []


def test_a_deletion_that_was_killed_is_finished_by_gc() -> None:
    pipeline, made = full_line(3)
    start = snapshot_of(pipeline.store)

    def delete(store: Store) -> None:
        delete_checkpoint(reader(store, limit=1), made[0].id)

    for operation, count in _calls(start, delete).items():
        for call in range(1, count + 1):
            for kind in _deaths(operation):
                store = copy_of(start)
                with pytest.raises(Killed):
                    delete(FaultyStore(store, faults=[Fault(operation, kind, call=call)]))
                assert_all_whole(store)
                run_gc(reader(store), retain=2)
                assert folder(reader(store), made[0].id) == []
                assert listed(reader(store)) == [2, 3]
