"""Runs workloads under strace: counts their system calls, then makes one of them fail.

A server process imports everything once and forks a child per run; the child waits, strace
attaches, and only then does the workload begin. So the n-th call is the workload's own n-th call,
not one of Python's start, and a run takes a fraction of the time of an import.

strace counts per thread. The workload's own thread makes all calls but those of gc, which are the
only ones to remove folders: `rmdir` reaches these.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lamina.clock import SystemClock
from tests.faults import cutting, workload

ROOT = Path(__file__).parents[2]
PROGRAMS = {"workload": workload.main, "cutting": cutting.main}
STRACE = shutil.which("strace")
ATTACH_SECONDS_MAX = 60.0
CALLS = {
    "write": ("write", "pwrite64"),
    "writev": ("writev",),
    "fdatasync": ("fdatasync",),
    "fsync": ("fsync",),
    "rename": ("rename", "renameat", "renameat2"),
    "link": ("link", "linkat"),
    "unlink": ("unlink", "unlinkat"),
    "rmdir": ("rmdir",),
    "mkdir": ("mkdir", "mkdirat"),
    "ftruncate": ("ftruncate",),
    "openat": ("openat",),
}
"""What we sweep, and the names that C libraries of different systems have for it."""
_LINE = re.compile(r"^(\d+) +(\w+)\((.*)$")


@dataclass(frozen=True, slots=True)
class Call:
    """One line of a trace: the n-th call of that name in its thread."""

    thread: int
    name: str
    number: int
    text: str

    @property
    def injected(self) -> bool:
        return "(INJECTED)" in self.text


@dataclass(frozen=True, slots=True)
class Fault:
    call: str
    how: str  # signal=SIGKILL, error=EIO, ...
    number: int

    @property
    def option(self) -> str:
        return f"inject={self.call}:{self.how}:when={self.number}"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended: negative is a signal."""

    code: int
    calls: tuple[Call, ...]
    stderr: str


class Server:
    """The parent of all traced processes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._clock = SystemClock()

    def run(self, arguments: Sequence[str], folder: Path, fault: Fault | None = None) -> Ended:
        """Fork a workload, trace it to its end."""
        trace = folder / "trace"
        pid = int(self._ask("\t".join((str(folder / "stderr"), *arguments))))
        command = [STRACE or "strace", "-f", "-qq", "-y", "-s", "0", "-o", str(trace)]
        command += ["-e", f"trace={','.join(n for names in CALLS.values() for n in names)}"]
        command += ["-e", "signal=none"]
        command += ["-e", fault.option] if fault else []
        with subprocess.Popen([*command, "-p", str(pid)], stderr=subprocess.PIPE) as strace:
            self._wait_for_tracer(pid, strace)
            code = int(self._ask("go"))
            assert strace.wait() == 0, strace.stderr.read() if strace.stderr else ""
        calls = tuple(parse(trace.read_text().splitlines()))
        return Ended(code, calls, (folder / "stderr").read_text())

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def _wait_for_tracer(self, pid: int, strace: subprocess.Popen[bytes]) -> None:
        started = self._clock.monotonic()
        while not re.search(r"TracerPid:\t[1-9]", Path(f"/proc/{pid}/status").read_text()):
            if strace.poll() is not None or self._clock.monotonic() - started > ATTACH_SECONDS_MAX:
                os.kill(pid, signal.SIGKILL)
                self._ask("go")
                raise RuntimeError(f"strace does not attach: {strace.args!r}")
            self._clock.wait(0.002)


@contextmanager
def server() -> Iterator[Server]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.traced"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Server(process)
        assert process.stdin is not None
        process.stdin.close()  # it ends by itself


def parse(lines: Sequence[str]) -> Iterator[Call]:
    """The calls of a trace, numbered as strace counts them."""
    seen: dict[tuple[int, str], int] = {}
    for line in lines:
        if found := _LINE.match(line):
            key = int(found[1]), found[2]
            seen[key] = seen.get(key, 0) + 1
            yield Call(*key, seen[key], found[3])
        elif "(INJECTED)" in line:  # the end of a call that another thread interrupted
            yield Call(0, "resumed", 0, line)


def serve() -> None:
    """One line is one run: where stderr goes, then the program and its arguments; then `go`."""
    while line := sys.stdin.readline():
        stderr, program, *arguments = line.rstrip("\n").split("\t")
        fd = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        waiting, go = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.dup2(fd, 2)
            os.read(waiting, 1)  # until strace is there
            _run(program, arguments)
        _say(pid)
        sys.stdin.readline()
        os.write(go, b"!")
        _, status = os.waitpid(pid, 0)
        for each in (fd, waiting, go):
            os.close(each)
        _say(os.waitstatus_to_exitcode(status))


def _say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def _run(program: str, arguments: list[str]) -> None:
    """Like a process of its own: an error ends it with a trace on stderr and code 1."""
    code = 1
    try:
        PROGRAMS[program](arguments)
        code = 0
    except BaseException:  # noqa: BLE001  whatever it is, it must not reach the server's loop
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()
