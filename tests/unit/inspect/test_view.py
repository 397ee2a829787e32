"""Views: any checkpoint, any epoch that the log reaches, and rows by their keys."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lamina
from lamina.checkpoint import Checkpointer, run_gc
from lamina.checkpoint.progress import Progress
from lamina.errors import Corrupt, DigestMismatch, NotFound, Refused, UsageError
from lamina.inspect import open_archive, open_view, parse_key
from lamina.state.schema import StateSchema
from lamina.store import open_store
from tests.support.command_line import tree
from tests.support.shop import FIRST, SECOND, Shop, make_shop, orders_of, rows

MONDAY = {("ada", FIRST): 1, ("bob", FIRST): 2, ("cleo", FIRST): 3}
AT_2 = {**MONDAY, ("bob", FIRST): 5, ("dora", FIRST): 1}
AT_3 = {key: value for key, value in AT_2.items() if key[0] != "cleo"}
AT_4 = {**AT_3, ("ada", SECOND): 7}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return make_shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture
def own_shop(tmp_path: Path) -> Shop:
    return make_shop(tmp_path / "shop")


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("monday", MONDAY),
        (1, MONDAY),
        ("1", MONDAY),
        (2, AT_2),
        ("2", AT_2),
        (3, AT_3),
        (None, AT_3),
        ("latest", AT_3),
        (4, AT_4),
        ("head", AT_4),
    ],
)
def test_every_epoch_has_its_rows(shop: Shop, at: Any, expected: dict[Any, int]) -> None:
    with open_view(shop.folder, at) as view:
        assert orders_of(view.to_arrow("totals")) == expected
        assert view.count("totals") == len(expected)


def test_state_is_found_in_any_case(shop: Shop) -> None:
    with open_view(shop.folder, "head") as view:
        assert view.info("TOTALS") == view.info("totals")
        assert orders_of(view.to_arrow("Totals")) == AT_4


def test_checkpoints_need_no_home_and_epochs_between_them_do(shop: Shop) -> None:
    with open_view(shop.store, "monday") as view:
        assert orders_of(view.to_arrow("totals")) == MONDAY
        assert lamina.CheckpointId.parse(str(view.checkpoint)) == view.checkpoint
    with open_view(f"file://{shop.store}", 2, home=shop.home) as view:
        assert orders_of(view.to_arrow("totals")) == AT_2
    for at in (2, "head"):
        with pytest.raises(NotFound, match="no home was given"):
            open_view(shop.store, at)


def test_looking_changes_nothing_and_leaves_nothing(shop: Shop) -> None:
    before = tree(shop.folder)
    with open_archive(shop.folder) as archive:
        for at in ("monday", 2, "head"):
            archive.view(at).to_arrow("totals")
    assert tree(shop.folder) == before


@pytest.mark.parametrize(("at", "why"), [(9, "the log has epochs 2 to 4"), ("tuesday", "tuesday")])
def test_what_is_not_there_is_said(shop: Shop, at: Any, why: str) -> None:
    with pytest.raises(NotFound, match=why):
        open_view(shop.folder, at)


def test_a_folder_beside_the_writer_is_looked_at_while_it_writes(own_shop: Shop) -> None:
    with lamina.open(own_shop.folder) as store:
        store.table("totals").write(rows(eve=1))
        store.commit()
        with open_view(own_shop.folder, "head") as view:
            assert view.epoch == 5
            assert orders_of(view.to_arrow("totals")) == {**AT_4, ("eve", FIRST): 1}


def test_an_epoch_that_was_rewound_from_can_still_be_seen(own_shop: Shop) -> None:
    with lamina.open(own_shop.folder, partitions=4) as store:
        store.rewind("monday")
        store.table("totals").write(rows(zoe=1))
        store.commit()
    with open_archive(own_shop.folder) as archive:
        assert orders_of(archive.view(4).to_arrow("totals")) == AT_4
        assert orders_of(archive.view(5).to_arrow("totals")) == MONDAY
        head = archive.view("head")
        assert orders_of(head.to_arrow("totals")) == {**MONDAY, ("zoe", FIRST): 1}
        assert (head.epoch, head.info("totals").partitions) == (6, 4)


def test_epochs_whose_log_was_dropped_cannot_be_reached(own_shop: Shop) -> None:
    with lamina.open(own_shop.folder, retain=1) as store:
        for count in range(5):
            store.table("totals").write(rows(eve=count))
            store.commit()
            store.checkpoint()
    checkpointer = Checkpointer(open_store(str(own_shop.store)))
    run_gc(checkpointer, retain=1)
    with pytest.raises(NotFound, match="epoch 4 cannot be reached"):
        open_view(own_shop.folder, 4)
    with open_view(own_shop.folder, "monday") as view:
        assert orders_of(view.to_arrow("totals")) == MONDAY


def test_another_home_than_the_pipelines_is_refused(own_shop: Shop, tmp_path: Path) -> None:
    other = make_shop(tmp_path / "other", partitions=1)
    with lamina.open(other.folder, home=tmp_path / "moved", take_over_home=True):
        pass
    with pytest.raises(Refused, match="home"):
        open_view(other.store, "head", home=other.home)


def test_what_is_only_committed_is_at_the_head(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        store.put(b"a", b"1")
        store.commit()
    with pytest.raises(NotFound, match="no checkpoint yet") as error:
        open_view(tmp_path)
    assert "head" in error.value.advice
    with open_view(tmp_path, "head") as view:
        assert view.checkpoint is None
        assert view.to_arrow("state").to_pylist() == [{"key": b"a", "value": b"1"}]


def test_nothing_is_fetched_for_a_list_of_operators(own_shop: Shop) -> None:
    with lamina.open(own_shop.folder) as store:
        store.table("totals").write(rows(**{f"c{i}": 1 for i in range(20_000)}))
        store.commit()
        store.checkpoint()
    run = next(own_shop.store.glob("*/operators/totals/*"))
    data = run.read_bytes()
    run.write_bytes(data[:-1] + b"!")
    with open_view(own_shop.folder) as view:
        assert view.operators == ("state", "totals")  # an empty table ends with its process
        info = view.info("totals")
        assert info.rows_stored >= 20_000
        assert [column.name for column in info.key] == ["customer", "day"]
        with pytest.raises(DigestMismatch):
            view.count("totals")
        run.unlink()
        with pytest.raises(Corrupt, match="missing"):
            view.count("totals")


def test_an_operator_that_was_never_written_to_is_there_and_empty(shop: Shop) -> None:
    with open_view(shop.folder) as view:
        assert view.info("returns").rows_stored == 0
        assert list(view.scan("returns")) == []
        with pytest.raises(NotFound, match="ever written"):
            view.to_arrow("returns")
        with pytest.raises(NotFound, match="'total'") as error:
            view.info("total")
        assert "returns, state, totals" in error.value.advice


def test_progress_is_told(shop: Shop) -> None:
    told: list[Progress] = []
    with open_view(shop.folder, "head") as view:
        view.count("totals", report=told.append)
    assert told[-1].done <= told[-1].total
    assert told[-1].unit == "rows"


# by key


def test_rows_by_a_part_of_the_key_by_all_of_it_and_by_an_expression(shop: Shop) -> None:
    with open_view(shop.folder, "head") as view:

        def found(where: Any) -> dict[Any, int]:
            return orders_of(view.to_arrow("totals", where))

        assert found({"customer": "ada"}) == {("ada", FIRST): 1, ("ada", SECOND): 7}
        assert found({"customer": "ada", "day": SECOND}) == {("ada", SECOND): 7}
        assert found({"day": FIRST, "customer": "cleo"}) == {}
        assert found({}) == AT_4
        assert found(pc.field("orders") > 4) == {("bob", FIRST): 5, ("ada", SECOND): 7}


def test_nan_and_null_are_keys_like_others(tmp_path: Path) -> None:
    key, value = pa.schema([("x", pa.float64()), ("y", pa.int64())]), pa.schema([("v", pa.int64())])
    data = {"x": [math.nan, None, -0.0], "y": [1, 1, None], "v": [1, 2, 3]}
    with lamina.open(tmp_path) as store:
        store.table("t", key, value).write(pa.table(data, pa.schema([*key, *value])))
        store.commit()
    with open_view(tmp_path, "head") as view:
        for where, expected in [
            ({"x": math.nan}, [1]),
            ({"x": None}, [2]),
            ({"x": 0.0}, [3]),
            ({"y": None}, [3]),
            ({"x": math.nan, "y": 1}, [1]),
            ({"x": -0.0, "y": None}, [3]),
        ]:
            assert view.to_arrow("t", where)["v"].to_pylist() == expected, where


NAMES = [
    ("b", pa.binary(), "text", b"text"),
    ("b", pa.binary(), "0x00ff", b"\x00\xff"),
    ("b", pa.binary(), "", b""),
    ("b", pa.bool_(), "true", True),
    ("i", pa.int8(), "-5", -5),
    ("f", pa.float64(), "1e3", 1000.0),
    ("s", pa.string(), "a=b", "a=b"),
    ("d", pa.date32(), "2025-11-01", date(2025, 11, 1)),
    ("l", pa.list_(pa.int64()), "[1, null]", [1, None]),
    ("r", pa.struct([("a", pa.int64())]), '{"a": 1}', {"a": 1}),
    ("n", pa.int64(), None, None),
]


@pytest.mark.parametrize(("name", "kind", "text", "value"), NAMES)
def test_keys_are_typed_as_their_columns_are(
    name: str, kind: pa.DataType, text: str | None, value: Any
) -> None:
    schema = StateSchema(pa.schema([(name, kind)]), pa.schema([]))
    assert parse_key(schema, {name: text})[name].as_py() == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int8(), "300"),
        (pa.int64(), "1.5"),
        (pa.binary(), "0xzz"),
        (pa.bool_(), "perhaps"),
        (pa.list_(pa.int64()), "[1"),
        (pa.list_(pa.int64()), '["a"]'),
        (pa.timestamp("us", "UTC"), "noon"),
        (pa.decimal128(4, 2), "123.456"),
    ],
)
def test_text_that_is_no_value_of_the_column_is_refused(kind: pa.DataType, text: str) -> None:
    schema = StateSchema(pa.schema([("k", kind)]), pa.schema([("v", pa.int64())]))
    with pytest.raises(UsageError, match="'k'"):
        parse_key(schema, {"k": text})
    for other, why in (("v", "a value column"), ("z", "no column")):
        with pytest.raises(UsageError, match=why):
            parse_key(schema, {other: "1"})
