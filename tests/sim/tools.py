"""People with a command line: savepoints and gc, at any time, next to a running pipeline."""

from __future__ import annotations

from lamina.checkpoint.commit_log import CommitLog
from lamina.errors import LaminaError, NotFound
from lamina.format.log import decode_begin
from lamina.format.names import parse_id
from lamina.protocol.retention import Fate, fate_of, plan_forget, plan_sweep
from lamina.testing.clock import ManualClock
from tests.sim.checkpoints import read_manifest
from tests.sim.world import RETAIN, World


class Tool:
    def __init__(self, world: World) -> None:
        self.world = world
        self.store = world.open_store()
        self.paths = world.paths
        clock = ManualClock(world.scheduler.random.randrange(1 << 30))
        self.log = CommitLog(self.store, world.paths, clock)

    def savepoint(self) -> None:
        random = self.world.scheduler.random
        try:
            history = self.log.read()
            if history.pins and random.random() < 0.5:
                self.log.unpin(random.choice(sorted(history.pins)))
            elif history.checkpoints:
                chosen = random.choice(history.checkpoints)
                self.log.pin(f"save-{random.randrange(1 << 30)}", chosen.id)
        except LaminaError as error:
            self.world.stop(self, error)

    def gc(self) -> None:
        """List, look at begin.json, read the log; forget; only then delete."""
        try:
            self.log.forget(lambda history: plan_forget(history, RETAIN))
            folders = self.store.list_folder(self.paths.base).folders
            for folder in folders:
                self._sweep(folder)
        except LaminaError as error:
            self.world.stop(self, error)

    def _sweep(self, folder: str) -> None:
        id = parse_id(folder)
        if id is None:
            return
        try:
            begin = decode_begin(self.store.get(self.paths.begin(id)), folder)
        except NotFound:
            begin = None
        history = self.log.read()
        if fate_of(history, id, begin) is not Fate.GARBAGE:
            return
        referenced: set[str] = set()
        for kept in history.checkpoints:
            manifest = read_manifest(self.store.get(self.paths.manifest(kept.id)), str(kept.id))
            referenced |= {self.paths.absolute(path) for path, _ in manifest.files}
        objects = [info.key for info in self.store.list(self.paths.checkpoint_dir(id))]
        for key in plan_sweep(objects, self.paths.begin(id), referenced).delete:
            self.store.delete(key)
            self.world.deleted += 1
