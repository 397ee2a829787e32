"""Listing a folder again and again: the cost follows what has changed, and nothing is missed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lamina.connectors.folder import LIST_AGAIN_S, QUIET_MS, SourceFolder
from lamina.errors import NotFound, Refused
from lamina.testing import ManualClock

LONG_AGO = 1_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now_ms=(LONG_AGO + 3600) * 1000)


def put(root: Path, *names: str, at: int = LONG_AGO) -> None:
    """Files, and all folders with the same time: as old, or as coarse, as a test needs it."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    for path in (root, *root.rglob("*")):
        os.utime(path, (at, at))


def seen(folder: SourceFolder) -> list[str]:
    return sorted(path for path, _ in folder.look())


def test_a_folder_that_stands_still_is_not_listed_again(tmp_path: Path, clock: ManualClock) -> None:
    put(tmp_path, "a", "deep/b", "deep/er/c")
    folder = SourceFolder(tmp_path, clock)
    assert seen(folder) == ["a", "deep/b", "deep/er/c"]
    assert seen(folder) == []
    (tmp_path / "deep" / "d").touch()
    assert seen(folder) == ["deep/b", "deep/d"], "its neighbours stand still"


def test_a_file_that_comes_in_the_tick_of_the_listing_is_not_missed(
    tmp_path: Path, clock: ManualClock
) -> None:
    """The folder's time is the same before and after: it says nothing yet."""
    now = clock.now_ms() // 1000
    put(tmp_path, "a", at=now)
    folder = SourceFolder(tmp_path, clock)
    assert seen(folder) == ["a"]
    put(tmp_path, "b", at=now)
    assert seen(folder) == ["a", "b"]
    clock.advance(QUIET_MS / 1000)
    assert seen(folder) == ["a", "b"]
    assert seen(folder) == []


@pytest.mark.parametrize("ahead_s", [3600, -3600])
def test_clocks_that_differ_delay_a_new_file_and_do_not_hide_it(
    ahead_s: int, tmp_path: Path, clock: ManualClock
) -> None:
    """The time of a file server's folder against our own clock; or a time that never moves."""
    at = clock.now_ms() // 1000 + ahead_s
    put(tmp_path, "a", at=at)
    folder = SourceFolder(tmp_path, clock)
    assert seen(folder) == ["a"]
    put(tmp_path, "b", at=at)
    clock.advance(LIST_AGAIN_S)
    assert seen(folder) == ["a", "b"]


def test_a_folder_that_is_gone_and_comes_back_is_listed(tmp_path: Path, clock: ManualClock) -> None:
    put(tmp_path, "deep/a")
    folder = SourceFolder(tmp_path, clock)
    assert seen(folder) == ["deep/a"]
    (tmp_path / "deep").rename(tmp_path / "_away")
    assert seen(folder) == []
    (tmp_path / "_away").rename(tmp_path / "deep")
    assert seen(folder) == ["deep/a"]


def test_a_listing_that_is_broken_off_does_not_count(tmp_path: Path, clock: ManualClock) -> None:
    put(tmp_path, "a", "b")
    folder = SourceFolder(tmp_path, clock)
    next(folder.look())
    assert seen(folder) == ["a", "b"]


def test_a_link_that_leads_back_is_refused_by_name(tmp_path: Path) -> None:
    """Every file would have been read forty times, each time by a longer path."""
    put(tmp_path, "in/a")
    (tmp_path / "in" / "again").symlink_to(tmp_path / "in")
    with pytest.raises(Refused, match="contains itself") as raised:
        seen(SourceFolder(tmp_path / "in"))
    assert raised.value.where == str(tmp_path / "in" / "again")


def test_links_to_other_folders_are_followed(tmp_path: Path) -> None:
    put(tmp_path, "there/a", "in/b")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "there")
    assert seen(SourceFolder(tmp_path / "in")) == ["b", "link/a"]


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    for what in ("not there", "is a file"):
        with pytest.raises(NotFound, match=what):
            seen(SourceFolder(tmp_path / "in"))
        (tmp_path / "in").touch()
