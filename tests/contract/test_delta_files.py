"""Files of a table that others wrote: under any path, removed exactly, and merged to an end."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction, RemoveAction

from lamina.connectors.delta import active, small
from lamina.connectors.delta import rows as delta_rows
from lamina.connectors.delta.active import logged, path_to_remove
from lamina.connectors.delta.rows import NewFiles
from lamina.errors import Corrupt, Refused
from tests.contract.test_delta_sink import MONDAY, claimed
from tests.support.delta_tables import DeltaShop, rows

PLACED = pa.schema([("k", pa.int64()), ("p", pa.string())])
ODD = ["a b", "50%", "x/y", "ü:é", "q'\"", "a%20b", "plus+", "#h?", "a=b", "日本", "~*|", "[1]"]


def log_of(table: Path, version: int) -> list[dict[str, Any]]:
    entry = table / "_delta_log" / f"{version:020d}.json"
    return [json.loads(line) for line in entry.read_text().splitlines()]


def renamed(table: Path, log_path: str, folder: str, value: str) -> None:
    """The only file of version 0, as another writer would have called it."""
    actions = log_of(table, 0)
    for add in (action["add"] for action in actions if "add" in action):
        (table / folder).mkdir(parents=True)
        (table / add["path"]).rename(table / folder / "f.parquet")
        add |= {"path": f"{log_path}/f.parquet", "partitionValues": {"p": value}}
    text = "\n".join(json.dumps(action, ensure_ascii=False) for action in actions)
    (table / "_delta_log" / f"{0:020d}.json").write_text(text + "\n")


def made_by_others(shop: DeltaShop, value: str) -> None:
    write_deltalake(str(shop.table), rows((1, value), schema=PLACED), partition_by=["p"])


# paths


def test_deltalake_writes_every_path_as_is_expected_of_it(tmp_path: Path) -> None:
    """The check before a commit stands on this."""
    write_deltalake(str(tmp_path), rows((1, MONDAY, "a")))
    table = DeltaTable(str(tmp_path))
    paths = [f"x{chr(code)}y" for code in (*range(1, 0x80), 0x85, 0xFC, 0x20AC, 0x1F600)]
    removes = [RemoveAction(path, True, 1) for path in paths]
    table.create_write_transaction(removes, "append", table.schema())
    found = {action["remove"]["path"] for action in log_of(tmp_path, 1) if "remove" in action}
    assert found == {logged(path) for path in paths}


@pytest.mark.parametrize("value", ODD)
def test_an_upsert_does_not_double_rows_in_partitions_with_odd_names(
    tmp_path: Path, value: str
) -> None:
    shop = DeltaShop(tmp_path, PLACED, options={"keys": "k"})
    made_by_others(shop, value)
    claimed(shop).publish(shop.publication(1, rows((1, "new"), schema=PLACED)))
    assert shop.listed() == [(1, "new")]


@pytest.mark.parametrize(
    ("log_path", "folder", "value"),
    [("p=New%20York", "p=New York", "New York"), ("p=a%253Ab", "p=a%3Ab", "a:b")],
)
def test_an_upsert_does_not_double_rows_of_files_that_spark_named(
    tmp_path: Path, log_path: str, folder: str, value: str
) -> None:
    shop = DeltaShop(tmp_path, PLACED, options={"keys": "k"})
    made_by_others(shop, "x")
    renamed(shop.table, log_path, folder, value)
    claimed(shop).publish(shop.publication(1, rows((1, "new"), schema=PLACED)))
    assert shop.listed() == [(1, "new")]


def test_an_upsert_after_another_program_has_compacted_doubles_nothing(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path, PLACED, options={"keys": "k", "partition_by": "p"})
    sink = claimed(shop)
    for epoch in (1, 2):
        sink.publish(shop.publication(epoch, rows((epoch, "New York"), schema=PLACED)))
    DeltaTable(str(shop.table)).optimize.compact()
    sink.publish(shop.publication(3, rows((1, "Zürich 1"), schema=PLACED)))
    assert shop.listed() == [(1, "Zürich 1"), (2, "New York")]


def test_merging_small_files_with_odd_names_doubles_nothing(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path, PLACED, options={"compact": "2", "partition_by": "p"})
    sink = claimed(shop)
    sink.publish(shop.publication(1, rows((1, "New York"), schema=PLACED)))
    write_deltalake(str(shop.table), rows((2, "New York"), schema=PLACED), mode="append")
    sink.publish(shop.publication(2, rows((3, "New York"), schema=PLACED)))
    assert shop.listed() == [(k, "New York") for k in (1, 2, 3)]
    assert len(DeltaTable(str(shop.table)).file_uris()) == 1


def test_a_file_that_deltalake_cannot_remove_is_refused_and_not_doubled(tmp_path: Path) -> None:
    """Spark writes letters beyond ASCII as they are; deltalake can only write them encoded."""
    shop = DeltaShop(tmp_path, PLACED, options={"keys": "k"})
    made_by_others(shop, "x")
    renamed(shop.table, "p=Zürich", "p=Zürich", "Zürich")
    sink = claimed(shop)
    with pytest.raises(Refused, match="cannot be replaced") as raised:
        sink.publish(shop.publication(1, rows((1, "new"), schema=PLACED)))
    assert raised.value.advice
    assert shop.listed() == [(1, "Zürich")]
    assert sink.position().point is None
    assert not list(shop.table.glob("epoch-*")), "what was written for it is removed"
    sink.publish(shop.publication(1, rows((2, "new"), schema=PLACED)))
    assert shop.listed() == [(1, "Zürich"), (2, "new")]


def test_merging_passes_over_a_file_that_deltalake_cannot_remove(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path, PLACED, options={"compact": "2"})
    made_by_others(shop, "x")
    renamed(shop.table, "p=Zürich", "p=Zürich", "Zürich")
    sink = claimed(shop)
    for epoch in (1, 2):
        sink.publish(shop.publication(epoch, rows((1 + epoch, "Zürich"), schema=PLACED)))
    assert shop.listed() == [(k, "Zürich") for k in (1, 2, 3)]
    assert len(DeltaTable(str(shop.table)).file_uris()) == 2


@pytest.mark.parametrize("path", ["p=Zürich/f", "p=a%2fb/f", "p=a b/f", "p=%FF/f", "p=50%/f"])
def test_a_spelling_that_deltalake_does_not_have_is_known(path: str) -> None:
    assert path_to_remove(path) is None


def test_a_remove_that_hits_nothing_is_seen_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = DeltaShop(tmp_path, PLACED, options={"keys": "k"})
    made_by_others(shop, "a b")
    sink = claimed(shop)
    monkeypatch.setattr(active, "path_to_remove", lambda path: path)
    before = shop.versions()
    with pytest.raises(Refused, match="hits no file"):
        sink.publish(shop.publication(1, rows((1, "new"), schema=PLACED)))
    assert (shop.versions(), shop.listed()) == (before, [(1, "a b")])


def test_a_remove_that_was_written_otherwise_is_said_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another deltalake might do it."""
    shop = DeltaShop(tmp_path, options={"keys": "k"})
    sink = claimed(shop)
    sink.publish(shop.publication(1, rows((1, MONDAY, "a"))))
    write = DeltaTable.create_write_transaction

    def otherwise(table: DeltaTable, actions: list[Any], *args: Any, **given: Any) -> None:
        changed = [
            RemoveAction(f"%{each.path}", True, 1) if isinstance(each, RemoveAction) else each
            for each in actions
        ]
        write(table, changed, *args, **given)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", otherwise)
    with pytest.raises(Corrupt, match="did not remove"):
        sink.publish(shop.publication(2, rows((1, MONDAY, "b"))))


def test_a_file_that_deltalake_does_not_list_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = DeltaShop(tmp_path, options={"keys": "k"})
    sink = claimed(shop)
    sink.publish(shop.publication(1, rows((1, MONDAY, "a"))))
    monkeypatch.setattr(active, "unquote", lambda path: f"elsewhere/{path}")
    with pytest.raises(Refused, match="does not find it"):
        sink.publish(shop.publication(2, rows((1, MONDAY, "b"))))


# files that others wrote


def placed(shop: DeltaShop, table: pa.Table, **how: Any) -> None:
    """A file that another program has written and added, with row groups and types of its own."""
    path = shop.table / "theirs.parquet"
    pq.write_table(table, path, **how)
    seen = DeltaTable(str(shop.table))
    stats = json.dumps({"numRecords": table.num_rows})
    add = AddAction(path.name, path.stat().st_size, {}, 1, True, stats)
    seen.create_write_transaction([add], "append", seen.schema())


def test_times_of_int96_that_nanoseconds_do_not_reach_are_kept_by_an_upsert(
    tmp_path: Path,
) -> None:
    """Spark writes INT96 by default, and 9999-12-31 for "for ever"."""
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
    far, near = datetime(9999, 12, 31, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)
    shop = DeltaShop(tmp_path, schema, options={"keys": "k"})
    sink = claimed(shop)
    theirs = rows((1, far), (2, far), schema=schema)
    placed(shop, theirs, use_deprecated_int96_timestamps=True)
    sink.publish(shop.publication(1, rows((1, near), schema=schema)))
    assert shop.listed() == [(1, near), (2, far)]


def test_a_large_file_is_written_again_one_row_group_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = DeltaShop(tmp_path, options={"keys": "k"})
    sink = claimed(shop)
    placed(shop, rows(*((k, MONDAY, f"{k}") for k in range(1000))), row_group_size=10)
    held: list[int] = []
    write = NewFiles.write

    def measured(files: NewFiles, table: pa.Table) -> None:
        held.append(table.num_rows)
        write(files, table)

    monkeypatch.setattr(NewFiles, "write", measured)
    monkeypatch.setattr(delta_rows, "FILE_ROWS", 100)
    changed = [3, 10, 509, 999]
    sink.publish(shop.publication(1, rows(*((k, None, "new") for k in changed))))
    assert max(held) < 120
    assert shop.read().num_rows == 1000
    found = {row["k"]: row["v"] for row in shop.read().to_pylist()}
    assert found == {k: "new" if k in changed else f"{k}" for k in range(1000)}


def test_a_partition_by_a_date_after_the_year_9999_is_refused_by_name(tmp_path: Path) -> None:
    schema = pa.schema([("day", pa.date32()), ("v", pa.int64())])
    shop = DeltaShop(tmp_path, schema, options={"partition_by": "day"})
    sink = claimed(shop)
    day = pa.array([2_932_897], pa.int32()).cast(pa.date32())
    with pytest.raises(Refused, match="beyond the year 9999") as raised:
        sink.publish(shop.publication(1, pa.table({"day": day, "v": [1]}, schema=schema)))
    assert raised.value.advice
    assert sink.position().point is None


# small files


@pytest.mark.parametrize("options", [{}, {"partition_by": "p"}])
def test_merging_comes_to_an_end_and_does_not_rewrite_the_whole_table_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    """Rows that are few bytes: a file was cut by their number, stayed small, and so on for ever."""
    monkeypatch.setattr(delta_rows, "FILE_ROWS", 100)
    monkeypatch.setattr(small, "SMALL_BYTES", 6_000)
    monkeypatch.setattr(small, "MERGED_BYTES", 12_000)
    shop = DeltaShop(tmp_path, PLACED, options={"compact": "5", **options})
    sink = claimed(shop)
    removed: list[int] = []
    for epoch in range(1, 61):
        given = [(k, "a") for k in range(100 * epoch, 100 * epoch + 100)]
        sink.publish(shop.publication(epoch, rows(*given, schema=PLACED)))
        if epoch % 5 == 0:
            actions = log_of(shop.table, shop.versions())
            removed.append(sum("remove" in action for action in actions))
    assert max(removed) <= 20, "only what is new, and what is small"
    files = pa.table(DeltaTable(str(shop.table)).get_add_actions())["size_bytes"].to_pylist()
    assert len(files) < 30
    assert sum(size < 6_000 for size in files) < 15
    assert sorted(shop.read()["k"].to_pylist()) == list(range(100, 6100))


def test_one_small_file_is_not_written_again(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path, options={"compact": "1"})
    sink = claimed(shop)
    sink.publish(shop.publication(1, rows((1, MONDAY, "a"))))
    before = shop.versions()
    sink.publish(shop.publication(2))
    assert shop.versions() == before + 1
