"""How long a new process needs: to the first epoch of a pipeline, and for ten of them.

python benchmarks/cold.py            the numbers of docs/benchmarks.md
python benchmarks/cold.py --quick    fewer rounds
python benchmarks/cold.py --json     the last line of stdout is one JSON object
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from engine_session import say
from report import Number, run

LAMINA = str(Path(sys.executable).parent / "lamina")
BARE = Path(__file__).with_name("cold_bare.py")
CACHE = "LAMINA_CACHE"
ARCHIVE_MAX_S = 900


@dataclass(frozen=True, slots=True)
class Scale:
    rounds: int
    rows: int  # of an epoch
    archive: bool = True  # of Spark's classes: it is made in the background, which takes long


SCALES = {
    "full": Scale(rounds=7, rows=5000),
    "quick": Scale(rounds=3, rows=5000),
    "tiny": Scale(rounds=1, rows=25_000, archive=False),
}


def main() -> None:
    run(__doc__ or "", SCALES, measured)


def measured(scale: Scale, folder: Path) -> Iterator[Number]:
    """Each round a bare Spark, then ours; before them the first start, which has no archive yet."""
    os.environ[CACHE] = str(folder / "cache") if scale.archive else "off"
    first = _ours(folder / "first", scale)
    say(f"the first start: {first.epoch:.1f} s to its first epoch, {first.end:.1f} s in all")
    if scale.archive:
        _wait_for_archive(folder / "cache")
    bare, ours = list[float](), list[Start]()
    for number in range(scale.rounds):
        bare.append(_bare())
        ours.append(_ours(folder / f"round-{number}", scale))
        say(f"bare {bare[-1]:.1f} s; ours {ours[-1].epoch:.1f} s, {ours[-1].end:.1f} s in all")
    ratios = [each.epoch / other for each, other in zip(ours, bare, strict=True)]
    told = f"{median(each.epoch for each in ours):.1f} of {median(bare):.1f} s"
    rounds = f"rounds {min(ratios):.2f} to {max(ratios):.2f}"
    yield Number("first_epoch_ratio", median(ratios), f"{told}, {rounds}", at_most=1.3)
    ends = [each.end for each in ours]
    details = f"rounds {min(ends):.1f} to {max(ends):.1f} s, of {scale.rows} rows an epoch"
    yield Number("cold_ten_epochs_s", median(ends), details, at_most=12)
    details = "the first epoch and the end of the first start of all, which has no archive yet"
    yield Number("first_start_s", first.end, f"{first.epoch:.1f} and {first.end:.1f} s: {details}")


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the command to the first committed epoch, and to the end of the process."""

    epoch: float
    end: float


def _ours(folder: Path, scale: Scale) -> Start:
    """The example of `lamina init`, from the command on."""
    list(_lines([LAMINA, "init", str(folder)]))
    command = [LAMINA, "run", str(folder / "pipeline.sql"), "--max-rows", str(scale.rows)]
    begin = time.perf_counter()
    seen = list(_lines([*command, "--available-now", "--json"]))
    end = time.perf_counter()
    epochs = [at for at, line in seen if json.loads(line)["event"] == "epoch"]
    return Start(epochs[0] - begin, end - begin)


def _bare() -> float:
    """A new process to the answer of its one job."""
    begin = time.perf_counter()
    ((at, _),) = _lines([sys.executable, str(BARE)])
    return at - begin


def _lines(command: Sequence[str]) -> Iterator[tuple[float, str]]:
    """What a process writes, line by line, with the time of each; until it has ended."""
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            yield time.perf_counter(), line
        if process.wait():
            said.seek(0)
            why = said.read()[-1000:]
            raise AssertionError(f"{command} ended with {process.returncode}: {why}")


def _wait_for_archive(cache: Path) -> None:
    deadline = time.monotonic() + ARCHIVE_MAX_S
    while not list(cache.glob("*.jsa")):
        if time.monotonic() > deadline:
            raise AssertionError(f"no archive in {cache}")
        time.sleep(0.5)


if __name__ == "__main__":
    main()
