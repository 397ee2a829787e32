"""A disk that fills up for real, with the part of a record that still fits; then there is room."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from lamina.errors import StoreFull
from tests.faults import workload
from tests.faults.loop import make_disk, mounted, reason_to_skip
from tests.faults.model import LONG, SEED, Folders, Oracle, check_home, recover
from tests.faults.process import running

ROOM_BYTES = [300_000 + 37_000 * step for step in range(20 if LONG else 2)]

pytestmark = pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip() or "can run")


def test_a_full_disk_stops_the_process_and_damages_nothing(tmp_path: Path) -> None:
    """One history: each life ends at a full disk, at another place."""
    oracle, acked = Oracle(SEED), 0
    with mounted(make_disk(tmp_path)) as folder:
        folders = Folders.below(folder)
        for room in ROOM_BYTES:
            fill(folder, leave=room)
            with running(folders, checkpoint_every=1_000) as process:
                last, complaint = process.wait_for_end()
            assert "lamina.errors.StoreFull" in complaint
            acked = max(acked, last)
            fill(folder, leave=0)
            with pytest.raises(StoreFull):
                recover(folders)
            (folder / "ballast").unlink()
            assert check_home(folders, oracle, acked) >= acked
            sweep(folders)
    assert acked > len(ROOM_BYTES)


def fill(folder: Path, *, leave: int) -> None:
    """To the brim, in smaller and smaller steps; then give *leave* bytes back."""
    with (folder / "ballast").open("ab") as file:
        for step in (1 << 20, 1 << 16, 1 << 12):
            with suppress(OSError):
                while True:
                    os.posix_fallocate(file.fileno(), file_size(file.fileno()), step)
        os.ftruncate(file.fileno(), max(0, file_size(file.fileno()) - leave))


def file_size(fd: int) -> int:
    return os.fstat(fd).st_size


def sweep(folders: Folders) -> None:
    """A checkpoint, so that the log does not grow over all lives."""
    settings = workload.Settings(SEED, checkpoint_every=1)
    pipeline = workload.Pipeline(folders, settings, folders.home.with_name("scratch"))
    workload.run(pipeline, 1, lambda _: None)
