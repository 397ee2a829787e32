"""Two starts of Spark one after the other: the second one maps the classes of the first."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.spark.victims import PATIENCE_S, ROOT

CHILD = """
import sys
from pathlib import Path
from lamina.spark.session import start_session, stop_session
from tests.spark.victims import children, name_of
spark = start_session("archive", Path(sys.argv[1]))
spark.range(1).count()
import os
(jvm,) = (pid for pid in children(os.getpid()) if name_of(pid) == "java")
maps = Path(f"/proc/{jvm}/maps").read_text()
print([line.split()[-1] for line in maps.splitlines() if "spark-" in line and ".jsa" in line][:1])
stop_session(spark)
"""


def test_the_second_start_maps_the_classes_of_the_first(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")
    cache = tmp_path / "cache"
    assert _mapped(tmp_path, cache) == "[]"
    archive = _made(cache)
    assert _mapped(tmp_path, cache) == f"['{archive}']"


def _mapped(scratch: Path, cache: Path) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", CHILD, scratch / "scratch"],
        env={**os.environ, "LAMINA_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip().splitlines()[-1]


def _made(cache: Path) -> Path:
    """The archive, once the process that makes it has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := list(cache.glob("spark-*.jsa"))):
        assert time.monotonic() < deadline, f"no archive in {cache}"
        time.sleep(0.2)
    return found[0]
