"""How a pipeline is run: where it lives, when a run ends, and what only a person may decide."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from lamina.engine.plans import EngineSettings
from lamina.recovery.config import RecoveryConfig
from lamina.running.loop import Until
from lamina.running.observing import Watching


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Where a pipeline lives, and when a run of it ends."""

    home: Path  # of a home in an object store: the folder of this machine beside it
    store: str
    remote: str = ""  # the address of a home in an object store
    take_over: bool = False  # a person has said: it does not run on another machine any more
    name: str = "pipeline"
    folder: Path = field(default_factory=Path)  # relative paths of sources and sinks are below it
    file: str = "pipeline"  # for error messages
    until: Until = field(default_factory=Until)
    interval_s: float = 0.0  # minimum time between epoch starts
    engine: EngineSettings = field(default_factory=EngineSettings)
    recovery: RecoveryConfig = field(default_factory=RecoveryConfig)
    skip_lost: frozenset[str] = frozenset()  # sources that go on behind rows that are gone,
    # or SOURCE:PLACE, where a person has seen that it has to go back
    watching: Watching = field(default_factory=Watching)
    peek: str = ""  # the sink of which a watcher sees some rows
    out: TextIO | None = None  # where console sinks write; None: standard output
