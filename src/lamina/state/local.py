"""The folder of a process's own run files: fetched ones, and those that compactions have made.

Everything in it can be made again, from checkpoint and WAL. So nothing is synced, and nothing of
an earlier process is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from lamina.format.canonical import sha256_hex
from lamina.os_errors import typed_errors
from lamina.state.run import Run
from lamina.state.run_file import Epochs, open_run, write_run
from lamina.state.schema import StateSchema
from lamina.state.vnodes import SlotRange


class RunFolder:
    """Where compacted runs go, each under the digest of what it was made of (R10)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(
        self,
        inputs: Sequence[Run],
        batches: Iterable[pa.RecordBatch],
        schema: StateSchema,
        *,
        floor: int | None,
        within: SlotRange,
        compression: str | None = None,
    ) -> Run:
        """The run that *batches*, the newest rows of *inputs*, are."""
        path = self.path / f"{_digest(inputs, floor, within, compression)}.run"
        first = min(run.first_epoch for run in inputs)
        epochs = Epochs(first, max(run.last_epoch for run in inputs))
        write_run(path, batches, schema, epochs=epochs, floor=floor, compression=compression)
        return replace(open_run(path), within=within, inputs=tuple(run.name for run in inputs))

    def keep_only(self, runs: Iterable[Run]) -> None:
        """Remove the files that none of *runs* is in; who has one mapped can still read it."""
        kept = {leaf.name for run in runs for leaf in run.leaves}
        with typed_errors(self.path):
            for file in self.path.iterdir():
                if str(file) not in kept:
                    file.unlink(missing_ok=True)  # a late twin renames its own


def _digest(
    inputs: Sequence[Run], floor: int | None, within: SlotRange, compression: str | None
) -> str:
    parts = [f"{run.name} {run.within}" for run in inputs]
    return sha256_hex("\n".join([*parts, str(floor), str(within), str(compression)]).encode())[:32]
