"""A fork: a second pipeline that starts from a checkpoint of the first one, by reference.

    origin.json  in the fork's base: where its files are, and a name of its own for
    savepoint    in the origin's log: from here on no gc of the origin deletes the files
    manifest     the very bytes of the origin's
    log entry    the checkpoint exists here, too

In this order, so that killed anywhere there is nothing that counts, or all of it; the same call
goes on. When no checkpoint of the fork names a file of the origin any more, its gc gives the
savepoint back. The name is random: two forks that shared one would take the files from each other.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.savepoints import create_savepoint
from lamina.checkpoint.transfer import (
    check_target,
    claim,
    copy_manifest,
    exist,
    is_same_place,
    mark_folders,
    raw_manifest,
)
from lamina.checkpoint.verify import CheckpointReport, verify
from lamina.clock import new_writer_id
from lamina.errors import AlreadyExists, Corrupt, NotFound, Refused, UsageError
from lamina.format.log import Committed
from lamina.format.manifest import CheckpointManifest
from lamina.format.names import CheckpointPaths, parse_id
from lamina.format.origin import Origin, decode_origin, encode_origin
from lamina.ids import CheckpointId
from lamina.protocol.history import COPY_HOME
from lamina.store.base import Folder
from lamina.store.forked import ForkedStore
from lamina.store.opening import address_of_origin

FORK = "fork-"
"""How savepoints begin that keep files for a fork."""


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """What a fork would do; making it changes nothing."""

    checkpoint: Committed
    files: int
    bytes: int  # of them: shared, not copied


@dataclass(frozen=True, slots=True)
class ForkReport:
    plan: ForkPlan
    savepoint: str  # the name that keeps the files at the origin
    verified: CheckpointReport  # presence and size of every file; contents are those of the origin


def plan_fork(source: Checkpointer, id: CheckpointId, target: Checkpointer | None) -> ForkPlan:
    """What `fork_checkpoint` would do; raises what forbids it. No target: it is yet to be made."""
    manifest = source.load_manifest(id)
    if target is not None:
        _check_target(source, manifest, target)
    files = manifest.artifacts()
    return ForkPlan(source.find(id), len(files), sum(file.size or 0 for file in files))


def fork_checkpoint(source: Checkpointer, id: CheckpointId, target: Checkpointer) -> ForkReport:
    """Make the checkpoint exist at the target, with the files of the source."""
    plan = plan_fork(source, id, target)
    manifest = source.load_manifest(id)
    origin = _written(_origin(source, manifest, target), target)
    create_savepoint(source, origin.savepoint, id)
    begin = claim(target, id, source.store.url)
    if begin is not None:
        mark_folders(target, begin, manifest)
        copy_manifest(source, id, target)
        exist(begin, manifest, raw_manifest(source, id), target)
    report = verify(target, (id,), sample=0.0).checkpoints[0]
    if not report.ok:
        problem = report.problems[0]
        raise Corrupt(f"the fork of {id} is incomplete: {problem.message}", where=problem.where)
    return ForkReport(plan, origin.savepoint, report)


def release_origin(checkpointer: Checkpointer, listed: Folder) -> bool:
    """Give the savepoint at the origin back, if nothing here needs its files any more.

    *listed* is the base: whether this is a fork at all costs no request. Until a pipeline has
    taken the base over a fork may just be made there: nothing says yet what it is going to need.
    """
    key = checkpointer.paths.origin()
    store = checkpointer.store
    if all(info.key != key for info in listed.objects) or not isinstance(store, ForkedStore):
        return False  # not a fork, or a store that opens no other one
    home = checkpointer.history().home
    if not home or home.startswith(COPY_HOME):
        return False
    origin = decode_origin(store.get(key), f"{store.url}/{key}")
    if _folders_named(checkpointer) & set(origin.folders):
        return False
    _drop(store, origin)
    store.delete(key)
    return True


def _drop(store: ForkedStore, origin: Origin) -> None:
    """The origin may be gone, or a person may have dropped the savepoint there: nothing to do."""
    try:
        store.open_origin(origin)  # to write would make a folder that has gone
        there = store.open_origin(origin, writable=True)
        Checkpointer(there, CheckpointPaths(origin.base)).log.unpin(origin.savepoint)
    except NotFound:
        return


def _folders_named(checkpointer: Checkpointer) -> set[CheckpointId]:
    """The folders of all files that a checkpoint here names."""
    named: set[CheckpointId] = set()
    for committed in checkpointer.history().checkpoints:
        named |= set(_folders(checkpointer.load_manifest(committed.id)))
    return named


def _folders(manifest: CheckpointManifest) -> tuple[CheckpointId, ...]:
    ids = (parse_id(artifact.path.split("/")[0]) for artifact in manifest.artifacts())
    return tuple(sorted({id for id in ids if id is not None}))


def _origin(source: Checkpointer, manifest: CheckpointManifest, target: Checkpointer) -> Origin:
    """What a fork that begins now says, by a name that no other fork has."""
    return Origin(
        store=address_of_origin(target.store, source.store),
        base=source.paths.base,
        checkpoint=manifest.checkpoint_id,
        savepoint=f"{FORK}{new_writer_id(target.clock)[:12]}",
        folders=_folders(manifest),
    )


def _written(origin: Origin, target: Checkpointer) -> Origin:
    """What the target says, which an interrupted call may have written; *origin* if it is new."""
    with suppress(AlreadyExists):
        target.store.put_if_absent(target.paths.origin(), encode_origin(origin))
        return origin
    found = _found(target)
    _check_same(found, origin, target)
    return found


def _found(target: Checkpointer) -> Origin:
    key = target.paths.origin()
    return decode_origin(target.store.get(key), f"{target.store.url}/{key}")


def _check_target(source: Checkpointer, manifest: CheckpointManifest, target: Checkpointer) -> None:
    """An empty place, or this very fork, perhaps interrupted: a base has one origin."""
    if is_same_place(source, target):
        raise UsageError("a fork needs a place of its own", where=target.store.url)
    origin = _origin(source, manifest, target)
    check_target(target.history(), target)
    try:
        found = _found(target)
    except NotFound:
        if target.history().checkpoints:
            raise Refused(
                "there are checkpoints at the target already",
                where=target.store.url,
                advice="Fork to an empty place",
            ) from None
        return
    _check_same(found, origin, target)


def _check_same(found: Origin, origin: Origin, target: Checkpointer) -> None:
    if replace(found, savepoint=origin.savepoint) != origin:
        raise AlreadyExists(
            f"the target is a fork of checkpoint {found.checkpoint}",
            where=f"{target.store.url}/{target.paths.origin()}",
            advice="Fork to an empty place",
        )
