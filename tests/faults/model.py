"""What must be there after epoch e, computed from the seed alone; and the check of a real home.

The oracle shares no code with the WAL, the checkpoints or recovery: an epoch's changes are drawn
from (seed, epoch), and the state after it is a dict.
"""

from __future__ import annotations

import os
import random
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.errors import LaminaError
from lamina.recovery import RecoveredState, RecoveryManager
from lamina.store.local import LocalStore
from tests.support.workspaces import workspace

LONG = os.environ.get("LAMINA_FAULTS", "") == "long"
SEED = int(os.environ.get("LAMINA_FAULTS_SEED", "1"))
SOURCE = "orders"
KEYS = 60
LARGE_EVERY = 7  # epochs between values that fill a frame by themselves


class Lost(AssertionError):
    """An acknowledged epoch is not there any more."""


@dataclass(frozen=True, slots=True)
class Folders:
    """Where one pipeline lives."""

    home: Path
    store: Path

    @classmethod
    def below(cls, folder: Path) -> Folders:
        return cls(folder / "home", folder / "store")


@dataclass(frozen=True, slots=True)
class Image:
    """Everything an epoch consists of."""

    epoch: int
    next_epoch: int  # no number is skipped here: what is not decided has none
    state: dict[bytes, bytes]
    offset: tuple[int, str] | None  # with the epoch that the source was told
    watermark: int | None


def changes(seed: int, epoch: int) -> Iterator[tuple[bytes, bytes | None]]:
    """The puts and deletes (None) of one epoch, in order."""
    draw = random.Random(f"{seed}/{epoch}")
    for number in range(draw.randint(1, 24)):
        key = f"key-{draw.randrange(KEYS)}".encode()
        size = draw.choice((0, 8, 60, 500, 900))
        value = f"{epoch}.{number}:".encode() + draw.randbytes(size)
        yield key, None if draw.random() < 0.25 else value
    if epoch % LARGE_EVERY == 0:
        yield b"large", f"{epoch}:".encode() + draw.randbytes(70_000)


def offset_of(epoch: int) -> tuple[int, str] | None:
    return (epoch, str(epoch * 100 + 7)) if epoch else None


def watermark_of(epoch: int) -> int | None:
    return epoch * 1_000 + 3 if epoch else None


def core_of(key: bytes, cores: int) -> int:
    return zlib.crc32(key) % cores


class Oracle:
    """Walks forward through the epochs of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._epoch = 0
        self._state: dict[bytes, bytes] = {}

    def after(self, epoch: int) -> Image:
        """What is there after *epoch*, and nothing of any later one."""
        if epoch < self._epoch:
            self._epoch, self._state = 0, {}
        while self._epoch < epoch:
            self._epoch += 1
            for key, value in changes(self.seed, self._epoch):
                if value is None:
                    self._state.pop(key, None)
                else:
                    self._state[key] = value
        offset, watermark = offset_of(epoch), watermark_of(epoch)
        return Image(epoch, epoch + 1, dict(self._state), offset, watermark)


def check_home(folders: Folders, oracle: Oracle, acked: int) -> int:
    """Recover twice and compare with the oracle; returns the epoch it is at.

    Lost if an acknowledged epoch is missing. An epoch that was never acknowledged may be there
    (the process died between the sync of its COMMIT and the acknowledgement), but only whole.
    """
    found = _recover_or_lose(folders, acked)
    if found.epoch < acked:
        raise Lost(f"epoch {acked} was acknowledged, recovery is at {found.epoch}")
    assert found == oracle.after(found.epoch)
    assert recover(folders) == found, "a second recovery differs from the first"
    return found.epoch


def check_fallback(folders: Folders, oracle: Oracle, epoch: int) -> bool:
    """Damage the newest checkpoint: the one before it plus the WAL must reach the same epoch.

    False if there is only one, and nothing to fall back to.
    """
    checkpointer = Checkpointer(LocalStore(folders.store))
    checkpoints = checkpointer.list_checkpoints()
    if len(checkpoints) < 2:
        return False
    (folders.store / checkpointer.paths.manifest(checkpoints[-1].id)).write_bytes(b"damaged")
    assert check_home(folders, oracle, epoch) == epoch
    return True


def recover(folders: Folders) -> Image:
    """Claim the home, recover, read everything, let go."""
    with tempfile.TemporaryDirectory(prefix="lamina-recovered-") as scratch:
        checkpointer = Checkpointer(LocalStore(folders.store), max_concurrent_uploads=1)
        manager = RecoveryManager(workspace(folders.home, Path(scratch)), checkpointer)
        recovered = manager.run()
        try:
            return image_of(recovered.state)
        finally:
            recovered.close()


def image_of(recovered: RecoveredState) -> Image:
    assert recovered.report.complete
    source = recovered.source_offsets.get(SOURCE)
    return Image(
        recovered.epoch,
        recovered.next_epoch,
        state_of(recovered),
        (source.epoch, source.offsets["position"]) if source else None,
        recovered.watermark,
    )


def state_of(recovered: RecoveredState) -> dict[bytes, bytes]:
    """All partitions as one dict: the newest value of a key wins, null is a delete."""
    state: dict[bytes, bytes] = {}
    for operator, partition in recovered.partitions():
        for batch in recovered.batches(operator, partition):
            _apply(state, batch)
    return state


def _apply(state: dict[bytes, bytes], batch: pa.RecordBatch) -> None:
    pairs = zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    for key, value in pairs:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value


def _recover_or_lose(folders: Folders, acked: int) -> Image:
    try:
        return recover(folders)
    except LaminaError as error:
        raise Lost(f"epoch {acked} was acknowledged, recovery stopped: {error}") from error
