"""How fast checkpoints are, as ratios to the least that could do the same work.

python benchmarks/checkpoint.py            the numbers of docs/benchmarks.md
python benchmarks/checkpoint.py --quick    the same shape with smaller sizes
python benchmarks/checkpoint.py --json     the last line of stdout is one JSON object

`--scale tiny` is for tests/unit/test_benchmarks.py: it shows that everything runs, not how fast.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import listing
import peak_memory
import saves
from report import Number, run
from saves import THREADS

from lamina.store.base import PART_SIZE_BYTES

PART_MIB = PART_SIZE_BYTES // saves.MIB
RATIO_MIN = 0.8
SLACK_MIB = 16
"""What the allocator, threads and manifests may take besides the parts."""


@dataclass(frozen=True, slots=True)
class Scale:
    partitions: int
    rounds: int
    artifact_mib: int
    artifact_of_many_mib: int
    checkpoints: int
    artifacts: int


SCALES = {
    "full": Scale(256, 21, 1024, 128, 1000, 256),
    "quick": Scale(128, 9, 128, 24, 100, 256),
    "tiny": Scale(4, 1, 9, 1, 3, 8),
}


def main() -> None:
    run(__doc__ or "", SCALES, _measured)


def _measured(scale: Scale, folder: Path) -> Iterator[Number]:
    parts = saves.partitions(scale.partitions)
    rounds = scale.rounds
    local = _below(folder, "local")
    saved = saves.save_local(parts, local, rounds=rounds)
    yield Number("save_local_ratio", saved.ratio, saved.describe(), at_least=RATIO_MIN)
    shutil.rmtree(local)
    saved = saves.save_memory(parts, rounds=rounds)
    yield Number("save_memory_ratio", saved.ratio, saved.describe(), at_least=RATIO_MIN)
    by_program, by_threads = saves.verify_local(parts, _below(folder, "verify"), rounds=rounds)
    yield Number("verify_ratio", by_program.ratio, by_program.describe(), at_least=RATIO_MIN)
    yield Number("verify_hashlib_ratio", by_threads.ratio, by_threads.describe())
    del parts
    grown = listing.measure(scale.checkpoints, scale.artifacts, rounds=rounds)
    yield Number("list_requests_growth", grown.list_requests, grown.describe(), at_most=1.0)
    yield Number("list_time_growth", grown.time, "noisy: a few milliseconds of pure Python")
    yield from _peaks(scale, _below(folder, "memory"))


def _peaks(scale: Scale, folder: Path) -> Iterator[Number]:
    """One artifact is one stream; of many, as many streams as there are threads."""
    each = scale.artifact_of_many_mib
    peaks = peak_memory.measure(folder, one_mib=scale.artifact_mib, each_mib=each)
    for key, name, streams in (
        ("peak_memory_mib", "one", 1),
        ("peak_memory_concurrent_mib", "many", THREADS),
    ):
        of_steps = {step: peak for step, peak in peaks.items() if step.endswith(name)}
        size = f"{scale.artifact_mib} MiB" if streams == 1 else f"{streams} x {each} MiB"
        told = ", ".join(f"{step.split()[0]} {peak:.1f}" for step, peak in of_steps.items())
        yield Number(
            key, max(of_steps.values()), f"{size}: {told}", at_most=PART_MIB * streams + SLACK_MIB
        )


def _below(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


if __name__ == "__main__":
    main()
