"""How fast keyed state is, as ratios to rocksdict, DuckDB and sha256sum.

python benchmarks/state.py            the numbers of docs/benchmarks.md
python benchmarks/state.py --quick    the same shape with smaller sizes
python benchmarks/state.py --json     the last line of stdout is one JSON object
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np
import state_memory
from report import Number, run
from state_peers import Duck, Longs, Ours, Peer, Rocks, all_keys, batch_of
from timing import seconds_of

import lamina
from lamina.embedded.opening import HOME, STORE
from lamina.format.home_names import STATE
from lamina.state.run_file import Epochs, open_run, write_run
from lamina.state.tiers import FAN_OUT

MIB = 1024 * 1024
CYCLE = FAN_OUT * FAN_OUT
"""Epochs that count as one round: in each there are merges, and a merge of merged runs."""
CHECKPOINT_EVERY = 10  # epochs, while write amplification is measured


@dataclass(frozen=True, slots=True)
class Scale:
    keys: int
    few_keys: int
    changed: int
    cycles: int
    asked: int
    rounds: int
    epochs: int  # of write amplification


SCALES = {
    "full": Scale(10_000_000, 100_000, 100_000, 4, 1000, 9, 100),
    "quick": Scale(2_000_000, 100_000, 100_000, 3, 1000, 5, 100),
    "tiny": Scale(20_000, 2_000, 1_000, 1, 100, 1, 6),
}


def main() -> None:
    run(__doc__ or "", SCALES, measured)


def measured(scale: Scale, folder: Path) -> Iterator[Number]:
    random = np.random.default_rng(7)
    ours, few = Ours.build(folder / "ours", scale.keys), Ours.build(folder / "few", scale.few_keys)
    rocks, duck = Rocks.build(folder / "rocks", scale.keys), Duck.build(folder / "duck", scale.keys)
    yield from _upserts(scale, random, ours=ours, few=few, rocks=rocks, duck=duck)
    yield from _gets(scale, random, ours=ours, rocks=rocks, duck=duck)
    for peer in (ours, few, rocks, duck):
        peer.close()
    yield from _incremental(scale, random, folder / "ours")
    yield from _restores(scale, folder / "ours")
    yield from _amplification(scale, random, folder / "ours")
    yield from _memory(scale, folder)
    yield from _compression(scale, folder / "ours", folder / "compressed")


# upserts and gets


def _upserts(
    scale: Scale, random: np.random.Generator, *, ours: Peer, few: Peer, rocks: Peer, duck: Peer
) -> Iterator[Number]:
    """The same changes to all of them in turns; another of them is first in every epoch."""
    stores = {"ours": ours, "few": few, "rocks": rocks, "duck": duck}
    known, known_few = all_keys(scale.keys), all_keys(scale.few_keys)
    seconds: dict[str, list[float]] = {name: [] for name in stores}
    for epoch in range(-CYCLE, scale.cycles * CYCLE):  # the first cycle does not count
        batch = batch_of(random.choice(known, scale.changed, replace=False))
        batch_few = batch_of(random.choice(known_few, min(scale.changed, scale.few_keys), False))
        for name in _turned(list(stores), epoch):
            spent = seconds_of(stores[name].upsert(batch_few if name == "few" else batch))
            if epoch >= 0:
                seconds[name].append(spent)
    told = ", ".join(f"{name} {_ms(each)}" for name, each in seconds.items())
    yield _ratio("upsert_vs_rocksdict", seconds, "rocks", "ours", at_least=10)
    yield _ratio("upsert_vs_duckdb", seconds, "duck", "ours", at_least=3)
    yield _ratio("upsert_growth", seconds, "ours", "few", at_most=1.8)
    yield Number("upsert_ms", fmean(seconds["ours"]) * 1000, f"mean (median) of an epoch: {told}")


def _gets(
    scale: Scale, random: np.random.Generator, *, ours: Peer, rocks: Peer, duck: Peer
) -> Iterator[Number]:
    stores = {"ours": ours, "rocks": rocks, "duck": duck}
    known = all_keys(scale.keys)
    seconds: dict[str, list[float]] = {name: [] for name in stores}
    for turn in range(-2, scale.rounds * 3):
        asked: Longs = random.choice(known, scale.asked, replace=False)
        for name in _turned(list(stores), turn):
            spent = seconds_of(stores[name].get(asked))
            if turn >= 0:
                seconds[name].append(spent)
    ratio = median(o / r for o, r in zip(seconds["ours"], seconds["rocks"], strict=True))
    told = ", ".join(f"{name} {_ms(each)}" for name, each in seconds.items())
    yield Number("get_vs_rocksdict", ratio, f"{scale.asked} keys: {told}", at_most=2)


def _ratio(
    key: str,
    seconds: Mapping[str, Sequence[float]],
    over: str,
    under: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Number:
    """The median over cycles of epochs, each with its merges; that of the means is told."""
    cycles = [_sums(seconds[over]), _sums(seconds[under])]
    ratios = [a / b for a, b in zip(*cycles, strict=True)]
    means = fmean(seconds[over]) / fmean(seconds[under])
    details = f"of means {means:.2f}, cycles {min(ratios):.2f} to {max(ratios):.2f}"
    return Number(key, median(ratios), details, at_least=at_least, at_most=at_most)


def _sums(seconds: Sequence[float]) -> list[float]:
    return [sum(seconds[start : start + CYCLE]) for start in range(0, len(seconds), CYCLE)]


def _ms(seconds: Sequence[float]) -> str:
    return f"{fmean(seconds) * 1000:.1f} ({median(seconds) * 1000:.1f}) ms"


def _turned(names: list[str], turn: int) -> list[str]:
    first = turn % len(names)
    return names[first:] + names[:first]


# checkpoints


def _incremental(scale: Scale, random: np.random.Generator, path: Path) -> Iterator[Number]:
    """Bytes of all files that a checkpoint adds after one epoch, of those of a full one."""
    changed = scale.keys // 100
    ours = Ours(path)
    ours.store.checkpoint()
    ours.upsert(batch_of(random.choice(all_keys(scale.keys), changed, replace=False)))()
    before = _size(path / STORE)
    ours.store.checkpoint()
    added = _size(path / STORE) - before
    full = scale.keys * _row_bytes(ours)
    ours.close()
    details = f"{added / MIB:.1f} of {full / MIB:.1f} MiB, {changed} of {scale.keys} keys changed"
    yield Number("delta_bytes_ratio", added / full, details, at_most=0.03)


def _row_bytes(ours: Ours) -> float:
    """What a row takes in the largest run: that of a full snapshot."""
    largest = max(ours.table.state.runs(), key=lambda each: each.rows)
    return largest.size / largest.rows


def _restores(scale: Scale, path: Path) -> Iterator[Number]:
    """Opening with nothing but the checkpoint until the first keys are read, with P and with 4P."""
    files = _run_files(path)
    size = sum(file.stat().st_size for file in files) / MIB
    spent: dict[str, list[float]] = {"bare": [], "hashlib": [], "P": [], "4P": []}
    for turn in range(-1, scale.rounds):
        for name in _turned(list(spent), turn):
            if name in ("P", "4P"):
                seconds = _restore(path, 1 if name == "P" else 4)
            else:
                seconds = _sha256sum(files) if name == "bare" else seconds_of(lambda: _sha(files))
            if turn >= 0:
                spent[name].append(seconds)
    told = ", ".join(f"{name} {_ms(each)}" for name, each in spent.items())
    details = f"{size:.0f} MiB in {len(files)} files: {told}"
    yield Number("restore_ratio", _median_ratio(spent, "P", "bare"), details, at_most=1.5)
    details = "to hashlib on one thread; not the target's"
    yield Number("restore_hashlib_ratio", _median_ratio(spent, "P", "hashlib"), details)
    yield Number("rescale_ratio", _median_ratio(spent, "4P", "P"), "from 1 to 4", at_most=1.3)


def _restore(path: Path, partitions: int) -> float:
    shutil.rmtree(path / HOME / STATE, ignore_errors=True)
    os.sync()
    start = time.perf_counter()
    ours = Ours(path, partitions=partitions)
    ours.get(all_keys(10))()
    seconds = time.perf_counter() - start
    ours.close()
    return seconds


def _median_ratio(spent: Mapping[str, Sequence[float]], over: str, under: str) -> float:
    return median(a / b for a, b in zip(spent[over], spent[under], strict=True))


def _run_files(path: Path) -> list[Path]:
    with lamina.snapshot(path) as newest:
        return [path / STORE / artifact.path for artifact in newest.manifest.artifacts()]


def _sha256sum(files: Sequence[Path]) -> float:
    if shutil.which("sha256sum") is None:
        return seconds_of(lambda: _sha(files))
    command = ["sha256sum", *map(str, files)]
    return seconds_of(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True))


def _sha(files: Sequence[Path]) -> None:
    for file in files:
        with file.open("rb", buffering=0) as opened:
            hashlib.file_digest(opened, "sha256")


def _amplification(scale: Scale, random: np.random.Generator, path: Path) -> Iterator[Number]:
    """All bytes that the process writes, to WAL, merged runs and checkpoints, of those changed."""
    changed = scale.keys // 100
    known = all_keys(scale.keys)
    ours = Ours(path)
    given, before = 0, _written()
    for epoch in range(scale.epochs):
        batch = batch_of(random.choice(known, changed, replace=False))
        ours.upsert(batch)()
        given += batch.nbytes
        if epoch % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1:
            ours.store.checkpoint()
    written = _written() - before
    ours.close()
    details = (
        f"{written / MIB:.0f} MiB for {given / MIB:.0f} MiB of changes in {scale.epochs} epochs, "
        f"a checkpoint every {CHECKPOINT_EVERY}"
    )
    yield Number("write_amplification", written / given, details, at_most=10)


def _written() -> int:
    """What this process has handed to write calls so far."""
    found = re.search(r"wchar: (\d+)", Path("/proc/self/io").read_text())
    assert found
    return int(found[1])


def _memory(scale: Scale, folder: Path) -> Iterator[Number]:
    changed = min(scale.changed, scale.few_keys)
    many = state_memory.measure(folder / "ours", keys=scale.keys, changed=changed)
    few = state_memory.measure(folder / "few", keys=scale.few_keys, changed=changed)
    details = f"{many:.1f} MiB with {scale.keys} keys, {few:.1f} MiB with {scale.few_keys}"
    yield Number("epoch_memory_growth", many / few, details)


def _compression(scale: Scale, path: Path, folder: Path) -> Iterator[Number]:
    """The checkpoint's files with zstd and without: their bytes, and reading them all."""
    files = _run_files(path)
    pairs = [(_rewritten(file, folder, None), _rewritten(file, folder, "zstd")) for file in files]
    plain, packed = ([pair[side] for pair in pairs] for side in (0, 1))
    shares = _total(packed) / _total(plain)
    spent: dict[str, list[float]] = {"plain": [], "zstd": []}
    for turn in range(-1, scale.rounds):
        for name in _turned(list(spent), turn):
            chosen = plain if name == "plain" else packed
            seconds = seconds_of(lambda each=chosen: _read(each))
            if turn >= 0:
                spent[name].append(seconds)
    told = ", ".join(f"{name} {_ms(each)}" for name, each in spent.items())
    yield Number("zstd_bytes_ratio", shares, f"of {_total(plain) / MIB:.0f} MiB")
    details = f"SHA-256 and every block: {told}"
    yield Number("zstd_restore_ratio", _median_ratio(spent, "zstd", "plain"), details)


def _rewritten(file: Path, folder: Path, compression: str | None) -> Path:
    run = open_run(file)
    target = folder / f"{file.name}.{compression}"
    epochs = Epochs(run.first_epoch, run.last_epoch)
    blocks = run.slices(run.schema)
    write_run(target, blocks, run.schema, epochs=epochs, floor=run.floor, compression=compression)
    return target


def _read(files: Sequence[Path]) -> None:
    _sha(files)
    for file in files:
        run = open_run(file)
        for index in range(len(run.blocks)):
            run.load(index)


def _total(files: Sequence[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def _size(folder: Path) -> int:
    return _total([file for file in folder.rglob("*") if file.is_file()])


if __name__ == "__main__":
    main()
