"""A program with an embedded store: opens it, commits epoch after epoch, checkpoints beside them.

    python -m tests.faults.embedded_work work FOLDER ACKS --epochs 20 --seed 1
    python -m tests.faults.embedded_work serve       runs of it for strace, see traced.py

After `commit` has returned, and not before, the epoch's number is written to ACKS as one line
(`-` is stdout). Started again on the same folder it goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import sys
from io import RawIOBase
from pathlib import Path

import lamina
from lamina.checkpoint import run_gc
from lamina.embedded import EmbeddedStore
from tests.faults import traced
from tests.faults.model import SOURCE, changes, offset_of, watermark_of

RETAIN = 2
GC_EVERY = 7


class Program:
    """One life of the process."""

    def __init__(self, folder: Path, *, seed: int, checkpoint_every: int, partitions: int) -> None:
        self._seed = seed
        self._every = checkpoint_every
        self._store = lamina.open(folder, partitions=partitions, retain=RETAIN)
        self._check_hint()

    def run_epoch(self) -> int:
        epoch = self._store.epoch + 1
        for key, value in changes(self._seed, epoch):
            if value is None:
                self._store.delete(key)
            else:
                self._store.put(key, value)
        offset = offset_of(epoch)
        assert offset is not None
        made = self._store.commit(
            offsets={SOURCE: {"position": offset[1]}}, watermark=watermark_of(epoch)
        )
        assert made == epoch, f"epoch {made} after {epoch - 1}"
        return epoch

    def checkpoint_if_due(self) -> None:
        epoch = self._store.epoch
        if epoch % self._every == 0:
            self._store.checkpoint(wait=False)
        if epoch % GC_EVERY == 0:
            self._store.wait_for_checkpoint()
            run_gc(self._store._checkpointer, retain=RETAIN)
            self._check_hint()

    def close(self) -> None:
        self._store.close()
        self._check_hint()

    def _check_hint(self) -> None:
        """A failed hint does no harm; this process is strict, so that no fault goes unseen."""
        error = self._store._checkpointer.log.hint_error
        if error is not None:
            raise error


def main(arguments: list[str] | None = None) -> None:
    options = _parse(arguments)
    with _opened(options.acks) as acks:
        acks.write(b"begin\n")  # from here on a kill hits us and not Python's imports
        for life in range(options.lives):
            program = Program(
                options.folder,
                seed=options.seed,
                checkpoint_every=options.checkpoint_every,
                partitions=(2, 1, 4)[life % 3],
            )
            try:
                for _ in range(options.epochs):
                    acks.write(f"{program.run_epoch()}\n".encode())
                    program.checkpoint_if_due()
            finally:
                program.close()


def state_of(store: EmbeddedStore) -> tuple[dict[bytes, bytes], tuple[int, str] | None, int | None]:
    """What the oracle knows of an epoch, as the store has it."""
    source = store.offsets.get(SOURCE)
    offset = (source.epoch, source.offsets["position"]) if source else None
    return dict(store.scan()), offset, store.watermark


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A program to be killed")
    parser.add_argument("folder", type=Path)
    parser.add_argument("acks", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint-every", type=int, default=3)
    parser.add_argument("--lives", type=int, default=1)
    return parser.parse_args(arguments)


def _opened(acks: Path) -> RawIOBase:
    if str(acks) == "-":
        return os.fdopen(sys.stdout.fileno(), "wb", buffering=0, closefd=False)
    return acks.open("ab", buffering=0)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        traced.PROGRAMS["embedded"] = main
        traced.serve()
    else:
        main(sys.argv[2:])
