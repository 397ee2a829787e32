"""A real program with an embedded store, killed and hit by faults: nothing acknowledged is lost.

kill -9 at random times, one history over all rounds; then SIGKILL, EIO and ENOSPC at the n-th
system call. The oracle is that of model.py: an epoch's changes are drawn from (seed, epoch).
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lamina
from lamina.checkpoint import Checkpointer
from lamina.clock import SystemClock
from lamina.embedded.opening import STORE
from lamina.errors import LaminaError
from lamina.store import LocalStore
from tests.faults.embedded_work import Program, state_of
from tests.faults.model import LONG, SEED, Lost, Oracle
from tests.faults.process import FOR_EVER, ROOT, Running
from tests.faults.traced import CALLS, STRACE, Call, Ended, Fault, Server

MODULE = "tests.faults.embedded_work"
ROUNDS = 200 if LONG else 20
SECONDS_MAX = 0.5
"""Early moments are likelier: some rounds die while they recover."""
KILL, BROKEN, FULL = "signal=SIGKILL", "error=EIO", "error=ENOSPC"
KINDS = ("write", "writev", "fdatasync", "fsync", "rename", "link", "unlink", "mkdir", "openat")
SAMPLE = 3
EPOCHS, LIVES = 5, 2


# kill -9


def test_no_acknowledged_epoch_is_lost_to_kill_9(tmp_path: Path) -> None:
    folder, oracle = tmp_path / "data", Oracle(SEED)
    draw, acked, fallbacks = random.Random(SEED), 0, 0
    for number in range(ROUNDS):
        least = acked
        acked = max(acked, write_and_kill(folder, draw.random() ** 2 * SECONDS_MAX))
        assert acked >= least
        copy = tmp_path / f"copy-{number}"
        if folder.exists():  # the first life may die before it has made it
            shutil.copytree(folder, copy)
            at = check(copy, oracle, acked, partitions=draw.choice((1, 2, 8)))
            fallbacks += check_fallback(copy, oracle, at)
            shutil.rmtree(copy)
    assert acked > ROUNDS, "hardly anything was ever written"
    assert fallbacks, "there was never an older checkpoint"
    check(folder, oracle, acked, partitions=4)


def write_and_kill(folder: Path, seconds: float) -> int:
    """One life of the process; returns the last epoch it acknowledged."""
    command = [sys.executable, "-m", MODULE, "work", str(folder), "-"]
    command += ["--epochs", str(FOR_EVER), "--seed", str(SEED)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            running = Running(process)
            running.wait_for_begin()
            SystemClock().wait(seconds)
            return running.kill()
        finally:
            process.kill()


def check(folder: Path, oracle: Oracle, acked: int, *, partitions: int | None = None) -> int:
    """Open twice and compare with the oracle; returns the epoch it is at."""
    try:
        with lamina.open(folder, partitions=partitions, retain=2) as store:
            epoch, found = store.epoch, state_of(store)
    except LaminaError as error:
        raise Lost(f"epoch {acked} was acknowledged, opening stopped: {error}") from error
    assert acked <= epoch <= acked + 1
    image = oracle.after(epoch)
    assert found == (image.state, image.offset, image.watermark)
    with lamina.open(folder) as store:
        assert (store.epoch, state_of(store)) == (epoch, found), "a second opening differs"
    return epoch


def check_fallback(folder: Path, oracle: Oracle, epoch: int) -> bool:
    """Damage the newest checkpoint: the one before it and the WAL must reach the same epoch."""
    checkpointer = Checkpointer(LocalStore(folder / STORE))
    checkpoints = checkpointer.list_checkpoints()
    if len(checkpoints) < 2:
        return False
    manifest = checkpointer.paths.manifest(checkpoints[-1].id)
    (folder / STORE / manifest).write_bytes(b"damaged")
    assert check(folder, oracle, epoch) == epoch
    return True


# faults at system calls


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


@contextmanager
def serving() -> Iterator[Server]:
    with subprocess.Popen(
        [sys.executable, "-m", MODULE, "serve"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Server(process)
        assert process.stdin is not None
        process.stdin.close()  # it ends by itself


@pytest.fixture(scope="module")
def below() -> Iterator[Path]:
    memory = Path("/dev/shm")
    where = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="lamina-embedded-", dir=where) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def clean(server: Server, below: Path) -> tuple[Call, ...]:
    """The calls of an undisturbed run, of all threads, whose number only calls of ours have."""
    folder = below / "clean"
    folder.mkdir()
    ended = run(server, folder)
    assert ended.code == 0, ended.stderr
    assert acknowledged(folder) == EPOCHS * LIVES
    others = {(c.name, c.number) for c in ended.calls if not is_ours(c, folder)}
    return tuple(call for call in ended.calls if (call.name, call.number) not in others)


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
@pytest.mark.parametrize("how", [KILL, BROKEN, FULL])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_any_call_loses_nothing(
    server: Server, clean: tuple[Call, ...], below: Path, kind: str, how: str
) -> None:
    """strace counts by thread: a number is reached first by the main one, or by an upload."""
    for fault in faults(clean, kind, how):
        folder = below / f"{fault.call}-{fault.how}-{fault.number}"
        folder.mkdir()
        ended = run(server, folder, fault)
        assert has_ended_well(ended, folder, fault), (fault, ended.code, ended.stderr)
        check_and_go_on(folder)
        shutil.rmtree(folder)


def run(server: Server, folder: Path, fault: Fault | None = None) -> Ended:
    arguments = [str(folder / "data"), str(folder / "acks")]
    arguments += ["--epochs", str(EPOCHS), "--lives", str(LIVES), "--seed", str(SEED)]
    arguments += ["--checkpoint-every", "2"]
    return server.run(["embedded", *arguments], folder, fault)


def faults(clean: tuple[Call, ...], kind: str, how: str) -> list[Fault]:
    """Every call of that kind, or a spread of them with the first and the last."""
    calls = [call for call in clean if call.name in CALLS[kind] and " EEXIST " not in call.text]
    found = sorted({(call.name, call.number) for call in calls})
    assert found, f"the program makes no {kind}"
    if not LONG and len(found) > SAMPLE:
        between = random.Random(f"{SEED}/{kind}/{how}").sample(found[1:-1], SAMPLE - 2)
        found = [found[0], *sorted(between), found[-1]]
    return [Fault(name, how, number) for name, number in found]


def has_ended_well(ended: Ended, folder: Path, fault: Fault) -> bool:
    """Killed; or ended with an error of ours; or to the end, if the call was one of no account."""
    hit = [call for call in ended.calls if call.injected]
    if hit and not any(is_ours(call, folder) for call in hit):
        return True  # threads have come in another order: this is not about us
    if fault.how == KILL:
        return ended.code == -9 or acknowledged(folder) == EPOCHS * LIVES
    if ended.code == 0:
        return acknowledged(folder) == EPOCHS * LIVES
    last = ended.stderr.strip().splitlines()[-1:]
    return ended.code == 1 and bool(last) and last[0].startswith("lamina.errors.")


def check_and_go_on(folder: Path) -> None:
    oracle, data = Oracle(SEED), folder / "data"
    epoch = check(data, oracle, acknowledged(folder))
    program = Program(data, seed=SEED, checkpoint_every=2, partitions=2)
    for number in (1, 2, 3):
        assert program.run_epoch() == epoch + number
        program.checkpoint_if_due()
    program.close()
    assert check(data, oracle, epoch + 3) == epoch + 3


def acknowledged(folder: Path) -> int:
    """The last epoch whose commit has returned."""
    file = folder / "acks"
    lines = file.read_text().split() if file.exists() else []
    return max((int(line) for line in lines if line != "begin"), default=0)


def is_ours(call: Call, folder: Path) -> bool:
    return re.search(rf"{re.escape(str(folder))}/data\b", call.text) is not None
