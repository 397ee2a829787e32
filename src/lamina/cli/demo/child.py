"""A `lamina run` in a process of its own, which may be killed in the middle of an epoch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lamina.clock import Clock
from lamina.errors import StoreError

_COMMAND = "from lamina.cli.main import main; main()"
_ARGUMENTS = ("--available-now", "--max-files", "1", "--checkpoint-epochs", "4", "--json")
# A short life: the fast compiler only.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True, slots=True)
class Kill:
    """When to kill: after so many epochs of this process, and so far into the next one."""

    after_epochs: int
    part: float  # of the time that the fastest epoch took


@dataclass(slots=True)
class Life:
    """What one process did, as it said itself."""

    recovered: dict[str, Any] = field(default_factory=dict)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    killed_after_s: float | None = None  # into the epoch that it was killed in
    ended: dict[str, Any] | None = None
    seconds: float = 0.0

    @property
    def last_epoch(self) -> int:
        last = self.epochs[-1] if self.epochs else self.recovered
        return int(last.get("epoch", 0))


def live(pipeline: Path, kill: Kill | None, *, partitions: int, clock: Clock) -> Life:
    """Run until the end, or until it is killed; StoreError if it ends in any other way."""
    started = clock.monotonic()
    log = pipeline.with_suffix(".log")
    with log.open("ab") as errors:
        process = _start(pipeline, partitions, errors.fileno())
        try:
            life = _follow(process, kill, clock)
        finally:
            _kill(process)
    life.seconds = clock.monotonic() - started
    if life.ended is None and life.killed_after_s is None:
        said = log.read_text(errors="replace").strip().splitlines()[-5:]
        message = f"the run ended with {process.returncode}: {' / '.join(said)}"
        raise StoreError(message, where=str(pipeline))
    return life


def _start(pipeline: Path, partitions: int, errors: int) -> subprocess.Popen[str]:
    arguments = ("run", str(pipeline), "--partitions", str(partitions), *_ARGUMENTS)
    clean = {name: v for name, v in os.environ.items() if not name.startswith("LAMINA_")}
    return subprocess.Popen(  # noqa: S603  ourselves
        [sys.executable, "-c", _COMMAND, *arguments, "--master", "local[2]"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env={"JDK_JAVA_OPTIONS": _JAVA, **clean},
        start_new_session=True,  # Ctrl-C is for the demo, which then ends it
    )


def _follow(process: subprocess.Popen[str], kill: Kill | None, clock: Clock) -> Life:
    life = Life()
    for event in _events(process):
        match event.pop("event"):
            case "recovered":
                life.recovered = event
            case "epoch":
                life.epochs.append(event)
                if kill is not None and len(life.epochs) == kill.after_epochs:
                    fastest = min(each["seconds"] for each in life.epochs)
                    life.killed_after_s = kill.part * fastest
                    clock.wait(life.killed_after_s)
                    break
            case "ended":
                life.ended = event
    return life


def _events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def _kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL: it does not get to run one more instruction; its JVM ends when it notices that."""
    if process.poll() is None:
        with suppress(ProcessLookupError):  # it has ended by itself in this instant
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
