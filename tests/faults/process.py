"""One workload as a process of its own, with its acknowledgements on a pipe."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.faults.model import SEED, Folders

ROOT = Path(__file__).parents[2]
FOR_EVER = 1_000_000


class Running:
    """What was acknowledged, and the process that does it. A line is there whole or not at all."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.acked: list[int] = []

    def wait_for_begin(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "begin\n", "the workload did not start"

    def wait_for_epochs(self, count: int) -> None:
        """Until that many more epochs have been acknowledged."""
        assert self.process.stdout is not None
        for _ in range(count):
            line = self.process.stdout.readline()
            assert line, "the workload ended by itself"
            self.acked.append(int(line))

    def wait_for_end(self) -> tuple[int, str]:
        """Until it ends by itself; returns the last acknowledged epoch and what it complained."""
        said, complaint = self.process.communicate()
        self.acked += [int(line) for line in said.splitlines() if line != "begin"]
        assert self.process.returncode == 1, complaint
        return (self.acked[-1] if self.acked else 0), complaint

    def kill(self) -> int:
        """kill -9; returns the last epoch that was acknowledged, 0 if there is none."""
        assert self.process.stdout is not None
        self.process.kill()
        self.acked += [int(line) for line in self.process.stdout if line != "begin\n"]
        assert self.process.wait() == -9, "it ended by itself before the kill"
        return self.acked[-1] if self.acked else 0


@contextmanager
def running(
    folders: Folders, *, checkpoint_every: int = 3, lie: Sequence[str] = ()
) -> Iterator[Running]:
    """A workload that would write for ever; dead and reaped at the end."""
    command = [sys.executable, "-m", "tests.faults.workload"]
    command += [str(folders.home), str(folders.store), "-"]
    command += ["--epochs", str(FOR_EVER), "--seed", str(SEED)]
    command += ["--checkpoint-every", str(checkpoint_every)]
    command += ["--lie", *lie] if lie else []
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield Running(process)
        finally:
            process.kill()
