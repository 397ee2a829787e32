"""A log entry that landed while its answer was lost, and a parent that cannot be read any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.checkpoint import verify
from lamina.embedded import EmbeddedStore
from lamina.errors import StoreUnavailable
from lamina.store import Data, MemoryStore
from tests.support.embedded_stores import (
    KEY,
    VALUE,
    all_epochs,
    as_dict,
    dying,
    no_inline,
    opened,
    rows,
    run_objects,
)


class DeafStore(MemoryStore):
    """Log entries are put, and from then on nothing answers until `hears` is set again."""

    def __init__(self) -> None:
        super().__init__()
        self.loses_answers = False
        self.late: tuple[str, Data] | None = None
        self.delays = False

    def put_if_absent(self, key: str, data: Data) -> None:
        if key.startswith("log/") and self.delays:
            self.delays, self.late = False, (key, data)
            raise StoreUnavailable("no answer")
        if self.late is not None and key.startswith("log/"):
            late, self.late = self.late, None
            super().put_if_absent(*late)  # the entry comes through, before the next one
        super().put_if_absent(key, data)
        if key.startswith("log/") and self.loses_answers:
            self.loses_answers = False
            raise StoreUnavailable("no answer")


def write(store: EmbeddedStore, values: dict[int, int]) -> None:
    store.table("t", KEY, VALUE).write(rows(values))
    store.commit()


def test_a_checkpoint_whose_answer_was_lost_is_found_and_the_next_ones_go_on(
    tmp_path: Path,
) -> None:
    """Every later checkpoint of the process was refused: it stood on the wrong parent."""
    objects = DeafStore()
    with dying(opened(tmp_path, objects)) as store:
        write(store, {1: 1})
        store.checkpoint()
        write(store, {2: 2})
        objects.loses_answers = True
        with pytest.raises(StoreUnavailable):
            store.checkpoint()
        write(store, {3: 3})
        made = store.checkpoint()
        assert made is not None
        assert made.epoch == 3
        assert all_epochs(store) == [1, 2, 3]
        assert made.entry.parent == store._checkpointer.list_checkpoints()[1].id
        assert verify(store._checkpointer).ok
    with opened(tmp_path, objects) as store:
        assert store.report.checkpoint_epoch == 3
        assert as_dict(store.table("t")) == {1: 1, 2: 2, 3: 3}


def test_a_lost_answer_is_noticed_beside_further_epochs(tmp_path: Path) -> None:
    objects = DeafStore()
    with dying(opened(tmp_path, objects)) as store:
        write(store, {1: 1})
        objects.loses_answers = True
        store.checkpoint(wait=False)
        with pytest.raises(StoreUnavailable):
            store.wait_for_checkpoint()
        write(store, {2: 2})
        store.checkpoint(wait=False)
        made = store.wait_for_checkpoint()
        assert made is not None
        assert made.epoch == 2
        assert all_epochs(store) == [1, 2]


def test_the_same_epoch_is_not_saved_twice_after_a_lost_answer(tmp_path: Path) -> None:
    objects = DeafStore()
    with dying(opened(tmp_path, objects)) as store:
        write(store, {1: 1})
        objects.loses_answers = True
        with pytest.raises(StoreUnavailable):
            store.checkpoint()
        made = store.checkpoint()
        assert made is not None
        assert all_epochs(store) == [1]


def test_an_entry_that_comes_through_late_does_not_end_the_process(tmp_path: Path) -> None:
    """It lands between the look at the log and the next attempt's own entry."""
    objects = DeafStore()
    with dying(opened(tmp_path, objects)) as store:
        write(store, {1: 1})
        store.checkpoint()
        write(store, {2: 2})
        objects.delays = True
        with pytest.raises(StoreUnavailable):
            store.checkpoint()
        write(store, {3: 3})
        made = store.checkpoint()
        assert made is not None
        assert made.epoch == 3
        assert verify(store._checkpointer).ok
    with opened(tmp_path, objects) as store:
        assert as_dict(store.table("t")) == {1: 1, 2: 2, 3: 3}


def test_a_rewind_whose_answer_was_lost_is_no_end_of_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_inline(monkeypatch)
    objects = DeafStore()
    with dying(opened(tmp_path, objects)) as store:
        for number in (1, 2):
            write(store, {number: number})
            store.checkpoint()
        objects.loses_answers = True
        with pytest.raises(StoreUnavailable):
            store.rewind(1)
        assert as_dict(store.table("t")) == {1: 1, 2: 2}, "it has not happened"
        made = store.checkpoint()
        assert made is not None
        assert made.entry.parent is None, "the log goes on from another one: a full checkpoint"
        assert verify(store._checkpointer).ok
        write(store, {3: 3})
        store.checkpoint()
        assert as_dict(store.table("t")) == {1: 1, 2: 2, 3: 3}
        store.rewind(1)
        assert as_dict(store.table("t")) == {1: 1}
        store.checkpoint()
    with opened(tmp_path, objects) as store:
        assert as_dict(store.table("t")) == {1: 1}
        assert verify(store._checkpointer).ok


@pytest.mark.parametrize("damage", ["rotten", "missing"])
def test_a_base_whose_manifest_is_gone_is_followed_by_a_full_checkpoint(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process holds all of the state, and stopped."""
    no_inline(monkeypatch)
    objects = DeafStore()
    with dying(opened(tmp_path, objects, partitions=2)) as store:
        write(store, {n: n for n in range(50)})
        base = store.checkpoint()
        assert base is not None
        manifest = store._checkpointer.paths.manifest(base.id)
        if damage == "rotten":
            objects.put(manifest, b"{}")
        else:
            objects.delete(manifest)
        write(store, {50: 50})
        made = store.checkpoint()
        assert made is not None
        assert made.entry.parent is None
        own = [key for key in run_objects(objects) if key.startswith(str(made.id))]
        assert len(own) >= 2, "everything is saved anew"
        write(store, {51: 51})
        after = store.checkpoint()
        assert after is not None
        assert after.entry.parent == made.id
    for key in [key for key in run_objects(objects) if key.startswith(str(base.id))]:
        objects.delete(key)
    with opened(tmp_path, objects) as store:
        assert store.report.checkpoint_epoch == 3
        assert as_dict(store.table("t")) == {n: n for n in range(52)}
