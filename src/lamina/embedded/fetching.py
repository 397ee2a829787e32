"""Finding a checkpoint by what people call it, and fetching its runs."""

from __future__ import annotations

from pathlib import Path

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.parallel import run_bounded
from lamina.clock import new_writer_id
from lamina.errors import NotFound
from lamina.format.log import Committed
from lamina.format.manifest_model import Artifact, CheckpointManifest
from lamina.ids import CheckpointId
from lamina.protocol.history import History


def find_checkpoint(checkpointer: Checkpointer, what: CheckpointId | str | int) -> Committed:
    """By id, by the name of a savepoint, or by epoch (the later one of two)."""
    history = checkpointer.history()
    found = _find(history, what)
    if found is None:
        raise NotFound(
            f"no checkpoint is called {what}, has this id or this epoch",
            where=checkpointer.store.url,
            advice="`lamina list` shows those that exist",
        )
    return found


def _find(history: History, what: CheckpointId | str | int) -> Committed | None:
    if isinstance(what, CheckpointId):
        return history.find(what)
    if isinstance(what, str) and what in history.pins:
        return history.find(history.pins[what])
    of_epoch = [c for c in history.checkpoints if str(c.epoch) == str(what)]
    if of_epoch:
        return of_epoch[-1]
    return next((c for c in history.checkpoints if str(c.id) == what), None)


def fetch_runs(
    checkpointer: Checkpointer,
    manifest: CheckpointManifest,
    folder: Path,
    *,
    only: str | None = None,
) -> dict[str, Path]:
    """The run files of a checkpoint, or of one operator in it; each proven by size and digest."""
    wanted = {
        Artifact(run.path, run.size, run.sha256)
        for name, operator in manifest.operators.items()
        if only in (None, name)
        for runs in operator.partitions.values()
        for run in runs
        if run.path is not None
    }
    tag = new_writer_id(checkpointer.clock)[:8]  # never over a file that somebody has mapped

    def fetch(item: tuple[int, Artifact]) -> Path:
        target = folder / f"fetched-{tag}-{item[0]:06d}"
        checkpointer.load_artifact(item[1], into=target)
        return target

    files: dict[str, Path] = {}
    jobs = run_bounded(
        enumerate(sorted(wanted)), fetch, limit=checkpointer.max_concurrent, stop_on_error=True
    )
    errors = []
    for done in jobs:
        if done.error is not None:
            errors.append(done.error)
        else:
            assert done.result is not None
            files[done.item[1].path] = done.result
    if errors:
        raise errors[0]
    return files
