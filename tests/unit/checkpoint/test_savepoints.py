"""A savepoint is a checkpoint with a name, kept until a person drops it."""

from __future__ import annotations

import pytest

from lamina.checkpoint import (
    create_savepoint,
    drop_savepoint,
    find_savepoint,
    list_savepoints,
    run_gc,
)
from lamina.errors import AlreadyExists, NotFound, StoreReadOnly, UsageError
from lamina.store import MemoryStore, ReadOnlyStore
from tests.support.checkpoints import (
    assert_loads_exactly,
    cid,
    open_pipeline,
    reader,
    snapshot_of,
    take_checkpoint,
)


def test_by_default_the_newest_gets_the_name() -> None:
    pipeline = open_pipeline()
    take_checkpoint(pipeline, 1)
    newest = take_checkpoint(pipeline, 2)
    made = create_savepoint(reader(pipeline.store), "before the move")
    assert (made.name, made.checkpoint) == ("before the move", newest)


def test_anybody_can_create_list_and_drop_next_to_a_running_pipeline() -> None:
    pipeline = open_pipeline()
    first = take_checkpoint(pipeline, 1)
    begin = pipeline.begin()
    create_savepoint(reader(pipeline.store), "b", first.id)
    create_savepoint(reader(pipeline.store), "a", first.id)
    assert [s.name for s in list_savepoints(pipeline)] == ["a", "b"]
    assert find_savepoint(pipeline, "a").checkpoint == first
    assert drop_savepoint(reader(pipeline.store), "a").checkpoint == first
    assert [s.name for s in list_savepoints(reader(pipeline.store))] == ["b"]
    assert pipeline.history().lineage_seq == begin.after  # what is in flight is not disturbed


def test_the_same_savepoint_twice_is_one_and_another_checkpoint_is_refused() -> None:
    pipeline = open_pipeline()
    first = take_checkpoint(pipeline, 1)
    second = take_checkpoint(pipeline, 2)
    made = create_savepoint(pipeline, "x", first.id)
    before = snapshot_of(pipeline.store)
    assert create_savepoint(pipeline, "x", first.id) == made
    with pytest.raises(AlreadyExists, match=str(first.id)):
        create_savepoint(pipeline, "x", second.id)
    assert snapshot_of(pipeline.store) == before


def test_without_a_checkpoint_there_is_nothing_to_name() -> None:
    for look in (reader(MemoryStore()), open_pipeline()):
        with pytest.raises(NotFound):
            create_savepoint(look, "x")
        with pytest.raises(NotFound):
            create_savepoint(look, "x", cid(1))
        assert list_savepoints(look) == ()


def test_a_name_nobody_gave_is_not_found() -> None:
    pipeline = open_pipeline()
    take_checkpoint(pipeline, 1)
    for act in (find_savepoint, drop_savepoint):
        with pytest.raises(NotFound, match="nobody"):
            act(pipeline, "nobody")


@pytest.mark.parametrize("name", ["monday", "vor dem Umzug", "発売前", "a/b", "..", "x" * 200])
def test_any_printable_name_will_do(name: str) -> None:
    pipeline = open_pipeline()
    take_checkpoint(pipeline, 1)
    create_savepoint(pipeline, name)
    assert find_savepoint(reader(pipeline.store), name).name == name


@pytest.mark.parametrize(
    "name", ["", "   ", "x" * 201, "x" * 4096, "two\nlines", "nul\0", "\ud800", "\u202egnp"]
)
def test_a_name_that_nobody_could_type_again_is_refused(name: str) -> None:
    pipeline = open_pipeline()
    take_checkpoint(pipeline, 1)
    before = snapshot_of(pipeline.store)
    with pytest.raises(UsageError):
        create_savepoint(pipeline, name)
    assert snapshot_of(pipeline.store) == before


def test_a_savepoint_outlives_gc_takeover_and_rewind_until_it_is_dropped() -> None:
    pipeline = open_pipeline()
    first = take_checkpoint(pipeline, 1)
    create_savepoint(pipeline, "keep")
    take_checkpoint(pipeline, 2, full=True)
    pipeline.log.rewind(first.id, epoch=9)
    take_checkpoint(pipeline, 10)
    new = open_pipeline(pipeline.store, seed=8)
    last = take_checkpoint(new, 11, full=True)
    run_gc(reader(pipeline.store), retain=1)
    assert_loads_exactly(reader(pipeline.store), first.id)
    drop_savepoint(reader(pipeline.store), "keep")
    assert_loads_exactly(reader(pipeline.store), first.id)  # it goes with the next gc, not before
    run_gc(reader(pipeline.store), retain=1)
    with pytest.raises(NotFound):
        reader(pipeline.store).load_manifest(first.id)
    assert [c.id for c in reader(pipeline.store).list_checkpoints()] == [last.id]


def test_what_was_forgotten_cannot_get_a_name() -> None:
    pipeline = open_pipeline()
    first = take_checkpoint(pipeline, 1)
    take_checkpoint(pipeline, 2)
    run_gc(pipeline, retain=1)
    with pytest.raises(NotFound):
        create_savepoint(reader(pipeline.store), "late", first.id)


def test_a_read_only_store_lists_and_refuses() -> None:
    pipeline = open_pipeline()
    take_checkpoint(pipeline, 1)
    create_savepoint(pipeline, "x")
    look = reader(ReadOnlyStore(pipeline.store))
    assert [s.name for s in list_savepoints(look)] == ["x"]
    with pytest.raises(StoreReadOnly):
        drop_savepoint(look, "x")
