"""Opening the same state with another P: the same rows, no file rewritten, checkpoints go on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from lamina.checkpoint import run_gc, verify
from lamina.embedded import EmbeddedStore
from lamina.state import tiers
from lamina.store import MemoryStore
from tests.support.embedded_stores import (
    KEY,
    SUM,
    VALUE,
    as_dict,
    changes,
    dying,
    no_inline,
    opened,
    rows,
    run_objects,
)
from tests.support.examples import IS_LONG
from tests.unit.checkpoint.test_state import keys_of

POWERS = [1, 2, 4, 16, 64] if IS_LONG else [1, 4, 32]  # LAMINA_EXAMPLES=all


class Model:
    """A store and a dict, changed together."""

    def __init__(self, seed: int) -> None:
        self.expected: dict[int, int] = {}
        self._random = np.random.default_rng(seed)

    def epochs(self, store: EmbeddedStore, sizes: Sequence[int], keys: int = 300) -> None:
        table = store.table("t", KEY, VALUE)
        for size in sizes:
            drawn = self._random.choice(keys, size=size, replace=False).tolist()
            new = {k: None if k % 3 == 0 else int(self._random.integers(1000)) for k in drawn}
            batch, deletes = changes(new)
            table.write(batch, deletes=deletes)
            self.expected |= {k: v for k, v in new.items() if v is not None}
            for key in [k for k, v in new.items() if v is None]:
                self.expected.pop(key, None)
            store.commit()

    def check(self, store: EmbeddedStore) -> None:
        assert as_dict(store.table("t", KEY, VALUE)) == self.expected


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("before", POWERS)
def test_any_p_opens_the_checkpoint_and_the_wal_of_any_p_and_rewrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, inline: bool
) -> None:
    if not inline:
        no_inline(monkeypatch)
    for after in POWERS:
        objects, model = MemoryStore(), Model(after)
        root = tmp_path / str(after)
        with dying(opened(root, objects, partitions=before)) as store:
            model.epochs(store, [200, 100])
            store.checkpoint()
            model.epochs(store, [50])
            store.checkpoint()
        made = run_objects(objects)
        with dying(opened(root, objects, partitions=after)) as store:
            model.check(store)
            store.commit()
            store.checkpoint()
            assert run_objects(objects) == made, "rescaling alone uploads no run"
            model.epochs(store, [40, 1])
            model.check(store)
        with dying(opened(root, objects, partitions=before)) as store:
            model.check(store)
            model.epochs(store, [3])
            store.checkpoint()
            assert verify(store._checkpointer).ok
        with opened(root, objects) as store:
            model.check(store)
            assert len(store.table("t").state.partitions) == before


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_up_and_down_many_times_with_checkpoints_merges_and_gc_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, inline: bool
) -> None:
    if not inline:
        no_inline(monkeypatch)
    objects, model = MemoryStore(), Model(seed)
    random = np.random.default_rng(seed)
    for _ in range(14):
        partitions = int(random.choice(POWERS))
        with dying(opened(tmp_path, objects, partitions=partitions)) as store:
            model.check(store)
            sizes = [int(size) for size in random.choice([0, 1, 2, 60], size=random.integers(0, 7))]
            model.epochs(store, sizes)
            if store.epoch and random.random() < 0.6:
                store.checkpoint(wait=bool(random.random() < 0.5))
                store.wait_for_checkpoint()
                model.epochs(store, [1] * int(random.integers(0, 3)))
            if random.random() < 0.3:
                run_gc(store._checkpointer, retain=1)
            model.check(store)
    with opened(tmp_path, objects, partitions=1) as store:
        model.check(store)
        report = verify(store._checkpointer)
        assert report.ok, report.problems


def test_a_slice_that_was_merged_away_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file of P = 1 three quarters still count; the fourth has been merged and deleted."""
    no_inline(monkeypatch)
    objects = MemoryStore()
    with opened(tmp_path, objects, partitions=1) as store:
        store.table("t", KEY, VALUE).write(rows({n: n for n in range(400)}))
        store.commit()
        store.checkpoint()
    mine = keys_of(0, 4, 400)
    mine = [key for key in mine if key < 400]
    expected = {n: n for n in range(400) if n not in mine}
    with opened(tmp_path, objects, partitions=4) as store:
        table = store.table("t")
        for part in np.array_split(np.array(mine), 8):
            batch, deletes = changes({int(key): None for key in part})
            table.write(batch, deletes=deletes)
            store.commit()
        bottom = table.state.partitions[0].runs[0]
        assert bottom.rows < 100, "the slice of this partition has been merged away"
        store.checkpoint()
    for partitions in (1, 2, 64, 1):
        with opened(tmp_path, objects, partitions=partitions) as store:
            assert as_dict(store.table("t")) == expected
            store.commit()
            store.checkpoint()
    with opened(tmp_path, objects, partitions=1) as store:
        run_gc(store._checkpointer, retain=1)
        assert verify(store._checkpointer).ok
        assert as_dict(store.table("t")) == expected


def test_partitions_that_were_empty_do_not_keep_later_checkpoints_from_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With P = 1 a delta stood over them; with P = 4 it had nothing below, and was refused."""
    no_inline(monkeypatch)
    objects = MemoryStore()
    with opened(tmp_path, objects, partitions=4) as store:
        store.table("t", KEY, VALUE).write(rows({1: 1}))
        store.commit()
        store.checkpoint()
    expected = {1: 1}
    for partitions, many in ((1, 100), (4, 200), (16, 300), (2, 400), (1, 500), (64, 600)):
        with opened(tmp_path, objects, partitions=partitions) as store:
            more = {n: n for n in range(many - 100, many)}
            store.table("t").write(rows(more))
            expected |= more
            store.commit()
            store.checkpoint()
            assert as_dict(store.table("t")) == expected


def test_a_partition_that_gets_its_first_row_beside_a_deep_one_stays_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run in the WAL and the other's snapshot are one layer, under an older delta."""
    no_inline(monkeypatch)
    objects = MemoryStore()
    one, other = keys_of(0, 2, 2), keys_of(1, 2, 1)
    with dying(opened(tmp_path, objects, partitions=2)) as store:
        table = store.table("t", KEY, VALUE)
        for key in one:
            table.write(rows({key: 1}))
            store.commit()
            store.checkpoint()
        table.write(rows({other[0]: 1}))
        store.commit()
    with dying(opened(tmp_path, objects, partitions=1)) as store:
        store.checkpoint()
        assert as_dict(store.table("t")) == dict.fromkeys([*one, *other], 1)
    with opened(tmp_path, objects, partitions=2) as store:
        assert as_dict(store.table("t")) == dict.fromkeys([*one, *other], 1)


def test_a_merge_of_the_cheapest_neighbours_keeps_the_epochs_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers of two partitions interleave in epochs: what lies above may begin before the end."""
    no_inline(monkeypatch)
    monkeypatch.setattr(tiers, "_full_tier", lambda sizes, fan_out: None)
    objects = MemoryStore()
    expected = {}
    ones, others = keys_of(0, 2, 9), keys_of(1, 2, 9)
    with dying(opened(tmp_path, objects, partitions=2)) as store:
        table = store.table("t", KEY, VALUE)
        for group in (others, ones):
            for key in group[:8]:
                table.write(rows({key: key}))
                expected[key] = key
                store.commit()
                store.checkpoint()
    with dying(opened(tmp_path, objects, partitions=1)) as store:
        for key in (ones[8], others[8]):
            store.table("t").write(rows({key: key}))
            expected[key] = key
            store.commit()
        store.commit()
        listed = store.table("t").state.partitions[0].runs
        assert all(below.last_epoch < above.first_epoch for below, above in pairwise(listed))
        store.checkpoint()
        assert as_dict(store.table("t")) == expected
    with opened(tmp_path, objects, partitions=2) as store:
        assert as_dict(store.table("t")) == expected


def test_sums_and_expiry_survive_every_change_of_p(tmp_path: Path) -> None:
    objects = MemoryStore()
    total: dict[int, int] = {}
    for life, partitions in enumerate([1, 16, 2, 64, 4, 1], 1):
        with dying(opened(tmp_path, objects, partitions=partitions)) as store:
            sums = store.table("sums", KEY, VALUE, merges=SUM)
            times = store.table("times", KEY, VALUE, time="v")
            sums.write(rows(dict.fromkeys(range(0, 100, life), life)))
            total |= {n: total.get(n, 0) + life for n in range(0, 100, life)}
            times.write(rows({life * 100 + n: life * 10 for n in range(20)}))
            list(times.expire(life * 10 - 5))
            store.commit()
            if life % 2:
                store.checkpoint()
            assert as_dict(sums) == total
            assert as_dict(times) == {life * 100 + n: life * 10 for n in range(20)}
    with opened(tmp_path, objects, partitions=8) as store:
        assert as_dict(store.table("sums")) == total
        assert as_dict(store.table("times")) == {600 + n: 60 for n in range(20)}
