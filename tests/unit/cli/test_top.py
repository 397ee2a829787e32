"""`lamina top`: one frame in a pipe, and a screen that ends cleanly on a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from lamina.running.control import Status, this_process, write_status
from tests.support.command_line import lamina
from tests.support.histories import write


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write(tmp_path, range(1, 31))
    host = this_process().host
    said = Status("orders", 2**22 + 1, host, "running", 0, 0, epoch=30, sinks={"vwap": 30})
    write_status(tmp_path, said)
    return tmp_path


def test_in_a_pipe_it_is_one_frame(home: Path) -> None:
    result = lamina("top", "orders.sql", "--home", home)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "state       not running: it was killed"
    assert "sinks       vwap at epoch 30, 0 rows" in lines
    assert lines[-11].split()[0] == "EPOCH"
    assert [line.split()[0] for line in lines[-10:]] == [str(each) for each in range(30, 20, -1)]


def test_without_a_home_and_with_an_empty_one(tmp_path: Path) -> None:
    assert lamina("top", tmp_path / "orders.sql").exit_code == 3
    result = lamina("top", "orders.sql", "--home", tmp_path)
    assert (result.exit_code, result.output.splitlines()[0]) == (0, "state       not running")


@pytest.mark.parametrize("end", [b"q", b"\x1b", signal.SIGINT])
def test_on_a_terminal_it_ends_cleanly(end: bytes | signal.Signals, home: Path) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    start = "from lamina.cli.main import main; main()"
    command = ["-c", start, "top", "orders.sql", "--home", str(home)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, *command, "--interval", "0.1"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
        cwd=home,
    )
    shown = b""
    while b"not running: it was killed" not in shown or shown.count(b"EPOCH") < 2:
        shown += os.read(ours, 65536) if _has_more(ours) else b""  # two looks at least
        assert process.poll() is None, shown
    if isinstance(end, signal.Signals):
        process.send_signal(end)
    else:
        os.write(ours, end)
    while process.poll() is None:
        shown += os.read(ours, 65536) if _has_more(ours) else b""
    assert process.returncode == 0
    assert termios.tcgetattr(theirs) == before, "the terminal is as it was"
    assert b"Traceback" not in shown
    os.close(ours)
    os.close(theirs)


def _has_more(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0.05)[0])
