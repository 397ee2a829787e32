"""Draws milliseconds.svg from numbers.json, which `make bench` writes: an epoch, part by part."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # it is run as a script, not installed

from svg import AMBER, BLUE, FAINT, GREEN, INK, LINE, RED, box, line, text, write

FOLDER = Path(__file__).parent
WIDTH, LEFT, FULL = 900, 20, 860
TOP, BAR, GAP = 64, 34, 128
ENTRIES = 5  # of the legend, in a line


@dataclass(frozen=True, slots=True)
class Part:
    """Milliseconds of the benchmark, in the order in which they pass."""

    key: str
    words: str
    fill: str


PARTS = (
    Part("plan", "list files", FAINT),
    Part("frame", "build the job", AMBER),
    Part("spark", "Spark", BLUE),
    Part("state", "merge state", GREEN),
    Part("log", "log, synced", "#58a67c"),
    Part("stage", "output, synced", "#8fc7a8"),
    Part("seen", "count rows", FAINT),
    Part("commit", "COMMIT", RED),
    Part("publish", "publish", "#d98a8a"),
    Part("rest", "rest", LINE),
)
EPOCHS = {
    "agg": "an epoch of 500,000 rows, a million keys",
    "small": "an epoch of 100 rows, 10,000 keys",
}


def main(numbers: Mapping[str, float], target: Path) -> None:
    height = TOP + GAP * len(EPOCHS) + 6
    write(target, WIDTH, height, "Where the time of an epoch goes", parts(numbers, height))


def parts(numbers: Mapping[str, float], height: int) -> Iterator[str]:
    yield text(LEFT, 32, "Where the milliseconds of an epoch go", size=16, weight=600)
    for number, (key, words) in enumerate(EPOCHS.items()):
        yield from epoch(numbers, key, words, TOP + number * GAP)
    said = "make bench; medians on 2 cores; the job's parts are those of its slowest task"
    yield text(LEFT, height - 10, said, size=11, fill=FAINT)


def epoch(numbers: Mapping[str, float], epoch_key: str, words: str, top: int) -> Iterator[str]:
    """One bar, as long as the picture is wide; below it the parts that can be seen."""
    spent = {part: numbers[f"{epoch_key}_part_{part.key}_ms"] for part in PARTS}
    whole = sum(spent.values())
    yield text(LEFT, top + 4, f"{words}: {whole:.0f} ms", fill=INK)
    at, seen = float(LEFT), 0
    for part, ms in spent.items():
        wide = FULL * ms / whole
        yield box(at, top + 14, wide, BAR, fill=part.fill)
        at += wide
        if ms >= whole / 100:
            x, y = LEFT + seen % ENTRIES * FULL / ENTRIES, top + 58 + seen // ENTRIES * 18
            yield box(x, y, 10, 10, fill=part.fill)
            yield text(x + 15, y + 9, f"{part.words} {ms:.0f} ms", size=11)
            seen += 1
    yield line(LEFT, top + 14 + BAR, LEFT + FULL, top + 14 + BAR)


if __name__ == "__main__":
    main(json.loads((FOLDER / "numbers.json").read_text()), FOLDER / "milliseconds.svg")
