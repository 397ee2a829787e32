"""The checkpoints of a home that is moved go along: to another store, byte for byte.

    claim    a TAKEOVER in the old log: whoever still makes a checkpoint there is fenced, and until
             a pipeline has made its next one nothing there can be forgotten
    copy     what checkpoints that exist name, then the log itself, entry by entry, then the hint
    prove    all of it, read back by its digests; and the old log still ends where it did

Ids, manifests and log entries are the same at both places. Killed anywhere, the same move goes on:
what is there is not written again. The new store counts when the home has moved, not before.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.forking import FORK
from lamina.checkpoint.parallel import run_all
from lamina.checkpoint.progress import Progress, Report, silent
from lamina.checkpoint.transfer import copy_file
from lamina.checkpoint.verify import verify
from lamina.errors import AlreadyExists, Corrupt, Fenced, NotFound, Refused
from lamina.format.manifest import Artifact
from lamina.format.names import CheckpointPaths, LogName
from lamina.os_errors import typed_errors
from lamina.protocol.history import History


class StoreMove:
    """From the store that a home uses to the one that it is to use."""

    def __init__(
        self,
        source: Checkpointer,
        target: Checkpointer | None,
        *,
        where: str,
        must_exist: bool = True,
        report: Report = silent,
    ) -> None:
        """*where* is what --store has to be after it; without a *target* it is only looked at.

        Not *must_exist*: perhaps the home uses another store, and then nothing is moved.
        """
        self._source, self._target = source, target
        self._where, self._must_exist, self._report = where, must_exist, report
        self._done = self._total = self.objects = 0
        self._claimed: History | None = None

    @property
    def has_target(self) -> bool:
        return self._target is not None

    @property
    def bytes(self) -> int:
        return self._done

    @property
    def forks(self) -> tuple[str, ...]:
        """Savepoints that keep files for forks: those go on reading them here, at the old place."""
        return tuple(sorted(n for n in self._source.history().pins if n.startswith(FORK)))

    def belongs_to(self, home: str) -> bool:
        return self._source.history().home == home

    def where_for(self, home: str) -> str:
        """Where the checkpoints of *home* will be; empty: nobody knows, but not here."""
        return self._where if self.belongs_to(home) else ""

    def check(self, home: str) -> None:
        """Refused, before anything is changed, if this cannot end well."""
        history = self._source.history()
        if history.home != home:
            if self._must_exist:
                raise Refused(
                    "the checkpoints of this home are not here",
                    where=self._source.store.url,
                    advice="Give the --store that the pipeline was started with",
                )
            return
        if self._target is not None:
            _check_is_part(self._source, self._target)

    def claim(self, generation: int) -> None:
        now = self._source.history()
        self._claimed = self._source.log.take_over(
            now.home, generation=generation, pipeline=now.pipeline
        )

    def copy(self) -> None:
        """Files first: until the log names a checkpoint, it does not exist."""
        assert self._target is not None, "it is not a dry run"
        history = self._source.history()
        manifests = [self._source.load_manifest(each.id) for each in history.checkpoints]
        files = {a.path: a for manifest in manifests for a in manifest.artifacts()}
        self._total = sum(file.size or 0 for file in files.values())
        self._copy_files(list(files.values()), self._target)
        ids = [each.id for each in history.checkpoints]
        folders = sorted({path.split("/")[0] for path in files} | set(map(str, ids)))
        begins = [self._paths.absolute(f"{folder}/begin.json") for folder in folders]
        keys = [*begins, *(self._paths.manifest(id) for id in ids)]
        keys += [self._paths.log_entry(seq) for seq in range(1, history.seq + 1)]
        run_all(keys, self._copy_object, limit=self._target.max_concurrent)
        self.objects = len(files) + len(keys)
        self._target.log.write_hint()

    def prove(self) -> None:
        """Before the home's move is decided."""
        assert self._target is not None, "it is not a dry run"
        there = Checkpointer(self._target.store, self._target.paths, vnode_count=None)
        report = verify(there)
        for problem in report.problems if not report.ok else ():
            raise Corrupt(
                f"the checkpoints that were copied are not whole: {problem.message}",
                where=problem.where,
                advice="Home and checkpoints are still at the old place; run `lamina move` again, "
                "or repair what `lamina verify` names there",
            )
        now, claimed = self._source.history(), self._claimed
        assert claimed is not None, "claim comes first"
        if now.digest != claimed.digest or there.history().digest != now.digest:
            raise Fenced(
                "somebody has written to the log of the store while it was copied",
                where=self._source.store.url,
                advice="Run `lamina move` again",
            )

    # steps

    def _copy_files(self, files: list[Artifact], target: Checkpointer) -> None:
        def note(file: Artifact, _: None) -> None:
            self._done += file.size or 0
            self._report(Progress(self._done, self._total, "bytes", file.path))

        with (
            typed_errors(gettempdir()),
            TemporaryDirectory(prefix="lamina-move-") as folder,
        ):
            run_all(
                files,
                lambda file: copy_file(self._source, file, target, Path(folder)),
                limit=target.max_concurrent,
                each=note,
            )

    def _copy_object(self, key: str) -> None:
        """A small one; begin.json of an id that is long forgotten may be gone."""
        assert self._target is not None, "it is not a dry run"
        try:
            data = self._source.store.get(key)
        except NotFound:
            if key.endswith("/begin.json"):
                return
            raise
        try:
            self._target.store.put_if_absent(key, data)
        except AlreadyExists:
            if not key.endswith("/begin.json"):
                raise _other_history(self._target) from None
            self._target.store.put(key, data)

    @property
    def _paths(self) -> CheckpointPaths:
        return self._source.paths


def _check_is_part(source: Checkpointer, target: Checkpointer) -> None:
    """The target has nothing, or the beginning of the source's log: from an earlier move."""
    names = (target.paths.parse(info.key) for info in target.store.list(target.paths.log_dir()))
    last = max((name.seq for name in names if isinstance(name, LogName)), default=0)
    if not last:
        return
    key = target.paths.log_entry(last)
    try:
        same = source.store.get(key) == target.store.get(key)
    except NotFound:
        same = False
    if not same:
        raise _other_history(target)


def _other_history(target: Checkpointer) -> Refused:
    return Refused(
        "there are other checkpoints here already",
        where=target.store.url,
        advice="Give a --to-store that is empty",
    )
