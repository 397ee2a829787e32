"""Run files, fetched when an operator is first looked at, each once however many views name it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.parallel import run_bounded
from lamina.checkpoint.progress import Progress, Report
from lamina.errors import Corrupt, NotFound
from lamina.format.manifest_model import Artifact, OperatorRuns


class RunFiles:
    """A folder of proven copies, by the path that manifests call them; removed by `close`."""

    def __init__(self, checkpointer: Checkpointer) -> None:
        self._checkpointer = checkpointer
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files: dict[Artifact, Path] = {}

    def fetch(self, operator: OperatorRuns, report: Report) -> dict[str, Path]:
        """The files of an operator, each proven by size and digest."""
        wanted = {
            Artifact(run.path, run.size, run.sha256)
            for runs in operator.partitions.values()
            for run in runs
            if run.path is not None
        }
        self._load(sorted(wanted - self._files.keys()), report)
        return {artifact.path: self._files[artifact] for artifact in wanted}

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        self._files.clear()

    def _load(self, missing: list[Artifact], report: Report) -> None:
        if not missing:
            return
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="lamina-inspect-")
        folder, first = Path(self._folder.name), len(self._files)
        total, done = sum(each.size or 0 for each in missing), 0

        def load(item: tuple[int, Artifact]) -> Path:
            target = folder / f"{item[0]:06d}"
            self._checkpointer.load_artifact(item[1], into=target)
            return target

        errors = []
        limit = self._checkpointer.max_concurrent
        for job in run_bounded(enumerate(missing, first), load, limit=limit, stop_on_error=True):
            if job.error is not None:
                errors.append(job.error)
                continue
            assert job.result is not None
            self._files[job.item[1]] = job.result
            done += job.item[1].size or 0
            report(Progress(done, total, "bytes", job.item[1].path))
        if errors:
            raise _lost(errors[0])


def _lost(error: BaseException) -> BaseException:
    """What a manifest names must be there: without it something is lost, not mistyped."""
    if not isinstance(error, NotFound):
        return error
    message = f"a file that the checkpoint needs is missing: {error.message}"
    return Corrupt(message, where=error.where)
