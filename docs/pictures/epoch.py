"""Draws epoch.svg: one epoch of a pipeline, and what a kill does at each point of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # it is run as a script, not installed

from svg import AMBER, BLUE, FAINT, GREEN, INK, LINE, PAPER, RED, arrow, box, line, text, write

WIDTH, HEIGHT = 900, 356
TOP, TALL = 76, 150
DECISION = 596


def main(target: Path) -> None:
    title = "One epoch: plan, run, decide, publish, and now and then a checkpoint"
    write(target, WIDTH, HEIGHT, title, (*steps(), *decision(), *kills(), *checkpoint()))


def steps() -> Iterator[str]:
    yield from step(20, 116, "1  plan", BLUE, ["how far each", "source is read;", "the watermark"])
    yield arrow(136, TOP + TALL / 2, 162, TOP + TALL / 2)
    yield box(164, TOP, 388, TALL, fill="#eef4fb", stroke=BLUE)
    yield text(180, TOP + 24, "2  run: one Spark job per stream", fill=BLUE, weight=600)
    for number in range(3):
        y = TOP + 38 + number * 36
        yield box(180, y, 356, 28, fill=PAPER, stroke=LINE)
        task = f"task {number}" if number < 2 else "task P-1"
        yield text(190, y + 19, task, size=12, fill=FAINT)
        yield text(246, y + 19, "merge with state  →  log, fsync  →  output, fsync", size=12)
    yield from step(690, 190, "4  publish", GREEN, [])
    for number, sink in enumerate(
        ("every sink, in order,", "with the epoch's number", "and digest")
    ):
        yield text(704, TOP + 52 + number * 20, sink, size=12)
    yield text(704, TOP + 126, "a sink knows what it has", size=12, fill=FAINT)


def step(x: float, width: float, name: str, color: str, words: Sequence[str]) -> Iterator[str]:
    yield box(x, TOP, width, TALL, fill="#f5f7fa", stroke=color)
    yield text(x + 14, TOP + 24, name, fill=color, weight=600)
    for number, each in enumerate(words):
        yield text(x + 14, TOP + 52 + number * 20, each, size=12)


def decision() -> Iterator[str]:
    middle = TOP + TALL / 2
    yield arrow(552, middle, 574, middle)
    yield box(576, TOP + 34, 92, TALL - 68, fill=AMBER)
    yield text(622, TOP + 62, "3  decide", fill=PAPER, anchor="middle", weight=600)
    yield text(622, TOP + 84, "COMMIT", fill=PAPER, anchor="middle", weight=700)
    yield text(622, TOP + 104, "one fsync", fill=PAPER, anchor="middle", size=12)
    yield arrow(668, middle, 688, middle)
    yield text(
        20, 34, "State, source offsets, watermark and output of an epoch", size=16, weight=600
    )
    yield text(20, 56, "move together at one line, or not at all.", size=16, weight=600)


def kills() -> Iterator[str]:
    y = TOP + TALL + 26
    yield line(20, y - 14, 574, y - 14, stroke=RED)
    yield text(
        20,
        y + 4,
        "killed here: as if the epoch had never begun; the next start runs it again",
        size=12,
        fill=RED,
    )
    yield line(670, y - 14, 880, y - 14, stroke=GREEN)
    yield text(670, y + 4, "killed here: it counts; the next", size=12, fill=GREEN)
    yield text(670, y + 20, "start publishes what is missing", size=12, fill=GREEN)


def checkpoint() -> Iterator[str]:
    y = HEIGHT - 66
    yield arrow(622, TOP + TALL - 32, 622, y - 2, dash="4 4")
    yield box(164, y, 716, 46, fill="#f5f7fa", stroke=LINE)
    yield text(180, y + 20, "5  checkpoint, beside further epochs", fill=INK, weight=600)
    words = (
        "only runs the store lacks are uploaded (S3, GCS, Azure, disk); "
        "one create-only entry makes it exist"
    )
    yield text(180, y + 37, words, size=12, fill=FAINT)


if __name__ == "__main__":
    main(Path(__file__).with_name("epoch.svg"))
