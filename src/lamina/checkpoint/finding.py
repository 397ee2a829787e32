"""Finding a checkpoint by what people call it."""

from __future__ import annotations

import re

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.errors import NotFound
from lamina.format.log import Committed
from lamina.ids import CheckpointId
from lamina.protocol.history import History

LATEST = "latest"
_LIKE_AN_ID = re.compile(r"[0-9A-Fa-f-]{36}")
Reference = CheckpointId | str | int


def is_reserved(name: str) -> bool:
    """Whether a savepoint of this name could not be told from an id or from `latest`."""
    return name == LATEST or _LIKE_AN_ID.fullmatch(name) is not None


def find_checkpoint(checkpointer: Checkpointer, what: Reference) -> Committed:
    """By id, by the name of a savepoint, `latest`, or by epoch (the later one of two)."""
    if isinstance(what, str) and _LIKE_AN_ID.fullmatch(what):
        what = CheckpointId.parse(what)
    if isinstance(what, CheckpointId):
        return checkpointer.find(what)
    found = _named(checkpointer.history(), str(what))
    if found is None:
        called = what if isinstance(what, int) else repr(what[:80])
        nothing = f"no checkpoint or savepoint is called {called}"
        raise NotFound(
            "there is no checkpoint yet" if what == LATEST else nothing,
            where=checkpointer.store.url,
            advice="`lamina list` shows those that exist",
        )
    return found


def _named(history: History, name: str) -> Committed | None:
    if name in history.pins:
        return history.find(history.pins[name])
    if name == LATEST:
        return history.newest
    of_epoch = [c for c in history.checkpoints if str(c.epoch) == name]
    return of_epoch[-1] if of_epoch else None
