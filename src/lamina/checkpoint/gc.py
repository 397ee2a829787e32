"""Garbage collection (R11): plan, show, then do. No clock is looked at.

1. FORGET in the log: from here on the checkpoints do not exist, and nobody can pin them.
2. Delete what no checkpoint that exists names, folder by folder, begin.json last.

Killed anywhere, the next run finds the same garbage and continues.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.forking import release_origin
from lamina.checkpoint.parallel import run_all
from lamina.checkpoint.progress import Progress, Report, silent
from lamina.errors import Corrupt, Fenced, NotFound, StoreError
from lamina.format.log import Begin, Committed, decode_begin
from lamina.format.names import parse_id
from lamina.ids import CheckpointId
from lamina.protocol.history import COPY_HOME, GC_HOME, History, judge_forget
from lamina.protocol.retention import Fate, fate_of, forgotten, held, plan_forget, plan_sweep
from lamina.store.base import Folder, ObjectInfo


@dataclass(frozen=True, slots=True)
class FolderPlan:
    """What happens to the folder of one checkpoint id."""

    id: CheckpointId
    fate: Fate
    delete: tuple[ObjectInfo, ...] = ()  # in this order
    shared: tuple[str, ...] = ()  # what checkpoints that exist still use


@dataclass(frozen=True, slots=True)
class GcPlan:
    """Everything a gc would do. Making it changes nothing."""

    forget: tuple[CheckpointId, ...]
    held: tuple[tuple[CheckpointId, str], ...]  # beyond the retention, and why they stay
    folders: tuple[FolderPlan, ...]

    @property
    def delete(self) -> tuple[ObjectInfo, ...]:
        return tuple(info for folder in self.folders for info in folder.delete)

    @property
    def bytes(self) -> int:
        return sum(info.size for info in self.delete)


def plan_gc(checkpointer: Checkpointer, *, retain: int) -> GcPlan:
    """What `run_gc` would do now: the newest *retain* checkpoints and every savepoint stay."""
    forget = plan_forget(checkpointer.history(), retain)
    collector = _Collector(checkpointer, forget)
    collector.check_kept(forget)
    return GcPlan(forget, held(collector.history(), retain), collector.folders())


def run_gc(checkpointer: Checkpointer, *, retain: int, report: Report = silent) -> GcPlan:
    """Forget, then delete; returns what was done."""
    before = checkpointer.history()
    collector = _Collector(checkpointer)
    collector.check_kept(plan_forget(before, retain))
    after = checkpointer.log.forget(lambda now: plan_forget(now, retain))
    forget = tuple(c.id for c in before.checkpoints if after.find(c.id) is None)
    folders = collector.folders()
    interrupted = after.home == GC_HOME  # even with nothing left to delete: copies wait for its end
    if interrupted or any(folder.delete for folder in folders):
        with _alone(checkpointer):
            folders = collector.folders()
            collector.delete(folders, report)
    release_origin(checkpointer, collector.listed)
    return GcPlan(forget, held(after, retain), folders)


def delete_checkpoint(checkpointer: Checkpointer, id: CheckpointId) -> FolderPlan:
    """Forget one checkpoint and delete its files, except those that others use.

    StillNeeded if it is pinned, the newest, or what the pipeline builds on. Afterwards its folder
    is looked at again: what is left is what `shared` names, or the call fails.
    """
    checkpointer.find(id)
    judge_forget(checkpointer.history(), id)
    collector = _Collector(checkpointer)
    collector.check_kept((id,))
    checkpointer.log.forget(lambda now: (id,) if now.find(id) else ())
    with _alone(checkpointer):
        plan = collector.sweep(id)  # the log knew it: garbage, with or without a begin.json
        collector.delete((plan,), silent)
    listed = checkpointer.store.list(checkpointer.paths.checkpoint_dir(id))
    left = {info.key for info in listed if checkpointer.paths.parse(info.key)}
    if unexpected := sorted(left - set(plan.shared) - {checkpointer.paths.begin(id)}):
        raise StoreError(
            f"{len(unexpected)} objects of the deleted checkpoint {id} are still there",
            where=unexpected[0],
            advice="Another process may be writing there; `lamina gc` removes them later",
        )
    return plan


@contextmanager
def _alone(checkpointer: Checkpointer) -> Iterator[None]:
    """In a base of copies, keep new ones out while folders are deleted.

    A fresh id that is garbage once is garbage for ever; a copy uses an id again. The log itself is
    the lock: a copy under way is fenced, none begins while a gc owns the base, and a gc that was
    interrupted is ended by the next one.
    """
    home = checkpointer.history().home
    if not home.startswith(COPY_HOME):
        yield
        return
    checkpointer.log.take_over(_nobodys)
    own = checkpointer.log.generation
    yield
    if checkpointer.history().generation == own:
        checkpointer.log.take_over(f"{COPY_HOME}swept")


def _nobodys(now: History) -> str:
    if not now.home.startswith(COPY_HOME):
        raise Fenced(f"a pipeline with its home in {now.home} has taken this base over")
    return GC_HOME


class _Collector:
    """Judges folders. *forget* is left out of the history when a plan is only shown."""

    def __init__(self, checkpointer: Checkpointer, forget: tuple[CheckpointId, ...] = ()) -> None:
        self._checkpointer = checkpointer
        self._store = checkpointer.store
        self._paths = checkpointer.paths
        self._forget = forget
        self._manifests: dict[CheckpointId, frozenset[str]] = {}  # a manifest never changes
        self._named_by: tuple[Committed, ...] | None = None
        self._named: frozenset[str] = frozenset()
        self.listed = Folder((), ())  # the base, as it was when folders were last judged

    def history(self) -> History:
        return forgotten(self._checkpointer.history(), self._forget)

    def check_kept(self, forget: Collection[CheckpointId]) -> None:
        """Read every manifest that stays, before anything is forgotten.

        With an unreadable one among them the others may be all that can still be restored.
        """
        if forget:
            self._names(forget)

    def folders(self) -> tuple[FolderPlan, ...]:
        self.listed = self._store.list_folder(self._paths.base)
        ids = sorted(id for folder in self.listed.folders if (id := parse_id(folder)))
        plans = (self.folder(id) for id in ids)
        return tuple(plan for plan in plans if plan.fate is not Fate.EXISTS)

    def folder(self, id: CheckpointId) -> FolderPlan:
        """What to do with one folder. The log is read after begin.json, so "dead" is final."""
        begin = self._begin(id)
        fate = fate_of(self.history(), id, begin)
        if fate is not Fate.GARBAGE:
            return FolderPlan(id, fate)
        return self.sweep(id)

    def sweep(self, id: CheckpointId) -> FolderPlan:
        """What to delete in a folder that is garbage."""
        listed = self._store.list(self._paths.checkpoint_dir(id))
        objects = {info.key: info for info in listed if self._paths.parse(info.key)}
        sweep = plan_sweep(objects, self._paths.begin(id), self._names(self._forget))
        delete = tuple(objects[key] for key in sweep.delete if key in objects)
        return FolderPlan(id, Fate.GARBAGE, delete, sweep.shared)

    def delete(self, plans: Sequence[FolderPlan], report: Report) -> None:
        """Everything but begin.json first: while that one stands, garbage is known as garbage."""
        infos = [info for plan in plans for info in plan.delete]
        begins = {self._paths.begin(plan.id) for plan in plans}
        first = [info for info in infos if info.key not in begins]
        last = [info for info in infos if info.key in begins]
        count = 0

        def note(info: ObjectInfo, _: None) -> None:
            nonlocal count
            count += 1
            report(Progress(count, len(infos), "objects", info.key))

        for group in (first, last):
            limit = self._checkpointer.max_concurrent
            run_all(group, lambda info: self._store.delete(info.key), limit=limit, each=note)

    def _names(self, forget: Collection[CheckpointId]) -> frozenset[str]:
        """Every file that a checkpoint names which exists now, that is: after a folder was judged.

        Asked again for every folder: while gc works checkpoints are made and others forgotten.
        """
        while True:
            existing = forgotten(self._checkpointer.history(), forget).checkpoints
            if existing == self._named_by:
                return self._named
            if all(self._read(committed.id) for committed in existing):
                self._named = frozenset().union(*(self._manifests[c.id] for c in existing))
                self._named_by = existing

    def _read(self, id: CheckpointId) -> bool:
        """False if somebody has forgotten it meanwhile; unreadable manifests stop the gc."""
        if id in self._manifests:
            return True
        try:
            manifest = self._checkpointer.load_manifest(id)
        except (Corrupt, NotFound) as error:
            if self._checkpointer.history().find(id) is None:
                return False
            raise Corrupt(
                f"the manifest of checkpoint {id} cannot be read, so nobody knows which files it "
                f"needs: {error.message}",
                where=error.where,
                advice="Nothing was deleted. Restore the manifest, or drop its savepoint",
            ) from error
        paths = (self._paths.absolute(artifact.path) for artifact in manifest.artifacts())
        self._manifests[id] = frozenset(paths)
        return True

    def _begin(self, id: CheckpointId) -> Begin | None:
        """begin.json, or None if it is missing or damaged: then the folder is left alone."""
        key = self._paths.begin(id)
        try:
            return decode_begin(self._store.get(key), key)
        except (NotFound, Corrupt):
            return None
