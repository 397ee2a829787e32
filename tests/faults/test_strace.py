"""SIGKILL, EIO and ENOSPC at the n-th system call of a real process, then recovery.

A clean run is traced first; then, for every kind of call, some of its calls (all of them in the
long form, see the package) fail or kill. Afterwards nothing acknowledged may be lost, nothing may
be there in part, and the pipeline must go on.

The files are in memory where that can be had: a killed process leaves the same there, and syncs
cost nothing. What a sync is worth is tested by the power cut.
"""

from __future__ import annotations

import random
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import traced, workload
from tests.faults.model import LONG, SEED, Folders, Oracle, check_home
from tests.faults.traced import CALLS, STRACE, Call, Ended, Fault, Server

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed")

KILL, BROKEN, FULL = "signal=SIGKILL", "error=EIO", "error=ENOSPC"
SAMPLE = 4
EPOCHS, LIVES = 3, 2
SETTINGS = workload.Settings(SEED, checkpoint_every=2)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with traced.server() as started:
        yield started


@pytest.fixture(scope="module")
def below() -> Iterator[Path]:
    memory = Path("/dev/shm")
    where = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="lamina-faults-", dir=where) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def clean(server: Server, below: Path) -> tuple[Call, ...]:
    """The calls of an undisturbed run on files of the home and the store.

    A number means the first thread that reaches it: so other threads count only for what the main
    one never does.
    """
    folder = below / "clean"
    folder.mkdir()
    ended = run(server, folder)
    assert ended.code == 0, ended.stderr
    assert acknowledged(folder) == EPOCHS * LIVES
    ours = [call for call in ended.calls if is_ours(call, folder)]
    main = {call.name for call in ours if call.thread == ended.calls[0].thread}
    return tuple(c for c in ours if c.thread == ended.calls[0].thread or c.name not in main)


@pytest.mark.parametrize("how", [KILL, BROKEN, FULL])
@pytest.mark.parametrize("kind", sorted(set(CALLS) - {"ftruncate"}))
def test_a_fault_at_any_call_loses_nothing_and_stops_the_process(
    server: Server, clean: tuple[Call, ...], below: Path, kind: str, how: str
) -> None:
    for fault in faults(clean, kind, how):
        folder = below / f"{fault.call}-{fault.how}-{fault.number}"
        folder.mkdir()
        ended = run(server, folder, fault)
        assert was_stopped(ended, folder, fault), (fault, ended.code, ended.stderr)
        check_and_go_on(folder)
        shutil.rmtree(folder)


def test_nobody_cuts(clean: tuple[Call, ...]) -> None:
    """R1: no task and no recovery truncates a file of the home."""
    assert not [call for call in clean if call.name in CALLS["ftruncate"]]
    opened = [call for call in clean if call.name == "openat" and "/home/" in call.text]
    assert opened
    assert not [call for call in opened if "O_TRUNC" in call.text]


def run(server: Server, folder: Path, fault: Fault | None = None) -> Ended:
    places = Folders.below(folder)
    arguments = [str(places.home), str(places.store), str(folder / "acks")]
    arguments += ["--epochs", str(EPOCHS), "--lives", str(LIVES), "--seed", str(SETTINGS.seed)]
    arguments += ["--checkpoint-every", str(SETTINGS.checkpoint_every)]
    return server.run(["workload", *arguments], folder, fault)


def faults(clean: tuple[Call, ...], kind: str, how: str) -> list[Fault]:
    """Every call of that kind, or a spread of them with the first and the last.

    Not a mkdir of what is there already: whatever it says, the folder is there.
    """
    calls = [call for call in clean if call.name in CALLS[kind] and " EEXIST " not in call.text]
    found = sorted({(call.name, call.number) for call in calls})
    assert found, f"the workload makes no {kind}"
    if not LONG and len(found) > SAMPLE:
        between = random.Random(f"{SEED}/{kind}/{how}").sample(found[1:-1], SAMPLE - 2)
        found = [found[0], *sorted(between), found[-1]]
    return [Fault(name, how, number) for name, number in found]


def was_stopped(ended: Ended, folder: Path, fault: Fault) -> bool:
    """Killed, or ended by itself with an error that tells a person what to do."""
    if fault.how == KILL:
        return ended.code == -9
    hit = [call for call in ended.calls if call.injected]
    assert any(is_ours(call, folder) for call in hit), "the fault hit nothing of ours"
    last = ended.stderr.strip().splitlines()[-1:]
    return ended.code == 1 and bool(last) and last[0].startswith("lamina.errors.")


def check_and_go_on(folder: Path) -> None:
    places, oracle = Folders.below(folder), Oracle(SETTINGS.seed)
    epoch = check_home(places, oracle, acknowledged(folder))
    acked: list[int] = []
    workload.run(workload.Pipeline(places, SETTINGS, folder / "scratch"), 3, acked.append)
    assert acked == [epoch + 1, epoch + 2, epoch + 3]
    assert check_home(places, oracle, acked[-1]) == acked[-1]


def acknowledged(folder: Path) -> int:
    """The last epoch whose commit has returned."""
    file = folder / "acks"
    lines = file.read_text().split() if file.exists() else []
    return max((int(line) for line in lines if line != "begin"), default=0)


def is_ours(call: Call, folder: Path) -> bool:
    return re.search(rf"{re.escape(str(folder))}/(home|store)\b", call.text) is not None
