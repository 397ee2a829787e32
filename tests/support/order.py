"""The order in which test files are given to the workers of pytest-xdist.

xdist would begin with the files that have the most tests. The longest ones have one test: a run
ended with one worker at the last of them and the others idle. So the longest come first, then
whatever starts servers or Spark, and the many small ones fill what is left.
"""

from __future__ import annotations

LONGEST = (  # seconds on two busy cores, when this was last measured
    "tests/spark/test_systems.py",  # 270
    "tests/spark/test_kills_on_spark.py",  # 150
    "tests/spark/test_random_kills.py",  # 135
    "tests/spark/test_late_twin.py",  # 90
    "tests/unit/test_benchmarks.py",  # 80
    "tests/spark/test_class_archive.py",  # 75
    "tests/spark/test_soak.py",  # 65
    "tests/spark/test_object_outage.py",  # 60
)
SLOW_FOLDERS = ("tests/spark/", "tests/contract/", "tests/faults/", "tests/sim/", "tests/mutants/")


def rank(path: str) -> tuple[int, int]:
    """Sorts files, by their paths below the root; of equal ones the order stays."""
    if path in LONGEST:
        return 0, LONGEST.index(path)
    return 1, next((at for at, f in enumerate(SLOW_FOLDERS) if path.startswith(f)), 99)
