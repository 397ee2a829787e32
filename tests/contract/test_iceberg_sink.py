"""What the Iceberg sink promises beyond the contract of all sinks; on this disk unless said so."""

from __future__ import annotations

import datetime as dt
import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestamptzType
from sqlalchemy import text

from lamina.connectors.iceberg import copies as iceberg_copies
from lamina.connectors.iceberg import data as iceberg_data
from lamina.connectors.iceberg.catalog import TableCatalog
from lamina.connectors.iceberg.columns import table_schema
from lamina.connectors.iceberg.sink import IcebergSink, Layout
from lamina.connectors.keyed import WriteMode, Writing
from lamina.engine.ports import CHANGE, Change, Publication
from lamina.engine.ports import Output as StreamOutput
from lamina.errors import (
    Corrupt,
    Fenced,
    NotFound,
    Refused,
    StoreFull,
    StoreUnavailable,
)
from lamina.format.commit import Point
from lamina.workspace.model import Staged
from lamina.workspace.staging import HomeStaged
from tests.contract.iceberg_worlds import TABLE, local_address
from tests.contract.sinks import PIPELINE, Hook, nothing
from tests.support.syncs import record_syncs

WORDS = pa.schema([("id", pa.int64()), ("word", pa.string())])


@dataclass
class Shop:
    """A table in a folder, its sinks, and a catalog as other programs have it."""

    folder: Path

    def sink(
        self,
        columns: pa.Schema,
        *,
        keys: tuple[str, ...] = (),
        change: Change | None = None,
        hook: Hook = nothing,
        table: tuple[str, ...] = TABLE,
        name: str = "out",
        **layout: Any,
    ) -> IcebergSink:
        default = Change.UPSERT if keys else Change.APPEND
        return IcebergSink(
            name,
            TableCatalog(local_address(self.folder / "warehouse", table), hook),
            output=StreamOutput(columns, change or default, keys),
            writing=Writing(WriteMode.UPSERT, keys) if keys else Writing(WriteMode.APPEND),
            layout=Layout(**layout),
        )

    def claimed(self, columns: pa.Schema, **given: Any) -> IcebergSink:
        sink = self.sink(columns, **given)
        sink.fence(1, PIPELINE)
        return sink

    def publication(
        self, epoch: int, *tables: pa.Table, generation: int = 1, columns: pa.Schema | None = None
    ) -> Publication:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        files = []
        for number, table in enumerate(tables):
            path = home / f"{epoch}-{number}-{generation}.parquet"
            pq.write_table(table, path)
            data = path.read_bytes()
            sha256 = hashlib.sha256(data).hexdigest()
            files.append(Staged(path.name, len(data), sha256, table.num_rows))
        schema = columns or (tables[0].schema if tables else WORDS)
        if CHANGE in schema.names:
            schema = schema.remove(schema.get_field_index(CHANGE))
        output = StreamOutput(schema)
        point = Point(epoch, f"{epoch:064x}")
        return Publication(PIPELINE, generation, point, files, HomeStaged(home), output)

    @property
    def catalog(self) -> SqlCatalog:
        address = local_address(self.folder / "warehouse")
        return SqlCatalog(address.catalog, **address.properties)

    def table(self, name: tuple[str, ...] = TABLE) -> Any:
        with self.catalog as catalog:
            return catalog.load_table(name)

    def rows(self, name: tuple[str, ...] = TABLE) -> pa.Table:
        return self.table(name).scan().to_arrow()

    def files(self, name: tuple[str, ...] = TABLE) -> list[str]:
        return sorted(task.file.file_path for task in self.table(name).scan().plan_files())

    def on_disk(self) -> set[str]:
        folder = self.folder / "warehouse"
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def words(*rows: tuple[Any, ...], names: Sequence[str] = ("id", "word")) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [(), ()]
    types = {"id": pa.int64(), "word": pa.string(), "part": pa.string(), CHANGE: pa.string()}
    return pa.table({n: pa.array(c, types[n]) for n, c in zip(names, columns, strict=True)})


def changes(*rows: tuple[Any, ...]) -> pa.Table:
    return words(*rows, names=("id", "word", CHANGE))


def listed(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows.to_pylist())


# types

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, None]),
    "byte": (pa.int8(), [-128, 127, None]),
    "short": (pa.int16(), [-(2**15), 2**15 - 1, None]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "float": (pa.float32(), [float("inf"), -0.5, None]),
    "double": (pa.float64(), [float("-inf"), 0.1, None]),
    "dec9": (pa.decimal128(9, 2), [Decimal("1234567.89"), Decimal("-0.01"), None]),
    "dec18": (pa.decimal128(18, 6), [Decimal("123456789012.345678"), Decimal("-1.5"), None]),
    "dec38": (
        pa.decimal128(38, 10),
        [Decimal("-1234567890123456789012345678.0123456789")] * 2 + [None],
    ),
    "string": (pa.string(), ["", "ä'\"\\\n☃", None]),
    "binary": (pa.binary(), [b"", b"\x00\xff", None]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "time": (
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC),
            dt.datetime(2262, 5, 1, tzinfo=dt.UTC),
            None,
        ],
    ),
    "local": (pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23), None]),  # noqa: DTZ001
    "list": (pa.list_(pa.int32()), [[1, None], [], None]),
    "map": (pa.map_(pa.string(), pa.float64()), [[("a", 1.5), ("b", None)], [], None]),
    "structs": (pa.list_(pa.struct([("z", pa.string())])), [None, [], [{"z": "q"}, None]]),
    "struct": (
        pa.struct([("x", pa.int64()), ("y", pa.list_(pa.struct([("z", pa.string())])))]),
        [{"x": 1, "y": [{"z": "q"}, {"z": None}]}, {"x": None, "y": None}, None],
    ),
}


@pytest.mark.parametrize("names", [list(TYPES), [n for n in TYPES if n not in ("byte", "short")]])
def test_values_of_every_type_come_back_exactly(shop: Shop, names: list[str]) -> None:
    """By pyarrow and by pyiceberg, which reads NULL lists of structs as empty (0.12.0).

    Narrow integers are written again.
    """
    rows = pa.table({name: pa.array(TYPES[name][1], TYPES[name][0]) for name in names})
    shop.claimed(rows.schema).publish(shop.publication(1, rows))
    flat = [name for name in names if name not in ("structs", "struct")]
    assert shop.rows().select(flat).to_pylist() == rows.select(flat).to_pylist()
    plain = ds.dataset(shop.files()[0].removeprefix("file://"), format="parquet").to_table()
    assert plain.to_pylist() == rows.to_pylist()
    staged = (shop.folder / "home" / "1-0-1.parquet").read_bytes()
    data = Path(shop.files()[0].removeprefix("file://")).read_bytes()
    assert (data[:100] == staged[:100]) == ("byte" not in names), "copied, or written again"


@pytest.mark.parametrize("names", [list(TYPES), [n for n in TYPES if n not in ("byte", "short")]])
def test_every_column_of_every_file_has_the_id_of_the_table(shop: Shop, names: list[str]) -> None:
    """Readers that know no names go by position without them, and nested columns are NULL."""
    rows = pa.table({name: pa.array(TYPES[name][1], TYPES[name][0]) for name in names})
    made(shop, *reversed(table_schema(rows.schema, "").fields))
    shop.claimed(rows.schema).publish(shop.publication(1, rows))
    file = pq.ParquetFile(shop.files()[0].removeprefix("file://"))
    found = pyarrow_to_schema(file.schema_arrow)
    ids = {found.find_column_name(i): i for i in found.field_ids}
    schema = shop.table().schema()
    assert ids == {schema.find_column_name(i): i for i in schema.field_ids}
    assert file.read().to_pylist() == rows.select(file.schema_arrow.names).to_pylist()


@pytest.mark.parametrize(
    "name", ["int", "long", "dec9", "dec18", "dec38", "string", "date", "time"]
)
def test_readers_find_rows_by_the_bounds_of_files(shop: Shop, name: str) -> None:
    kind, values = TYPES[name]
    rows = pa.table({"v": pa.array(values[:1], kind)})
    sink = shop.claimed(rows.schema)
    sink.publish(shop.publication(1, rows))
    sink.publish(shop.publication(2, pa.table({"v": pa.array(values[1:], kind)})))
    from pyiceberg.expressions import EqualTo  # noqa: PLC0415

    assert shop.table().scan(row_filter=EqualTo("v", values[0])).count() == values.count(values[0])


@pytest.mark.parametrize(
    "kind",
    [
        pa.duration("us"),
        pa.null(),
        pa.month_day_nano_interval(),
        pa.time64("ns"),
        pa.decimal256(50, 2),
    ],
    ids=str,
)
def test_a_type_that_iceberg_lacks_is_refused_before_anything_is_made(
    shop: Shop, kind: pa.DataType
) -> None:
    columns = pa.schema([("id", pa.int64()), ("odd", pa.struct([("x", kind)]))])
    with pytest.raises(Refused, match=r"'odd'.*CAST"):
        shop.sink(columns).position()
    assert not (shop.folder / "warehouse").exists()


def test_asking_where_it_stands_makes_nothing(shop: Shop) -> None:
    assert shop.sink(WORDS).position().point is None
    assert not (shop.folder / "warehouse").exists()
    (shop.folder / "warehouse").mkdir()
    (shop.folder / "warehouse" / "catalog.db").touch()
    assert shop.sink(WORDS).position().point is None
    assert shop.on_disk() == {"catalog.db"}
    assert (shop.folder / "warehouse" / "catalog.db").stat().st_size == 0


# columns that do not fit


def made(shop: Shop, *fields: NestedField, spec: PartitionSpec | None = None) -> None:
    """A table of somebody else."""
    (shop.folder / "warehouse").mkdir(exist_ok=True)
    with shop.catalog as catalog:
        catalog.create_tables()
        catalog.create_namespace("shop")
        catalog.create_table(TABLE, Schema(*fields), partition_spec=spec or PartitionSpec())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([NestedField(1, "id", LongType())], "no column 'word'.*merge_schema"),
        (
            [NestedField(1, "id", IntegerType()), NestedField(2, "word", StringType())],
            "'id' is long in the stream and int in the table.*CAST",
        ),
        (
            [NestedField(1, "ID", LongType()), NestedField(2, "word", StringType())],
            "'id' and the table has 'ID'",
        ),
        (
            [NestedField(1, "id", LongType(), required=True), NestedField(2, "word", StringType())],
            "'id' must not be NULL",
        ),
        (
            [
                NestedField(1, "id", LongType()),
                NestedField(2, "word", StringType()),
                NestedField(3, "more", StringType(), required=True),
            ],
            "'more' must not be NULL, and is not in the stream",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_anything_is_claimed(
    shop: Shop, fields: list[NestedField], said: str
) -> None:
    made(shop, *fields)
    before = shop.on_disk()
    with pytest.raises(Refused, match=said):
        shop.sink(WORDS).position()
    with pytest.raises(Refused, match=said):
        shop.sink(WORDS).fence(1, PIPELINE)
    assert shop.on_disk() == before


def test_a_wider_table_takes_the_rows_of_a_narrower_stream(shop: Shop) -> None:
    made(
        shop,
        NestedField(1, "word", StringType()),
        NestedField(2, "id", LongType()),
        NestedField(3, "theirs", StringType()),
    )
    columns = pa.schema([("id", pa.int16()), ("word", pa.string())])
    rows = pa.table([[1, -2], ["a", None]], schema=columns)
    shop.claimed(columns).publish(shop.publication(1, rows))
    assert shop.rows().select(["id", "word", "theirs"]).to_pylist() == [
        {"id": 1, "word": "a", "theirs": None},
        {"id": -2, "word": None, "theirs": None},
    ]


def test_columns_are_added_with_the_flag(shop: Shop) -> None:
    sink = shop.claimed(WORDS)
    sink.publish(shop.publication(1, words((1, "a"))))
    more = WORDS.append(pa.field("s", pa.struct([("x", pa.list_(pa.int32()))])))
    with pytest.raises(Refused, match=r"'s'.*merge_schema"):
        shop.sink(more).position()
    sink = shop.sink(more, merge_schema=True)
    assert sink.position().point == Point(1, f"{1:064x}"), "asking does not add them"
    assert "s" not in shop.rows().column_names
    sink.fence(2, PIPELINE)
    rows = pa.table([[2], ["b"], [{"x": [1, 2]}]], schema=more)
    sink.publish(shop.publication(2, rows, generation=2))
    assert shop.rows().sort_by("id").to_pylist() == [
        {"id": 1, "word": "a", "s": None},
        {"id": 2, "word": "b", "s": {"x": [1, 2]}},
    ]


def test_a_column_that_was_dropped_meanwhile_stops_it(shop: Shop) -> None:
    sink = shop.claimed(WORDS)
    with shop.table().update_schema() as update:
        update.delete_column("word")
    with pytest.raises(Refused, match="no column 'word'"):
        sink.publish(shop.publication(1, words((1, "a"))))
    assert sink._catalog.load() is not None
    assert shop.rows().num_rows == 0


def test_a_table_that_was_dropped_meanwhile_stops_it(shop: Shop) -> None:
    sink = shop.claimed(WORDS)
    with shop.catalog as catalog:
        catalog.drop_table(TABLE)
    with pytest.raises(NotFound, match="gone"):
        sink.publish(shop.publication(1, words((1, "a"))))


def test_names_that_readers_have_for_columns_may_change(shop: Shop) -> None:
    """A mapping that somebody else keeps does not know the stream's names: files have ids."""
    sink = shop.claimed(WORDS)
    with shop.table().transaction() as transaction:
        mapping = '[{"field-id": 1, "names": ["other"]}]'
        transaction.set_properties({"schema.name-mapping.default": mapping})
    sink.publish(shop.publication(1, words((1, "a"))))
    assert listed(shop.rows()) == [(1, "a")]


# partitions


def test_each_partition_gets_its_own_files(shop: Shop) -> None:
    columns = ("id", "part")
    rows = words((1, "a/b"), (2, "x"), (3, None), (4, "x"), names=columns)
    sink = shop.claimed(rows.schema, partition_by=("part",))
    sink.publish(shop.publication(1, rows.slice(0, 2), rows.slice(2)))
    assert listed(shop.rows().filter(ds.field("part") == "x")) == [(2, "x"), (4, "x")]
    assert sorted(shop.rows()["id"].to_pylist()) == [1, 2, 3, 4]
    partitions = [task.file.partition[0] for task in shop.table().scan().plan_files()]
    assert sorted(map(str, partitions)) == ["None", "a/b", "x"]


def test_a_table_keeps_the_partitions_that_it_has(shop: Shop) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, DayTransform(), "day"))
    made(shop, NestedField(1, "at", TimestamptzType()), spec=spec)
    columns = pa.schema([("at", pa.timestamp("us", "UTC"))])
    with pytest.raises(Refused, match="Leave out partition_by"):
        shop.sink(columns, partition_by=("at",)).position()
    days = [dt.datetime(2026, 1, day, 5, tzinfo=dt.UTC) for day in (1, 2, 2)]
    shop.claimed(columns).publish(shop.publication(1, pa.table([days], schema=columns)))
    assert sorted(shop.rows()["at"].to_pylist()) == days
    assert len(shop.files()) == 2


def test_partitions_by_what_is_not_there_or_has_parts_are_refused(shop: Shop) -> None:
    types = {"list": pa.list_(pa.int64()), "float": pa.float64()}
    columns = pa.schema(types)
    for name in ("nothing", *types):
        with pytest.raises(Refused, match=f"partitioned by '{name}'"):
            shop.sink(columns, partition_by=(name,)).position()
    assert not (shop.folder / "warehouse").exists()


# by key


def test_a_row_replaces_the_one_with_its_key_and_a_delete_removes_it(shop: Shop) -> None:
    sink = shop.claimed(WORDS, keys=("id",), change=Change.CHANGES)
    sink.publish(shop.publication(1, changes((1, "a", "+I"), (2, "b", "+I"), (None, "n", "+I"))))
    sink.publish(
        shop.publication(
            2,
            changes((2, "b", "-U"), (2, "B", "+U"), (3, "c", "-D"), (None, "N", "+U")),
            changes((1, "a", "-U"), (None, "n", "-U")),
        )
    )
    assert sorted(shop.rows().to_pydict()["word"]) == ["B", "N"]
    before = len(shop.table().metadata.metadata_log)
    sink.publish(shop.publication(3, changes((2, "B", "-D"), (9, "never there", "-D"))))
    assert shop.rows().to_pydict() == {"id": [None], "word": ["N"]}
    assert len(shop.table().metadata.metadata_log) == before + 1, "one commit"
    sink.publish(shop.publication(4, changes((9, "never there", "-D"))))
    assert sink.position().point == Point(4, f"{4:064x}")


def test_an_upsert_is_one_snapshot(shop: Shop) -> None:
    """A reader that goes from snapshot to snapshot never sees a table without the replaced rows."""
    sink = shop.claimed(WORDS, keys=("id",))
    sink.publish(shop.publication(1, words((1, "a"), (2, "b"))))
    before = len(shop.table().metadata.snapshots)
    sink.publish(shop.publication(2, words((1, "A"), (3, "c"))))
    assert len(shop.table().metadata.snapshots) == before + 1
    assert listed(shop.rows()) == [(1, "A"), (2, "b"), (3, "c")]


@pytest.mark.parametrize("partition_by", [(), ("part",)])
def test_many_keys_of_two_columns_end_as_in_a_dictionary(
    shop: Shop, partition_by: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_data, "POOL_BYTES_MAX", 20_000)
    columns = pa.schema([("id", pa.int64()), ("part", pa.string()), ("word", pa.string())])
    sink = shop.claimed(
        columns, keys=("id", "part"), change=Change.CHANGES, partition_by=partition_by
    )
    random_number, wanted = random.Random(7), dict[tuple[Any, Any], str]()
    for epoch in range(1, 7):
        rows = []
        keys = [(number, part) for number in range(2000) for part in ("x", "y", None)]
        for number, key in enumerate(random_number.sample(keys, 1000)):
            gone = random_number.random() < 0.2
            rows.append((*key, f"{epoch}-{number}", "-D" if gone else "+U"))
            if gone:
                wanted.pop(key, None)
            else:
                wanted[key] = f"{epoch}-{number}"
        table = words(*rows, names=("id", "part", "word", CHANGE))
        sink.publish(shop.publication(epoch, table.slice(0, 400), table.slice(400)))
    found = shop.rows().to_pylist()
    assert {(row["id"], row["part"]): row["word"] for row in found} == wanted
    assert len(found) == len(wanted)


def test_files_without_a_key_of_the_epoch_stay_as_they_are(shop: Shop) -> None:
    sink = shop.claimed(WORDS, keys=("id",))
    for epoch in range(1, 4):
        rows = [(epoch * 10_000 + number, "w") for number in range(500)]
        sink.publish(shop.publication(epoch, words(*rows)))
    before = shop.files()
    sink.publish(shop.publication(4, words(*((20_000 + number, "W") for number in range(300)))))
    assert len(set(before) & set(shop.files())) == 2
    assert shop.rows().num_rows == 1500
    assert shop.rows()["word"].to_pylist().count("W") == 300


@pytest.mark.parametrize(
    "kind", ["bool", "int", "double", "dec9", "string", "binary", "date", "time", "local"]
)
def test_keys_of_every_type_are_found(shop: Shop, kind: str) -> None:
    columns = pa.schema([("k", TYPES[kind][0]), ("n", pa.int64())])
    sink = shop.claimed(columns, keys=("k",))
    values = TYPES[kind][1]
    for epoch in (1, 2):
        rows = pa.table([values, [epoch] * 3], schema=columns)
        sink.publish(shop.publication(epoch, rows))
    assert shop.rows().to_pydict()["n"] == [2, 2, 2]


def test_rows_that_could_not_be_read_and_written_again_are_not_replaced(shop: Shop) -> None:
    columns = pa.schema([("k", pa.int64()), ("s", TYPES["structs"][0])])
    with pytest.raises(Refused, match="lists or maps of structs"):
        shop.sink(columns, keys=("k",)).position()


def test_keys_with_parts_are_refused(shop: Shop) -> None:
    columns = pa.schema([("k", pa.struct([("x", pa.int64())])), ("n", pa.int64())])
    with pytest.raises(Refused, match="the key 'k'"):
        shop.sink(columns, keys=("k",)).position()


# others beside us


@dataclass
class At:
    """Does something once, before the nth call of a name."""

    name: str
    act: Any
    times: int = 1

    def __call__(self, call: str) -> None:
        if call == self.name and self.times:
            self.times -= 1
            self.act()


def append_beside(shop: Shop, row: tuple[Any, ...]) -> None:
    shop.table().append(words(row))


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_others_may_append_at_any_time(shop: Shop, keys: tuple[str, ...]) -> None:
    shop.claimed(WORDS, keys=keys).publish(shop.publication(1, words((1, "a"))))
    hook = At("commit", lambda: append_beside(shop, (7, "theirs")), times=2)
    sink = shop.sink(WORDS, keys=keys, hook=hook)
    sink.publish(shop.publication(2, words((2, "b"))))
    assert listed(shop.rows()) == [(1, "a"), (2, "b"), (7, "theirs"), (7, "theirs")]
    assert sink.position().point == Point(2, f"{2:064x}")
    named = {path.removeprefix(f"file://{shop.folder / 'warehouse'}/") for path in shop.files()}
    data = {path for path in shop.on_disk() if path.endswith(".parquet")}
    assert data == named, "what was written for commits that were refused is gone"


def test_too_many_others_are_waited_for(shop: Shop) -> None:
    shop.claimed(WORDS)
    sink = shop.sink(WORDS, hook=At("commit", lambda: append_beside(shop, (7, "t")), times=99))
    with pytest.raises(StoreUnavailable, match="other writers"):
        sink.publish(shop.publication(1, words((1, "a"))))


def test_a_process_that_was_replaced_while_it_wrote_commits_nothing(shop: Shop) -> None:
    """pyiceberg's own tries would put its rows on top of the new claim, and of the new rows."""
    shop.claimed(WORDS)

    def take_over() -> None:
        new = shop.sink(WORDS)
        new.fence(2, PIPELINE)

    old = shop.sink(WORDS, hook=At("commit", take_over))
    with pytest.raises(Fenced):
        old.publish(shop.publication(1, words((1, "a"))))
    assert shop.rows().num_rows == 0
    assert shop.sink(WORDS).position().generation == 2


def test_a_claim_stops_an_epoch_without_rows_too(shop: Shop) -> None:
    shop.claimed(WORDS)
    old = shop.sink(WORDS, hook=At("commit", lambda: shop.sink(WORDS).fence(2, PIPELINE)))
    with pytest.raises(Fenced):
        old.publish(shop.publication(1, columns=WORDS))
    assert shop.sink(WORDS).position().generation == 2


def test_two_sinks_cannot_share_a_table(shop: Shop) -> None:
    shop.claimed(WORDS)
    other = shop.sink(WORDS, name="other")
    with pytest.raises(Refused, match="belongs to the sink 'out'"):
        other.fence(1, PIPELINE)
    with pytest.raises(Refused, match="belongs to the sink 'out'"):
        other.publish(shop.publication(1, words((1, "a"))))


def test_the_mark_survives_the_expiry_of_snapshots_and_commits_of_others(shop: Shop) -> None:
    sink = shop.claimed(WORDS)
    for epoch in (1, 2):
        sink.publish(shop.publication(epoch, words((epoch, "a"))))
    append_beside(shop, (7, "theirs"))
    table = shop.table()
    ids = [s.snapshot_id for s in table.snapshots() if s != table.current_snapshot()]
    table.maintenance.expire_snapshots().by_ids(ids).commit()
    assert len(shop.table().snapshots()) == 1
    assert sink.position().point == Point(2, f"{2:064x}")
    sink.publish(shop.publication(2, words((2, "a"))))
    sink.publish(shop.publication(3, words((3, "a"))))
    assert listed(shop.rows()) == [(1, "a"), (2, "a"), (3, "a"), (7, "theirs")]


def test_the_mark_is_in_the_properties_and_in_the_snapshot(shop: Shop) -> None:
    shop.claimed(WORDS).publish(shop.publication(1, words((1, "a"))))
    wanted = {
        "lamina.pipeline-id": PIPELINE.id,
        "lamina.pipeline": "p",
        "lamina.sink": "out",
        "lamina.generation": "1",
        "lamina.epoch": "1",
        "lamina.digest": f"{1:064x}",
    }
    table = shop.table()
    assert {k: v for k, v in table.properties.items() if k.startswith("lamina.")} == wanted
    assert wanted.items() <= table.current_snapshot().summary.additional_properties.items()
    assert "commit.retry.num-retries" not in table.properties


def test_a_mark_that_somebody_has_changed_is_not_guessed_at(shop: Shop) -> None:
    sink = shop.claimed(WORDS)
    with shop.table().transaction() as transaction:
        transaction.set_properties({"lamina.generation": "many"})
    with pytest.raises(Corrupt, match=r"lamina\.generation"):
        sink.position()


# answers that are lost, disks that are full


def test_a_commit_that_was_done_though_the_answer_was_a_failure_is_done(shop: Shop) -> None:
    def lost() -> None:
        raise ConnectionResetError(104, "reset")

    shop.claimed(WORDS)
    sink = shop.sink(WORDS, hook=At("commit done", lost))
    sink.publish(shop.publication(1, words((1, "a"))))
    assert listed(shop.rows()) == [(1, "a")]


def test_nothing_is_left_of_an_epoch_that_could_not_be_written(shop: Shop) -> None:
    shop.claimed(WORDS)
    before = shop.on_disk()

    @dataclass
    class Full:
        left: int

        def __call__(self, call: str) -> None:
            if call.startswith("write"):
                self.left -= 1
                if self.left < 0:
                    raise OSError(28, "no space left")

    for left in range(3):
        sink = shop.sink(WORDS, hook=Full(left))
        with pytest.raises(StoreFull):
            sink.publish(shop.publication(1, words((1, "a")), words((2, "b"))))
        assert shop.on_disk() == before


def test_a_damaged_file_is_not_copied(shop: Shop) -> None:
    sink = shop.claimed(WORDS)
    publication = shop.publication(1, words((1, "a")))
    path = shop.folder / "home" / publication.files[0].path
    data = path.read_bytes()
    path.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
    before = shop.on_disk()
    with pytest.raises(Corrupt):
        sink.publish(publication)
    assert shop.on_disk() == before


def test_small_files_of_an_epoch_become_one_and_large_ones_stay(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = shop.claimed(WORDS)
    sink.publish(shop.publication(1, *(words((n, "a")) for n in range(8))))
    assert len(shop.files()) == 1
    monkeypatch.setattr(iceberg_copies, "SMALL_FILE_BYTES", 100)
    sink.publish(shop.publication(2, *(words((n, "b")) for n in range(8))))
    assert len(shop.files()) == 9
    assert shop.rows().num_rows == 16


def test_what_is_published_is_on_disk(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data files, manifests, metadata and all their folders; SQLite syncs its own file."""
    syncs = record_syncs(monkeypatch)

    def lost() -> list[str]:
        found = syncs.lost(shop.folder / "warehouse")
        return [each for each in found if not each.endswith("catalog.db")]

    sink, upserts = shop.claimed(WORDS), shop.sink(WORDS, keys=("id",))
    sink.publish(shop.publication(1, words((1, "a")), words((2, "b"))))  # written again
    assert lost() == []
    sink.publish(shop.publication(2, words((3, "c"))))
    assert lost() == [], "a copy"
    upserts.publish(shop.publication(3, words((2, "B"))))
    assert lost() == []
    catalog = upserts._catalog._opened
    assert isinstance(catalog, SqlCatalog)
    with catalog.engine.connect() as connection:
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 3, "EXTRA"


# names, size


@pytest.mark.parametrize(
    "name", ["with space", "Ünï-☃", "quo\"te's", "a.b", "SELECT", "x" * 100, "%2e", "a=b&c"]
)
def test_odd_names(shop: Shop, name: str) -> None:
    table = ("name space", name)
    columns = pa.schema([(name, pa.int64()), (f"{name} 2", pa.string())])
    sink = shop.sink(columns, table=table, keys=(name,), partition_by=(f"{name} 2",))
    sink.fence(1, PIPELINE)
    for epoch in (1, 2):
        rows = pa.table([[1, epoch + 1], ["a/b", name]], schema=columns)
        sink.publish(shop.publication(epoch, rows))
    assert listed(shop.rows(table)) == [(1, "a/b"), (2, name), (3, name)]


@pytest.mark.parametrize("name", ["a.b", "with space", 'quo"te'])
def test_odd_names_of_columns_in_files_that_are_copied(shop: Shop, name: str) -> None:
    columns = pa.schema([(name, pa.int64()), ("other", pa.struct([("b", pa.int64())]))])
    rows = pa.table([[1], [{"b": 2}]], schema=columns)
    shop.claimed(columns).publish(shop.publication(1, rows))
    assert shop.rows().to_pylist() == [{name: 1, "other": {"b": 2}}]


def test_a_hundred_thousand_rows(shop: Shop) -> None:
    columns = pa.schema([("id", pa.int64()), ("word", pa.string())])
    sink = shop.claimed(columns, keys=("id",))
    first = pa.table([range(100_000), ["a"] * 100_000], schema=columns)
    sink.publish(shop.publication(1, first.slice(0, 30_000), first.slice(30_000)))
    second = pa.table([range(50_000, 150_000, 2), ["b"] * 50_000], schema=columns)
    sink.publish(shop.publication(2, second))
    found = shop.rows().sort_by("id")
    assert found["id"].to_pylist() == [*range(100_000), *range(100_000, 150_000, 2)]
    assert found["word"].to_pylist().count("b") == 50_000


def test_a_table_of_many_epochs_has_few_manifests(shop: Shop) -> None:
    sink = shop.claimed(WORDS)
    for epoch in range(1, 106):
        sink.publish(shop.publication(epoch, words((epoch, "a"))))
    table = shop.table()
    assert len(table.current_snapshot().manifests(table.io)) < 20
    assert shop.rows().num_rows == 105
    metadata = [path for path in shop.on_disk() if path.endswith(".metadata.json")]
    assert len(metadata) <= 101, "old ones are deleted"


def test_another_output_of_the_stream_is_seen_by_the_publication(shop: Shop) -> None:
    """A sink that was opened to be asked only says where it stands, whatever the columns are."""
    shop.claimed(WORDS).publish(shop.publication(1, words((1, "a"))))
    asked = IcebergSink("out", TableCatalog(local_address(shop.folder / "warehouse")))
    assert asked.position().point == Point(1, f"{1:064x}")
    assert replace(asked.position(), generation=0).pipeline == PIPELINE
