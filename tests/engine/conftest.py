"""Homes in memory where there is one: no test here depends on what a sync does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    usable = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    with TemporaryDirectory(dir=MEMORY if usable else None) as folder:
        yield Path(folder)
