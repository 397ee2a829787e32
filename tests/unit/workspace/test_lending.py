"""Files of a driver whose disk its tasks do not see."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamina.format.remote_names import LENT
from lamina.store import MemoryStore
from lamina.workspace.model import CarriedStaged
from lamina.workspace.remote.lending import Lending


def a_file(path: Path, rows: int) -> Path:
    pq.write_table(pa.table({"v": list(range(rows))}), path)
    return path


def keys(store: MemoryStore) -> list[str]:
    return [info.key for info in store.list(LENT)]


def test_small_files_travel_with_the_tasks(tmp_path: Path) -> None:
    store, file = MemoryStore(), a_file(tmp_path / "a.parquet", 9)
    (lent,) = Lending(store, carried_max=1 << 20).lend("source s", [file], 3)
    assert isinstance(lent, CarriedStaged)
    assert lent.data == file.read_bytes()
    assert lent.sha256 == hashlib.sha256(lent.data).hexdigest()
    assert not keys(store)


def test_large_files_are_in_the_store_while_their_owner_has_them(tmp_path: Path) -> None:
    store = MemoryStore()
    lending = Lending(store, carried_max=0)
    first, second = a_file(tmp_path / "1.parquet", 9), a_file(tmp_path / "2.parquet", 10)
    (lent,) = lending.lend("table t", [first], 3)
    assert keys(store) == [lent.path]
    assert store.get(lent.path) == first.read_bytes()
    (other,) = lending.lend("source s", [first], 3)
    assert other == lent, "by its digest it is the same object"
    (newer,) = lending.lend("table t", [second], 3)
    assert sorted(keys(store)) == sorted([lent.path, newer.path]), "the source reads it still"
    lending.lend("source s", [second], 3)
    assert keys(store) == [newer.path]


def test_a_file_that_is_asked_for_again_is_not_sent_again(tmp_path: Path) -> None:
    store, file = MemoryStore(), a_file(tmp_path / "a.parquet", 9)
    lending = Lending(store, carried_max=0)
    (lent,) = lending.lend("table t", [file], 3)
    store.delete(lent.path)
    assert lending.lend("table t", [file], 3) == (lent,)
    assert not keys(store)
    a_file(file, 10)
    (newer,) = lending.lend("table t", [file], 3)
    assert keys(store) == [newer.path]


def test_a_task_reads_them_in_the_types_that_are_declared(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")
    from lamina.spark.task_files import ReadFiles  # noqa: PLC0415  an extra
    from lamina.workspace.remote.places import Url  # noqa: PLC0415
    from lamina.workspace.remote.tasks import RemoteTaskSpace  # noqa: PLC0415

    place = Url("s3://nobody/asks")
    space = RemoteTaskSpace(place, place, bytes(16), 3, "p", "/none", "/none", is_here=False)
    files = [a_file(tmp_path / f"{n}.parquet", n) for n in (3, 2, 1)]
    lent = Lending(MemoryStore(), carried_max=1 << 20).lend("table t", files, 3)
    schema = pa.schema([("V", pa.int64()), ("none", pa.string())]).serialize().to_pybytes()
    read = pickle.loads(pickle.dumps(ReadFiles(space, (lent[:2], lent[2:]), ("V", "none"), schema)))
    numbers = iter([pa.record_batch({"id": [1]}), pa.record_batch({"id": [0]})])
    rows = pa.Table.from_batches(list(read(numbers))).to_pydict()
    assert rows == {"V": [0, 0, 1, 2, 0, 1], "none": [None] * 6}
