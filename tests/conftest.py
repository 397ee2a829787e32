"""The order of the files: what takes longest begins first, so that both workers end together."""

from __future__ import annotations

import pytest

LONG = (
    "tests/spark/test_random_kills.py",
    "tests/unit/test_benchmarks.py",
    "tests/spark/test_kills_on_spark.py",
    "tests/spark/",
    "tests/sim/",
    "tests/crash/",
    "tests/faults/",
    "tests/property/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    return next((n for n, start in enumerate(LONG) if item.nodeid.startswith(start)), len(LONG))
