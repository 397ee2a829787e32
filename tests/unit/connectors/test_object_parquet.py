"""Parquet in an object store: lost answers, folds, garbage, and a reader without Lamina."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import obstore.store
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamina.connectors.object_log import ObjectLog
from lamina.connectors.object_parquet import ObjectParquetSink
from lamina.errors import Fenced, NotFound, StoreUnavailable, UnsafeStore
from lamina.format import object_log as names
from lamina.format.commit import Point
from lamina.store import LocalStore, MemoryStore, RetryPolicy
from lamina.store.retry import RetryingStore
from lamina.testing.clock import ManualClock
from lamina.testing.faulty import Fault, FaultKind, FaultyStore
from tests.contract.object_worlds import ObjectParquetWorld
from tests.contract.sinks import PIPELINE, ROWS, SHOWN, Output

ROOT = Path(__file__).parents[3]


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path / "home")


@pytest.fixture(scope="module")
def reader() -> Iterator[ModuleType]:
    """The script of the docs, as somebody would copy it."""
    spec = importlib.util.spec_from_file_location("reader", ROOT / "docs/read_parquet_sink.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["reader"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["reader"]


def publish_all(sink: ObjectParquetSink, output: Output, generation: int = 1) -> None:
    for _ in range(5):
        with suppress(StoreUnavailable):
            at = sink.fence(generation, PIPELINE).point
            for epoch, rows in ROWS.items():
                if at is None or epoch > at.epoch:
                    sink.publish(output.publication(epoch, rows, generation=generation))
            return
    pytest.fail("it was tried five times")


OPERATIONS = ("get", "put", "put_if_absent", "head", "list", "delete")
TROUBLES = (
    FaultKind.TIMEOUT_BEFORE,
    FaultKind.TIMEOUT_AFTER,
    FaultKind.EXISTS_AFTER,
    FaultKind.UNAVAILABLE,
)


@pytest.mark.parametrize("retries", [True, False], ids=["tried again", "given up at once"])
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda kind: kind.value)
def test_whatever_answer_is_lost_every_epoch_is_there_once(
    trouble: FaultKind, *, retries: bool, output: Output
) -> None:
    counted = FaultyStore(MemoryStore())
    publish_all(ObjectParquetSink("out", counted, ManualClock()), output)
    operations = ["put_if_absent"] if trouble is FaultKind.EXISTS_AFTER else OPERATIONS
    for operation in operations:
        for call in range(1, counted.calls[operation] + 1):
            world = ObjectParquetWorld()
            faulty: Any = FaultyStore(world.store, faults=[Fault(operation, trouble, call=call)])
            clock = ManualClock()
            if retries or trouble is FaultKind.EXISTS_AFTER:
                faulty = RetryingStore(faulty, RetryPolicy(), clock)
            publish_all(ObjectParquetSink("out", faulty, clock), output)
            assert world.shown() == SHOWN, f"{trouble} at {operation} {call}"


def test_a_store_that_ignores_create_only_puts_is_refused_before_it_is_claimed(
    output: Output,
) -> None:
    class Unsafe(MemoryStore):
        def put_if_absent(self, key: str, data: Any) -> None:
            self.put(key, data)

    store = Unsafe()
    with pytest.raises(UnsafeStore):
        ObjectParquetSink("out", store, ManualClock()).fence(1, PIPELINE)
    assert list(store.list("")) == []


def test_to_ask_for_the_position_changes_nothing_and_costs_one_request() -> None:
    counted = FaultyStore(MemoryStore())
    assert ObjectParquetSink("out", counted).position().point is None
    assert counted.calls == {"get": 1}


def test_the_last_of_many_entries_is_found_in_few_requests(output: Output) -> None:
    store = MemoryStore()
    for number in range(1, 1001):
        entry = names.ObjectEntry(PIPELINE, 1, output.publication(number).point)
        store.put(names.entry_key(number), names.encode_entry(entry))
    counted = FaultyStore(store)
    log = ObjectLog(counted)
    assert log.last()[0] == 1000
    assert counted.calls.total() <= 22
    counted.calls.clear()
    assert log.last()[0] == 1000
    assert counted.calls.total() == 1, "a process remembers what it has seen"


def test_a_publication_costs_what_it_writes_and_two_looks(output: Output) -> None:
    counted = FaultyStore(MemoryStore())
    sink = ObjectParquetSink("out", counted, ManualClock())
    sink.fence(1, PIPELINE)
    counted.calls.clear()
    sink.position()
    sink.publish(output.publication(1, ROWS[1]))
    assert counted.calls == {"get": 2, "put": 2, "put_if_absent": 1}


def test_readers_ask_for_folds_and_not_for_every_entry(
    output: Output, tmp_path: Path, reader: ModuleType
) -> None:
    store = LocalStore(tmp_path / "out")
    sink = ObjectParquetSink("out", store, ManualClock())
    sink.fence(1, PIPELINE)
    for epoch in range(1, 251):
        sink.publish(output.publication(epoch, [[epoch]] if epoch % 3 else []))
    asked: list[str] = []

    class Asked:
        def __init__(self) -> None:
            self._inner = obstore.store.LocalStore(tmp_path / "out")

        def get(self, path: str) -> Any:
            asked.append(path)
            return self._inner.get(path)

    files = list(reader.files(Asked()))
    assert sum(file["rows"] for file in files) == sum(1 for e in range(1, 251) if e % 3)
    assert len(asked) < 2 + 51 + 10, "251 entries are two folds and the rest"
    rows = reader.read(Asked())["v"].to_pylist()
    assert rows == [epoch for epoch in range(1, 251) if epoch % 3]
    for fold in store.list("_lamina/folds"):
        store.delete(fold.key)
    assert reader.read(Asked())["v"].to_pylist() == rows, "folds say nothing new"
    again = ObjectParquetSink("out", store, ManualClock(1))
    again.fence(2, PIPELINE)
    again.publish(output.publication(251, [[251]], generation=2))
    assert [fold.key for fold in store.list("_lamina/folds")] == [
        names.fold_key(100, 1),
        names.fold_key(100, 101),
    ]
    assert reader.read(Asked())["v"].to_pylist() == [*rows, 251]


def test_readers_leave_out_what_a_rewind_has_taken_back(
    output: Output, tmp_path: Path, reader: ModuleType
) -> None:
    """Also if the rewind is the last entry of a fold, and what was shown again."""
    store = LocalStore(tmp_path / "out")
    sink = ObjectParquetSink("out", store, ManualClock())
    sink.fence(1, PIPELINE)
    outside = obstore.store.LocalStore(tmp_path / "out")
    assert list(reader.files(outside)) == []
    for epoch in range(1, 99):
        sink.publish(output.publication(epoch, [[epoch]]))
    sink.truncate(output.publication(99), Point(50, f"{50:064x}"))
    assert reader.read(outside)["v"].to_pylist() == list(range(1, 51))
    sink.publish(output.publication(100, [[100]]))
    assert reader.read(outside)["v"].to_pylist() == [*range(1, 51), 100]
    sink.truncate(output.publication(101), Point(98, f"{98:064x}"))
    assert reader.read(outside)["v"].to_pylist() == list(range(1, 99))
    log = ObjectLog(store)
    number, entry = log.last()
    log.append(number + 1, entry)
    key = names.entry_key(number + 1)
    store.delete(key)
    store.put(key, store.get(names.entry_key(number)).replace(b'"version":2', b'"version":3'))
    with pytest.raises(SystemExit, match="newer Lamina"):
        reader.read(outside)


def test_the_page_shows_the_reader_that_is_tested() -> None:
    page = (ROOT / "docs/connectors.md").read_text()
    shown = page.split("## Parquet in object stores")[1].split("```python\n")[1].split("```")[0]
    assert shown in (ROOT / "docs/read_parquet_sink.py").read_text()


def test_wide_folds_are_made_of_narrow_ones(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "WIDTHS", (8, 4))
    store = MemoryStore()
    sink = ObjectParquetSink("out", store, ManualClock())
    sink.fence(1, PIPELINE)
    for epoch in range(1, 20):
        sink.publish(output.publication(epoch, [[epoch]]))
    widths = [key.split("/")[2] for key in (info.key for info in store.list("_lamina/folds"))]
    assert sorted(widths) == ["4"] * 4 + ["8"] * 2
    log = ObjectLog(store)
    assert [file.rows for file in log.files(20)] == [1] * 19


@pytest.mark.parametrize("decided", [0, 1, 9, 10, 11, 100])
def test_a_claim_deletes_what_dead_processes_never_decided_and_nothing_else(
    decided: int, output: Output
) -> None:
    store = MemoryStore()
    sink = ObjectParquetSink("out", store, ManualClock())
    sink.fence(1, PIPELINE)
    for epoch in range(max(decided - 3, 1), decided + 1):
        sink.publish(output.publication(epoch, [[epoch]]))
    before = [info.key for info in store.list("data")]
    orphans = [names.data_key(decided + 1, 1, "ab" * 32, n) for n in range(2)]
    orphans.append(names.data_key(decided + 7, 1, "ab" * 32, 0))
    strangers = ["data/readme.txt", names.data_key(decided + 1, 9, "ab" * 32, 0)]
    for key in (*orphans, *strangers):
        store.put(key, b"x")
    ObjectParquetSink("out", store, ManualClock(1)).fence(2, PIPELINE)
    kept = [info.key for info in store.list("data")]
    assert sorted(kept) == sorted([*before, *strangers])


def test_a_process_that_is_replaced_between_its_files_and_its_entry_decides_nothing(
    output: Output,
) -> None:
    world = ObjectParquetWorld()

    published = []

    def replaced(call: str) -> None:
        if call == "put done" and published:
            published.pop()
            world.open().fence(2, PIPELINE)

    old = world.open(replaced)
    old.fence(1, PIPELINE)
    published.append(1)
    with pytest.raises(Fenced):
        old.publish(output.publication(1, [[1]]))
    assert world.shown() == {}
    assert world.open().position().generation == 2


def test_a_publication_that_was_given_up_half_way_leaves_no_file_behind(output: Output) -> None:
    world = ObjectParquetWorld()
    faulty = FaultyStore(world.store, faults=[Fault("put_if_absent", FaultKind.UNAVAILABLE, 4)])
    sink = ObjectParquetSink("out", faulty, ManualClock())
    sink.fence(1, PIPELINE)
    with pytest.raises(StoreUnavailable):
        sink.publish(output.publication(1, ROWS[1]))
    assert len(list(world.store.list("data"))) == 2
    assert world.shown() == {}
    later = world.open()
    later.fence(2, PIPELINE)
    assert list(world.store.list("data")) == []
    later.publish(output.publication(1, ROWS[1], generation=2))
    assert world.shown() == {1: [1, 2, 3]}


def test_an_entry_that_somebody_removed_is_missed(output: Output) -> None:
    world = ObjectParquetWorld()
    publish_all(ObjectParquetSink("out", world.store, ManualClock()), output)
    world.store.delete(names.entry_key(2))
    with pytest.raises(NotFound, match="entry of a sink's log is gone"):
        ObjectLog(world.store).files(4)


def test_a_hundred_thousand_rows(output: Output, tmp_path: Path, reader: ModuleType) -> None:
    store = LocalStore(tmp_path / "out")
    sink = ObjectParquetSink("out", store, ManualClock())
    sink.fence(1, PIPELINE)
    rows = list(range(100_000))
    staged = output.home / output.publication(1, [[0]]).files[0].path
    pq.write_table(pa.table({"v": pa.array(rows, pa.int64())}), staged)
    sink.publish(output.publication(1, [[0]]))
    read = reader.read(obstore.store.LocalStore(tmp_path / "out"))
    assert read["v"].to_pylist() == rows
    (file,) = ObjectLog(store).files(2)
    assert pq.read_table(BytesIO(store.get(file.path))).num_rows == 100_000
