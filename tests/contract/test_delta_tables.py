"""Tables that are there already: what fits, what is added, and what is refused before any claim."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from lamina.connectors.opening import check_sink
from lamina.engine.ports import Change
from lamina.errors import BadPipeline, Corrupt, LaminaError, NotFound, Refused, Unsupported
from lamina.pipeline.model import DeclaredSink, Option
from tests.contract.sinks import PIPELINE
from tests.contract.test_delta_sink import MONDAY, claimed
from tests.support.delta_tables import ROW, DeltaShop, rows


def made(shop: DeltaShop, schema: pa.Schema, **more: object) -> None:
    DeltaTable.create(str(shop.table), schema, raise_if_key_not_exists=False, **more)  # type: ignore[arg-type]


def refused(shop: DeltaShop, kind: type[LaminaError], message: str, **options: str) -> LaminaError:
    """By position already, and by fence; the table has not changed."""
    before = shop.versions()
    for ask in (
        lambda: shop.open(**options).position(),
        lambda: shop.open(**options).fence(1, PIPELINE),
    ):
        with pytest.raises(kind, match=message) as raised:
            ask()
        assert raised.value.where == str(shop.table)
        assert raised.value.advice
    assert shop.versions() == before
    return raised.value


def test_a_table_of_others_is_claimed_and_their_rows_stay(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    write_deltalake(str(shop.table), rows((0, None, "theirs")))
    sink = claimed(shop)
    sink.publish(shop.publication(1, rows((1, MONDAY, "a"))))
    assert shop.listed() == [(0, None, "theirs"), (1, MONDAY, "a")]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("k", pa.int64()), ("v", pa.string())]), "no column 'day'"),
        (pa.schema([("k", pa.int32()), *list(ROW)[1:]]), "'k' is int32 in the table, and int64"),
        (pa.schema([("K", pa.int64()), *list(ROW)[1:]]), "has 'K', and the stream 'k'"),
        (ROW.append(pa.field("must", pa.int64(), nullable=False)), "'must' is NOT NULL"),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    tmp_path: Path, schema: pa.Schema, message: str
) -> None:
    shop = DeltaShop(tmp_path)
    made(shop, schema)
    refused(shop, Refused, message)


def test_missing_columns_are_added_if_that_is_wanted(tmp_path: Path) -> None:
    """Before them rows are null there; a time without a zone needs a feature of the table."""
    wide = ROW.append(pa.field("at", pa.timestamp("us"))).append(pa.field("n", pa.int64()))
    narrow = DeltaShop(tmp_path)
    claimed(narrow).publish(narrow.publication(1, rows((1, MONDAY, "a"))))
    shop = DeltaShop(tmp_path, wide)
    refused(shop, Refused, "no column 'at'")
    sink = shop.open(merge_schema="true")
    assert sink.fence(2, PIPELINE).point == narrow.publication(1).point
    given = rows((2, MONDAY, "b", None, 7), schema=wide)
    sink.publish(shop.publication(2, given, generation=2))
    assert shop.listed() == [(1, MONDAY, "a", None, None), (2, MONDAY, "b", None, 7)]


def test_a_column_that_vanished_is_missed_though_columns_may_be_added(tmp_path: Path) -> None:
    """A new start adds it again; in the middle of a run its values would be lost in silence."""
    shop = DeltaShop(tmp_path, options={"merge_schema": "true"})
    sink = claimed(shop)
    sink.publish(shop.publication(1, rows((1, MONDAY, "a"))))
    theirs = pa.table({"k": pa.array([9], pa.int64())})
    write_deltalake(str(shop.table), theirs, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(Refused, match="lost the column 'day', 'v'"):
        sink.publish(shop.publication(2, rows((2, MONDAY, "b"))))
    assert shop.listed() == [(9,)]
    again = shop.open()
    again.fence(2, PIPELINE)
    again.publish(shop.publication(2, rows((2, MONDAY, "b")), generation=2))
    assert shop.listed() == [(2, MONDAY, "b"), (9, None, None)]


def test_columns_that_the_stream_lacks_are_null_and_kept_by_upserts(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path, options={"keys": "k"})
    theirs = pa.table({"k": [1, 2], "extra": ["x", "y"]})
    made(shop, ROW.append(pa.field("extra", pa.string())))
    write_deltalake(str(shop.table), theirs, mode="append", schema_mode="merge")
    claimed(shop).publish(shop.publication(1, rows((1, MONDAY, "a"))))
    assert shop.listed() == [(1, MONDAY, "a", None), (2, None, None, "y")]
    append = DeltaShop(tmp_path, name="append")
    made(append, ROW.append(pa.field("extra", pa.string())))
    claimed(append).publish(append.publication(1, rows((1, MONDAY, "a"))))
    assert append.listed() == [(1, MONDAY, "a", None)]


@pytest.mark.parametrize("options", [{}, {"keys": "v"}, {"partition_by": "day"}])
def test_a_null_where_the_table_wants_none_is_refused_with_nothing_changed(
    tmp_path: Path, options: dict[str, str]
) -> None:
    shop = DeltaShop(tmp_path, options=options)
    required = pa.schema([pa.field("k", pa.int64(), nullable=False), *list(ROW)[1:]])
    partition_by = ["day"] if "partition_by" in options else None
    made(shop, required, partition_by=partition_by)
    sink = claimed(shop)
    with pytest.raises(Refused, match="NULL for 'k'"):
        sink.publish(shop.publication(1, rows((1, None, "a"), (None, None, "b"))))
    assert sink.position().point is None
    assert shop.listed() == []


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(pa.string()), ["x"]),
        (pa.map_(pa.string(), pa.int64()), [("x", 1)]),
        (pa.struct({"x": pa.string()}), {"x": None}),
    ],
)
@pytest.mark.parametrize("options", [{}, {"keys": "k"}])
def test_a_null_in_a_nested_column_that_is_not_null_is_refused(
    tmp_path: Path, kind: pa.DataType, value: object, options: dict[str, str]
) -> None:
    schema = pa.schema([("k", pa.int64()), ("t", kind)])
    shop = DeltaShop(tmp_path, schema, options=options)
    made(shop, pa.schema([("k", pa.int64()), pa.field("t", kind, nullable=False)]))
    sink = claimed(shop)
    with pytest.raises(Refused, match="NULL for 't'"):
        sink.publish(shop.publication(1, rows((1, value), (2, None), schema=schema)))
    assert shop.listed() == []
    sink.publish(shop.publication(1, rows((1, value), (2, value), schema=schema)))
    assert shop.listed() == [(1, value), (2, value)]


def test_the_partitions_of_a_table_are_its_own(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    made(shop, ROW, partition_by=["day"])
    refused(shop, Refused, "partitioned by day", partition_by="v")
    claimed(shop).publish(shop.publication(1, rows((1, MONDAY, "a"))))
    assert shop.listed() == [(1, MONDAY, "a")]


def test_a_table_partitioned_by_a_time_is_refused(tmp_path: Path) -> None:
    schema = ROW.append(pa.field("at", pa.timestamp("us", "UTC")))
    shop = DeltaShop(tmp_path, schema)
    made(shop, schema, partition_by=["at"])
    refused(shop, Refused, "partitioned by 'at'")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delta.setTransactionRetentionDuration": "interval 1 days"}, "setTransactionRetention"),
        ({"delta.constraints.positive": "k > 0"}, "delta.constraints.positive"),
        ({"delta.columnMapping.mode": "name"}, "columnMapping"),
    ],
)
def test_what_would_lose_the_mark_or_is_not_done_is_refused(
    tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    shop = DeltaShop(tmp_path)
    made(shop, ROW)
    _with_settings(shop, settings)
    refused(shop, Unsupported, message)


def test_features_that_are_not_known_are_refused(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    made(shop, ROW, configuration={"delta.enableDeletionVectors": "true"})
    refused(shop, Unsupported, "deletionVectors")


@pytest.mark.parametrize("name", ["delta.appendOnly", "delta.enableChangeDataFeed"])
def test_rows_are_not_replaced_where_the_table_forbids_it(tmp_path: Path, name: str) -> None:
    shop = DeltaShop(tmp_path)
    made(shop, ROW, configuration={name: "true"})
    refused(shop, Refused, name, keys="k")
    claimed(shop).publish(shop.publication(1, rows((1, MONDAY, "a"))))
    assert shop.listed() == [(1, MONDAY, "a")]


def _with_settings(shop: DeltaShop, settings: dict[str, str]) -> None:
    """As another writer sets them: deltalake itself refuses some."""
    path = shop.table / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"] = settings
    path.write_text("\n".join(map(json.dumps, lines)))


# damage


def test_a_log_that_cannot_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    claimed(shop)
    (shop.table / "_delta_log" / f"{0:020d}.json").write_text('{"broken')
    with pytest.raises(LaminaError) as raised:
        shop.open().position()
    assert raised.value.where == str(shop.table)


def test_a_data_file_that_is_gone_stops_an_upsert(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path, options={"keys": "k"})
    sink = claimed(shop)
    sink.publish(shop.publication(1, rows((1, MONDAY, "a"))))
    (file,) = shop.table.glob("*.parquet")
    file.unlink()
    with pytest.raises((NotFound, Corrupt)):
        sink.publish(shop.publication(2, rows((1, MONDAY, "b"))))
    assert shop.open().position().point == shop.publication(1).point


def test_a_path_that_is_a_file_is_named(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    shop.table.write_text("not a table")
    with pytest.raises(LaminaError) as raised:
        shop.open().fence(1, PIPELINE)
    assert str(shop.table) in raised.value.where
    below = DeltaShop(tmp_path, name="table/below")
    with pytest.raises(LaminaError):
        below.open().position()


# what a stream can be


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.field("x", pa.duration("us")), "'x' of the type duration"),
        (pa.field("x", pa.month_day_nano_interval()), "month_day_nano_interval"),
        (pa.field("x", pa.time64("us")), "time64"),
        (pa.field("x", pa.null()), "null"),
        (pa.field("x", pa.list_(pa.time64("us"))), "time64"),
        (pa.field("a b", pa.int64()), "'a b': Delta does not allow spaces"),
        (pa.field("sum(x)", pa.int64()), r"sum\(x\)"),
    ],
)
def test_columns_that_no_delta_table_has_are_refused_when_the_sink_is_opened(
    tmp_path: Path, column: pa.Field, message: str
) -> None:
    with pytest.raises(BadPipeline, match=message):
        DeltaShop(tmp_path, ROW.append(column)).open()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition_by": "nope"}, "'nope', which is not a column"),
        ({"partition_by": "k, day, v"}, "all of its columns"),
        ({"keys": "nope"}, "'nope', which is not a column"),
        ({"mode": "upsert"}, "no key columns"),
        ({"mode": "merge"}, "mode"),
        ({"compact": "0"}, "compact"),
        ({"merge_schema": "maybe"}, "merge_schema"),
        ({"path": "a%20b"}, "%"),
        ({"endpoint": "http://127.0.0.1:1"}, "a folder of this machine"),
        ({"path": "s3://b/t", "access_key_id": "x"}, "half of the credentials"),
        ({"path": "hdfs://b/t"}, "hdfs"),
    ],
)
def test_options_that_cannot_be_are_refused(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(BadPipeline, match=message):
        DeltaShop(tmp_path).open(**options)


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.float64()])
def test_keys_that_cannot_be_compared_are_refused(tmp_path: Path, kind: pa.DataType) -> None:
    with pytest.raises(BadPipeline, match="has the key 'x'"):
        DeltaShop(tmp_path, ROW.append(pa.field("x", kind))).open(keys="x")
    with pytest.raises(BadPipeline, match="partitioned by 'x'"):
        DeltaShop(tmp_path, ROW.append(pa.field("x", kind))).open(partition_by="x")


def test_a_stream_that_deletes_is_not_appended(tmp_path: Path) -> None:
    with pytest.raises(BadPipeline, match="deletes"):
        DeltaShop(tmp_path, change=Change.CHANGES, keys=("k",)).open(mode="append")


def test_a_secret_in_plain_text_is_refused_and_not_repeated(tmp_path: Path) -> None:
    given = {"path": "s3://b/t", "access_key_id": "me", "secret_access_key": "hush"}
    options = {name: Option.plain(value) for name, value in given.items()}
    with pytest.raises(BadPipeline, match="plain text") as raised:
        check_sink(DeclaredSink("out", "s", "delta", options), tmp_path)
    assert "hush" not in str(raised.value)


def test_a_file_without_statistics_may_have_any_key(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path, options={"keys": "k"})
    sink = claimed(shop)
    pq.write_table(rows((1, MONDAY, "theirs"), (2, MONDAY, "theirs")), shop.table / "x.parquet")
    size = (shop.table / "x.parquet").stat().st_size
    table = DeltaTable(str(shop.table))
    table.create_write_transaction(
        [AddAction("x.parquet", size, {}, 0, True, "{}")], "append", table.schema()
    )
    sink.publish(shop.publication(1, rows((10, MONDAY, "a"))))
    sink.publish(shop.publication(2, rows((2, MONDAY, "b"))))
    assert shop.listed() == [(1, MONDAY, "theirs"), (10, MONDAY, "a"), (2, MONDAY, "b")]
