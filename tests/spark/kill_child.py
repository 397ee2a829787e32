"""A process that is to be killed: a Spark, and then one run of the pipeline per line of stdin.

It says what happens, one JSON object per line. At the fail point that it was told it sends a signal
to itself, and to nobody else: its JVM, with tasks that may still run, is left behind.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lamina.engine.plans import EngineSettings
from lamina.engine.ports import Limits
from lamina.errors import LaminaError
from lamina.pipeline.statements import parse_pipeline
from lamina.recovery import RecoveryConfig
from lamina.spark.running import RunSettings, Until, Watcher, run
from lamina.spark.session import start_session

RENAME_TO = "rename to "


class Bomb:
    """Sends a signal to its own process at the n-th time that a place is come to.

    A place is a fail point of the engine, or "rename to X": just before a rename onto a path with X
    in it. So one can come between two sinks of one epoch.
    """

    def __init__(self, place: str, nth: int, number: int) -> None:
        self._place = place
        self._left = nth
        self._signal = number
        if place.startswith(RENAME_TO):
            sys.addaudithook(self._audit)

    def __call__(self, place: str) -> None:
        if place == self._place:
            self._left -= 1
            if self._left == 0:
                say("at", place=place)
                os.kill(os.getpid(), self._signal)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename" and self._place.removeprefix(RENAME_TO) in str(arguments[1]):
            self(self._place)


def main(scratch: Path) -> None:
    spark = start_session("kills", scratch, master="local[2]")
    say("ready", pid=os.getpid())
    for line in sys.stdin:
        live(spark, json.loads(line))
    spark.stop()


def live(spark: SparkSession, asked: dict[str, Any]) -> None:
    """One run; an error of ours is said, and the process is ready for another."""
    folder = Path(asked["folder"])
    settings = RunSettings(
        home=folder / asked["home"],
        store=str(folder / "store"),
        name="kills",
        folder=folder,
        until=Until(available_now=True, epoch=asked.get("until_epoch")),
        engine=EngineSettings(
            partitions=asked["partitions"],
            limits=Limits(asked["rows"], 1),
            checkpoint_epochs=asked["checkpoint_epochs"],
        ),
        recovery=RecoveryConfig(take_over_home=asked.get("take_over_home", False)),
    )
    watcher = Watcher(
        recovered=lambda report: say("recovered", epoch=report.epoch),
        epoch=lambda report: say("epoch", epoch=report.epoch, late=report.late),
    )
    bomb = Bomb(*asked["bomb"]) if asked.get("bomb") else lambda _: None
    pipeline = parse_pipeline((folder / "kills.sql").read_text())
    try:
        last = run(pipeline, settings, spark=spark, watcher=watcher, fail_point=bomb)
    except LaminaError as error:
        say("error", kind=type(error).__name__, message=error.message)
    else:
        say("ended", epoch=last)


def say(event: str, **more: object) -> None:
    print(json.dumps({"event": event, **more}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
