"""Run files, fetched when an operator is first looked at, each once however many views name it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.fetching import fetch
from lamina.checkpoint.progress import Report
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
        try:
            files = fetch(self._checkpointer, missing, Path(self._folder.name), report=report)
        except NotFound as error:
            raise _lost(error) from error
        self._files |= {artifact: files[artifact.path] for artifact in missing}


def _lost(error: NotFound) -> Corrupt:
    """What a manifest names must be there: without it something is lost, not mistyped."""
    message = f"a file that the checkpoint needs is missing: {error.message}"
    return Corrupt(message, where=error.where)
