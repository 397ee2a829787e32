"""State page by page: every key once, in the order of slots, whatever the page has room for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lamina
from lamina.errors import UsageError
from lamina.inspect import View, open_view, paging
from lamina.inspect.paging import Cursor, page
from lamina.state import changes
from tests.support.shop import keys as deleted
from tests.support.shop import make_shop

KEY = pa.schema([("k", pa.int64())])
VALUE = pa.schema([("v", pa.int64())])


def paged(view: View, operator: str, rows_max: int, where: object = None) -> list[list[object]]:
    """The first column of every page."""
    pages, after = [], None
    while True:
        found = page(view, operator, where, after=after, rows_max=rows_max)  # type: ignore[arg-type]
        assert found is not None
        pages.append([row for batch in found.batches for row in batch.column(0).to_pylist()])
        if found.after is None:
            return pages
        assert found.after != after
        after = Cursor.parse(str(found.after))


def make_numbers(folder: Path, count: int, partitions: int = 4) -> View:
    """Some in the checkpoint, some newer ones in the log above it."""
    with lamina.open(folder, partitions=partitions) as store:
        table = store.table("numbers", KEY, VALUE)
        for start in (0, count // 2):
            numbers = pa.array(range(start, count), pa.int64())
            table.write(pa.RecordBatch.from_arrays([numbers, numbers], ["k", "v"]))
            store.commit()
            if not start:
                store.checkpoint()
    return open_view(folder, "head")


@pytest.mark.parametrize("rows_max", [1, 7, 100, 1000])
def test_every_key_is_on_one_page(tmp_path: Path, rows_max: int) -> None:
    with make_numbers(tmp_path, 200) as view:
        pages = paged(view, "numbers", rows_max)
        whole = view.to_arrow("numbers").column("k").to_pylist()
    assert [key for shown in pages for key in shown] == whole
    assert sorted(whole) == list(range(200))
    assert all(len(shown) == rows_max for shown in pages[:-1])


def test_keys_that_share_a_slot_are_not_lost_between_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = np.uint64(7)
    monkeypatch.setattr(changes, "slots_in", lambda _, keys: np.full(len(keys[0]), same))
    with make_numbers(tmp_path, 20, partitions=1) as view:
        pages = paged(view, "numbers", 3)
    assert sorted(key for shown in pages for key in shown) == list(range(20))  # type: ignore[type-var]


def test_a_page_of_some_keys_and_of_one(tmp_path: Path) -> None:
    make_shop(tmp_path)
    with open_view(tmp_path, "head") as view:
        ada = paged(view, "totals", 1, {"customer": pa.scalar("ada")})
        assert [row for shown in ada for row in shown] == ["ada", "ada"]
        (one,) = deleted("bob").to_pylist()
        assert paged(view, "totals", 5, one) == [["bob"]]
        assert page(view, "returns") is None  # nothing was ever written to it


def test_a_page_does_not_look_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing matches: so many rows are looked at, then the page says where to go on."""
    monkeypatch.setattr(paging, "LOOKED_AT_MAX", 1)
    make_shop(tmp_path)
    with open_view(tmp_path, "head") as view:
        pages = paged(view, "totals", 5, {"customer": pa.scalar("nobody")})
    assert len(pages) > 1
    assert not any(pages)


@pytest.mark.parametrize("text", ["", "x", "1", "-1-0", f"{2**64}-1", "1-1-1", "9" * 99])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Cursor.parse(text)
