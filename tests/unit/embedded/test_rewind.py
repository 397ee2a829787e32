"""Rewinds: by every name of a checkpoint, with everything in it, and killed half-way."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lamina
from lamina.checkpoint import Checkpointer, run_gc, verify
from lamina.errors import NotFound, Refused
from lamina.store import LocalStore
from tests.support.embedded_stores import KEY, NARROW, SUM, VALUE, as_dict, dying, kill, rows


def three_checkpoints(store: lamina.EmbeddedStore) -> None:
    """Epochs 1 to 3, each with a checkpoint; key n is n, 100 is the epoch."""
    table = store.table("t", KEY, VALUE)
    for epoch in (1, 2, 3):
        table.write(rows({epoch: epoch, 100: epoch}))
        store.commit(offsets={"s": {"at": str(epoch)}}, watermark=epoch)
        store.checkpoint()


def state_of(epoch: int) -> dict[int, int]:
    return {n: n for n in range(1, epoch + 1)} | {100: epoch}


@pytest.mark.parametrize("how", ["epoch", "text", "id", "id as text", "savepoint"])
def test_a_rewind_finds_its_target_by_every_name(tmp_path: Path, how: str) -> None:
    with dying(lamina.open(tmp_path, partitions=2)) as store:
        three_checkpoints(store)
        target = store._checkpointer.list_checkpoints()[1]
        lamina.create_savepoint(store._checkpointer, "good", target.id)
        ways: dict[str, lamina.CheckpointId | str | int] = {
            "epoch": 2,
            "text": "2",
            "id": target.id,
            "id as text": str(target.id),
            "savepoint": "good",
        }
        assert store.rewind(ways[how]) == 4
        assert as_dict(store.table("t")) == state_of(2)
        assert store.offsets["s"].offsets == {"at": "2"}
        assert store.watermark == 2
    with lamina.open(tmp_path) as store:
        assert store.epoch == 4
        assert as_dict(store.table("t")) == state_of(2)
        assert store.offsets["s"].offsets == {"at": "2"}


def test_a_rewind_with_uncommitted_changes_is_refused(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        three_checkpoints(store)
        for change in (
            lambda: store.put(b"a", b"1"),
            lambda: store.table("t").write(rows({7: 7})),
        ):
            change()
            with pytest.raises(Refused, match="Commit or rollback"):
                store.rewind(1)
            store.rollback()
        assert store.rewind(1) == 4


def test_a_rewind_to_nothing_changes_nothing(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        three_checkpoints(store)
        with pytest.raises(NotFound):
            store.rewind(77)
        assert (store.epoch, as_dict(store.table("t"))) == (3, state_of(3))
        assert store.commit() == 4


def test_the_way_back_is_a_rewind_too_and_checkpoints_go_on(tmp_path: Path) -> None:
    with lamina.open(tmp_path, partitions=4) as store:
        three_checkpoints(store)
        assert store.rewind(1) == 4
        store.table("t").write(rows({50: 50}))
        assert store.commit() == 5
        made = store.checkpoint()
        assert made is not None
        assert made.epoch == 5
        assert store.rewind(3) == 6
        assert as_dict(store.table("t")) == state_of(3)
        assert store.rewind(5) == 7
        assert as_dict(store.table("t")) == state_of(1) | {50: 50}
        store.checkpoint()
        assert verify(store._checkpointer).ok
    with lamina.open(tmp_path) as store:
        assert as_dict(store.table("t")) == state_of(1) | {50: 50}


def test_a_rewind_that_was_killed_before_its_commit_has_not_happened(tmp_path: Path) -> None:
    """REWIND is in the store's log, COMMIT is not in the driver's: nothing was decided."""
    with dying(lamina.open(tmp_path)) as store:
        three_checkpoints(store)
        store.table("t").write(rows({4: 4, 100: 4}))
        store.commit()
        target = store._checkpointer.list_checkpoints()[0]
        store._checkpointer.log.rewind(target.id, epoch=5)
    with dying(lamina.open(tmp_path)) as store:
        assert (store.epoch, as_dict(store.table("t"))) == (4, state_of(4))
        store.table("t").write(rows({5: 5, 100: 5}))
        assert store.commit() > 5, "the number of the rewind is used up"
        store.checkpoint()
        assert as_dict(store.table("t")) == state_of(5)
        after = store.rewind(1)
    with lamina.open(tmp_path) as store:
        assert (store.epoch, as_dict(store.table("t"))) == (after, state_of(1))
        assert verify(store._checkpointer).ok


def test_a_rewind_that_was_killed_before_the_log_entry_leaves_only_files(tmp_path: Path) -> None:
    store = lamina.open(tmp_path)
    three_checkpoints(store)
    kill(store)
    with lamina.open(tmp_path) as store:
        assert (store.epoch, as_dict(store.table("t"))) == (3, state_of(3))


def test_a_table_that_came_later_is_empty_after_a_rewind_and_can_be_filled_again(
    tmp_path: Path,
) -> None:
    with dying(lamina.open(tmp_path)) as store:
        store.commit()
        store.checkpoint()
        later = store.table("later", KEY, VALUE, merges=SUM)
        later.write(rows({1: 1}))
        store.commit()
        store.checkpoint()
        store.rewind(1)
        assert as_dict(later) == {}
        later.write(rows({1: 5}))
        later.write(rows({1: 5}))
        store.commit()
        store.checkpoint()
    with lamina.open(tmp_path) as store:
        assert as_dict(store.table("later")) == {1: 10}


def test_a_rewind_to_wider_columns_than_today_brings_them_back(tmp_path: Path) -> None:
    """The decision was made and then the state could not be read with the narrower columns."""
    with lamina.open(tmp_path) as store:
        store.table("t", KEY, NARROW).write(rows({1: 1}, pa.int32()))
        store.commit()
        store.checkpoint()
        store.table("t", KEY, VALUE).write(rows({2: 2}))
        store.commit()
        store.checkpoint()
        store.rewind(1)
    with lamina.open(tmp_path) as store:
        assert store.table("t").schema.value == NARROW
        store.rewind(2)
        assert store.table("t").schema.value == VALUE
        assert as_dict(store.table("t")) == {1: 1, 2: 2}
    with lamina.open(tmp_path) as store:
        assert as_dict(store.table("t")) == {1: 1, 2: 2}


def test_a_rewind_to_a_table_of_another_key_brings_that_table_back(tmp_path: Path) -> None:
    text = pa.schema([("k", pa.string())])
    with lamina.open(tmp_path) as store:
        store.commit()
        store.checkpoint()
        store.table("t", KEY, VALUE, merges=SUM).write(rows({1: 1}))
        store.commit()
        store.checkpoint()
        store.rewind(1)
    with lamina.open(tmp_path) as store:
        store.table("t", text, VALUE).write(pa.table({"k": ["one"], "v": pa.array([1])}))
        last = store.commit()
        store.checkpoint()
        store.rewind(2)
        assert as_dict(store.table("t")) == {1: 1}
        store.rewind(last)
        assert store.table("t").to_table().to_pylist() == [{"k": "one", "v": 1}]


def test_gc_after_a_rewind_keeps_what_the_new_line_stands_on(tmp_path: Path) -> None:
    with dying(lamina.open(tmp_path, partitions=2, retain=1)) as store:
        three_checkpoints(store)
        store.rewind(1)
        run_gc(store._checkpointer, retain=1)
        assert as_dict(store.table("t")) == state_of(1)
    with dying(lamina.open(tmp_path)) as store:
        assert as_dict(store.table("t")) == state_of(1)
        store.table("t").write(rows({9: 9}))
        store.commit()
        store.checkpoint()
        run_gc(store._checkpointer, retain=1)
    assert verify(Checkpointer(LocalStore(tmp_path / "checkpoints"))).ok
    with lamina.open(tmp_path) as store:
        assert as_dict(store.table("t")) == state_of(1) | {9: 9}


def test_after_a_rewind_a_lost_checkpoint_is_made_up_for_along_the_new_line(tmp_path: Path) -> None:
    """Checkpoints that the rewind left behind are newer by epoch, and of no use."""
    with dying(lamina.open(tmp_path, partitions=2)) as store:
        three_checkpoints(store)
        store.rewind(1)
        store.table("t").write(rows({9: 9}))
        store.commit(watermark=9)
        made = store.checkpoint()
        assert made is not None
        manifest = store._checkpointer.paths.manifest(made.id)
        store.table("t").write(rows({10: 10}))
        head = store.commit()
    (tmp_path / "checkpoints" / manifest).write_bytes(b"damaged")
    with lamina.open(tmp_path) as store:
        assert (store.epoch, store.watermark) == (head, 9)
        assert store.report.checkpoint_epoch == 1
        assert as_dict(store.table("t")) == state_of(1) | {9: 9, 10: 10}
        store.checkpoint()
