"""The programs in examples/ run and end well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_checkpoints_survive_a_kill_and_a_flipped_byte_is_found() -> None:
    command = [sys.executable, EXAMPLES / "checkpoints.py"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
