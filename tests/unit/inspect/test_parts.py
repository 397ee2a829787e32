"""A view part by part, as tasks on a cluster read it; and columns that are known without a run."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lamina
from lamina.inspect import View
from lamina.inspect.column_types import parse_type
from lamina.inspect.files import RunFiles
from tests.support.shop import KEY, VALUE, Shop, make_shop, rows


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    made = make_shop(tmp_path_factory.mktemp("parts") / "shop")
    with lamina.open(made.folder, partitions=4) as store:  # the same keys, placed anew
        store.table("totals", KEY, VALUE).write(rows(erin=8))
        store.commit({"orders": {"file": "part-5"}})
    return made


def all_rows(view: View) -> list[str]:
    return sorted(map(str, view.to_arrow("totals").to_pylist()))


@pytest.mark.parametrize(("at", "count"), [("monday", 2), (3, 2), (4, 2), ("head", 4)])
def test_all_parts_together_are_everything_and_no_row_is_in_two(
    shop: Shop, at: str | int, count: int
) -> None:
    with lamina.open_archive(shop.folder) as archive:
        view = archive.view(at)
        assert view.partitions("totals") == count
        parts = [
            [row for batch in view.scan_part("totals", each) for row in batch.to_pylist()]
            for each in range(count)
        ]
        assert sorted(str(row) for part in parts for row in part) == all_rows(view)
        assert view.row_schema("totals") == view.schema("totals").row


def test_of_a_checkpoint_a_part_fetches_its_own_files_only(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[set[int]] = []
    fetch = RunFiles.fetch
    monkeypatch.setattr(
        RunFiles,
        "fetch",
        lambda self, runs, report: (
            fetched.append(set(runs.partitions)) or fetch(self, runs, report)
        ),
    )
    with lamina.open_archive(shop.folder) as archive:
        list(archive.view(3).scan_part("totals", 1))
    assert fetched == [{1}]


def test_columns_are_known_before_a_run_is_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_run(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(RunFiles, "fetch", no_run)
    with lamina.open_archive(shop.folder) as archive:
        assert archive.view(3).row_schema("totals") == pa.schema([*KEY, *VALUE])


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.string(), pa.binary(), pa.bool_(), pa.date32(), pa.int8(), pa.int64(), pa.float64()),
        *(pa.decimal128(38, 2), pa.decimal256(60, -3), pa.timestamp("us", "UTC")),
        *(pa.timestamp("ns"), pa.binary(16), pa.float32(), pa.uint64(), pa.null()),
    ],
    ids=str,
)
def test_a_type_is_what_its_text_says(kind: pa.DataType) -> None:
    assert parse_type(str(kind)) == kind


def test_of_a_nested_type_the_text_is_not_enough(tmp_path: Path) -> None:
    value = pa.schema([("tags", pa.list_(pa.string()))])
    key = pa.schema([("k", pa.string())])
    with lamina.open(tmp_path / "nested") as store:
        store.table("t", key, value).write(pa.table({"k": ["a"], "tags": [["x"]]}))
        store.commit()
        store.checkpoint()
    assert parse_type(str(value.field(0).type)) is None
    with lamina.open_archive(tmp_path / "nested") as archive:
        assert archive.view().row_schema("t") == pa.schema([*key, *value])
