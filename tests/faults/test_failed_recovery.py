"""A recovery that fails lets go of everything: a person repairs the home and tries again.

Found by the power cut: a file system could not be unmounted after a recovery that had stopped.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.disk import LocalDisk
from lamina.disk.local import LocalFile
from lamina.errors import StoreError, WalDamaged
from lamina.recovery import RecoveryManager
from lamina.store.local import LocalStore
from tests.faults import workload
from tests.faults.model import Folders, Oracle, check_home, recover
from tests.support.workspaces import workspace

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc")


class Failing(LocalDisk):
    """The n-th sync of a file, of all files together, fails."""

    def __init__(self, folder: Path, at: int) -> None:
        super().__init__(folder)
        self.left = at

    def create(self, path: str) -> LocalFile:
        file = super().create(path)
        honest = file.sync

        def sync() -> None:
            self.left -= 1
            if self.left == 0:
                raise StoreError("injected", where=path)
            honest()

        file.sync = sync  # type: ignore[method-assign]
        return file


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """Two checkpoints and one epoch after them."""
    places = Folders.below(tmp_path)
    settings = workload.Settings(checkpoint_every=2)
    workload.run(workload.Pipeline(places, settings, tmp_path / "scratch"), 5, lambda _: None)
    return places


def test_a_recovery_that_stops_at_damage_leaves_no_file_open(folders: Folders) -> None:
    newest = max((folders.home / "driver").iterdir())
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    with pytest.raises(WalDamaged):
        recover(folders)
    assert open_below(folders.home) == []


def test_a_recovery_that_fails_at_any_sync_leaves_no_file_open(folders: Folders) -> None:
    failed = 0
    while fails(folders, failed + 1):
        failed += 1
        assert open_below(folders.home) == []
    assert failed >= 3, "segment header, TAKEOVER and ADOPT are each synced"
    assert check_home(folders, Oracle(1), 5) == 5


def fails(folders: Folders, at: int) -> bool:
    """Whether a recovery whose *at*-th sync fails fails."""
    checkpointer = Checkpointer(LocalStore(folders.store))
    disk = Failing(folders.home, at)
    manager = RecoveryManager(workspace(disk, folders.home.with_name("scratch")), checkpointer)
    try:
        manager.run().close()
    except StoreError:
        return True
    return False


def test_a_home_that_cannot_be_made_leaves_no_file_open(tmp_path: Path) -> None:
    folders = Folders.below(tmp_path)
    assert fails(folders, 1)
    assert open_below(folders.home) == []
    assert check_home(folders, Oracle(1), 0) == 0


def open_below(folder: Path) -> list[str]:
    """What this process holds open in a folder."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            found.append(str(link.readlink()))
    return [path for path in found if path.startswith(f"{folder}/")]
