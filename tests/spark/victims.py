"""Processes that are killed: each has a Spark of its own, and says in JSON lines what happens."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.spark.java import JAVA_OPTIONS

ROOT = Path(__file__).parents[2]
LAMINA = Path(sys.executable).parent / "lamina"
PATIENCE_S = 600  # how long a hang is waited for; nothing takes so long


class Process:
    """A process that says what happens in JSON lines, and may die at any time."""

    def __init__(self, command: list[str | Path], log: Path, environment: dict[str, str]) -> None:
        self._log = log
        clean = {name: v for name, v in os.environ.items() if not name.startswith("LAMINA_")}
        ours = {"LAMINA_DRIVER_MEMORY": "512m", "LAMINA_CACHE": "off"}  # see Nursery.train
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=clean | ours | environment,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._events.put(json.loads(line))
        self._events.put(None)

    def tell(self, asked: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()

    def events(self) -> Iterator[dict[str, Any]]:
        """As they come, until it is dead."""
        while (event := self._events.get(timeout=PATIENCE_S)) is not None:
            yield event

    def until(self, *kinds: str) -> dict[str, Any]:
        """The next event of one of these kinds."""
        for event in self.events():
            if event["event"] in kinds:
                return event
        raise AssertionError(f"it died before {kinds}: {self.said()}")

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def wait(self) -> int:
        return self._process.wait(PATIENCE_S)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    @cached_property
    def jvm(self) -> int:
        """Its JVM, which is its only child of that name."""
        (found,) = (pid for pid in children(self.pid) if name_of(pid) == "java")
        return found

    def workers(self) -> list[int]:
        """Its Python workers: children of Spark's daemon."""
        return [worker for daemon in children(self.jvm) for worker in children(daemon)]

    def end(self) -> None:
        """Without a kill: stdin is at its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self.wait() == 0, self.said()

    def close(self) -> None:
        """Nothing of it is left."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [int(child) for child in task.read_text().split()]
    return found


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except FileNotFoundError:
        return ""


def wait_until_gone(pid: int) -> None:
    _wait_for_state(pid, "XZ")


def wait_until_stopped(pid: int) -> None:
    _wait_for_state(pid, "T")


def _wait_for_state(pid: int, states: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (state := _state(pid)) not in states:
        assert time.monotonic() < deadline, f"{pid} ({name_of(pid)}) is {state}, not {states}"
        time.sleep(0.05)


def _state(pid: int) -> str:
    """As ps shows it: X is dead, Z is dead and not yet buried, T is stopped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


class Nursery:
    """Starts processes; none of them outlives it.

    The classes that Spark loads can be kept in a file, which halves the time that the next ones
    need to start; where Java cannot do that it says so and goes on.
    """

    def __init__(self, scratch: Path, classes: Path) -> None:
        self._scratch = scratch
        self._classes = classes
        self._all: list[Process] = []

    def child(self, **environment: str) -> Process:
        """`tell` it what to run; its Spark is on the way up."""
        return self._start(self._child(), self._java(), environment)

    def train(self, asked: dict[str, Any]) -> None:
        """Keep the classes that a run needs, unless somebody has, or is at it."""
        try:
            mark = self._classes.with_suffix(".begun").open("x")
        except FileExistsError:
            return
        mark.close()
        made = self._classes.with_suffix(".new")
        archive = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={made} -Xlog:cds=off"
        child = self._start(self._child(), archive)
        child.tell(asked)
        assert child.until("ended", "error")["event"] == "ended"
        jvm = child.jvm
        child.end()
        wait_until_gone(jvm)
        if made.exists():
            made.rename(self._classes)

    def lamina(
        self, file: Path, *arguments: str | Path, environment: dict[str, str] | None = None
    ) -> Process:
        """`lamina run`, as a person starts it."""
        command = [LAMINA, "run", file, *arguments, "--json"]
        return self._start(command, self._java(), environment)

    def _child(self) -> list[str | Path]:
        return [sys.executable, "-m", "tests.spark.kill_child", self._scratch]

    def environment(self) -> dict[str, str]:
        """For a command that a test starts by itself: it starts as fast as those from here."""
        return {"JDK_JAVA_OPTIONS": self._java(), "LAMINA_CACHE": "off"}

    def _java(self) -> str:
        kept = f" -XX:SharedArchiveFile={self._classes} -Xlog:cds=off -Xlog:cds+dynamic=off"
        return JAVA_OPTIONS + (kept if self._classes.exists() else "")

    def _start(
        self, command: list[str | Path], java: str, environment: dict[str, str] | None = None
    ) -> Process:
        log = self._scratch / f"log-{len(self._all)}"
        options = {"JDK_JAVA_OPTIONS": java} | (environment or {})
        self._all.append(Process(command, log, options))
        return self._all[-1]

    def close(self) -> None:
        for process in self._all:
            process.close()


@contextmanager
def nursery(factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # for all of this run
    made = Nursery(factory.mktemp("nursery"), shared / "spark.jsa")
    try:
        yield made
    finally:
        made.close()
