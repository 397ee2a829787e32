"""`lamina demo`: a pipeline that is killed again and again, and comes out exact.

A run of the trades pipeline is killed with SIGKILL in the middle of an epoch, several times. Each
time it is started again and says what it recovered. In the end its output is compared, row by row,
with one Spark batch over the same files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from lamina.cli.demo.child import Kill, Life, live
from lamina.cli.demo.trades import ROWS_PER_FILE, draw, write_project
from lamina.cli.demo.truth import Verdict, compare
from lamina.cli.support.exits import Exit
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.shapes import Shape
from lamina.cli.support.words import counted
from lamina.clock import SystemClock
from lamina.errors import AlreadyExists
from lamina.front.places import require_spark
from lamina.os_errors import typed_errors

PARTITIONS = 2
EPOCHS_PER_LIFE = 4  # at most, before a kill
FILES_LEFT = 4  # for the life that is not killed


@click.command("demo")
@click.option(
    "--kills",
    type=click.IntRange(0, 100),
    default=3,
    show_default=True,
    help="How many times to kill it.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=7,
    show_default=True,
    help="Seed for the data and for the times of the kills.",
)
@click.option(
    "--dir", "folder", metavar="DIR", help="Work in this folder and leave everything there."
)
@json_option
def demo_command(kills: int, seed: int, folder: str | None, screen: Screen) -> None:
    """Kill a pipeline repeatedly and check its results.

    Kills a run with SIGKILL in mid-epoch, starts it again, and in the end compares its output with
    one Spark batch. Exits with 0 only if every row is there exactly once with the same values,
    otherwise with 1.
    """
    require_spark("`lamina demo`")
    clock = SystemClock()
    started = clock.monotonic()
    with _project(folder) as project:
        files = kills * EPOCHS_PER_LIFE + FILES_LEFT
        latest = write_project(project, files=files, seed=seed)
        _say(screen, f"{counted(files, 'file')} of {ROWS_PER_FILE} trades, one file per epoch")
        lives = list(_lives(project / "demo.sql", kills, seed, screen))
        _say(screen, "now the same SELECTs as one Spark batch over all files")
        verdicts = compare(project, latest)
    _answer(screen, lives, verdicts, seconds=clock.monotonic() - started)
    if not all(each.equal for each in verdicts):
        click.get_current_context().exit(Exit.FINDINGS)


@contextmanager
def _project(folder: str | None) -> Iterator[Path]:
    if folder is None:
        with TemporaryDirectory(prefix="lamina-demo-") as made:
            yield Path(made)
        return
    path = Path(folder)
    with typed_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise AlreadyExists("the folder is not empty", where=folder, advice="Choose another")
    yield path


def _lives(pipeline: Path, kills: int, seed: int, screen: Screen) -> Iterator[Life]:
    clock = SystemClock()
    for number in range(kills + 1):
        kill = None
        if number < kills:
            epochs = 2 + draw(seed, f"epochs {number}", EPOCHS_PER_LIFE - 1)
            kill = Kill(epochs, (10 + draw(seed, f"part {number}", 60)) / 100)
        life = live(pipeline, kill, partitions=PARTITIONS, clock=clock)
        _say(screen, f"process {number + 1}: {_begin(life)}; {_end(life)} ({life.seconds:.0f} s)")
        yield life


def _begin(life: Life) -> str:
    found = life.recovered
    if not found.get("epoch"):
        return "began with nothing"
    return (
        f"recovered epoch {found['epoch']} from "
        + (f"checkpoint {found['checkpoint_epoch']}" if found["checkpoint"] else "no checkpoint")
        + f" and {counted(found['epochs_replayed'], 'epoch')} of the log"
    )


def _end(life: Life) -> str:
    done = f"{counted(len(life.epochs), 'epoch')}"
    if life.killed_after_s is None:
        return f"{done}, to the end"
    return f"{done}, then SIGKILL {life.killed_after_s:.2f} s into epoch {life.last_epoch + 1}"


def _say(screen: Screen, text: str) -> None:
    """As it happens; a script gets the answer only."""
    if not screen.as_json:
        screen.line(text)


def _answer(screen: Screen, lives: list[Life], verdicts: list[Verdict], *, seconds: float) -> None:
    equal = all(each.equal for each in verdicts)
    if screen.as_json:
        screen.json(
            {
                "equal": equal,
                "kills": sum(life.killed_after_s is not None for life in lives),
                "processes": [_life_shape(life) for life in lives],
                "compared": [asdict(each) | {"equal": each.equal} for each in verdicts],
                "seconds": round(seconds, 1),
            }
        )
        return
    screen.line()
    rows = [
        (v.what, str(v.rows), str(v.batch_rows), str(v.missing), str(v.extra)) for v in verdicts
    ]
    screen.table(("COMPARED", ">ROWS", ">BATCH", ">MISSING", ">EXTRA"), rows)
    screen.line()
    kills = counted(sum(life.killed_after_s is not None for life in lives), "kill")
    word = "EXACT" if equal else "DIFFERENT"
    screen.line(f"{word} after {kills}, in {seconds:.0f} s")


def _life_shape(life: Life) -> Shape:
    return {
        "recovered": life.recovered,
        "epochs": len(life.epochs),
        "last_epoch": life.last_epoch,
        "killed_after_s": life.killed_after_s,
        "seconds": round(life.seconds, 1),
    }
