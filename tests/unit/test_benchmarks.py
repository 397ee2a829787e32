"""The benchmark runs and says what it promises; how fast it is on this machine is no test."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "checkpoint.py"
KEYS = {
    "save_local_ratio",
    "save_memory_ratio",
    "verify_ratio",
    "list_requests_growth",
    "peak_memory_mib",
}


def test_the_benchmark_ends_with_one_line_of_json(tmp_path: Path) -> None:
    arguments = ["--scale", "tiny", "--json", "--folder", str(tmp_path)]
    run = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=True
    )
    numbers = json.loads(run.stdout.splitlines()[-1])
    assert numbers.keys() >= KEYS
    assert all(numbers[key] > 0 for key in KEYS)
    assert numbers["list_requests_growth"] == 1.0
    assert all(f"\n{key} " in run.stdout for key in KEYS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "scale"), [([], "full"), (["--quick"], "quick"), (["--scale", "tiny"], "tiny")]
)
def test_without_arguments_everything_is_measured(
    arguments: list[str], scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    loaded = runpy.run_path(str(SCRIPT))
    assert loaded["parse"](arguments).scale == scale
    assert loaded["parse"]([*arguments, "--json"]).json
