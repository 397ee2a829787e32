"""The folders of a Parquet sink that has taken rows back: put as its log says, again and again.

Taking an epoch back gives its folder a name that readers pass over; nothing is deleted. Each name
has the rewind that gave it, so no name comes twice, and whoever claims the sink has done all that
was decided before. So a process that was paused in the middle finds none of its names any more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from lamina.disk.files import Files
from lamina.engine.ports import Beyond
from lamina.format import sink_log as names
from lamina.format.sink_log import EpochFolder
from lamina.format.taken_back import TakenBack
from lamina.protocol.rewinds import is_shown

Rename = Callable[[Path, Path], None]
Rewinds = tuple[TakenBack, ...]


def arrange(files: Files, root: Path, rewinds: Rewinds, rename: Rename) -> None:
    """Hide what the last of *rewinds* took back, newest first; then show what it shows again.

    A reader in between sees what the sink was at some epoch before.
    """
    own = rewinds[-1].epoch
    ours = [each for each in _folders(files, root) if each.rewind <= own]
    wrong = [each for each in ours if each.is_visible is not is_shown(each.epoch, rewinds)]
    hides = [each for each in reversed(wrong) if each.is_visible]
    for each in (*hides, *(each for each in wrong if not each.is_visible)):
        target = EpochFolder(each.epoch, own, is_visible=not each.is_visible)
        rename(root / each.name, root / target.name)
    files.sync(root)


def compare(files: Files, root: Path, rewinds: Rewinds) -> Beyond:
    """What another list of rewinds would hide and show."""
    folders = list(_folders(files, root))
    hides = [f for f in folders if f.is_visible and not is_shown(f.epoch, rewinds)]
    missing = [f for f in folders if not f.is_visible and is_shown(f.epoch, rewinds)]
    rows = sum(_rows(files, root / each.name) for each in hides)
    size = sum(_size(files, root / each.name) for each in hides)
    return Beyond(len(hides), rows, size, len(missing))


def _folders(files: Files, root: Path) -> Iterator[EpochFolder]:
    """By epoch, oldest first."""
    found = map(names.parse_epoch_folder, files.names(root))
    yield from sorted((f for f in found if f is not None), key=lambda folder: folder.epoch)


def _rows(files: Files, folder: Path) -> int:
    path = folder / names.MARKER
    with files.open(path) as opened:
        return names.marker_rows(opened.read(), str(path))


def _size(files: Files, folder: Path) -> int:
    total = 0
    for name in files.names(folder):
        if name == names.MARKER:
            continue
        with files.open(folder / name) as opened:
            total += opened.seek(0, os.SEEK_END)
    return total
