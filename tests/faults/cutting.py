"""Seed 003's library calls as a process: commit into one core's own log, then truncate it.

    cutting FOLDER ACKS

ACKS gets `written`, `cut` and `gone on`, each when that much is durable.
"""

from __future__ import annotations

from pathlib import Path

from lamina.disk import LocalDisk
from lamina.wal.standalone import CoreWalWriter

HOME = bytes(range(16))
EPOCHS, KEPT = 5, 3


def main(arguments: list[str]) -> None:
    folder, acks = map(Path, arguments)
    with acks.open("ab", buffering=0) as told:
        writer = CoreWalWriter(0, LocalDisk(folder), home=HOME)
        ends = {epoch: _commit(writer, epoch) for epoch in range(1, EPOCHS + 1)}
        told.write(b"written\n")
        writer.truncate(ends[KEPT])
        told.write(b"cut\n")
        writer.set_epoch(EPOCHS + 1)
        _commit(writer, EPOCHS + 1)
        told.write(b"gone on\n")
        writer.close()


def value_of(epoch: int) -> bytes:
    return b"%d:" % epoch + bytes(700)


def _commit(writer: CoreWalWriter, epoch: int) -> int:
    writer.set_epoch(epoch)
    writer.append_put(b"key-%d" % epoch, value_of(epoch))
    writer.append_commit({}, epoch)
    writer.sync()
    return writer.position
