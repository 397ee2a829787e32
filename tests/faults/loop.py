"""A real ext4 in a file: made, mounted and never left mounted."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

IMAGE_BYTES = 96 * 1024 * 1024
TOOLS = ("mkfs.ext4", "mount", "umount", "cp")


def reason_to_skip() -> str:
    if os.geteuid() != 0:
        return "a power cut needs root: it mounts a file system"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    return "" if Path("/dev/loop-control").exists() else "there is no /dev/loop-control"


def make_disk(folder: Path) -> Path:
    """A fresh ext4; the test is skipped where a loop mount is not allowed after all."""
    image = folder / "disk-0.img"
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    call("mkfs.ext4", "-q", "-F", str(image))
    try:
        with mounted(image):
            pass
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop mount here: {error.stderr.strip()}")
    return image


@contextmanager
def mounted(image: Path) -> Iterator[Path]:
    """Mounted while the block runs; never longer, whatever happens in it."""
    folder = image.with_suffix(".mnt")
    folder.mkdir(exist_ok=True)
    # commit=600: the journal is written when somebody syncs, not because time has passed
    call("mount", "-o", "loop,commit=600", str(image), str(folder))
    try:
        yield folder
    finally:
        unmount(folder)


def unmount(folder: Path) -> None:
    """Nothing stays mounted, also not after a failure whose traceback still holds open files."""
    try:
        call("umount", str(folder))
    except subprocess.CalledProcessError:
        call("umount", "--lazy", str(folder))


def call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
