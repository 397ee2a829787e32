"""Work that takes longer than a page: it runs on its own, and pages show how far it is.

One job of a name at a time; what was found stays until the next one. Nothing is kept on disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lamina.checkpoint.progress import Progress, Report
from lamina.clock import Clock
from lamina.errors import LaminaError

Work = Callable[[Report], Any]


@dataclass(slots=True)
class Job:
    """What is being done, or what came out of it."""

    name: str
    what: str  # for people
    started_ms: int
    progress: Progress | None = None
    ended_ms: int | None = None
    result: Any = None
    error: LaminaError | None = None

    @property
    def is_over(self) -> bool:
        return self.ended_ms is not None

    @property
    def share(self) -> float:
        """From 0 to 1."""
        at = self.progress
        return min(at.done / at.total, 1.0) if at is not None and at.total else 0.0


class Jobs:
    """All jobs of a page."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}

    def find(self, name: str) -> Job | None:
        return self._jobs.get(name)

    def start(self, name: str, what: str, work: Work) -> Job:
        """Start it, unless one of this name runs: then that one."""
        with self._lock:
            known = self._jobs.get(name)
            if known is not None and not known.is_over:
                return known
            job = self._jobs[name] = Job(name, what, self._clock.now_ms())
        threading.Thread(target=self._run, args=(job, work), daemon=True).start()
        return job

    def _run(self, job: Job, work: Work) -> None:
        def report(progress: Progress) -> None:
            job.progress = progress

        try:
            job.result = work(report)
        except LaminaError as error:
            job.error = error
        finally:
            job.ended_ms = self._clock.now_ms()
