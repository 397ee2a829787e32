"""For all tests: what takes longest begins first, so that both workers end together; no test of
properties has a deadline, for machines differ.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("lamina", deadline=None)
settings.load_profile("lamina")

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
