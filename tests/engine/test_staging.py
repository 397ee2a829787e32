"""Staged output: durable before its task returns, kept while somebody needs it, and not longer."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamina.checkpoint import state as checkpoint_state
from lamina.format.home_names import STAGED
from lamina.testing import ManualClock
from lamina.workspace import Attempt, staging
from lamina.workspace.staging import drop_staged, stage
from tests.engine.pipelines import LIMITS, ORDERS, TRADES, World, expected, kill, run_out
from tests.engine.test_sinks import SINK, FlakySink
from tests.support.embedded_stores import GatedStore
from tests.support.syncs import record_syncs

assert LIMITS.rows is not None
EXPECTED = expected({"trades": TRADES, "orders": ORDERS}, LIMITS.rows)
BATCH = pa.record_batch({"v": [1, 2, 3]})


def attempt(epoch: int = 7) -> Attempt:
    return Attempt("s", 0, partitions=1, epoch=epoch, generation=1, tag="run-a")


def test_a_staged_file_and_its_names_are_synced_before_the_task_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)
    (staged,) = stage(tmp_path, attempt(), [BATCH])
    path = tmp_path / staged.path
    data = path.read_bytes()
    assert syncs.sizes[str(path)] == len(data) == staged.size, "the whole file, not a part of it"
    assert hashlib.sha256(data).hexdigest() == staged.sha256
    assert syncs.since(path) == [path.parent, path.parent.parent]


def test_no_rows_are_no_file(tmp_path: Path) -> None:
    assert stage(tmp_path, attempt(), [BATCH.slice(0, 0)]) == ()
    assert not (tmp_path / STAGED).exists()


def test_small_batches_are_row_groups_of_many_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many rows as may be held, or as many bytes; and all rows, in their order."""
    batches = [pa.record_batch({"v": [2 * n, 2 * n + 1]}) for n in range(10)]
    for limit, value in (("GROUP_ROWS", 7), ("GROUP_BYTES", 7 * 8)):
        with monkeypatch.context() as patched:
            patched.setattr(staging, limit, value)
            (staged,) = stage(tmp_path, attempt(value), batches)
        file = pq.ParquetFile(tmp_path / staged.path)
        groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
        assert groups == [8, 8, 4], limit
        assert file.read()["v"].to_pylist() == list(range(20))
        assert staged.rows == 20


def test_output_up_to_the_floor_goes_and_no_epoch_more(tmp_path: Path) -> None:
    for epoch in (6, 7, 8):
        stage(tmp_path, attempt(epoch), [BATCH])
    drop_staged(tmp_path, 7)
    assert [path.name for path in (tmp_path / STAGED).iterdir()] == [f"{8:020d}"]


def test_output_that_a_sink_has_still_to_get_outlives_the_checkpoint_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_state, "INLINE_BYTES_MAX", -1)  # every run is an upload
    store = GatedStore()
    world, clock = World(tmp_path, store=store), ManualClock()
    flaky = FlakySink(SINK, world.tables[SINK])
    engine = world.open(sinks={**world.sinks(), SINK: flaky}, clock=clock)
    while engine._saves._saving is None:
        store.may_go_on.clear()
        assert engine.step() is not None
    saved = engine.epoch
    assert store.reached.wait(60), "it waits in its first upload"
    flaky.down = True
    assert engine.step() is not None
    store.may_go_on.set()
    engine.finish_checkpoint()
    assert engine.saved_epoch == saved
    left = {int(path.name) for path in (world.home / STAGED).iterdir()}
    assert left == {saved + 1}, "what is behind the checkpoint is gone, and nothing else"
    flaky.down = False
    clock.advance(60)
    run_out(engine)
    kill(engine)
    world.finish()
    assert world.outcome() == EXPECTED
