"""The order of test files: the longest first, and every file in it."""

from __future__ import annotations

from pathlib import Path

from tests.support.order import LONGEST, SLOW_FOLDERS, rank

ROOT = Path(__file__).parents[2]


def test_what_is_named_is_there() -> None:
    assert [path for path in (*LONGEST, *SLOW_FOLDERS) if not (ROOT / path).exists()] == []


def test_the_longest_come_first_and_the_small_ones_last() -> None:
    small, slow = "tests/unit/test_ids.py", "tests/spark/test_jobs.py"
    assert sorted([small, slow, *reversed(LONGEST)], key=rank) == [*LONGEST, slow, small]
