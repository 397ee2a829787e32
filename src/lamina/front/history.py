"""The history of a pipeline's epochs, wherever its home is: running, ended or damaged.

It is read from its own files alone; nothing of the log is looked at.
"""

from __future__ import annotations

import os

from lamina.errors import NotFound, UsageError
from lamina.format.epoch_row import EpochRow
from lamina.format.home_names import IDENTITY
from lamina.front.places import PipelinePlace, place_of
from lamina.os_errors import typed_errors
from lamina.store import open_store
from lamina.workspace.base import Notes
from lamina.workspace.history import LIMIT, HistoryPage, read_history
from lamina.workspace.notes import LocalNotes

__all__ = ["EpochRow", "HistoryPage", "history", "history_at", "history_places"]


def history(
    pipeline: str | os.PathLike[str],
    *,
    home: str | os.PathLike[str] | None = None,
    before: int | None = None,
    limit: int = LIMIT,
) -> HistoryPage:
    """The newest epochs of a pipeline file, or the newest *before* an epoch.

    NotFound if the pipeline has no home. A home without history gives a page without rows.
    """
    return history_at(history_places(place_of(pipeline, home)), before=before, limit=limit)


def history_at(
    places: tuple[Notes, ...], *, before: int | None = None, limit: int = LIMIT
) -> HistoryPage:
    """The same, of *places* that are opened once and looked at often."""
    if limit < 1:
        raise UsageError(f"a page of {limit} epochs: it must be at least 1")
    return read_history(places, before=before, limit=limit)


def history_places(place: PipelinePlace) -> tuple[Notes, ...]:
    """Where the history of a pipeline lies: its home; of one in an object store, also the folder of
    this machine, which has what the store gets with the next checkpoint."""
    here = LocalNotes(place.home)
    if place.remote:
        from lamina.workspace.remote.notes import RemoteNotes  # noqa: PLC0415  slow to import

        store = open_store(place.remote, writable=False)
        try:
            store.get(IDENTITY)
        except NotFound as error:
            message = "there is no home at this address"
            raise NotFound(message, where=place.remote, advice="Check --home") from error
        return RemoteNotes(store), here
    with typed_errors(place.home):
        if not place.home.is_dir():
            advice = "Has it ever run? `lamina run` creates its home; --home says where it is"
            raise NotFound("there is no home here", where=str(place.home), advice=advice)
    return (here,)
