"""Loaded by every Python of an executor whose PYTHONPATH has this folder: faults inside of tasks.

LAMINA_TEST_FAULTS names a folder. A file <epoch>-<core>-<place> there is a fault that waits for a
task; the attempt that takes the file away has it. Places: `open`, before the writer of the WAL
opens; `sync`, when it has the lock and its bytes are written but not synced. What a fault does is
the file's content: `kill` kills the executor's JVM, `stop` stops the JVM and this process until
somebody lets them go on. The file `attempts` says who came where.
"""

import os
import signal
from pathlib import Path
from typing import Any

from lamina.wal.core_log import CoreLog

FAULTS = Path(os.environ["LAMINA_TEST_FAULTS"])
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def note(tag: str, epoch: int, core: int, place: str) -> None:
    with (FAULTS / "attempts").open("a") as file:
        file.write(f"{epoch} {core} {place} {tag}\n")


def reach(tag: str, epoch: int, core: int, place: str) -> None:
    """Somebody is at this place; a fault that waits here is theirs."""
    note(tag, epoch, core, place)
    fault = FAULTS / f"{epoch}-{core}-{place}"
    taken = FAULTS / f"{fault.name}.taken"
    try:
        fault.rename(taken)
    except FileNotFoundError:
        return
    kind = taken.read_text()
    jvm = parent_of(os.getppid())  # this process is a fork of the daemon that the JVM started
    written = FAULTS / f"{fault.name}.writing"
    written.write_text(f"{tag} {os.getpid()} {jvm}")
    written.rename(FAULTS / f"{fault.name}.struck")
    os.kill(jvm, SIGNALS[kind])
    os.kill(os.getpid(), signal.SIGSTOP)
    note(tag, epoch, core, "resumed")


class Faulty(CoreLog):
    """The writer that tasks use, from here on."""

    def __init__(self, core_id: int, *rest: Any, **named: Any) -> None:
        self._at = (named["tag"], named["epoch"], core_id)
        reach(*self._at, "open")
        super().__init__(core_id, *rest, **named)

    def sync(self) -> Any:
        reach(*self._at, "sync")
        synced = super().sync()
        note(*self._at, "synced")
        return synced


def install() -> None:
    import lamina.workspace.local  # noqa: PLC0415  when its pieces are there

    lamina.workspace.local.CoreLog = Faulty  # type: ignore[misc]


install()
