"""Pipelines for the tests of the page: one that runs, one that was killed, one that is damaged.

Their state is written by an embedded store under the names that the streams of their files have;
what a process says of itself is written by hand. No Spark.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pyarrow as pa
from starlette.testclient import TestClient

from lamina.checkpoint import Checkpointer
from lamina.clock import Clock, SystemClock
from lamina.console.app import make_app
from lamina.console.context import Console
from lamina.console.settings import Access
from lamina.console.subjects import Subject, find_subjects
from lamina.embedded.opening import open_home
from lamina.format.epoch_row import EpochRow
from lamina.recovery import RecoveryConfig
from lamina.running.control import Status, this_process, write_status
from lamina.running.history import HistoryWriter
from lamina.running.presence import Presence, present
from lamina.store import LocalStore
from lamina.testing import ManualClock
from lamina.workspace.local import LocalWorkspace
from tests.support.homes import flip, tear

HOSTILE = "<script>alert('x')</script>"
SQL = """\
-- Trades with what their symbols are, by minute; and what each symbol is worth.
CREATE SOURCE trades (symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP)
  USING json OPTIONS (path 'in/trades')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;

CREATE SOURCE quotes (symbol STRING, bid DECIMAL(12,2), ts TIMESTAMP)
  USING json OPTIONS (path 'in/quotes')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;

CREATE STREAM priced AS
  SELECT t.symbol, t.price, t.volume, q.bid, t.ts
  FROM trades t JOIN quotes q
    ON t.symbol = q.symbol AND q.ts BETWEEN t.ts - INTERVAL 10 SECONDS AND t.ts;

CREATE STREAM minutes AS
  SELECT symbol, window.start AS minute, sum(price * volume) / sum(volume) AS vwap
  FROM priced GROUP BY symbol, window(ts, '1 minute') EMIT ON WINDOW CLOSE;

CREATE STREAM totals AS
  SELECT symbol, count(*) AS trades, sum(volume) AS volume
  FROM trades GROUP BY symbol EMIT ON UPDATE;

CREATE SINK lake FROM minutes USING parquet OPTIONS (path 'out/minutes');
CREATE SINK board FROM totals USING parquet OPTIONS (path 'out/totals');
CREATE SINK audit FROM priced USING parquet OPTIONS (path 'out/priced');
"""
KEY = pa.schema([pa.field("symbol", pa.string())])
VALUE = pa.schema([("trades", pa.int64()), ("volume", pa.int64())])
WINDOW = pa.schema([pa.field("symbol", pa.string()), ("minute", pa.timestamp("us", tz="UTC"))])
SUMS = pa.schema([("turnover", pa.decimal128(18, 2)), ("volume", pa.int64())])
START_MS = 1_762_000_000_000
DEAD_PID = 2**22 + 1


@dataclass(frozen=True)
class Project:
    """A folder with pipeline files, as a person has them."""

    folder: Path

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.sql"

    def home(self, name: str) -> Path:
        return self.folder / ".lamina" / name / "home"

    def store(self, name: str) -> Path:
        return self.folder / ".lamina" / name / "store"

    def subjects(self) -> tuple[Subject, ...]:
        return find_subjects((), (), (), here=self.folder)

    def add(
        self,
        name: str,
        *,
        epochs: int = 12,
        every: int = 3,
        keys: int = 400,
        sql: str = SQL,
        mark: str = "before the upgrade",
        clock: Clock | None = None,
    ) -> Project:
        """A pipeline with so many epochs, a checkpoint every so many, and one savepoint."""
        clock = clock or ManualClock(seed=5, now_ms=START_MS)
        self.file(name).write_text(sql)
        store = LocalStore(self.store(name))
        opened = open_home(
            LocalWorkspace(self.home(name), clock),
            Checkpointer(store, clock=clock),
            config=RecoveryConfig(partitions=4),
            partitions=4,
            retain=100,
        )
        start_us = clock.now_ms() * 1000
        with opened as state:
            totals = state.table("totals", KEY, VALUE)
            minutes = state.table("minutes", WINDOW, SUMS)
            for epoch in range(1, epochs + 1):
                if isinstance(clock, ManualClock):
                    clock.advance(20)
                totals.write(_totals(epoch, keys))
                minutes.write(_minutes(epoch))
                state.commit(
                    {"trades": {"file": f"part-{epoch:05d}", "rows": str(epoch * 1000)}},
                    watermark=start_us + epoch * 20_000_000,
                )
                if epoch % every == 0:
                    state.checkpoint()
                if epoch == every and mark:
                    state.savepoint(mark)
        return self

    def remember(self, name: str, epochs: range, *, end_ms: int, took_ms: int = 240) -> Project:
        """The history of these epochs: the last is over at *end_ms*."""
        writer = HistoryWriter(self.home(name), SystemClock())
        for epoch in epochs:
            writer.add(row_of(epoch, end_ms - (epochs[-1] - epoch) * 1000, took_ms))
        writer.close()
        return self

    def say(self, name: str, **changes: object) -> Status:
        """What its last process has left."""
        me = this_process()
        said = Status(name, DEAD_PID, me.host, "running", START_MS, START_MS + 240_000)
        said = replace(said, **changes)  # type: ignore[arg-type]
        write_status(self.home(name), said)
        return said

    def manifests(self, name: str) -> list[Path]:
        """By age: ids sort by time."""
        return sorted(self.store(name).glob("*/manifest.json"))

    def damage_manifest(self, name: str, index: int) -> Path:
        path = self.manifests(name)[index]
        path.write_bytes(path.read_bytes()[:100])
        return path

    def segments(self, name: str, folder: str) -> list[Path]:
        return sorted((self.home(name) / folder).glob("*.wal"))


def make_project(
    folder: Path, *, epochs: int = 14, keys: int = 400, now_ms: int = START_MS
) -> Project:
    """`orders` was killed, `billing` is damaged in store and log; `trades` may be run."""
    project = Project(folder)
    clock = ManualClock(seed=3, now_ms=now_ms)
    project.add("trades", epochs=epochs, every=max(epochs // 5, 1), keys=keys, clock=clock)
    project.remember("trades", range(1, epochs + 1), end_ms=clock.now_ms())
    project.add("orders", epochs=14)
    project.remember("orders", range(1, 14), end_ms=START_MS + 240_000)
    project.say("orders", epoch=12, saved_epoch=12, rows=48_000, sinks={"lake": 12, "board": 9})
    project.add("billing", epochs=9, every=2)
    project.say("billing", phase="failed", epoch=8, why="the disk of the store was full")
    project.damage_manifest("billing", -2)
    project.damage_manifest("billing", -1)
    flip(project.segments("billing", "driver")[-1], 300)
    tear(project.segments("orders", "driver")[-1])
    return project


@contextmanager
def running(project: Project, name: str, *, first: int = 15) -> Iterator[Presence]:
    """A process that has the home and says how it is going, a few times a second."""
    clock, stop, ready = SystemClock(), threading.Event(), threading.Event()
    seen: list[Presence] = []

    def run() -> None:
        with present(project.home(name), name, clock=clock) as here:
            seen.append(here)
            writer = HistoryWriter(here.home, clock)
            for epoch in count(first):
                writer.add(row_of(epoch, clock.now_ms()))
                _say(here, epoch, first - 1)
                ready.set()
                if clock.wait(0.3, stop):
                    break
            writer.close()
            here.say("ended")

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(30)
    try:
        yield seen[0]
    finally:
        stop.set()
        thread.join()


def row_of(epoch: int, time_ms: int, took_ms: int = 240) -> EpochRow:
    """An epoch of a pipeline that goes up and down; every twentieth has a slow sink."""
    wave = 1 + 0.35 * math.sin(epoch / 9) + 0.1 * math.sin(epoch * 2.3)
    took_us = int(took_ms * 1000 * wave)
    shares = {"plan": 0.06, "run": 0.62, "decide": 0.05, "commit": 0.08, "publish": 0.15}
    phases = {name: int(took_us * share) for name, share in shares.items()}
    if epoch % 20 == 0:
        phases["publish"] *= 4
    rows = int(4200 * wave)
    return EpochRow(
        epoch=epoch,
        generation=1,
        time_ms=time_ms,
        took_us=sum(phases.values()) + took_us // 25,
        waited_us=max(1_000_000 - took_us, 0),
        phases_us=phases,
        rows={"trades": rows, "quotes": rows * 2},
        rows_out={"audit": rows, "board": rows // 90, "lake": rows // 300},
        late=3 if epoch % 31 == 0 else 0,
        watermark=(time_ms - int(5_000 + 2_500 * wave)) * 1000,
        keys=900,
        state_bytes=2_000_000 + 9_000 * epoch,
        saved_epoch=epoch - epoch % 10,
        sinks={"audit": epoch, "board": epoch, "lake": epoch - (epoch % 20 == 0)},
    )


def client(
    subjects: Sequence[Subject], access: Access | None = None, clock: Clock | None = None
) -> TestClient:
    """The page in this process; as a browser on this machine asks for it."""
    console = Console(subjects, access or Access(port=8650), clock or SystemClock())
    return TestClient(
        make_app(console), base_url="http://localhost:8650", raise_server_exceptions=True
    )


def _say(here: Presence, epoch: int, saved: int) -> None:
    rate = 4000 + 700 * (epoch % 5)
    here.say(
        "running",
        epoch=epoch,
        saved_epoch=saved,
        rows=epoch * 4000,
        rows_per_s=rate,
        watermark=(here.status.updated_ms - 6_000) * 1000,
        rows_out={"audit": epoch * 900, "board": epoch * 40, "lake": epoch * 12},
        sinks={"audit": epoch, "board": epoch, "lake": epoch - 1},
        keys=900,
    )


def _totals(epoch: int, keys: int) -> pa.RecordBatch:
    """Some of the symbols, more of them at first."""
    wanted = range(keys) if epoch == 1 else range(epoch, keys, 40)
    columns = [
        pa.array([_symbol(n) for n in wanted]),
        pa.array([epoch * n for n in wanted], pa.int64()),
        pa.array([epoch * n * 17 for n in wanted], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*KEY, *VALUE]))


def _minutes(epoch: int) -> pa.RecordBatch:
    minute = (START_MS // 60_000 + epoch // 3) * 60_000_000
    rows = [
        {"symbol": _symbol(n), "minute": minute, "turnover": f"{n * epoch}.50", "volume": n}
        for n in range(40)
    ]
    columns = [pa.array([row[f.name] for row in rows]) for f in (*WINDOW, *SUMS)]
    columns = [c.cast(f.type) for c, f in zip(columns, (*WINDOW, *SUMS), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*WINDOW, *SUMS]))


def _symbol(number: int) -> str:
    return (
        HOSTILE
        if number == 7
        else f"{chr(65 + number % 26)}{chr(65 + number // 26 % 26)}{number:03d}"
    )
