"""Dropping core segments that nobody needs any more (R7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lamina.wal.home import Home
from lamina.wal.reader import Damaged
from lamina.wal.scan import Tail, cores_of, read_tail, segments_of, shared_segments


def drop_segments(home: Home, floor: int, *, keep: set[str]) -> tuple[str, ...]:
    """Unlink what `droppable` names; oldest first, so that an interruption leaves a suffix."""
    dropped = droppable(home, floor, keep=keep)
    for path in dropped:
        home.disk.unlink(path)
    for folder in sorted({path.rpartition("/")[0] for path in dropped}):
        home.disk.sync_folder(folder)
    return dropped


def droppable(home: Home, floor: int, *, keep: set[str]) -> tuple[str, ...]:
    """Core segments that were made for epochs up to the floor and hold no later ones.

    Nor the one with the newest COMMIT of a core's own log: the next COMMIT names it, and if that
    one is not synced yet, it is the one before that a power cut goes back to.
    """
    found: list[str] = []
    for core in cores_of(home.disk):
        tails = [
            read_tail(home.disk, path, home.identity, judge=False)
            for path in segments_of(home.disk, core)
        ]
        paths = [tail.path for tail in tails]
        left = shared_segments(paths)[:-1]
        heads = sorted((tail.committed, tail.path) for tail in tails if _decides(tail, left))
        stay = in_use(paths, tails) | keep | {path for _, path in heads[-1:]}
        found += [
            tail.path
            for tail in tails
            if tail.path not in stay
            and tail.epoch <= floor
            and not isinstance(tail.end, Damaged)  # nobody knows what else it holds
        ]
    return tuple(found)


def in_use(paths: Sequence[str], tails: Iterable[Tail]) -> set[str]:
    """The segments of a core, of *paths*, that a writer looks at; *tails* of those in question.

    The newest of all, and the newest made under its lock: somebody may append there. And the
    newest of those that has a header: it says which sequence numbers were used.
    """
    begun = shared_segments(tail.path for tail in tails if tail.header is not None)
    return {*paths[-1:], *shared_segments(paths)[-1:], *begun[-1:]}


def _decides(tail: Tail, left: tuple[str, ...]) -> bool:
    """Whether its newest COMMIT is durable: segments are synced when they are left."""
    commit = tail.commit
    return commit is not None and (tail.path in left or commit.end <= tail.durable)
