"""A pipeline of two sources, four streams and three sinks, its data, and what must come out.

trades -> vwap               a windowed aggregate, when its windows close   -> sink vwap
trades -> large -> busiest   an aggregate over a selection, on every update  -> sink busiest
orders -> totals             an aggregate without windows, on every update   -> sink totals
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from lamina.clock import Clock
from lamina.engine.engine import Engine, EnginePlan, EngineSettings, EpochReport, StreamPlan
from lamina.engine.model import Offset, OperatorPlan, SourceRange
from lamina.engine.opening import open_engine
from lamina.engine.ports import Limits, Runner, Sink, Source, SourceMemory, Table
from lamina.engine.steps import Merges
from lamina.pipeline.model import Emit
from lamina.recovery import RecoveryConfig
from lamina.state.merge import Merge
from lamina.state.schema import StateSchema
from lamina.store import MemoryStore, Store
from lamina.testing import ManualClock
from lamina.testing.faulty import Killed
from lamina.workspace import LocalWorkspace
from lamina.workspace.base import Workspace
from lamina.workspace.remote import RemoteWorkspace
from lamina.workspace.remote.places import Held
from tests.support.in_process import InProcessRunner, LocalStream
from tests.support.memory_sink import MemorySink, MemoryTable

SECOND = 1_000_000
MINUTE = 60 * SECOND
DELAY = 20 * SECOND
LARGE = 50
TIME = pa.timestamp("us", "UTC")
ROW = pa.schema([("key", pa.string()), ("amount", pa.int64()), ("ts", TIME)])
WINDOW = pa.schema([("key", pa.string()), ("start", TIME), ("end", TIME)])
KEY = pa.schema([("key", pa.string())])
SUMS = pa.schema([("total", pa.int64()), ("rows", pa.int64())])
MERGES = (Merge("sum", ("total",)), Merge("count", ("rows",)))

Row = tuple[str, int, int | None]
Epochs = list[list[tuple[object, ...]]]
"""The rows that a sink got in each epoch that had some, sorted."""


def rows_of(rows: int, *, keys: int, step_s: int, late_every: int = 0) -> list[Row]:
    """Out of order, but within the delay; with *late_every* some come two minutes late."""
    found: list[Row] = []
    for i in range(rows):
        at = i * step_s * SECOND - (i * 7 % 11) * SECOND + MINUTE * 10
        if late_every and i % late_every == late_every - 1:
            at -= 2 * MINUTE
        found.append((f"k{i * i % keys}", i * 37 % 101, at))
    return found


TRADES = rows_of(150, keys=5, step_s=5, late_every=13)
ORDERS = rows_of(90, keys=7, step_s=3)


# what the engine is given


@dataclass
class ListSource:
    """Rows in a list; the offset is how many were read."""

    name: str
    rows: Sequence[Row]
    memory: StateSchema | None = None

    def initial(self) -> Offset:
        return {"row": "0"}

    def plan(self, start: Offset, limits: Limits, memory: SourceMemory | None) -> SourceRange:
        end = len(self.rows)
        if limits.rows is not None:
            end = min(end, int(start["row"]) + limits.rows)
        return SourceRange(self.name, start, {"row": str(end)})

    def confirm(self, planned: SourceRange) -> None:
        """Lists do not change."""

    def acknowledge(self, offset: Offset) -> None:
        """Lists stay."""


def table_of(rows: Iterable[Row]) -> pa.Table:
    listed = list(rows)
    columns = [pa.array([row[i] for row in listed], field.type) for i, field in enumerate(ROW)]
    return pa.Table.from_arrays(columns, schema=ROW)


def by_key(table: pa.Table) -> pa.Table:
    grouped = table.group_by("key").aggregate([("amount", "sum"), ("amount", "count")])
    return grouped.select(["key", "amount_sum", "amount_count"]).rename_columns(
        ["key", "total", "rows"]
    )


def by_window(table: pa.Table) -> pa.Table:
    start = pc.multiply(pc.divide(table["ts"].cast(pa.int64()), MINUTE), MINUTE)
    table = table.append_column("start", start.cast(TIME))
    table = table.append_column("end", pc.add(start, MINUTE).cast(TIME))
    grouped = table.group_by(["key", "start", "end"]).aggregate(
        [("amount", "sum"), ("amount", "count")]
    )
    columns = ["key", "start", "end", "amount_sum", "amount_count"]
    return grouped.select(columns).rename_columns(["key", "start", "end", "total", "rows"])


def large(table: pa.Table) -> pa.Table:
    return table.filter(pc.greater_equal(table["amount"], LARGE))


def operator(key: pa.Schema, emit: Emit, time: str | None = None) -> OperatorPlan:
    keys, values = key.serialize().to_pybytes(), SUMS.serialize().to_pybytes()
    return OperatorPlan(keys, values, Merges(MERGES), time, emit)


FROM_TRADES, FROM_ORDERS = frozenset({"trades"}), frozenset({"orders"})
CLOSING = operator(WINDOW, Emit.ON_WINDOW_CLOSE, "end")
UPDATING = operator(KEY, Emit.ON_UPDATE)
STREAMS = (
    StreamPlan("vwap", ("trades",), FROM_TRADES, {"vwap": CLOSING}),
    StreamPlan("large", ("trades",), FROM_TRADES),
    StreamPlan("totals", ("orders",), FROM_ORDERS, {"totals": UPDATING}),
    StreamPlan("busiest", ("large",), FROM_TRADES, {"busiest": UPDATING}),
)
SINKS = {"vwap": "vwap", "totals": "totals", "busiest": "busiest"}
PLAN = EnginePlan("p", "ab" * 32, STREAMS, SINKS, {"trades": DELAY, "orders": DELAY})
LOCAL = {
    "vwap": LocalStream(by_window),
    "large": LocalStream(large),
    "totals": LocalStream(by_key),
    "busiest": LocalStream(by_key),
}
LIMITS = Limits(rows=15)
REMOTE = os.environ.get("LAMINA_WORKSPACE") == "remote"
"""Whether homes are in an object store, unless a test says otherwise."""

HOMES: dict[Path, Store] = defaultdict(MemoryStore)
"""Remote homes, by the folder that a local one would have."""

PROCESSES = count(1)
"""Each has chance of its own."""


def nothing(_: str) -> None:
    """A fail point at which nothing fails."""


@dataclass
class Bomb:
    """Kills the process at the nth time it comes to a place; *seen* counts all places."""

    place: str = ""
    nth: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    def __call__(self, place: str) -> None:
        self.seen[place] += 1
        if place == self.place and self.seen[place] == self.nth:
            raise Killed(place)


@dataclass
class World:
    """What outlives processes: the home, the store, the tables that sinks write to."""

    root: Path
    store: Store = field(default_factory=MemoryStore)
    data: Mapping[str, Sequence[Row]] = field(
        default_factory=lambda: {"trades": TRADES, "orders": ORDERS}
    )
    plan: EnginePlan = PLAN
    streams: Mapping[str, LocalStream] = field(default_factory=lambda: LOCAL)
    settings: EngineSettings = field(
        default_factory=lambda: EngineSettings(
            partitions=2, limits=LIMITS, checkpoint_epochs=3, retain=1
        )
    )
    home_name: str = "home"
    tables: dict[str, MemoryTable] = field(default_factory=lambda: defaultdict(MemoryTable))
    is_remote: bool = field(default_factory=lambda: REMOTE)

    @property
    def home(self) -> Path:
        return self.root / self.home_name

    def sinks(self) -> dict[str, Sink]:
        return {name: MemorySink(name, self.tables[name]) for name in self.plan.sinks}

    def sources(self) -> dict[str, Source]:
        return {name: ListSource(name, rows) for name, rows in self.data.items()}

    def references(self) -> dict[str, Table]:
        return {}

    def read(self, wanted: SourceRange) -> pa.Table:
        rows = self.data[wanted.source]
        return table_of(rows[int(wanted.start["row"]) : int(wanted.end["row"])])

    def runner(self, fail_point: Callable[[str], None]) -> Runner:
        times = dict.fromkeys(self.plan.delays_us, "ts")
        return InProcessRunner(self.read, self.streams, times, fail_point)

    def space(self, clock: Clock, store: Store) -> Workspace:
        """Where the pipeline lives; tasks of a remote home do not see the driver's disk."""
        if not self.is_remote:
            return LocalWorkspace(self.home, clock)
        place, saved = Held(HOMES[self.home]), Held(store)
        return RemoteWorkspace(place, self.scratch, clock, saved=saved, tasks_here=False)

    @property
    def scratch(self) -> Path:
        """Of the driver of a remote home."""
        return self.home

    def open(
        self,
        fail_point: Callable[[str], None] = nothing,
        *,
        partitions: int | None = None,
        sinks: Mapping[str, Sink] | None = None,
        store: Store | None = None,
        clock: Clock | None = None,
        recovery: RecoveryConfig | None = None,
    ) -> Engine:
        """A process: recovered, and ready for its next epoch."""
        settings, clock = self.settings, clock or ManualClock(next(PROCESSES))
        if partitions is not None:
            settings = replace(settings, partitions=partitions)
        return open_engine(
            self.plan,
            space=self.space(clock, store or self.store),
            store=store or self.store,
            runner=self.runner(fail_point),
            sources=self.sources(),
            sinks=sinks or self.sinks(),
            tables=self.references(),
            settings=settings,
            recovery=recovery,
            clock=clock,
            fail_point=fail_point,
        )

    def finish(self, *, partitions: int | None = None) -> None:
        """A process that runs to the end, checkpoint included."""
        engine = self.open(partitions=partitions)
        run_out(engine)
        engine.checkpoint()
        engine.close()

    def got(self, sink: str) -> Epochs:
        found = []
        for _, tables in sorted(self.tables[sink].epochs.items()):
            rows = [tuple(row.values()) for table in tables for row in table.to_pylist()]
            if rows:
                found.append(sorted(rows))
        return found

    def outcome(self) -> dict[str, Epochs]:
        return {sink: self.got(sink) for sink in self.plan.sinks}


def run_out(engine: Engine, *, epochs: int | None = None) -> list[EpochReport]:
    """Epoch after epoch, each checkpoint finished at once: the same every time."""
    reports: list[EpochReport] = []
    while (epochs is None or len(reports) < epochs) and (report := engine.step()) is not None:
        reports.append(report)
        engine.finish_checkpoint()
    return reports


def kill(engine: Engine) -> None:
    """As kill -9 leaves it: nothing is finished or synced; only the locks are free."""
    engine._saves.abandon()  # a thread cannot be killed: what it has done, it has done
    engine._recovered.close()


# what must come out, computed without any of it


def expected(data: Mapping[str, Sequence[Row]], limit: int) -> dict[str, Epochs]:
    """Every sink's rows by epoch, row by row in plain Python."""
    trades, orders = (_chunks(data[name], limit) for name in ("trades", "orders"))
    selected = [[row for row in chunk if row[1] >= LARGE] for chunk in trades]
    return {
        "vwap": closed_windows(trades),
        "totals": updates(orders),
        "busiest": updates(selected),
    }


def updates(chunks: Iterable[Sequence[Row]]) -> Epochs:
    sums: dict[str, tuple[int, int]] = {}
    found: Epochs = []
    for chunk in chunks:
        for key, amount, _ in chunk:
            total, rows = sums.get(key, (0, 0))
            sums[key] = (total + amount, rows + 1)
        changed = sorted((key, *sums[key]) for key in {row[0] for row in chunk})
        if changed:
            found.append(list(changed))
    return found


def closed_windows(chunks: Iterable[Sequence[Row]]) -> Epochs:
    """An epoch drops and closes by the watermark of the one before; one more epoch ends it."""
    open_now: dict[tuple[str, int], tuple[int, int]] = {}
    watermark: int | None = None
    found: Epochs = []
    for chunk in (*chunks, []):
        latest = watermark
        for key, amount, at in chunk:
            assert at is not None
            latest = at - DELAY if latest is None else max(latest, at - DELAY)
            start = at // MINUTE * MINUTE
            if watermark is None or start + MINUTE > watermark:
                total, rows = open_now.get((key, start), (0, 0))
                open_now[key, start] = (total + amount, rows + 1)
        due = [k for k in open_now if watermark is not None and k[1] + MINUTE <= watermark]
        if due:
            found.append(
                sorted(_window_row(key, start, open_now.pop((key, start))) for key, start in due)
            )
        watermark = latest
    return found


def _window_row(key: str, start: int, sums: tuple[int, int]) -> tuple[object, ...]:
    start_at, end_at = pa.array([start, start + MINUTE], TIME).to_pylist()
    return (key, start_at, end_at, *sums)


def _chunks(rows: Sequence[Row], limit: int) -> list[Sequence[Row]]:
    return [rows[at : at + limit] for at in range(0, len(rows), limit)]
