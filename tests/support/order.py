"""The order in which test files are given to the workers of pytest-xdist.

xdist would begin with the files that have the most tests. The longest ones have one test: a run
ended with one worker at the last of them and the others idle. So the longest come first, then
whatever starts servers or Spark, and the many small ones fill what is left.
"""

from __future__ import annotations

LONGEST = (  # seconds on two busy cores, when this was last measured
    "tests/spark/test_kills_on_spark.py",  # 160
    "tests/spark/test_remote_cluster.py",  # 150
    "tests/spark/test_systems.py",  # 110
    "tests/spark/test_cli_run.py",  # 95
    "tests/spark/test_groups_of_changes.py",  # 90
    "tests/spark/test_cluster.py",  # 90
    "tests/spark/test_random_kills.py",  # 75
    "tests/spark/test_class_archive.py",  # 75
    "tests/spark/test_object_outage.py",  # 60
)
SLOW_FOLDERS = ("tests/spark/", "tests/contract/", "tests/faults/", "tests/sim/", "tests/mutants/")


def rank(path: str) -> tuple[int, int]:
    """Sorts files, by their paths below the root; of equal ones the order stays."""
    if path in LONGEST:
        return 0, LONGEST.index(path)
    return 1, next((at for at, f in enumerate(SLOW_FOLDERS) if path.startswith(f)), 99)
