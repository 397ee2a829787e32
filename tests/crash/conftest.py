from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.inline import patch_inline

MEMORY = Path("/dev/shm")


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    patch_inline(monkeypatch)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where recoveries put what they fetch: in memory if there is such a place, for speed."""
    place = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="lamina-crash-", dir=place) as folder:
        yield Path(folder)
