"""Where the time of an epoch goes, on the driver: clocks around the engine's own steps.

Nothing in the product knows of it. A step that runs inside of another is taken out of that one, so
the parts add up to the whole. Inside of the job, our tasks are timed where they run
(`engine_task.TimedUpdateAndStage`): the rest of the job is Spark's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any

from engine_contenders import Ours
from engine_task import STEPS, TimedUpdateAndStage

from lamina.spark import runner
from lamina.spark.tasks import UpdateAndStage

PARTS = {
    "plan": ("engine", "_plan_epoch"),
    "frame": ("runner", "run"),
    "seen": ("runner", "_seen"),
    "commit": ("engine", "_decide"),
    "publish": ("engine", "_publish"),
    "checkpoint": ("saves", "advance"),
}
JOB, REST = "job", "rest"


class Profile:
    """Seconds by part, one entry for every epoch."""

    def __init__(self, ours: Ours) -> None:
        self.epochs: list[dict[str, float]] = []
        self._now: dict[str, float] = {}
        self._inner = [0.0]
        places = {"engine": ours.engine, "runner": ours.runner}
        places["saves"] = vars(ours.engine)["_saves"]
        for part, (place, method) in PARTS.items():
            self._wrap(places[place], method, part)
        self._ours = ours
        self._tasks = Path(mkdtemp(prefix="tasks-", dir=ours.folder))
        self._jobs: list[dict[str, float]] = []

    def _wrap(self, target: Any, method: str, part: str) -> None:
        setattr(target, method, self._timed(getattr(target, method), part))

    def _timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            self._inner.append(0.0)
            start = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                spent = time.perf_counter() - start
                own = spent - self._inner.pop()
                self._inner[-1] += spent
                self._now[part] = self._now.get(part, 0.0) + own

        return timed

    @contextmanager
    def epoch(self) -> Iterator[None]:
        """One epoch of ours; Spark's action is timed only here."""
        self._now, self._inner = {}, [0.0]
        action = runner.json_column
        runner.UpdateAndStage = self._task  # type: ignore[misc, assignment]
        runner.json_column = self._timed(action, JOB)
        start = time.perf_counter()
        try:
            yield
        finally:
            runner.json_column = action
            runner.UpdateAndStage = UpdateAndStage  # type: ignore[misc]
        self._jobs.append(self._slowest_task())
        self._now[REST] = time.perf_counter() - start - self._inner[0]
        self.epochs.append(self._now)

    def _task(self, *arguments: Any) -> UpdateAndStage:
        return TimedUpdateAndStage(*arguments, folder=str(self._tasks))

    def _slowest_task(self) -> dict[str, float]:
        """Seconds of the task of an epoch that took longest, and what of the job came before it."""
        files = list(self._tasks.iterdir())
        tasks = [json.loads(file.read_text()) for file in files]
        for file in files:
            file.unlink()
        longest: dict[str, float] = max(tasks, key=lambda task: sum(task.values()))
        before = self._now[JOB] - sum(longest.values())
        return {"spark": max(0.0, before) + longest.pop("input"), **longest}

    def job_ms(self) -> dict[str, float]:
        """The job's milliseconds: Spark's own, then those of our step."""
        return {
            part: median(each[part] for each in self._jobs) * 1000 for part in ("spark", *STEPS)
        }

    def median_ms(self) -> dict[str, float]:
        parts = ("plan", "frame", JOB, "seen", "commit", "publish", "checkpoint", REST)
        return {part: median(each.get(part, 0.0) for each in self.epochs) * 1000 for part in parts}

    def describe(self) -> str:
        return ", ".join(f"{part} {ms:.0f}" for part, ms in self.median_ms().items()) + " ms"
