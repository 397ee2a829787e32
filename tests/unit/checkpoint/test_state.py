"""Checkpoints of keyed state: what they cost, what they share, and what remains after a loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamina.checkpoint import Checkpointer, plan_gc, run_gc, saving, verify
from lamina.checkpoint import state as checkpoint_state
from lamina.embedded import EmbeddedStore
from lamina.embedded.snapshot import load_snapshot
from lamina.errors import WouldLose
from lamina.format.manifest_model import CheckpointManifest, RunEntry
from lamina.state import tiers
from lamina.state.changes import split
from lamina.state.operator import ranges_of
from lamina.state.tiers import RUNS_MAX
from lamina.store import MemoryStore
from tests.support.embedded_stores import (
    KEY,
    SUM,
    VALUE,
    as_dict,
    dying,
    no_inline,
    opened,
    rows,
    run_objects,
)
from tests.support.states import KV, made


def keys_of(partition: int, partitions: int, count: int = 1) -> list[int]:
    """Keys that one of P partitions owns."""
    batch = made(KV, [{"k": n, "v": 0} for n in range(40 * partitions * count)])
    found = split(batch, ranges_of(partitions))[partition].column("k").to_pylist()
    return sorted(found)[:count]


def manifest_of(store: EmbeddedStore) -> CheckpointManifest:
    assert store.last_checkpoint is not None
    return store._checkpointer.load_manifest(store.last_checkpoint)


def entries(manifest: CheckpointManifest) -> list[RunEntry]:
    operators = manifest.operators.values()
    return [run for each in operators for runs in each.partitions.values() for run in runs]


def depth(manifest: CheckpointManifest) -> int:
    operators = manifest.operators.values()
    return max(len(runs) for each in operators for runs in each.partitions.values())


# what it costs


def test_partitions_that_have_not_changed_cost_no_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_inline(monkeypatch)
    objects = MemoryStore()
    with opened(tmp_path, objects, partitions=16) as store:
        table = store.table("t", KEY, VALUE)
        table.write(rows({n: n for n in range(500)}))
        store.table("still", KEY, VALUE).write(rows({1: 1}))
        store.commit()
        store.checkpoint()
        before = run_objects(objects)
        assert len(before) == 17
        for key in keys_of(3, 16, 3):
            table.write(rows({key: -1}))
            store.commit()
        store.checkpoint()
        fresh = sorted(run_objects(objects).keys() - before.keys())
        assert fresh
        assert all("/operators/t/partition-3-" in key for key in fresh)
        after = run_objects(objects)
        store.commit(offsets={"s": {"at": "1"}})
        store.checkpoint()
        assert run_objects(objects) == after, "an epoch without changes uploads nothing"


def test_an_unchanged_state_costs_nothing_after_every_reopening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_inline(monkeypatch)
    objects = MemoryStore()
    with opened(tmp_path, objects, partitions=4) as store:
        store.table("t", KEY, VALUE).write(rows({n: n for n in range(500)}))
        store.commit()
        store.checkpoint()
    before = run_objects(objects)
    for _ in range(3):
        with dying(opened(tmp_path, objects)) as store:
            store.commit()
            store.checkpoint()
            assert run_objects(objects) == before


def test_small_runs_are_in_the_manifest_and_large_ones_are_files(tmp_path: Path) -> None:
    objects = MemoryStore()
    with opened(tmp_path, objects) as store:
        store.put(b"small", b"x")
        store.commit()
        store.checkpoint()
        assert run_objects(objects) == {}
        assert [run.path for run in entries(manifest_of(store))] == [None]
        store.put(b"large", bytes(70_000))
        store.commit()
        store.checkpoint()
        files = [run for run in entries(manifest_of(store)) if run.path is not None]
        assert len(files) == len(run_objects(objects)) == 1
    with opened(tmp_path, objects) as store:
        assert dict(store.scan()) == {b"small": b"x", b"large": bytes(70_000)}


def test_small_runs_in_sum_do_not_make_the_manifest_large(tmp_path: Path) -> None:
    objects = MemoryStore()
    random = np.random.default_rng(1)
    expected = {b"%d" % n: random.bytes(40_000) for n in range(40)}
    with opened(tmp_path, objects, partitions=16) as store:
        for start in range(0, 40, 10):
            for key in list(expected)[start : start + 10]:
                store.put(key, expected[key])
            store.commit()
            store.checkpoint()
            inline = [run.size for run in entries(manifest_of(store)) if run.path is None]
            assert sum(inline) <= checkpoint_state.INLINE_SUM_MAX
            assert max(inline, default=0) <= checkpoint_state.INLINE_BYTES_MAX
        assert inline
        assert run_objects(objects)
    for partitions in (1, 4, 64):
        with opened(tmp_path, objects, partitions=partitions) as store:
            assert dict(store.scan()) == expected
            store.commit()
            store.checkpoint()
            inline = [run.size for run in entries(manifest_of(store)) if run.path is None]
            assert sum(inline) <= checkpoint_state.INLINE_SUM_MAX


@pytest.mark.parametrize("inline", [True, False])
def test_a_hundred_checkpoints_keep_the_chain_short_and_the_state_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: bool
) -> None:
    if not inline:
        no_inline(monkeypatch)
    objects = MemoryStore()
    expected: dict[int, int] = {}
    random = np.random.default_rng(7)
    with dying(opened(tmp_path, objects, partitions=2)) as store:
        table = store.table("t", KEY, VALUE, merges=SUM)
        for epoch in range(1, 101):
            keys = random.choice(3000, size=int(random.choice([1, 30, 900])), replace=False)
            added = {int(key): epoch for key in keys}
            table.write(rows(added))
            expected |= {key: expected.get(key, 0) + more for key, more in added.items()}
            store.commit()
            store.checkpoint(wait=epoch % 3 > 0)
            if epoch % 10 == 0:
                store.wait_for_checkpoint()
                assert depth(manifest_of(store)) <= RUNS_MAX
    with opened(tmp_path, objects) as store:
        assert as_dict(store.table("t")) == expected
        assert verify(store._checkpointer).ok


# every checkpoint of a history


@pytest.mark.parametrize("merging", [True, False])
def test_from_every_checkpoint_of_a_history_the_next_one_is_incremental(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merging: bool
) -> None:
    no_inline(monkeypatch)
    if not merging:
        monkeypatch.setattr(tiers, "_full_tier", lambda sizes, fan_out: None)
    objects = MemoryStore()
    states: dict[int, dict[int, int]] = {}
    with opened(tmp_path, objects, partitions=2) as store:
        table = store.table("t", KEY, VALUE)
        for epoch in range(1, 8):
            table.write(rows(dict.fromkeys(range(epoch, 400, epoch), epoch)))
            states[store.commit()] = as_dict(table)
            store.checkpoint()
        for epoch, expected in states.items():
            store.rewind(epoch)
            assert as_dict(table) == expected
            below, before = entries(manifest_of(store)), run_objects(objects)
            key = keys_of(1, 2)[0]
            table.write(rows({key: -epoch}))
            after = store.commit()
            store.checkpoint()
            manifest = manifest_of(store)
            assert manifest.epoch == after
            if not merging:
                assert len(run_objects(objects)) == len(before) + 1
                assert all(run in entries(manifest) for run in below)
            snapshot = load_snapshot(store._checkpointer, after)
            found = {r["k"]: r["v"] for r in snapshot.to_table("t").to_pylist()}
            snapshot.close()
            assert found == expected | {key: -epoch}
        assert verify(store._checkpointer).ok


@pytest.mark.parametrize("inline", [True, False])
def test_gc_that_keeps_one_checkpoint_keeps_all_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: bool
) -> None:
    if not inline:
        no_inline(monkeypatch)
    objects = MemoryStore()
    expected: dict[int, int] = {}
    with dying(opened(tmp_path, objects, partitions=4, retain=1)) as store:
        for epoch in range(1, 31):
            changed = dict.fromkeys(range(epoch % 7, 200, 7 + epoch), epoch)
            store.table("t", KEY, VALUE).write(rows(changed))
            expected |= changed
            store.commit()
            store.checkpoint()
            if epoch == 12:
                store.savepoint("kept")
                kept = dict(expected)
            if epoch % 4 == 0:
                run_gc(store._checkpointer, retain=1)
                report = verify(store._checkpointer)
                assert report.ok, report.problems
    checkpointer = Checkpointer(objects)
    assert not plan_gc(checkpointer, retain=10).delete or not inline
    for partitions in (4, 1):
        with opened(tmp_path, objects, partitions=partitions) as store:
            assert as_dict(store.table("t")) == expected
    kept_now = [checkpointer.load_manifest(c.id) for c in checkpointer.list_checkpoints()]
    named = {run.path for manifest in kept_now for run in entries(manifest)}
    with opened(tmp_path, objects) as store:
        run_gc(store._checkpointer, retain=1)
        left = set(run_objects(objects))
        assert left <= named
        store.rewind("kept")
        assert as_dict(store.table("t")) == kept


# losses


def history(tmp_path: Path, objects: MemoryStore, *, retain: int) -> dict[int, int]:
    """Three checkpoints, and one epoch after each."""
    expected: dict[int, int] = {}
    with dying(opened(tmp_path, objects, partitions=2, retain=retain)) as store:
        table = store.table("t", KEY, VALUE)
        for number in range(6):
            changed = dict.fromkeys(range(number, 300, number + 1), number)
            table.write(rows(changed))
            expected |= changed
            store.commit(watermark=number)
            if number % 2 == 0:
                store.checkpoint()
    return expected


def newest_run(objects: MemoryStore) -> str:
    """A file that only the newest checkpoint has."""
    newest = Checkpointer(objects).list_checkpoints()[-1]
    return max(key for key in run_objects(objects) if str(newest.id) in key)


@pytest.mark.parametrize("loss", ["missing", "wrong", "short"])
def test_a_lost_run_means_an_older_checkpoint_and_more_of_the_wal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    no_inline(monkeypatch)
    objects = MemoryStore()
    expected = history(tmp_path, objects, retain=3)
    spoil(objects, newest_run(objects), loss)
    with dying(opened(tmp_path, objects)) as store:
        assert as_dict(store.table("t")) == expected
        assert (store.epoch, store.watermark) == (6, 5)
        assert store.report.checkpoint_epoch == 3
        assert store.report.epochs_replayed == 3
        assert len(store.report.skipped) == 1
        store.table("t").write(rows({1000: 1}))
        store.commit()
        store.checkpoint()
    with opened(tmp_path, objects) as store:
        assert as_dict(store.table("t")) == expected | {1000: 1}
        assert store.report.checkpoint_epoch == 7


@pytest.mark.parametrize("loss", ["missing", "wrong", "short"])
def test_a_lost_run_without_the_wal_to_make_it_again_stops_with_would_lose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    no_inline(monkeypatch)
    objects = MemoryStore()
    expected = history(tmp_path, objects, retain=1)
    key = newest_run(objects)
    kept = objects.get(key)
    spoil(objects, key, loss)
    with pytest.raises(WouldLose):
        opened(tmp_path, objects)
    objects.put(key, kept)
    with opened(tmp_path, objects) as store:
        assert as_dict(store.table("t")) == expected, "the refusal has changed nothing"


def spoil(objects: MemoryStore, key: str, loss: str) -> None:
    data = objects.get(key)
    if loss == "missing":
        objects.delete(key)
    elif loss == "wrong":
        objects.put(key, data[: len(data) // 2] + b"!" + data[len(data) // 2 + 1 :])
    else:
        objects.put(key, data[:-1])


def test_a_delta_whose_base_has_gone_is_saved_as_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has it as a delta, and nothing is below it any more: no manifest may say so."""
    with opened(tmp_path, MemoryStore(), partitions=1) as store:
        table = store.table("t", KEY, VALUE)
        for written in (dict.fromkeys(range(100), 0), {1: 1}):
            table.write(rows(written))
            store.commit()
            store.checkpoint()
        assert [each.kind for each in entries(manifest_of(store))] == ["snap", "delta"]
        save = checkpoint_state.save

        def without_the_oldest(
            checkpointer: Any, begin: Any, operators: dict[str, Any], *rest: Any, **named: Any
        ) -> Any:
            (state,) = operators.values()
            (partition,) = state.partitions
            less = state.with_partition(0, partition.with_runs(partition.runs[1:]))
            return save(checkpointer, begin, {"t": less}, *rest, **named)

        monkeypatch.setattr(saving, "save", without_the_oldest)
        table.write(rows({2: 2}))
        store.commit()
        store.checkpoint()
        assert next(iter(entries(manifest_of(store)))).kind == "snap"
        assert verify(store._checkpointer).ok
