"""A fault at any call of an explicit truncate: the old log, or the cut one and what was cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lamina.disk import LocalDisk
from lamina.wal.standalone import replay_core
from tests.faults import traced
from tests.faults.cutting import EPOCHS, HOME, KEPT
from tests.faults.model import LONG
from tests.faults.traced import STRACE, Call, Fault, Server

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed")

WHOLE = list(range(1, EPOCHS + 1))
CUT = list(range(1, KEPT + 1))
GONE_ON = [*CUT, EPOCHS + 1]
HOWS = ("signal=SIGKILL", "error=EIO", "error=ENOSPC")
KINDS = ("ftruncate", "fsync", "fdatasync", "writev") + (("openat",) if LONG else ())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with traced.server() as started:
        yield started


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_truncate_is_whole_or_has_not_begun(
    server: Server, tmp_path: Path, kind: str, how: str
) -> None:
    clean = tmp_path / "clean"
    calls = run(server, clean)[1]
    assert epochs(clean) == GONE_ON
    numbers = [call.number for call in calls if call.name == kind and "/home" in call.text]
    assert numbers, kind
    for number in numbers if LONG else numbers[-6:]:
        folder = tmp_path / str(number)
        code, _ = run(server, folder, Fault(kind, how, number))
        assert code != 0
        assert epochs(folder) in legal(folder)
        if "written" in told(folder) and epochs(folder) != WHOLE:
            assert list((folder / "home" / "core-0").glob("*.cut-*")), "what was cut is kept"


def run(server: Server, folder: Path, fault: Fault | None = None) -> tuple[int, tuple[Call, ...]]:
    folder.mkdir()
    (folder / "home").mkdir()
    ended = server.run(["cutting", str(folder / "home"), str(folder / "acks")], folder, fault)
    return ended.code, ended.calls


def epochs(folder: Path) -> list[int]:
    return [commit.epoch for commit in replay_core(LocalDisk(folder / "home"), 0, HOME).commits]


def legal(folder: Path) -> list[list[int]]:
    """The histories that may be there, given how far the process said it was."""
    said = told(folder)
    if "gone on" in said:
        return [GONE_ON]
    if "cut" in said:
        return [CUT, GONE_ON]
    if "written" in said:
        return [WHOLE, CUT]
    return [WHOLE[:count] for count in range(EPOCHS + 1)]


def told(folder: Path) -> list[str]:
    return (folder / "acks").read_text().splitlines()
