"""Which pipelines a command line means."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.console.subjects import find_subjects
from lamina.errors import NotFound, UsageError
from tests.support.command_line import make_pipeline
from tests.support.homes import make_home


def test_one_home_and_one_store_belong_together(tmp_path: Path) -> None:
    made = make_home(tmp_path)
    (found,) = find_subjects((), (str(made.home),), (str(made.store),))
    assert (found.home, found.store) == (str(made.home), str(made.store))
    file = tmp_path / "orders.sql"
    file.write_text("")
    (found,) = find_subjects((str(file),), (str(made.home),), (str(made.store),))
    assert (found.key, found.file) == ("orders", file)


def test_pipelines_of_a_folder_are_found_also_if_their_file_is_gone(tmp_path: Path) -> None:
    (tmp_path / "new.sql").write_text("")
    made = make_home(tmp_path)
    kept = tmp_path / ".lamina" / "gone"
    kept.mkdir(parents=True)
    made.home.rename(kept / "home")
    found = find_subjects((), (), (), here=tmp_path)
    assert [each.key for each in found] == ["gone", "new"]


def test_a_store_of_several_pipelines_shows_each(tmp_path: Path) -> None:
    make_pipeline(tmp_path, "a/orders")
    make_pipeline(tmp_path, "a/billing")
    found = find_subjects((), (), (str(tmp_path),), base="a")
    assert sorted((each.key, each.base) for each in found) == [
        ("billing", "a/billing"),
        ("orders", "a/orders"),
    ]
    (one,) = find_subjects((), (), (str(tmp_path),), base="a/orders")
    assert one.base == "a/orders"


def test_a_store_that_cannot_be_read_is_one_whose_page_says_why(tmp_path: Path) -> None:
    (found,) = find_subjects((), (), (str(tmp_path / "nothing"),))
    assert found.key == "nothing"


def test_keys_are_safe_and_differ(tmp_path: Path) -> None:
    names = ["<script>", "../up", "a" * 200, "ÄÖ", "Orders", "orders"]
    found = find_subjects((), (), tuple(str(tmp_path / name) for name in names))
    keys = [each.key for each in found]
    assert len(set(keys)) == len(keys)
    assert all(set(key) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for key in keys)
    assert max(map(len, keys)) <= 43


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no pipeline in this folder"):
        find_subjects((), (), (), here=tmp_path)
    with pytest.raises(NotFound, match="no such pipeline file"):
        find_subjects((str(tmp_path / "x.sql"),), (), ())
    with pytest.raises(UsageError, match="cannot share one home"):
        find_subjects(("a.sql", "b.sql"), ("home",), ())


def test_a_home_by_itself_has_the_store_beside_it(tmp_path: Path) -> None:
    (tmp_path / "orders" / "store").mkdir(parents=True)
    (found,) = find_subjects((), (str(tmp_path / "orders" / "home"),), ())
    assert (found.name, found.store) == ("orders", str(tmp_path / "orders" / "store"))
    (alone,) = find_subjects((), ("s3://bucket/orders/home",), ())
    assert (alone.name, alone.store) == ("orders", "s3://bucket/orders/home/store")
