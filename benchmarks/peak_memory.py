"""How much memory large artifacts take, measured by the kernel in a process of its own.

VmHWM in /proc/self/status is the highest resident size there ever was; writing 5 to
/proc/self/clear_refs sets it back to the size of now. So nothing between two samples is missed.
What is reported is the highest size of each step minus the size before the first, in MiB.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from saves import MIB, THREADS, as_runs, manifest_of, started

from lamina.checkpoint import verify
from lamina.store import LocalStore


def measure(folder: Path, *, one_mib: int, each_mib: int) -> dict[str, float]:
    """Peaks in MiB above the baseline: of one artifact, and of as many at once as are allowed."""
    arguments = [str(folder), str(one_mib), str(each_mib)]
    child = subprocess.run(
        [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, check=True, text=True
    )
    peaks: dict[str, float] = json.loads(child.stdout)
    return peaks


def in_child(folder: Path, one_mib: int, each_mib: int) -> dict[str, float]:
    warm_up = _random_file(folder / "warm-up", MIB)
    for _ in _steps("", folder / "warm-up-store", [warm_up]):
        pass  # imports, threads and caches are not what is measured
    one = [_random_file(folder / "one", one_mib * MIB)]
    many = [_random_file(folder / f"many-{n}", each_mib * MIB) for n in range(THREADS)]
    baseline = _reset_peak()
    peaks = {}
    for name in _steps("one", folder / "one-store", one):
        peaks[name] = (_peak() - baseline) / 1024
        _reset_peak()
    for name in _steps("many", folder / "many-store", many):
        peaks[name] = (_peak() - baseline) / 1024
        _reset_peak()
    return peaks


def _steps(name: str, root: Path, files: list[Path]) -> Iterator[str]:
    """Save, load and verify *files*; yields the name of each step when it is done."""
    checkpointer, begin = started(LocalStore(root))
    runs = checkpointer.save_partitions(begin.id, as_runs(files))
    checkpointer.commit(begin, manifest_of(begin, runs))
    for file in files:
        file.unlink()
    yield f"save {name}"
    for placed in runs:
        checkpointer.load_artifact(placed.run, into=root.with_name("loaded"))
    yield f"load {name}"
    assert verify(checkpointer).ok
    yield f"verify {name}"


def _random_file(path: Path, size: int) -> Path:
    with path.open("wb", buffering=0) as file:
        for _ in range(0, size, MIB):
            file.write(os.urandom(MIB))
    return path


def _reset_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    """In KiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1])


if __name__ == "__main__":
    run: Callable[[Path, int, int], dict[str, float]] = in_child
    print(json.dumps(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
