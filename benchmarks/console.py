"""How quickly the page answers, every command that reads only metadata, and a fork.

python benchmarks/console.py            1,000 checkpoints, 100,000 epochs
python benchmarks/console.py --quick    the same shape with smaller sizes
python benchmarks/console.py --json     the last line of stdout is one JSON object

A page is asked of a `lamina ui` in its own process, over loopback, so its time is what a browser
waits. A command is a process of its own, start included; of several rounds the quickest counts,
because other processes on the machine can only add.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from report import Number, run

from lamina.checkpoint import Checkpointer, PartitionData, create_savepoint
from lamina.clock import SystemClock
from lamina.embedded.opening import open_home
from lamina.format.epoch_row import EpochRow
from lamina.format.manifest import CheckpointManifest, with_runs
from lamina.recovery import RecoveryConfig
from lamina.running.history import HistoryWriter
from lamina.store import LocalStore
from lamina.workspace.local import LocalWorkspace

PAGE_MS_MAX = 50
COMMAND_S_MAX = 0.5
HELP_S_MAX = 0.2
FORK_MS_MAX = 1000
FORKED_FILES = 64
NAME = "orders"
KEYS = pa.schema([pa.field("symbol", pa.string())])
VALUES = pa.schema([("trades", pa.int64()), ("volume", pa.int64())])
SQL = """\
CREATE SOURCE trades (symbol STRING, volume BIGINT) USING json OPTIONS (path 'in');
CREATE STREAM totals AS
  SELECT symbol, count(*) AS trades, sum(volume) AS volume
  FROM trades GROUP BY symbol EMIT ON UPDATE;
CREATE SINK board FROM totals USING parquet OPTIONS (path 'out');
"""


@dataclass(frozen=True, slots=True)
class Scale:
    checkpoints: int
    epochs: int
    rounds: int
    forked_mib: int


SCALES = {
    "full": Scale(1_000, 100_000, 20, 1024),
    "quick": Scale(200, 20_000, 10, 256),
    "tiny": Scale(4, 50, 1, 1),
}


def main() -> None:
    run(__doc__ or "", SCALES, _measured)


def _measured(scale: Scale, folder: Path) -> Iterator[Number]:
    _make(folder, scale)
    with _served(folder) as port:
        first, others = _ask_pages(folder, port, scale)
    many = f"{scale.checkpoints} checkpoints, {scale.epochs} epochs"
    yield Number("page_ms_first", first, "the first look at everything")
    times = sorted(ms for listed in others.values() for ms in listed)
    slowest = max(others, key=lambda path: statistics.median(others[path]))
    details = f"{many}; slowest {slowest}, {statistics.median(others[slowest]):.1f} ms"
    yield Number("page_ms_p50", statistics.median(times), f"{len(times)} pages")
    yield Number("page_ms_p95", _share(times, 0.95), details, at_most=PAGE_MS_MAX)
    found = {name: _command(folder, arguments, 3) for name, arguments in _commands(folder).items()}
    name, seconds = max(found.items(), key=lambda item: item[1][0])
    said = ", ".join(f"{name} {wall:.2f}" for name, (wall, _) in found.items())
    yield Number("cli_metadata_s", seconds[0], f"{name}: {said}", at_most=COMMAND_S_MAX)
    cpu = min(_once(folder, ["--help"])[1] for _ in range(3))
    yield Number("cli_help_cpu_s", cpu, "lamina --help, processor time", at_most=HELP_S_MAX)
    yield _forked(folder / "large", scale)


def _forked(folder: Path, scale: Scale) -> Number:
    """A checkpoint of many MiB in 64 files; each fork is at a place of its own."""
    folder.mkdir()
    checkpointer = Checkpointer(LocalStore(folder / "store"))
    checkpointer.log.take_over("home")
    begin = checkpointer.begin()
    data = bytes(scale.forked_mib * 2**20 // FORKED_FILES)
    parts = [
        PartitionData("state", number, "snap", 1, 1, 1, data) for number in range(FORKED_FILES)
    ]
    empty = CheckpointManifest(checkpoint_id=begin.id, epoch=1, timestamp_ms=1, generation=1)
    manifest = with_runs(empty, checkpointer.save_partitions(begin.id, parts))
    checkpointer.commit(begin, manifest)
    seconds = [
        _once(folder, ["fork", "a.sql", f"b{number}.sql", "--store", str(folder / "store")])[0]
        for number in range(3)
    ]
    details = f"{scale.forked_mib} MiB, start of the command included"
    return Number("fork_ms", min(seconds) * 1000, details, at_most=FORK_MS_MAX)


def _make(folder: Path, scale: Scale) -> None:
    """A pipeline file with home, store and history."""
    (folder / f"{NAME}.sql").write_text(SQL)
    home, store = _home(folder), LocalStore(_store(folder))
    checkpointer = Checkpointer(store)
    with open_home(
        LocalWorkspace(home, SystemClock()),
        checkpointer,
        config=RecoveryConfig(partitions=8),
        partitions=8,
        retain=3,  # how far back the log is kept: checkpoints stay
    ) as state:
        totals = state.table("totals", KEYS, VALUES)
        for epoch in range(1, scale.checkpoints + 1):
            totals.write(_rows(epoch))
            state.commit({"trades": {"file": f"part-{epoch}"}}, watermark=epoch * 1_000_000)
            state.checkpoint()
        totals.write(_rows(0))
        state.commit({"trades": {"file": "part-last"}})
    create_savepoint(checkpointer, "kept")
    writer = HistoryWriter(home, SystemClock())
    for epoch in range(1, scale.epochs + 1):
        writer.add(_epoch(epoch))
    writer.finish()
    writer.close()


def _rows(epoch: int) -> pa.RecordBatch:
    names = [f"S{(epoch * 37 + n) % 500:04d}" for n in range(50)]
    numbers = pa.array(range(epoch, epoch + 50), pa.int64())
    columns = [pa.array(names), numbers, numbers]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*KEYS, *VALUES]))


def _epoch(number: int) -> EpochRow:
    return EpochRow(
        epoch=number,
        generation=1,
        time_ms=1_762_000_000_000 + number * 1000,
        took_us=200_000 + number % 7 * 9_000,
        waited_us=700_000,
        phases_us={"plan": 9_000, "run": 150_000, "commit": 20_000, "publish": 12_000},
        rows={"trades": 1000 + number % 100},
        rows_out={"board": 10},
        watermark=1_762_000_000_000_000 + number * 1_000_000,
        state_bytes=10_000_000 + number,
        sinks={"board": number},
    )


def _ask_pages(folder: Path, port: int, scale: Scale) -> tuple[float, dict[str, list[float]]]:
    """Milliseconds of the first page, and of all others by their address; those after it too."""
    ids = sorted(each.parent.name for each in _store(folder).glob("*/manifest.json"))
    base = f"/p/{NAME}"
    paths = [
        "/?all",
        base,
        *(f"{base}/{tab}" for tab in ("epochs", "checkpoints", "state", "recovery", "wal", "diff")),
        f"{base}/state?operator=totals",
        f"{base}/state?operator=totals&at=head",
        f"{base}/state?operator=totals&key.symbol=S0001",
    ]
    connection = http.client.HTTPConnection("127.0.0.1", port)
    first = _ask(connection, base)
    times: dict[str, list[float]] = {}
    for number in range(scale.rounds):
        asked = [
            *paths,
            f"{base}/checkpoints?page={1 + number * 7 % max(len(ids) // 25, 1)}",
            f"{base}/checkpoints/{ids[-1 - number * 13 % len(ids)]}",
            f"{base}/epochs?before={max(scale.epochs - number * 997, 10)}",
        ]
        for path in asked:
            kind = path.partition("?before")[0].partition("?page")[0]
            kind = f"{base}/checkpoints/ID" if kind.startswith(f"{base}/checkpoints/") else kind
            times.setdefault(kind, []).append(_ask(connection, path))
    connection.close()
    return first, times


def _ask(connection: http.client.HTTPConnection, path: str) -> float:
    started = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    spent = (time.perf_counter() - started) * 1000
    assert answer.status == 200, (path, answer.status, body[:500])
    assert b'role="alert"' not in body, (path, body)
    return spent


@contextmanager
def _served(folder: Path) -> Iterator[int]:
    process = subprocess.Popen(
        [*_lamina(), "ui", "--port", "0", "--json"],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line == "}\n":
                break
        yield int(json.loads("".join(lines))["url"].rpartition(":")[2].strip("/"))
    finally:
        process.terminate()
        process.wait()


def _commands(folder: Path) -> dict[str, list[str]]:
    """Every command that reads only metadata; a gc reads every manifest that stays."""
    home, store = ["--home", str(_home(folder))], ["--store", str(_store(folder))]
    return {
        "list": ["list", *store],
        "show": ["show", *store],
        "log": ["log", *store],
        "savepoint list": ["savepoint", "list", *store],
        "status": ["status", *home, *store],
        "history": ["history", f"{NAME}.sql"],
        "wal list": ["wal", "list", *home],
        "recover": ["recover", "--dry-run", "--no-verify", *home, *store],
    }


def _command(folder: Path, arguments: Sequence[str], rounds: int) -> tuple[float, float]:
    return min(_once(folder, arguments) for _ in range(rounds))


def _once(folder: Path, arguments: Sequence[str]) -> tuple[float, float]:
    """Seconds from start to end, and seconds of processor."""
    started = time.perf_counter()
    process = subprocess.Popen([*_lamina(), *arguments], cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    spent = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (arguments, process.returncode)
    return spent, usage.ru_utime + usage.ru_stime


def _lamina() -> list[str]:
    return [sys.executable, "-c", "from lamina.cli.main import main; main()"]


def _home(folder: Path) -> Path:
    return folder / ".lamina" / NAME / "home"


def _store(folder: Path) -> Path:
    return folder / ".lamina" / NAME / "store"


def _share(times: Sequence[float], share: float) -> float:
    return times[min(int(len(times) * share), len(times) - 1)]


if __name__ == "__main__":
    main()
