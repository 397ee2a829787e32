"""What the tests of checkpoints share: a log without a store, and a pipeline that writes into one.

The bytes of a run depend on what it is (operator, partition, epochs) and on nothing else, so every
test can say what a load must return without having kept it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from lamina.checkpoint import Checkpointer, PartitionData
from lamina.format.canonical import sha256_hex
from lamina.format.log import (
    Begin,
    Body,
    Checkpoint,
    Committed,
    Entry,
    Forget,
    Pin,
    Rewind,
    Takeover,
    Unpin,
    encode_entry,
)
from lamina.format.manifest import (
    CheckpointManifest,
    OperatorRuns,
    PlacedEntry,
    RunEntry,
    with_runs,
)
from lamina.format.names import CheckpointPaths
from lamina.ids import CheckpointId
from lamina.protocol.history import (
    EMPTY,
    History,
    due_for_state,
    follow,
    judge,
    preview,
    state_of,
)
from lamina.store import Data, Folder, MemoryStore, ObjectInfo, Store
from lamina.testing import ManualClock

HOME = "home-a"


def cid(number: int) -> CheckpointId:
    return CheckpointId.from_parts(1_700_000_000_000 + number, number)


@dataclass
class Scribe:
    """A log in memory: what may be written is written, everything else raises."""

    history: History = EMPTY
    entries: list[tuple[Entry, str]] = field(default_factory=list)

    def write(self, body: Body, *, generation: int | None = None) -> History:
        who = self.history.generation if generation is None else generation
        judge(self.history, body, who)
        entry = Entry(self.history.seq + 1, self.history.digest, who, "w", 0, body)
        if due_for_state(entry.seq):
            entry = replace(entry, state=state_of(preview(self.history, entry)))
        digest = sha256_hex(encode_entry(entry))
        self.history = follow(self.history, entry, digest, "log")
        self.entries.append((entry, digest))
        return self.history

    def take_over(self, generation: int, home: str = HOME) -> Scribe:
        self.write(Takeover(generation, home), generation=generation)
        return self

    def checkpoint(
        self,
        id: int,
        epoch: int,
        *,
        parent: int | None = None,
        after: int | None = None,
        generation: int | None = None,
        digest: str | None = None,
    ) -> Scribe:
        body = checkpoint_body(
            id,
            epoch,
            parent=parent,
            after=self.history.lineage_seq if after is None else after,
            digest=digest,
        )
        self.write(body, generation=generation)
        return self

    def rewind(
        self, epoch: int, to: int, to_epoch: int, *, generation: int | None = None
    ) -> Scribe:
        self.write(Rewind(epoch, cid(to), to_epoch), generation=generation)
        return self

    def pin(self, name: str, id: int) -> Scribe:
        self.write(Pin(name, cid(id)))
        return self

    def unpin(self, name: str) -> Scribe:
        self.write(Unpin(name))
        return self

    def forget(self, *ids: int) -> Scribe:
        self.write(Forget(tuple(map(cid, ids))))
        return self


def checkpoint_body(
    id: int, epoch: int, *, parent: int | None, after: int, digest: str | None = None
) -> Checkpoint:
    return Checkpoint(
        id=cid(id),
        epoch=epoch,
        parent=None if parent is None else cid(parent),
        after=after,
        begin_sha256="b" * 64,
        manifest_sha256="c" * 64,
        manifest_size=1,
        total_size=2,
        commit_digest=digest,
    )


def run_bytes(operator: str, partition: int, first: int, last: int) -> bytes:
    return f"{operator}/{partition}: epochs {first} to {last}".encode()


def open_pipeline(
    store: Store | None = None, *, base: str = "p", seed: int = 0, limit: int = 4, home: str = HOME
) -> Checkpointer:
    """A pipeline that was taken over and may write."""
    opened = reader(MemoryStore() if store is None else store, base=base, seed=seed, limit=limit)
    opened.log.take_over(home)
    return opened


def reader(store: Store, *, base: str = "p", seed: int = 1_000, limit: int = 4) -> Checkpointer:
    """Somebody who only looks: a fresh process with nothing cached."""
    return Checkpointer(
        store,
        CheckpointPaths(base),
        max_concurrent_uploads=limit,
        clock=ManualClock(seed),
    )


def manifest_of(epoch: int, runs: Iterable[PlacedEntry] = ()) -> CheckpointManifest:
    """A manifest whose ids `commit` fills in."""
    empty = CheckpointManifest(checkpoint_id=cid(0), epoch=epoch, timestamp_ms=1, generation=1)
    return with_runs(empty, runs)


def placed_runs(manifest: CheckpointManifest) -> Iterator[PlacedEntry]:
    for operator, state in manifest.operators.items():
        for partition, runs in state.partitions.items():
            for run in runs:
                yield PlacedEntry(operator, partition, run)


def save_runs(
    checkpointer: Checkpointer, begin: Begin, epoch: int, *, partitions: Iterable[int] = (0, 1)
) -> list[PlacedEntry]:
    """Upload the new runs of an epoch; returns them with what the parent already has."""
    below: list[PlacedEntry] = []
    if begin.parent is not None:
        below = list(placed_runs(checkpointer.load_manifest(begin.parent)))
    first = 1 + max((p.run.last_epoch for p in below), default=0)
    kind = "delta" if below else "snap"
    parts = [
        PartitionData("sum", p, kind, first, epoch, 1, run_bytes("sum", p, first, epoch))
        for p in partitions
    ]
    return [*below, *checkpointer.save_partitions(begin.id, parts)]


def take_checkpoint(
    checkpointer: Checkpointer,
    epoch: int,
    *,
    partitions: Iterable[int] = (0, 1),
    full: bool = False,
    parent: CheckpointId | None = None,
) -> Committed:
    """Begin, save, commit: on top of what the log stands on, or *full*."""
    begin = checkpointer.begin(parent, full=full)
    runs = save_runs(checkpointer, begin, epoch, partitions=partitions)
    return checkpointer.commit(begin, manifest_of(epoch, runs))


def assert_loads_exactly(checkpointer: Checkpointer, id: CheckpointId) -> None:
    """Every run of the checkpoint is there and holds what was saved."""
    manifest = checkpointer.load_manifest(id)
    assert manifest.checkpoint_id == id
    placed = list(placed_runs(manifest))
    assert placed
    for operator, partition, run in placed:
        expected = run_bytes(operator, partition, run.first_epoch, run.last_epoch)
        assert checkpointer.load_artifact(run) == expected


def with_run(manifest: CheckpointManifest, run: RunEntry, partition: int = 0) -> CheckpointManifest:
    return replace(manifest, operators={"sum": OperatorRuns({partition: (run,)})})


def snapshot_of(store: Store) -> dict[str, bytes]:
    """Every object and its bytes."""
    return {info.key: store.get(info.key) for info in store.list()}


def copy_of(objects: dict[str, bytes]) -> MemoryStore:
    store = MemoryStore()
    for key, data in objects.items():
        store.put(key, data)
    return store


def keys(store: Store) -> list[str]:
    return [info.key for info in store.list()]


class WatchedStore:
    """A store that tells *watch* about every call, before it happens: (operation, key)."""

    def __init__(self, inner: Store, watch: Callable[[str, str], None]) -> None:
        self._inner = inner
        self._watch = watch

    @property
    def url(self) -> str:
        return self._inner.url

    def get(self, key: str) -> bytes:
        self._watch("get", key)
        return self._inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self._watch("get_range", key)
        return self._inner.get_range(key, start, length)

    def put(self, key: str, data: Data) -> None:
        self._watch("put", key)
        self._inner.put(key, data)

    def put_if_absent(self, key: str, data: Data) -> None:
        self._watch("put_if_absent", key)
        self._inner.put_if_absent(key, data)

    def head(self, key: str) -> ObjectInfo:
        self._watch("head", key)
        return self._inner.head(key)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        self._watch("list", prefix)
        return self._inner.list(prefix, after=after)

    def list_folder(self, prefix: str = "") -> Folder:
        self._watch("list_folder", prefix)
        return self._inner.list_folder(prefix)

    def delete(self, key: str) -> None:
        self._watch("delete", key)
        self._inner.delete(key)

    def copy(self, source: str, target: str) -> None:
        self._watch("copy", source)
        self._inner.copy(source, target)
