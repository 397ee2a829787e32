"""Saving and verifying many partitions, against the least that could do the same work.

save, local    bare threads: SHA-256, create, write and fsync of one file per partition
save, memory   bare threads: SHA-256, put into obstore's own MemoryStore
verify         `sha256sum` of the same files by as many processes, started by xargs; and, because
               many builds of it do not use the CPU's SHA instructions, threads with hashlib
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import obstore
from obstore.store import MemoryStore as BareMemoryStore
from timing import Comparison, Work, compare

from lamina.checkpoint import Checkpointer, PartitionData, verify
from lamina.format.log import Begin
from lamina.format.manifest import CheckpointManifest, PlacedEntry, with_runs
from lamina.store import LocalStore, MemoryStore, Store

T = TypeVar("T")

MIB = 1024 * 1024
THREADS = 8


def partitions(count: int) -> list[bytes]:
    """Distinct bytes that no file system can compress."""
    return [os.urandom(MIB) for _ in range(count)]


def save_local(parts: Sequence[bytes], folder: Path, *, rounds: int) -> Comparison:
    numbers = itertools.count()

    def ours() -> Callable[[], object]:
        root = _emptied(folder, f"ours-{next(numbers)}")
        return _save(started(LocalStore(root)), parts)

    def bare() -> Callable[[], object]:
        root = _emptied(folder, f"bare-{next(numbers)}")
        root.mkdir()
        files = [(root / f"{number}.snap", part) for number, part in enumerate(parts)]
        return lambda: _in_threads(lambda file: _write_file(*file), files)

    return compare(ours, bare, rounds=rounds, mib=len(parts))


def save_memory(parts: Sequence[bytes], *, rounds: int) -> Comparison:
    def bare() -> Callable[[], object]:
        store = BareMemoryStore()
        objects = [(f"{number}.snap", part) for number, part in enumerate(parts)]
        return lambda: _in_threads(lambda item: _put(store, *item), objects)

    return compare(
        lambda: _save(started(MemoryStore()), parts), bare, rounds=rounds, mib=len(parts)
    )


def verify_local(
    parts: Sequence[bytes], folder: Path, *, rounds: int
) -> tuple[Comparison, Comparison]:
    """Against sha256sum, and against threads with hashlib."""
    checkpointer = committed(LocalStore(folder), parts)
    files = sorted(str(path) for path in folder.rglob("*.snap"))
    assert len(files) == len(parts)

    def ours() -> None:
        assert verify(checkpointer).ok

    def against(bare: Work) -> Comparison:
        return compare(lambda: ours, lambda: bare, rounds=rounds, mib=len(parts))

    return against(lambda: _sha256sum(files)), against(lambda: _in_threads(_hash_file, files))


def started(store: Store) -> tuple[Checkpointer, Begin]:
    """A checkpointer that has begun a checkpoint."""
    checkpointer = Checkpointer(store, max_concurrent_uploads=THREADS)
    checkpointer.log.take_over("benchmark")
    return checkpointer, checkpointer.begin(full=True)


def committed(store: Store, parts: Sequence[bytes]) -> Checkpointer:
    checkpointer, begin = started(store)
    runs = checkpointer.save_partitions(begin.id, as_runs(parts))
    checkpointer.commit(begin, manifest_of(begin, runs))
    return checkpointer


def manifest_of(begin: Begin, runs: Sequence[PlacedEntry], epoch: int = 1) -> CheckpointManifest:
    head = CheckpointManifest(
        checkpoint_id=begin.id, epoch=epoch, timestamp_ms=1, generation=begin.generation
    )
    return with_runs(head, runs)


def as_runs(parts: Sequence[bytes | Path]) -> list[PartitionData]:
    return [
        PartitionData("operator", number, "snap", 1, 1, 1, part)
        for number, part in enumerate(parts)
    ]


def _save(begun: tuple[Checkpointer, Begin], parts: Sequence[bytes]) -> Callable[[], object]:
    checkpointer, begin = begun
    runs = as_runs(parts)
    return lambda: checkpointer.save_partitions(begin.id, runs)


def _in_threads(work: Callable[[T], object], items: Iterable[T]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(work, items):
            pass


def _write_file(path: Path, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        assert os.write(fd, data) == len(data)
        os.fsync(fd)
    finally:
        os.close(fd)
    return digest


def _put(store: BareMemoryStore, key: str, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    obstore.put(store, key, data)
    return digest


def _hash_file(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _sha256sum(files: Sequence[str]) -> None:
    """The files are dealt out evenly, so that no process is started more often than needed."""
    share = -(-len(files) // THREADS)
    subprocess.run(
        ["xargs", "-0", "-P", str(THREADS), "-n", str(share), "sha256sum"],
        input="\0".join(files).encode(),
        stdout=subprocess.DEVNULL,
        check=True,
    )


def _emptied(folder: Path, name: str) -> Path:
    """A new name in *folder*, after everything of earlier rounds is gone."""
    for old in folder.iterdir():
        shutil.rmtree(old)
    return folder / name
