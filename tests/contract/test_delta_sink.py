"""What a Delta sink does to its table: appended, partitioned, by key; beside other writers."""

from __future__ import annotations

import json
import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lamina.connectors.delta.stats import read_stats
from lamina.engine.ports import CHANGE, Change, Sink
from lamina.errors import NotFound, Refused, StoreUnavailable
from lamina.format.pipeline_record import NOBODY, Owner
from lamina.testing.faulty import Killed
from tests.contract.sinks import PIPELINE
from tests.support.delta_tables import ROW, DeltaShop, rows

MONDAY, TUESDAY = date(2026, 11, 16), date(2026, 11, 17)
CHANGES = ROW.append(pa.field(CHANGE, pa.string()))


def claimed(shop: DeltaShop, **options: str) -> Sink:
    sink = shop.open(**options)
    sink.fence(1, PIPELINE)
    return sink


# types

EVERY = pa.schema(
    [
        ("b", pa.bool_()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("d", pa.decimal128(38, 9)),
        ("s", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "Europe/Berlin")),
        ("local", pa.timestamp("us")),
        ("list", pa.list_(pa.int64())),
        ("map", pa.map_(pa.string(), pa.int32())),
        ("struct", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
    ]
)
VALUES = (
    True,
    -128,
    -32768,
    2**31 - 1,
    -(2**63),
    1.5,
    float("inf"),
    Decimal("12345678901234567890123456789.123456789"),
    "ü'\"\n😀",
    b"\x00\xff",
    date(1583, 1, 1),
    datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC),
    datetime(2026, 3, 29, 2, 30, 0, 654321),  # noqa: DTZ001  a time without a zone
    [1, None, 3],
    [("a", 1), ("b", None)],
    {"x": 1, "y": ["p", None]},
)


def test_every_type_that_a_stream_can_have_comes_back_as_it_was(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path, EVERY)
    given = rows(VALUES, (None,) * len(EVERY), schema=EVERY)
    claimed(shop).publish(shop.publication(1, given))
    back = {field.name: shop.read()[field.name].to_pylist() for field in EVERY}
    assert back == {name: given[name].to_pylist() for name in EVERY.names}
    types = {each.name: each.type for each in DeltaTable(str(shop.table)).schema().fields}
    assert str(types["d"]) == 'PrimitiveType("decimal(38,9)")'
    assert str(types["at"]) == 'PrimitiveType("timestamp")'
    assert str(types["local"]) == 'PrimitiveType("timestamp_ntz")'
    query = """SELECT count(*), sum(d), max("at") AT TIME ZONE 'UTC' FROM files"""
    assert shop.by_duckdb(query) == [
        (2, VALUES[7], datetime(2026, 3, 29, 1, 30, 0, 123456))  # noqa: DTZ001
    ]


def test_statistics_let_readers_pass_files_over_and_never_too_many(tmp_path: Path) -> None:
    """Of infinity and NaN there are none; a long text is cut, and what is above it is found."""
    shop = DeltaShop(tmp_path, EVERY)
    sink = claimed(shop)
    finite = list(VALUES)
    finite[EVERY.get_field_index("f64")] = 2.5
    finite[EVERY.get_field_index("s")] = "z" * 1000
    nothing = [None] * len(EVERY)
    for epoch, number in enumerate((float("inf"), float("nan")), start=2):
        row = [*nothing]
        row[EVERY.get_field_index("f64")] = number
        sink.publish(shop.publication(epoch, rows(tuple(row), schema=EVERY)))
    sink.publish(shop.publication(4, rows(tuple(finite), tuple(nothing), schema=EVERY)))
    dataset = DeltaTable(str(shop.table)).to_pyarrow_dataset()
    for number, column in enumerate(EVERY):
        if not pa.types.is_nested(column.type):
            is_it = pc.field(column.name) == pa.scalar(finite[number], column.type)
            assert dataset.count_rows(filter=is_it) == 1, column.name
            assert dataset.count_rows(filter=pc.field(column.name).is_null()) >= 1, column.name
    assert dataset.count_rows(filter=pc.is_nan(pc.field("f64"))) == 1
    assert dataset.count_rows(filter=pc.field("f64") == float("inf")) == 1
    files = [each.path for each in dataset.get_fragments(filter=pc.field("i64") == 5)]
    assert not any("epoch-00000000000000000004" in path for path in files)


def test_a_file_with_nan_has_no_limits(tmp_path: Path) -> None:
    """Spark takes NaN for the largest number: with 2.5 as the largest it would not look for it."""
    for values, has_limits in (([1.5, 2.5, None], True), ([1.5, float("nan"), 2.5], False)):
        pq.write_table(pa.table({"x": pa.array(values, pa.float64())}), tmp_path / "file")
        stats = json.loads(read_stats(pa.OSFile(str(tmp_path / "file"))).text)
        assert ("maxValues" in stats) is has_limits
        assert stats["numRecords"] == 3


def test_a_hundred_thousand_rows(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    sink = claimed(shop)
    number = pa.array(range(100_000), pa.int64())
    table = pa.table({"k": number, "day": pc.cast(pc.divide(number, 10), pa.int32()), "v": number})
    given = table.cast(ROW)
    sink.publish(shop.publication(1, given.slice(0, 60_000), given.slice(60_000)))
    assert shop.by_duckdb("SELECT count(*), count(DISTINCT k), sum(k) FROM files") == [
        (100_000, 100_000, sum(range(100_000)))
    ]
    assert shop.read().sort_by("k").cast(ROW) == given


# partitions


def test_each_partition_has_files_of_its_own(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path, options={"partition_by": "DAY, v"})
    sink = claimed(shop)
    given = [(1, MONDAY, "ü /='%\""), (2, MONDAY, "b"), (3, None, None), (4, TUESDAY, "b")]
    sink.publish(shop.publication(1, rows(*given[:3]), rows(*given[3:])))
    sink.publish(shop.publication(2, rows((5, MONDAY, "b"))))
    assert shop.listed() == sorted([*given, (5, MONDAY, "b")], key=repr)
    table = DeltaTable(str(shop.table))
    assert table.metadata().partition_columns == ["day", "v"]
    assert len(table.file_uris()) == 5
    monday = table.to_pyarrow_dataset().count_rows(filter=pc.field("day") == MONDAY)
    assert monday == 3


def test_numbers_and_booleans_as_partitions(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int32()), ("b", pa.bool_()), ("v", pa.int64())])
    shop = DeltaShop(tmp_path, schema, options={"partition_by": "n, b"})
    given = [(-7, True, 1), (0, False, 2), (None, None, 3)]
    claimed(shop).publish(shop.publication(1, rows(*given, schema=schema)))
    found = [(row["n"], row["b"], row["v"]) for row in shop.read().to_pylist()]
    assert sorted(found, key=repr) == sorted(given, key=repr)


def test_an_empty_text_as_a_partition_is_refused_because_it_would_become_null(
    tmp_path: Path,
) -> None:
    shop = DeltaShop(tmp_path, options={"partition_by": "v"})
    sink = claimed(shop)
    with pytest.raises(Refused, match="NULL") as raised:
        sink.publish(shop.publication(1, rows((1, MONDAY, "a"), (2, MONDAY, ""))))
    assert "nullif" in raised.value.advice
    assert sink.position().point is None
    assert shop.listed() == []
    assert list(shop.table.glob("*.parquet")) == [], "what no version names is removed"


# by key


def keyed(root: Path, **options: str) -> DeltaShop:
    return DeltaShop(root, change=Change.UPSERT, keys=("k",), options=options)


def test_a_row_replaces_the_one_with_the_same_key(tmp_path: Path) -> None:
    shop = keyed(tmp_path, order_by="v")
    sink = claimed(shop)
    sink.publish(shop.publication(1, rows((1, MONDAY, "a"), (2, MONDAY, "b"), (None, None, "n"))))
    sink.publish(shop.publication(2, rows((2, None, "e"), (3, None, "d"), (2, TUESDAY, "c"))))
    sink.publish(shop.publication(3, rows((None, MONDAY, "m"))))
    assert shop.listed() == [(1, MONDAY, "a"), (2, None, "e"), (3, None, "d"), (None, MONDAY, "m")]


def test_a_stream_of_changes_deletes_what_it_says(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path, change=Change.CHANGES, keys=("k",))
    sink = claimed(shop)
    first = [(1, MONDAY, "a", "+I"), (2, MONDAY, "b", "+I"), (3, MONDAY, "c", "+I")]
    sink.publish(shop.publication(1, rows(*first, schema=CHANGES)))
    second = [(1, MONDAY, "a", "-U"), (1, MONDAY, "z", "+U"), (2, MONDAY, "b", "-D")]
    sink.publish(shop.publication(2, rows(*second, schema=CHANGES)))
    assert shop.listed() == [(1, MONDAY, "z"), (3, MONDAY, "c")]
    third = [(1, MONDAY, "z", "-D"), (3, MONDAY, "c", "-D"), (9, MONDAY, "x", "-D")]
    sink.publish(shop.publication(3, rows(*third, schema=CHANGES)))
    assert shop.listed() == []


def test_a_key_may_have_several_columns_and_move_to_another_partition(tmp_path: Path) -> None:
    options = {"keys": "K, v", "partition_by": "day"}
    shop = DeltaShop(tmp_path, keys=("k", "v"), options=options)
    sink = claimed(shop)
    first = [(1, MONDAY, "a"), (1, MONDAY, "b"), (2, MONDAY, "a"), (1, None, None)]
    sink.publish(shop.publication(1, rows(*first)))
    sink.publish(shop.publication(2, rows((1, TUESDAY, "a"), (1, TUESDAY, None))))
    assert shop.listed() == sorted(
        [(1, TUESDAY, "a"), (1, MONDAY, "b"), (2, MONDAY, "a"), (1, TUESDAY, None)], key=repr
    )


@pytest.mark.parametrize("partition_by", ["v", "day, even"])
def test_keys_of_every_type_that_can_be_one(tmp_path: Path, partition_by: str) -> None:
    schema = pa.schema(
        [
            ("day", pa.date32()),
            ("exact", pa.decimal128(20, 3)),
            ("at", pa.timestamp("us", "Europe/Berlin")),
            ("even", pa.bool_()),
            ("bytes", pa.binary()),
            ("v", pa.int64()),
        ]
    )
    keys = {"keys": "day, exact, at, even, bytes", "partition_by": partition_by}
    shop = DeltaShop(tmp_path, schema, options=keys)
    sink = claimed(shop)
    one = (MONDAY, Decimal("1.500"), datetime(2026, 3, 29, 1, tzinfo=UTC), True, b"x")
    other = (TUESDAY, None, None, False, None)
    for epoch, (first, second) in enumerate([(1, 2), (3, 4)], start=1):
        sink.publish(shop.publication(epoch, rows((*one, first), (*other, second), schema=schema)))
    assert [row[-1] for row in shop.listed()] == [3, 4]


def test_texts_as_keys_long_ones_too(tmp_path: Path) -> None:
    """The limits of a file have the beginning of a text: no file too many is passed over."""
    shop = DeltaShop(tmp_path, options={"keys": "v"})
    sink = claimed(shop)
    texts = ["", "a", "ä", "z" * 64, "z" * 64 + "a", "z" * 99, "z" * 64 + "ö" * 9, "Ω", "😀" * 70]
    for epoch in range(1, 2 * len(texts) + 1):
        text = texts[(epoch * 5) % len(texts)]
        sink.publish(shop.publication(epoch, rows((epoch, None, text))))
    found = shop.listed()
    assert sorted(row[2] for row in found) == sorted(texts)
    assert min(row[0] for row in found) > len(texts), "every one was replaced"


def test_keys_of_many_epochs_end_as_the_last_one_says(tmp_path: Path) -> None:
    """Against a dictionary; and most files are passed over by their statistics."""
    shop, last = keyed(tmp_path), {}
    sink = claimed(shop)
    for epoch in range(1, 21):
        given = [(key * epoch % 97, None, f"{epoch}-{key}") for key in range(40)]
        last.update({row[0]: row for row in given})
        sink.publish(shop.publication(epoch, rows(*given)))
    assert shop.listed() == sorted(last.values(), key=repr)


# other writers


class Between:
    """Does something once, at the moment before a commit."""

    def __init__(self, action: object) -> None:
        self.action, self.done = action, False

    def __call__(self, call: str) -> None:
        if call == "commit" and not self.done:
            self.done = True
            assert callable(self.action)
            self.action()


@pytest.mark.parametrize("options", [{}, {"partition_by": "day"}, {"keys": "k"}])
def test_rows_that_others_append_stay_and_ours_are_there_once(
    tmp_path: Path, options: dict[str, str]
) -> None:
    shop = DeltaShop(tmp_path, options=options)
    claimed(shop).publish(shop.publication(1, rows((1, MONDAY, "a"))))
    other = rows((100, TUESDAY, "theirs"))
    between = Between(lambda: write_deltalake(str(shop.table), other, mode="append"))
    shop.open(between).publish(shop.publication(2, rows((2, MONDAY, "b"))))
    assert between.done
    assert shop.listed() == [(1, MONDAY, "a"), (100, TUESDAY, "theirs"), (2, MONDAY, "b")]
    assert shop.open().position().point == shop.publication(2).point


def test_files_that_another_process_merges_meanwhile_are_not_removed_twice(tmp_path: Path) -> None:
    """deltalake accepts that with its own retries, and the rows of the merged file are doubled."""
    shop = keyed(tmp_path)
    sink = claimed(shop)
    for epoch in (1, 2):
        sink.publish(shop.publication(epoch, rows((epoch, MONDAY, "a"))))
    between = Between(DeltaTable(str(shop.table)).optimize.compact)
    shop.open(between).publish(shop.publication(3, rows((1, TUESDAY, "b"))))
    assert between.done
    assert shop.listed() == [(1, TUESDAY, "b"), (2, MONDAY, "a")]


def test_many_writers_at_once(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    sink = claimed(shop)

    def append(writer: int) -> None:
        for number in range(5):
            row = rows((1000 * writer + number, TUESDAY, "theirs"))
            write_deltalake(str(shop.table), row, mode="append")

    threads = [threading.Thread(target=append, args=(writer,)) for writer in (1, 2)]
    for thread in threads:
        thread.start()
    for epoch in range(1, 11):
        sink.publish(shop.publication(epoch, rows((epoch, MONDAY, "ours"))))
    for thread in threads:
        thread.join()
    keys = sorted(shop.read()["k"].to_pylist())
    assert keys == [*range(1, 11), *range(1000, 1005), *range(2000, 2005)]


def test_writers_that_are_always_faster_are_named(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    claimed(shop)

    def again(call: str) -> None:
        if call == "commit":
            write_deltalake(str(shop.table), rows((0, None, "theirs")), mode="append")

    with pytest.raises(StoreUnavailable, match="faster"):
        shop.open(again).publish(shop.publication(1, rows((1, MONDAY, "a"))))
    assert shop.open().position().point is None


# the mark


def test_the_mark_survives_checkpoints_vacuum_compaction_and_the_end_of_the_log(
    tmp_path: Path,
) -> None:
    shop = DeltaShop(tmp_path)
    sink = claimed(shop)
    for epoch in (1, 2, 3):
        sink.publish(shop.publication(epoch, rows((epoch, MONDAY, "a"))))
    before = sink.position()
    table = DeltaTable(str(shop.table))
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    table.create_checkpoint()
    for entry in sorted((shop.table / "_delta_log").glob("*.json"))[:-1]:
        entry.unlink()  # what the clean-up of the log does after a month
    assert len(list(shop.table.glob("*.parquet"))) == 1
    assert shop.open().position() == before
    sink = shop.open()
    assert sink.fence(2, PIPELINE).point == before.point
    sink.publish(shop.publication(3, rows((3, MONDAY, "a")), generation=2))
    sink.publish(shop.publication(4, rows((4, MONDAY, "a")), generation=2))
    assert [row[0] for row in shop.listed()] == [1, 2, 3, 4]


def test_the_whole_digest_and_the_owner_come_back(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    sink = shop.open()
    owner = Owner("x" * 32, "a 'name' with \"quotes\", ünïcode")
    sink.fence(3, owner)
    publication = shop.publication(7, rows((1, MONDAY, "a")), generation=3, pipeline=owner)
    sink.publish(publication)
    found = shop.open().position()
    assert (found.pipeline, found.generation, found.point) == (owner, 3, publication.point)
    renamed = Owner(owner.id, "renamed")
    assert shop.open().fence(4, renamed).pipeline == renamed
    assert shop.open().position().pipeline == renamed


def test_two_sinks_cannot_share_a_table(tmp_path: Path) -> None:
    """By an alias of its path, for one: the second would find its epoch done already."""
    shop = DeltaShop(tmp_path)
    claimed(shop).publish(shop.publication(1, rows((1, MONDAY, "a"))))
    other = DeltaShop(tmp_path, sink="other").open()
    for write in (
        lambda: other.fence(1, PIPELINE),
        lambda: other.publish(shop.publication(1, rows((2, MONDAY, "b")))),
    ):
        with pytest.raises(Refused, match="belongs to the sink 'out', not to 'other'") as raised:
            write()
        assert "lamina.sink" in raised.value.advice
    renamed = {"lamina.sink": "other"}
    table = DeltaTable(str(shop.table))
    table.alter.set_table_properties(renamed, raise_if_not_exists=False)
    assert other.fence(2, PIPELINE).point == shop.publication(1).point


def test_a_mark_from_before_sinks_were_named_gets_the_name_with_the_next_claim(
    tmp_path: Path,
) -> None:
    shop = DeltaShop(tmp_path)
    sink = claimed(shop)
    table = DeltaTable(str(shop.table))
    table.alter.set_table_properties({"lamina.sink": ""}, raise_if_not_exists=False)
    sink.publish(shop.publication(1, rows((1, MONDAY, "a"))))
    assert shop.open().fence(2, PIPELINE).point == shop.publication(1).point
    assert DeltaTable(str(shop.table)).metadata().configuration["lamina.sink"] == "out"
    assert [row[0] for row in shop.listed()] == [1]


def test_asking_for_the_position_creates_nothing(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    position = shop.open().position()
    assert (position.pipeline, position.generation, position.point) == (NOBODY, 0, None)
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_is_dropped_is_missed_and_not_made_again(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    sink = claimed(shop)
    sink.publish(shop.publication(1, rows((1, MONDAY, "a"))))
    shop.table.rename(tmp_path / "aside")
    for publication in (shop.publication(2), shop.publication(2, rows((2, MONDAY, "b")))):
        with pytest.raises(NotFound, match="the table is gone"):
            sink.publish(publication)
    assert not shop.table.exists()
    (tmp_path / "aside").rename(shop.table)
    sink.publish(shop.publication(2, rows((2, MONDAY, "b"))))
    assert [row[0] for row in shop.listed()] == [1, 2]


# killed anywhere


@pytest.mark.parametrize(
    "options", [{"partition_by": "day"}, {"keys": "k"}, {"keys": "k", "compact": "1"}]
)
def test_killed_at_any_call_every_epoch_is_there_once(
    tmp_path: Path, options: dict[str, str]
) -> None:
    seen = 0

    def count(_: str) -> None:
        nonlocal seen
        seen += 1

    given = {1: rows((1, MONDAY, "a"), (2, None, "b")), 2: rows((2, TUESDAY, "c"))}

    def run(sink: Sink, shop: DeltaShop, generation: int) -> None:
        at = sink.fence(generation, PIPELINE).point
        for epoch, table in given.items():
            if at is None or epoch > at.epoch:
                sink.publish(shop.publication(epoch, table, generation=generation))

    whole = DeltaShop(tmp_path, options=options, name="whole")
    run(whole.open(count), whole, 1)
    assert seen > 10
    for nth in range(1, seen + 1):
        shop, calls = DeltaShop(tmp_path, options=options, name=f"t{nth}"), iter(range(1, nth + 1))

        def cut(call: str, calls: object = calls, nth: int = nth) -> None:
            if next(calls) == nth:  # type: ignore[call-overload]
                raise Killed(call)

        with pytest.raises(Killed):
            run(shop.open(cut), shop, 1)
        run(shop.open(), shop, 2)
        assert shop.listed() == whole.listed(), f"killed at call {nth}"


# small files


@pytest.mark.parametrize("options", [{}, {"partition_by": "day"}])
def test_small_files_are_merged_every_so_many_epochs(
    tmp_path: Path, options: dict[str, str]
) -> None:
    shop = DeltaShop(tmp_path, options={"compact": "5", **options})
    sink = claimed(shop)
    for epoch in range(1, 10):
        day = MONDAY if epoch % 2 else None
        sink.publish(shop.publication(epoch, rows((epoch, day, "a"))))
    files = len(DeltaTable(str(shop.table)).file_uris())
    assert files == 4 + (2 if options else 1), "four since the fifth epoch"
    assert [row[0] for row in shop.listed()] == list(range(1, 10))
    assert sink.position().point == shop.publication(9).point
    history = DeltaTable(str(shop.table)).history()
    assert len(history) == 1 + 9 + 1


def test_who_merges_while_others_write_leaves_it_for_the_next_time(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path, options={"compact": "2"})
    claimed(shop).publish(shop.publication(1, rows((1, MONDAY, "a"))))
    commits = 0

    def second_commit(call: str) -> None:
        nonlocal commits
        commits += call == "commit"
        if call == "commit" and commits == 2:
            write_deltalake(str(shop.table), rows((100, None, "theirs")), mode="append")

    shop.open(second_commit).publish(shop.publication(2, rows((2, MONDAY, "b"))))
    assert commits == 2
    assert [row[0] for row in shop.listed()] == [1, 100, 2]
