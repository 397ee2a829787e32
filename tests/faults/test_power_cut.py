"""A power cut on a real ext4: what a copy of the disk, taken at one instant, still holds.

The file system is in a file (loop mount). SIGSTOP the writer, copy the file, SIGKILL: the copy is
what the disk would hold after a power cut, because nobody synced what is still in memory. Mounting
it replays ext4's journal. Acknowledgements travel on a pipe, outside of the image.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.loop import call, make_disk, mounted, reason_to_skip
from tests.faults.model import LONG, SEED, Folders, Lost, Oracle, check_home
from tests.faults.process import Running, running

CUTS = 30 if LONG else 3
LYING_CUTS = 3
EPOCHS = (5, 14, 9)  # before each cut, in turn
LIES = (
    ("fdatasync", "fsync"),
    ("fdatasync:/driver/",),  # the decisions
    ("fdatasync:/core-",),  # what they decide about
    ("fsync:/store/.tmp/",),  # the objects of the store
)


pytestmark = pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip() or "can run")


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A fresh ext4; skipped where a loop mount is not allowed after all."""
    return make_disk(tmp_path)


def test_no_acknowledged_epoch_is_lost_to_a_power_cut(disk: Path) -> None:
    """One history over all cuts: each life begins on what the cut before it left."""
    oracle, acked = Oracle(SEED), 0
    for number in range(CUTS):
        disk, acked = write_and_cut(disk, EPOCHS[number % len(EPOCHS)], acked)
        with mounted(copied(disk, "checked")) as folder:
            assert check_home(Folders.below(folder), oracle, acked) >= acked
    assert acked >= CUTS * min(EPOCHS)


@pytest.mark.parametrize("lie", LIES, ids="+".join)
def test_the_power_cut_is_real_without_syncs_epochs_are_lost(
    disk: Path, lie: tuple[str, ...]
) -> None:
    """The negative control: the test above can fail, and each of these syncs is needed."""
    for _ in range(LYING_CUTS):
        cut, acked = write_and_cut(disk, 14, 0, lie=lie)
        with mounted(cut) as folder:
            try:
                check_home(Folders.below(folder), Oracle(SEED), acked)
            except Lost:
                return
    pytest.fail("nothing was lost without syncs: this disk does not lose anything")


def write_and_cut(
    disk: Path, epochs: int, acked: int, *, lie: Sequence[str] = ()
) -> tuple[Path, int]:
    """Write, cut; returns the disk after the cut and the last acknowledged epoch."""
    with mounted(disk) as folder, running(Folders.below(folder), lie=lie) as process:
        process.wait_for_begin()
        process.wait_for_epochs(epochs)
        return cut_power(process, disk, acked)


def cut_power(process: Running, disk: Path, acked: int) -> tuple[Path, int]:
    pid = process.process.pid
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
    after = copied(disk, f"{disk.stem}-cut")
    return after, max(acked, process.kill())


def copied(disk: Path, name: str) -> Path:
    target = disk.with_name(f"{name}.img")
    call("cp", "--sparse=always", "--reflink=never", str(disk), str(target))
    return target
