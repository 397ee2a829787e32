"""Large merges run beside the epochs: nothing is lost, doubled or swept under them."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import numpy as np
import pyarrow as pa
import pytest

import lamina
from lamina.embedded import compaction
from lamina.errors import StoreFull
from lamina.state.local import RunFolder
from lamina.state.operator import OperatorState
from lamina.state.tiers import RUNS_MAX

KEY, VALUE = pa.schema({"k": pa.int64()}), pa.schema({"n": pa.int64()})
SUM = lamina.Merge("sum", ("n",))


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamina.embedded.table.LARGE_BYTES", -1)


def batch(epoch: int, rows: int = 50) -> pa.RecordBatch:
    keys = np.arange(epoch * 7, epoch * 7 + rows) % 200
    return pa.record_batch({"k": keys, "n": np.full(rows, epoch + 1)})


def expected(epochs: int) -> dict[int, int]:
    sums: dict[int, int] = {}
    for epoch in range(epochs):
        for row in batch(epoch).to_pylist():
            sums[row["k"]] = sums.get(row["k"], 0) + row["n"]
    return sums


def sums_of(table: lamina.Table) -> dict[int, int]:
    return {row["k"]: row["n"] for row in table.to_table().to_pylist()}


def test_epochs_go_on_while_runs_are_merged_and_nothing_is_lost(tmp_path: Path) -> None:
    with lamina.open(tmp_path, partitions=2) as store:
        table = store.table("t", KEY, VALUE, merges=[SUM])
        for epoch in range(60):
            table.write(batch(epoch))
            store.commit()
            if epoch % 7 == 3:
                store.checkpoint(wait=epoch % 2 == 0)
            assert sums_of(table) == expected(epoch + 1)
    with lamina.open(tmp_path) as store:
        assert sums_of(store.table("t")) == expected(60)


def test_a_merge_that_hangs_does_not_let_runs_pile_up_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, merged = Event(), OperatorState.compacted

    def slow(state: OperatorState, folder: RunFolder) -> OperatorState:
        go.wait(20)
        return merged(state, folder)

    monkeypatch.setattr(OperatorState, "compacted", slow)
    with lamina.open(tmp_path) as store:
        table = store.table("t", KEY, VALUE, merges=[SUM])
        for epoch in range(2 * RUNS_MAX + 1):
            table.write(batch(epoch))
            store.commit()
        assert table.statistics().runs > RUNS_MAX
        go.set()
        for epoch in range(2 * RUNS_MAX + 1, 40):
            table.write(batch(epoch))
            store.commit()
            assert table.statistics().runs <= 2 * RUNS_MAX + 1
        assert sums_of(table) == expected(40)


def test_a_full_disk_under_a_merge_is_said_before_the_next_epoch_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(state: OperatorState, folder: RunFolder) -> OperatorState:
        raise StoreFull("no space left", where=str(folder.path))

    with lamina.open(tmp_path) as store:
        table = store.table("t", KEY, VALUE, merges=[SUM])
        for epoch in range(3):
            table.write(batch(epoch))
            store.commit()
        with monkeypatch.context() as patch:
            patch.setattr(OperatorState, "compacted", full)
            table.write(batch(3))
            store.commit()  # the merge begins here
            table.write(batch(4))
            table._compaction.join()  # type: ignore[union-attr]
            with pytest.raises(StoreFull):
                store.commit()
        assert store.epoch == 4
        store.commit()
        assert sums_of(table) == expected(5)


def test_a_rewind_while_runs_are_merged_leaves_the_merge(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        table = store.table("t", KEY, VALUE, merges=[SUM])
        for epoch in range(3):
            table.write(batch(epoch))
            store.commit()
        store.savepoint("three")
        for epoch in range(3, 8):
            table.write(batch(epoch))
            store.commit()
        store.rewind("three")
        assert sums_of(table) == expected(3)
        table.write(batch(3))
        store.commit()
        store.checkpoint()
    with lamina.open(tmp_path) as store:
        assert sums_of(store.table("t")) == expected(4)


def test_little_is_merged_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamina.embedded.table.LARGE_BYTES", compaction.LARGE_BYTES)
    with lamina.open(tmp_path) as store:
        table = store.table("t", KEY, VALUE, merges=[SUM])
        for epoch in range(20):
            table.write(batch(epoch))
            store.commit()
            assert table._compaction is None
