"""Savepoints: a checkpoint with a name, kept until a person drops it."""

from __future__ import annotations

from dataclasses import dataclass

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.errors import AlreadyExists, NotFound, UsageError
from lamina.format.log import Committed
from lamina.ids import CheckpointId

NAME_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Savepoint:
    name: str
    checkpoint: Committed


def create_savepoint(
    checkpointer: Checkpointer, name: str, id: CheckpointId | None = None
) -> Savepoint:
    """Name a checkpoint, by default the newest; the same call twice is not an error."""
    check_name(name)
    if id is None:
        newest = checkpointer.history().newest
        if newest is None:
            raise NotFound("there is no checkpoint to name", where=checkpointer.store.url)
        id = newest.id
    history = checkpointer.log.pin(name, id)
    committed = history.find(id)
    if committed is None:
        raise NotFound(f"the savepoint {name!r} was already dropped by another process")
    return Savepoint(name, committed)


def list_savepoints(checkpointer: Checkpointer) -> tuple[Savepoint, ...]:
    """All of them, by name."""
    history = checkpointer.history()
    found = ((name, history.find(id)) for name, id in sorted(history.pins.items()))
    return tuple(Savepoint(name, committed) for name, committed in found if committed)


def drop_savepoint(checkpointer: Checkpointer, name: str) -> Savepoint:
    """Take the name away; what it pinned goes with the next gc, if nothing else holds it."""
    dropped = find_savepoint(checkpointer, name)
    checkpointer.log.unpin(name)
    return dropped


def find_savepoint(checkpointer: Checkpointer, name: str) -> Savepoint:
    for savepoint in list_savepoints(checkpointer):
        if savepoint.name == name:
            return savepoint
    raise NotFound(f"no savepoint is called {name!r}", where=checkpointer.store.url)


def check_is_free(checkpointer: Checkpointer, name: str, id: CheckpointId) -> None:
    """AlreadyExists if the name belongs to another checkpoint than *id*."""
    taken = checkpointer.history().pins.get(name, id)
    if taken != id:
        raise AlreadyExists(
            f"the savepoint {name!r} exists and is checkpoint {taken}",
            advice="Choose another name, or drop that savepoint first",
        )


def check_name(name: str) -> None:
    """UsageError if no savepoint can have this name."""
    if not name.strip() or len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
        raise UsageError(
            f"a savepoint's name has 1 to {NAME_CHARACTERS_MAX} printable characters: "
            f"{name[:40]!r} does not"
        )
