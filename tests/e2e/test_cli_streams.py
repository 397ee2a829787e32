"""Output that nobody reads, or that cannot be written, is no verdict on the store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lamina.checkpoint import Checkpointer
from lamina.store import LocalStore

LAMINA = Path(sys.executable).with_name("lamina")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    Checkpointer(LocalStore(tmp_path)).log.take_over("home")
    return tmp_path


def test_a_reader_that_has_gone_is_told_apart_from_warnings(store: Path) -> None:
    command = subprocess.Popen([LAMINA, "log", "--store", store], stdout=subprocess.PIPE)
    assert command.stdout is not None
    command.stdout.close()
    assert command.wait() == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_gives_one_line_and_no_traceback(store: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [LAMINA, "log", "--store", store], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert ran.returncode == 6
    assert b"cannot write the output" in ran.stderr
    assert b"Traceback" not in ran.stderr
