"""Random joins: what hypothesis draws, the SQL of it, rows, and which of them are late."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

Row = dict[str, Any]
Epochs = list[tuple[list[Row], list[Row]]]
"""What each epoch reads of the left and of the right source."""
START = datetime(2024, 2, 29, 23, 30, tzinfo=UTC)
WINDOW_S = 600
NO_DELAY_S = 30 * 24 * 3600
"""So long a delay that nothing is late."""
OUTER = ("INNER", "LEFT", "RIGHT", "FULL")
LEFT_ONLY = {"SEMI": "EXISTS", "ANTI": "NOT EXISTS"}
ON_LEFT, ON_RIGHT = ("l.v > 2", "l.s IN ('a', 'b')"), ("r.v <= 5", "r.s <> 'b'")
ON_BOTH = ("l.v < r.v", "l.s = r.s", "(l.v <> r.v OR l.s = 'a')", "NOT (l.id = r.id)")


def schema(key: pa.DataType) -> pa.Schema:
    fields = [("k", key), ("id", pa.int64()), ("v", pa.int32()), ("s", pa.string())]
    return pa.schema([*fields, ("ts", pa.timestamp("us", "UTC"))])


LEFT, RIGHT = schema(pa.int64()), schema(pa.int32())
COLUMNS = "k {}, id BIGINT, v INT, s STRING, ts TIMESTAMP".format


@dataclass(frozen=True)
class Bounds:
    """Of y - x in seconds, x of the left side and y of the right; and one of the ways to say it."""

    low: int
    high: int
    form: int

    @property
    def text(self) -> str:
        match self.form:
            case 0:
                return f"r.ts BETWEEN l.ts{_plus(self.low)} AND l.ts{_plus(self.high)}"
            case 1:
                return f"l.ts BETWEEN r.ts{_plus(-self.high)} AND r.ts{_plus(-self.low)}"
            case 2:
                return f"r.ts >= l.ts{_plus(self.low)} AND l.ts >= r.ts{_plus(-self.high)}"
            case 3:
                return f"r.ts{_plus(-self.low)} > l.ts AND r.ts < l.ts{_plus(self.high)}"
        return f"l.ts = r.ts{_plus(-self.low)}"


def _plus(seconds: int) -> str:
    return f" {'-' if seconds < 0 else '+'} INTERVAL {abs(seconds)} SECONDS" if seconds else ""


@dataclass(frozen=True)
class RandomJoin:
    kind: str  # those of Spark; WINDOWS kind is one of closed windows
    bounds: Bounds
    more: tuple[str, ...] = ()  # in ON

    @property
    def is_windows(self) -> bool:
        return self.kind.startswith("WINDOWS")

    @property
    def text(self) -> str:
        """For the pipeline."""
        if self.is_windows:
            return self._windows("window.end AS w", "window(ts, '10 minutes')")
        if self.kind.endswith("ASOF"):
            return f"{_LISTED} FROM l {self.kind} JOIN r {self._match} ON {self._on(self.more)}"
        listed = _OF_LEFT if self.kind in LEFT_ONLY else _LISTED
        kind = f"LEFT {self.kind}" if self.kind in LEFT_ONLY else self.kind
        return f"{listed} FROM l {kind} JOIN r ON {self._condition}"

    @property
    def oracle(self) -> str:
        """For Spark and DuckDB alike: no ASOF, SEMI or ANTI, and no window()."""
        if self.is_windows:
            # 1970 began with a window of ten minutes, as they are counted from there.
            end = f"ts - INTERVAL 1 SECONDS * ((minute(ts) % 10) * 60 + second(ts)){_plus(600)}"
            return self._windows("w", "w", f"(SELECT {end} AS w, k FROM {{}}) x")
        if self.kind.endswith("ASOF"):
            return self._asof()
        if self.kind in LEFT_ONLY:
            inner = f"SELECT 1 FROM r WHERE {self._condition}"
            return f"{_OF_LEFT} FROM l WHERE {LEFT_ONLY[self.kind]} ({inner})"
        return f"{_LISTED} FROM l {self.kind} JOIN r ON {self._condition}"

    @property
    def _condition(self) -> str:
        return self._on((self.bounds.text, *self.more))

    def _on(self, conditions: Sequence[str]) -> str:
        return " AND ".join(("l.k = r.k", *conditions))

    @property
    def _is_next(self) -> bool:
        return self.bounds.form % 2 == 1

    @property
    def _match(self) -> str:
        if self._is_next:
            return "MATCH_CONDITION (r.ts >= l.ts)"
        return f"MATCH_CONDITION (l.ts{_plus(-abs(self.bounds.low))} >= r.ts)"

    def _asof(self) -> str:
        """Each row of the left side with the best of its partners."""
        if self._is_next:
            within, order = ("r.ts >= l.ts",), "r.ts"
        else:
            within, order = (f"l.ts{_plus(-abs(self.bounds.low))} >= r.ts",), "r.ts DESC"
        best = f"{order}, r.id DESC, r.v DESC NULLS LAST"
        kind = "LEFT" if self.kind.startswith("LEFT") else "INNER"
        numbered = "(SELECT *, row_number() OVER (ORDER BY id) AS place FROM l) l"
        ranked = f"row_number() OVER (PARTITION BY l.place ORDER BY {best}) AS best"
        joined = f"{_LISTED}, {ranked} FROM {numbered} {kind} JOIN r"
        listed = "id, v, lt, rid, rv, rt"
        return (
            f"SELECT {listed} FROM ({joined} ON {self._on((*within, *self.more))}) x WHERE best = 1"
        )

    def _windows(self, at: str, group: str, source: str = "{}") -> str:
        left, right = (
            f"(SELECT {at}, k, count(*) AS n FROM {source.format(name)} GROUP BY {group}, k)"
            for name in "lr"
        )
        kind = self.kind.removeprefix("WINDOWS ")
        listed = "SELECT a.w, a.k, a.n, b.w AS bw, b.k AS bk, b.n AS m"
        return f"{listed} FROM {left} a {kind} JOIN {right} b ON a.w = b.w AND a.k = b.k"


_OF_LEFT = "SELECT l.id, l.v, l.s, l.ts AS lt"
_LISTED = "SELECT l.id, l.v, l.ts AS lt, r.id AS rid, r.v AS rv, r.ts AS rt"


@dataclass(frozen=True)
class JoinCase:
    """Joins over the same rows; *stages* are files of an epoch each, and the partitions then."""

    joins: tuple[RandomJoin, ...]
    seed: int
    rows: int  # of an epoch and side
    delay_s: int
    stages: tuple[tuple[int, int], ...]

    @property
    def epochs(self) -> Epochs:
        """Disorder, duplicates, nulls, and a key that has most rows for a while."""
        rng = random.Random(self.seed)
        return [
            (_rows(rng, number, self.rows), _rows(rng, number, self.rows))
            for number in range(sum(files for files, _ in self.stages))
        ]

    def on_time(self, epochs: Epochs, *, windows: bool) -> tuple[list[Row], list[Row]]:
        """The rows that are not late: at the watermark of their epoch, or later.

        That is of the slower source: the latest time of all its rows of epochs before, less the
        delay. Of windows, their end must be behind it.
        """
        latest: list[datetime | None] = [None, None]
        found: tuple[list[Row], list[Row]] = ([], [])
        for epoch in epochs:
            marks = [each - timedelta(seconds=self.delay_s) for each in latest if each is not None]
            watermark = min(marks) if len(marks) == 2 else None
            for side, rows in enumerate(epoch):
                timed = [row for row in rows if row["ts"] is not None]
                found[side].extend(r for r in timed if _is_on_time(r["ts"], watermark, windows))
                times = [row["ts"] for row in timed] + ([latest[side]] if latest[side] else [])
                latest[side] = max(times, default=None)
        return found


def _is_on_time(time: datetime, watermark: datetime | None, windows: bool) -> bool:
    if watermark is None:
        return True
    if not windows:
        return time >= watermark
    seconds = (time - START).total_seconds() // WINDOW_S * WINDOW_S + WINDOW_S
    return START + timedelta(seconds=seconds) > watermark


def _rows(rng: random.Random, epoch: int, count: int) -> list[Row]:
    burst = rng.choice([None, 0, 1])
    rows: list[Row] = []
    for _ in range(count):
        if rows and rng.random() < 0.15:
            rows.append(dict(rng.choice(rows)))
            continue
        at = max(0, epoch * 400 + rng.randint(-900, 300))
        rows.append(
            {
                "k": burst if burst is not None and rng.random() < 0.7 else rng.choice(_KEYS),
                "id": rng.randint(0, 999),
                "v": rng.choice([None, *range(8)]),
                "s": rng.choice(["a", "b", "ü", None]),
                "ts": None if rng.random() < 0.05 else START + timedelta(seconds=at),
            }
        )
    return rows


_KEYS = [None, *range(6)]


def table(rows: Iterable[Row], side: int) -> pa.Table:
    return pa.Table.from_pylist(list(rows), (LEFT, RIGHT)[side])


@st.composite
def _bounds(draw: st.DrawFn) -> Bounds:
    one, other = draw(st.integers(-1200, 1200)), draw(st.integers(-1200, 1200))
    return Bounds(min(one, other), max(one, other), draw(st.integers(0, 4)))


@st.composite
def _join(draw: st.DrawFn, kind: str) -> RandomJoin:
    asked = (*ON_LEFT, *ON_RIGHT, *(() if kind.endswith("ASOF") else ON_BOTH))
    more = draw(st.lists(st.sampled_from(asked), max_size=2, unique=True))
    bounds = draw(_bounds())
    if kind.endswith("ASOF") and bounds.form % 2 == 1:
        more.append(f"r.ts < l.ts{_plus(draw(st.integers(1, 900)))}")
    return RandomJoin(kind, bounds, () if kind.startswith("WINDOWS") else tuple(more))


@st.composite
def join_cases(draw: st.DrawFn) -> JoinCase:
    """Every kind, in one pipeline; the first one has no condition but keys and bounds."""
    kinds = ("FULL", *OUTER, *LEFT_ONLY, "ASOF", "LEFT ASOF")
    windows = f"WINDOWS {draw(st.sampled_from(OUTER))}"
    first, *joins = [draw(_join(kind)) for kind in (*kinds, windows)]
    files = draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))
    stages = tuple(zip(files, (1, 4, 2)[-len(files) :], strict=True))
    return JoinCase(
        (RandomJoin(first.kind, first.bounds), *joins),
        draw(st.integers(0, 1 << 30)),
        draw(st.sampled_from((1, 20, 60))),
        draw(st.sampled_from((60, 300, NO_DELAY_S))),
        stages,
    )
