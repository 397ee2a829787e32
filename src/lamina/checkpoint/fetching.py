"""Fetching the files of checkpoints: many at once, each proven, each under a name of its own."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.parallel import run_all
from lamina.checkpoint.progress import Progress, Report, silent
from lamina.clock import new_writer_id
from lamina.errors import NotFound, StoreError
from lamina.format.manifest_model import Artifact, CheckpointManifest


def run_files(manifest: CheckpointManifest, only: str | None = None) -> tuple[Artifact, ...]:
    """The run files of a checkpoint, or of one operator in it."""
    found = {
        Artifact(run.path, run.size, run.sha256)
        for name, operator in manifest.operators.items()
        if only in (None, name)
        for runs in operator.partitions.values()
        for run in runs
        if run.path is not None
    }
    return tuple(sorted(found))


def fetch(
    checkpointer: Checkpointer,
    artifacts: Collection[Artifact],
    folder: Path,
    *,
    limit: int | None = None,
    report: Report = silent,
) -> dict[str, Path]:
    """Each into a file of *folder*, by the path that manifests call it; proven by size and digest.

    Never over a file that is there: somebody may have it mapped.
    """
    tag = new_writer_id(checkpointer.clock)[:8]
    total = sum(artifact.size or 0 for artifact in artifacts)
    files: dict[str, Path] = {}
    done_bytes = 0

    def load(item: tuple[int, Artifact]) -> Path:
        target = folder / f"fetched-{tag}-{item[0]:06d}"
        _load(checkpointer, item[1], target)
        return target

    def note(item: tuple[int, Artifact], file: Path) -> None:
        nonlocal done_bytes
        artifact = item[1]
        files[artifact.path] = file
        done_bytes += artifact.size or 0
        report(Progress(done_bytes, total, "bytes", artifact.path))

    limit = limit or checkpointer.max_concurrent
    run_all(enumerate(artifacts), load, limit=limit, each=note)
    return files


def _load(checkpointer: Checkpointer, artifact: Artifact, target: Path) -> None:
    try:
        checkpointer.load_artifact(artifact, into=target)
    except NotFound as error:
        if error.where != str(target):
            raise  # the store has no such object: that is the checkpoint's damage
        raise StoreError(
            f"the scratch folder was removed while a checkpoint was fetched into it: "
            f"{error.message}",
            where=str(target.parent),
            advice="Use a scratch folder that nothing else cleans up, and start again",
        ) from error
