"""The home of a pipeline, to look at: the folder itself, or a copy of what is in the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lamina.disk import LocalDisk
from lamina.disk.base import Disk
from lamina.format.holder import Holder
from lamina.front.places import PipelinePlace
from lamina.store import open_store
from lamina.workspace.notes import LocalNotes

if TYPE_CHECKING:
    from lamina.workspace.base import Notes


@dataclass(frozen=True, slots=True)
class SeenHome:
    """What commands that change nothing have of a home."""

    disk: Disk
    notes: Notes
    had_by: Holder | None = None  # of a home in an object store: who has claimed it last


@contextmanager
def seen(place: PipelinePlace) -> Iterator[SeenHome]:
    """NotFound if there is nothing at the address of a home in an object store."""
    if not place.remote:
        yield SeenHome(LocalDisk(place.home), LocalNotes(place.home))
        return
    from lamina.workspace.remote.copying import HomeCopy, copied_home  # noqa: PLC0415  slow
    from lamina.workspace.remote.holders import newest_holder  # noqa: PLC0415
    from lamina.workspace.remote.notes import RemoteNotes  # noqa: PLC0415

    notes = RemoteNotes(open_store(place.remote, writable=False))
    with copied_home(place.remote) as folder:
        yield SeenHome(HomeCopy(Path(folder), place.remote), notes, newest_holder(notes))
