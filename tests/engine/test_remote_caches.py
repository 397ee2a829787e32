"""The folder of a machine on which tasks keep what they have fetched: full, old, or somebody's."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lamina.workspace.remote import cache_folders
from lamina.workspace.remote.cache import STALE_BYTES_MAX, Cache
from lamina.workspace.remote.cache_folders import cache_folder, drop_unused
from tests.engine.pipelines import run_out
from tests.engine.test_kills import EXPECTED
from tests.engine.test_remote_homes import Machines

HOME, OTHER = bytes(16), b"\1" * 16


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine of its own."""
    folder = tmp_path / "machine"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(cache_folders, "_HELD", {})
    yield folder
    for lock in cache_folders._HELD.values():
        if lock >= 0:
            os.close(lock)


def left(home: bytes, process: str, size: int = 3) -> Path:
    """By a process that is gone."""
    folder = cache_folder(home, process)
    (folder / "operator").mkdir(exist_ok=True)
    (folder / "operator" / "a.run").write_bytes(bytes(size))
    os.close(cache_folders._HELD.pop(folder))
    return folder


def test_what_an_earlier_driver_has_left_goes_and_what_somebody_uses_stays() -> None:
    used = left(HOME, "b")
    lock = os.open(used / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_SH)
    old, other = left(HOME, "a"), left(OTHER, "a")
    cache_folder(HOME, "c")
    assert used.exists()
    assert not old.exists()
    assert other.exists(), "its driver may go on"
    os.close(lock)
    drop_unused(cache_folder(HOME, "c"), 0)
    assert not used.exists()
    assert not other.exists()
    assert cache_folder(HOME, "c").exists()


def test_a_process_that_dies_has_let_go_of_its_folder(machine: Path) -> None:
    code = "import sys, os; from lamina.workspace.remote.cache_folders import cache_folder as f;"
    code += "f(bytes(16), 'dead'); print('held', flush=True); sys.stdin.read()"
    environment = {**os.environ, "TMPDIR": str(machine)}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        dead = cache_folder(HOME, "new").parent / "dead"
        assert dead.exists()
        process.kill()
        process.wait()
    drop_unused(cache_folder(HOME, "new"), 1 << 40)
    assert not dead.exists()


def test_stale_files_have_a_bound_in_bytes() -> None:
    cache = Cache(cache_folder(HOME, "a"), "totals")
    for name in ("old.run", "new.run"):
        assert cache.put(name, b"x")
    cache.keep_only(["new.run"])
    assert cache.has("old.run"), "it costs nothing to leave it"
    os.truncate(cache.file("old.run"), STALE_BYTES_MAX + 1)
    cache.keep_only(["new.run"])
    assert not cache.has("old.run")
    assert cache.has("new.run")


@pytest.mark.parametrize("carried", [0, 700])
def test_a_disk_that_is_full_fails_no_task(
    carried: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what it fetches nor what it compacts finds room."""
    full: list[str] = []

    def no_room(path: Path) -> None:
        if "machine/lamina-" in str(path):
            full.append(path.suffix)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    opened, written = Path.open, Path.write_bytes

    def opens(path: Path, mode: str = "r", *args: object, **more: object) -> object:
        if "w" in mode:
            no_room(path)
        return opened(path, mode, *args, **more)  # type: ignore[call-overload]

    def writes(path: Path, data: bytes) -> int:
        no_room(path)
        return written(path, data)

    monkeypatch.setattr(Path, "open", opens)
    monkeypatch.setattr(Path, "write_bytes", writes)
    world = Machines(tmp_path, carried=carried)
    world.settings = replace(world.settings, partitions=1)
    engine = world.open()
    run_out(engine)
    engine.checkpoint()
    engine.close()
    assert world.outcome() == EXPECTED
    assert ".tmp" in full, "a compaction found no room"
    assert len(set(full)) > 1, "and what was fetched, neither"


def test_a_folder_that_cannot_be_made_fails_no_task(tmp_path: Path, machine: Path) -> None:
    (machine / f"lamina-{os.getuid()}").write_text("in the way")
    world = Machines(tmp_path, carried=0)
    world.finish()
    assert world.outcome() == EXPECTED
