"""Checkpoints beside the epochs: slow ones, failing ones, and files that are damaged meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.checkpoint import verify
from lamina.errors import RunDamaged, StoreUnavailable, UploadFailed
from tests.support.embedded_stores import (
    KEY,
    SUM,
    VALUE,
    GatedStore,
    all_epochs,
    as_dict,
    dying,
    flip,
    local_runs,
    no_inline,
    opened,
    replace,
    rows,
    run_objects,
)


@pytest.fixture(autouse=True)
def _files(monkeypatch: pytest.MonkeyPatch) -> None:
    no_inline(monkeypatch)


def test_epochs_merges_and_a_second_table_go_on_while_a_checkpoint_is_uploaded(
    tmp_path: Path,
) -> None:
    objects = GatedStore()
    with dying(opened(tmp_path, objects, partitions=2)) as store:
        table = store.table("t", KEY, VALUE, merges=SUM)
        table.write(rows(dict.fromkeys(range(50), 1)))
        store.commit()
        objects.may_go_on.clear()
        assert store.checkpoint(wait=False) is None
        assert objects.reached.wait(60)
        for epoch in range(2, 14):  # enough for merges to take in what is being uploaded
            table.write(rows(dict.fromkeys(range(epoch), 1)))
            store.table("other", KEY, VALUE).write(rows({epoch: epoch}))
            assert store.commit() == epoch
        assert all_epochs(store) == []
        expected = as_dict(table)
        objects.may_go_on.set()
        made = store.wait_for_checkpoint()
        assert made is not None
        assert made.epoch == 1
        assert as_dict(table) == expected == {n: 14 - max(n, 1) if n < 13 else 1 for n in range(50)}
        second = store.checkpoint()
        assert second is not None
        assert second.epoch == 13
        assert verify(store._checkpointer).ok
    with opened(tmp_path, objects) as store:
        assert as_dict(store.table("t")) == expected
        assert as_dict(store.table("other")) == {n: n for n in range(2, 14)}


def test_a_second_checkpoint_waits_for_the_first(tmp_path: Path) -> None:
    with opened(tmp_path, GatedStore()) as store:
        for number in range(5):
            store.put(b"%d" % number, b"1")
            store.commit()
            store.checkpoint(wait=False)
        made = store.checkpoint()
        assert made is not None
        assert all_epochs(store) == [1, 2, 3, 4, 5]


def test_a_failed_upload_is_raised_by_the_next_checkpoint_and_stops_no_commit(
    tmp_path: Path,
) -> None:
    objects = GatedStore()
    with dying(opened(tmp_path, objects)) as store:
        table = store.table("t", KEY, VALUE)
        table.write(rows({1: 1}))
        store.commit()
        objects.failure = StoreUnavailable("a bad day")
        store.checkpoint(wait=False)
        assert store._saves._saving is not None
        store._saves._saving.join()
        for number in range(2, 8):
            table.write(rows({number: number}))
            assert store.commit() == number
        with pytest.raises(UploadFailed, match="a bad day"):
            store.checkpoint()
        assert all_epochs(store) == []
        with pytest.raises(UploadFailed, match="a bad day"):
            store.checkpoint()
        objects.failure = None
        made = store.checkpoint()
        assert made is not None
        assert made.epoch == 7
    with opened(tmp_path, objects) as store:
        assert as_dict(store.table("t")) == {n: n for n in range(1, 8)}
        assert store.report.epochs_replayed == 0
        assert verify(store._checkpointer).ok


def test_a_failed_upload_is_raised_by_close_and_the_home_is_free(tmp_path: Path) -> None:
    objects = GatedStore()
    store = opened(tmp_path, objects)
    store.put(b"a", b"1")
    store.commit()
    objects.failure = StoreUnavailable("a bad day")
    store.checkpoint(wait=False)
    with pytest.raises(UploadFailed):
        store.close()
    objects.failure = None
    with opened(tmp_path, objects) as store:
        assert store.get(b"a") == b"1"
        assert store.checkpoint() is not None


def test_a_process_that_dies_during_the_upload_loses_nothing(tmp_path: Path) -> None:
    objects = GatedStore()
    with dying(opened(tmp_path, objects)) as store:
        store.put(b"a", b"1")
        store.commit()
        objects.failure = StoreUnavailable("the process is gone")
        store.checkpoint(wait=False)
    objects.failure = None
    with opened(tmp_path, objects) as store:
        assert store.get(b"a") == b"1"
        store.checkpoint()
        assert all_epochs(store) == [1]


# damaged local files


def test_a_damaged_merged_file_is_made_again_when_it_is_read(tmp_path: Path) -> None:
    with opened(tmp_path, GatedStore(), partitions=2) as store:
        table = store.table("t", KEY, VALUE, merges=SUM)
        for number in range(40):
            table.write(rows(dict.fromkeys(range(number + 1), 1)))
            before = set(local_runs(tmp_path))
            store.commit()
            for file in set(local_runs(tmp_path)) - before:
                flip(file)
            for file in before.intersection(local_runs(tmp_path)):
                replace(file)
            if number % 3 == 0:
                store.checkpoint(wait=number % 2 == 0)
            assert as_dict(table) == {n: number + 1 - n for n in range(number + 1)}


def test_a_damaged_file_is_never_uploaded(tmp_path: Path) -> None:
    """Its digest would have proven the damage for ever."""
    objects = GatedStore()
    with dying(opened(tmp_path, objects)) as store:
        table = store.table("t", KEY, VALUE)
        for number in range(5):
            table.write(rows(dict.fromkeys(range(100), number)))
            store.commit()
        merged = local_runs(tmp_path)
        assert merged
        for file in merged:
            flip(file)
        assert store.checkpoint() is not None
        assert len(run_objects(objects)) == 1
        assert verify(store._checkpointer).ok
    with opened(tmp_path, objects) as store:
        assert store.report.epochs_replayed == 0
        assert as_dict(store.table("t")) == dict.fromkeys(range(100), 4)


def test_a_fetched_file_that_is_damaged_is_fetched_again(tmp_path: Path) -> None:
    objects = GatedStore()
    with opened(tmp_path, objects) as store:
        store.table("t", KEY, VALUE).write(rows({n: n for n in range(100)}))
        store.put(b"a", b"1")
        store.commit()
        store.checkpoint()
    with opened(tmp_path, objects, partitions=2) as store:
        for file in local_runs(tmp_path):
            flip(file)
        assert store.get(b"a") == b"1"
        table = store.table("t")
        assert table.get(rows({5: 0}).select(["k"])).values.column(0).to_pylist() == [5]
        for file in local_runs(tmp_path):
            replace(file)
        table.write(rows({5: 50}), old_values=True)
        store.commit()
        assert as_dict(table) == {n: n for n in range(100)} | {5: 50}


def test_a_scan_that_meets_damage_says_to_read_once_more(tmp_path: Path) -> None:
    objects = GatedStore()
    with opened(tmp_path, objects) as store:
        store.put(b"a", b"1")
        store.commit()
        store.checkpoint()
    with opened(tmp_path, objects) as store:
        for file in local_runs(tmp_path):
            flip(file)
        with pytest.raises(RunDamaged, match="read once more"):
            list(store.scan())
        assert dict(store.scan()) == {b"a": b"1"}


def test_damage_is_mended_with_the_changes_that_are_not_committed(tmp_path: Path) -> None:
    objects = GatedStore()
    with opened(tmp_path, objects, partitions=2) as store:
        store.table("t", KEY, VALUE).write(rows({n: n for n in range(100)}))
        store.commit()
        store.checkpoint()
    with opened(tmp_path, objects, partitions=1) as store:
        table = store.table("t", KEY, VALUE)
        table.write(rows({1: 11, 200: 200}))  # without merges nothing is looked up
        for file in local_runs(tmp_path):
            flip(file)
        table.write(rows({1: 21}), old_values=True)
        expected = {n: n for n in range(100)} | {1: 21, 200: 200}
        assert as_dict(table) == expected
        store.commit()
    with opened(tmp_path, objects) as store:
        assert as_dict(store.table("t")) == expected


def test_damage_while_a_failed_checkpoint_waits_to_be_told_is_mended(tmp_path: Path) -> None:
    objects = GatedStore()
    with opened(tmp_path, objects) as store:
        table = store.table("t", KEY, VALUE)
        for number in range(5):
            table.write(rows({number: number}))
            store.commit()
        objects.failure = StoreUnavailable("a bad day")
        store.checkpoint(wait=False)
        assert store._saves._saving is not None
        store._saves._saving.join()
        for file in local_runs(tmp_path):
            flip(file)
        assert as_dict(table) == {n: n for n in range(5)}
        with pytest.raises(UploadFailed):
            store.checkpoint()
        objects.failure = None
        assert store.checkpoint() is not None


def test_an_expiry_that_meets_damage_can_be_taken_back_and_done_again(tmp_path: Path) -> None:
    objects = GatedStore()
    with opened(tmp_path, objects) as store:
        store.table("t", KEY, VALUE, time="v").write(rows({1: 10, 2: 20}))
        store.commit()
        store.checkpoint()
    with opened(tmp_path, objects) as store:
        for file in local_runs(tmp_path):
            flip(file)
        table = store.table("t")
        with pytest.raises(RunDamaged, match="rollback"):
            list(table.expire(15))
        store.rollback()
        gone = [row["k"] for batch in table.expire(15) for row in batch.to_pylist()]
        store.commit()
        assert (gone, as_dict(table)) == ([1], {2: 20})
