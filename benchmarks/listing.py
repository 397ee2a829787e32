"""Listing checkpoints: what it asks of the store, with many artifacts and with one.

The artifacts are put straight into a memory store under the names a checkpointer would give them,
and the checkpoints committed through the log; so 256,000 objects take seconds to make.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

from saves import manifest_of

from lamina.checkpoint import Checkpointer
from lamina.format import manifest as manifests
from lamina.format.canonical import sha256_hex
from lamina.format.log import Begin
from lamina.format.manifest import PlacedEntry, RunEntry
from lamina.format.names import RunName, relative
from lamina.store import MemoryStore
from lamina.testing import FaultyStore

DATA = b"x"
DIGEST = sha256_hex(DATA)


@dataclass(frozen=True, slots=True)
class Listing:
    list_requests: int
    requests: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Growth:
    """The same number of checkpoints with many artifacts each, and with one."""

    many: Listing
    one: Listing

    @property
    def list_requests(self) -> float:
        return self.many.list_requests / self.one.list_requests

    @property
    def time(self) -> float:
        return median(self.many.seconds) / median(self.one.seconds)

    def describe(self) -> str:
        many, one = self.many, self.one
        return (
            f"{many.list_requests} and {one.list_requests} list requests, "
            f"{many.requests} and {one.requests} in all; "
            f"{median(many.seconds) * 1000:.0f} and {median(one.seconds) * 1000:.0f} ms"
        )


def measure(checkpoints: int, artifacts: int, *, rounds: int) -> Growth:
    stores = (_filled(checkpoints, artifacts), _filled(checkpoints, 1))
    listed = [[_list(store, checkpoints) for store in stores] for _ in range(rounds)]
    many, one = (_together([both[place] for both in listed]) for place in range(2))
    return Growth(many, one)


def _list(store: MemoryStore, checkpoints: int) -> Listing:
    """What a reader asks that has never seen this store."""
    reader = FaultyStore(store)
    start = time.perf_counter()
    found = Checkpointer(reader).list_checkpoints()
    seconds = time.perf_counter() - start
    assert len(found) == checkpoints
    list_requests = reader.calls["list"] + reader.calls["list_folder"]
    return Listing(list_requests, reader.calls.total(), (seconds,))


def _together(rounds: list[Listing]) -> Listing:
    seconds = tuple(second for each in rounds for second in each.seconds)
    return Listing(rounds[-1].list_requests, rounds[-1].requests, seconds)


def _filled(checkpoints: int, artifacts: int) -> MemoryStore:
    store = MemoryStore()
    checkpointer = Checkpointer(store)
    checkpointer.log.take_over("benchmark")
    for epoch in range(1, checkpoints + 1):
        _commit(checkpointer, epoch, artifacts)
    return store


def _commit(checkpointer: Checkpointer, epoch: int, artifacts: int) -> None:
    begin = checkpointer.begin(full=True)
    store, paths = checkpointer.store, checkpointer.paths
    runs = [_run(begin, number, epoch) for number in range(artifacts)]
    for placed in runs:
        assert placed.run.path is not None
        store.put(paths.absolute(placed.run.path), DATA)
    manifest = manifest_of(begin, runs, epoch)
    data = manifests.encode(manifest)
    store.put(paths.manifest(begin.id), data)
    checkpointer.log.checkpoint(
        begin,
        epoch=epoch,
        manifest_sha256=sha256_hex(data),
        manifest_size=len(data),
        total_size=manifest.total_size_bytes,
    )


def _run(begin: Begin, partition: int, epoch: int) -> PlacedEntry:
    path = relative(RunName(begin.id, "operator", partition, 1, epoch, "snap"))
    run = RunEntry("snap", 1, epoch, len(DATA), rows=1, sha256=DIGEST, path=path)
    return PlacedEntry("operator", partition, run)
