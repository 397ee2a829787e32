"""Attempts of a task that a fault has stopped, to go on when others have long won."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.spark.cluster import kill, wait_for

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.efficiency.enabled": "false",
    # A stopped executor is not lost, however slow this machine is; but who wants something of it,
    # a piece of a broadcast, soon asks somebody else.
    "spark.storage.blockManagerHeartbeatTimeoutMs": "600000",
    "spark.shuffle.io.connectionTimeout": "3s",
    "spark.shuffle.io.maxRetries": "0",
}


class Late:
    """An attempt that a fault has stopped, with its executor."""

    def __init__(self, faults: Path, name: str) -> None:
        self._faults = faults
        self.epoch, self.core, self.place = name.split("-")
        struck = faults / f"{name}.struck"
        text = wait_for(name, lambda: struck.exists() and struck.read_text())
        self.tag, self.worker, self.jvm = text.split()

    def attempts(self, place: str) -> set[str]:
        """Who of this task came to a place."""
        lines = (self._faults / "attempts").read_text().splitlines()
        mine = [self.epoch, self.core, place]
        return {tag for *at, tag in map(str.split, lines) if at == mine}

    def resume(self) -> None:
        """First its Python, which writes on; then the JVM, which hears that it has lost."""
        twins = self.attempts("synced")
        assert twins, "no twin has won"
        assert self.tag not in twins
        os.kill(int(self.worker), signal.SIGCONT)
        wait_for("the late write", lambda: self.tag in self.attempts("synced"))
        os.kill(int(self.jvm), signal.SIGCONT)

    def __enter__(self) -> Late:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is not None:  # nobody else ends what is stopped
            kill(int(self.worker))
            kill(int(self.jvm))


def after_epoch(events: Iterator[dict[str, Any]], epoch: int) -> None:
    for event in events:
        assert event["event"] != "error", event
        if event["event"] == "epoch" and event["epoch"] >= epoch:
            return
    raise AssertionError(f"it has ended before epoch {epoch}")
