"""The keyed steps of docs/python.md, rows for them, and what they come to in plain Python."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
COLUMNS = "id BIGINT, user STRING, amount DOUBLE, ts TIMESTAMP"
DELAY = timedelta(seconds=10)
START = datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC"))  # as Arrow gives it
Row = dict[str, Any]
ADDED = ("add_visits", "add_first_of_each", "add_alarms")
STREAMS = ("visits", "unique", "alarms")


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def functions(*, of_spark: bool = False) -> dict[str, Any]:
    """What the examples beside transformWithState define."""
    names: dict[str, Any] = {"__name__": "__main__"}
    beside = re.findall(
        r"```python\n(.*?)```", PAGE.partition("## Beside transformWithState")[2], re.DOTALL
    )
    for code in beside:
        if code.startswith("# PySpark") == of_spark:
            exec(compile(code, "python.md", "exec"), names)  # as a reader would
    return names


def clicks(epochs: int, rows: int = 60, *, late: bool = True) -> list[list[Row]]:
    """Users come and go; rows are out of order within the delay, and some are late."""
    rng = random.Random(8)
    users = [None, "", "ann", "bob", "ümit", *(f"u{n}" for n in range(20))]
    now, found = START, list[list[Row]]()
    for epoch in range(epochs):
        now += timedelta(minutes=rng.choice([0, 0, 3, 11, 61]))
        chunk: list[Row] = []
        for _ in range(rows if epoch % 4 != 2 else 1):
            now += timedelta(seconds=rng.randrange(0, 8), microseconds=rng.randrange(10**6))
            at = now - timedelta(seconds=rng.randrange(0, 9))
            if late and rng.random() < 0.03:
                at -= timedelta(minutes=2)
            amount = rng.choice([None, 0.5, 0.25, 20.0, 499.0, 501.0, 900.0])
            row = {"id": rng.randrange(90), "user": rng.choice(users), "amount": amount, "ts": at}
            chunk.append(row)
        found.append(chunk)
    return found


def timed(epochs: Sequence[Sequence[Row]]) -> Iterator[tuple[datetime | None, list[Row]]]:
    """Each epoch's watermark, and its rows that are not late, in order; and an epoch after all."""
    watermark: datetime | None = None
    for chunk in (*epochs, ()):
        on_time = [row for row in chunk if watermark is None or row["ts"] > watermark]
        yield watermark, sorted(on_time, key=lambda row: row["ts"])
        latest = [row["ts"] - DELAY for row in chunk]
        watermark = max([*latest, *([watermark] if watermark else [])], default=None)


def visits(epochs: Sequence[Sequence[Row]]) -> Iterator[Row]:
    state: dict[Any, tuple[int, datetime]] = {}
    for watermark, rows in timed(epochs):
        for user, (total, last) in list(state.items()):
            if watermark is not None and last + timedelta(minutes=10) <= watermark:
                yield {"user": user, "total": total, "last": last}
                del state[user]
        for row in rows:
            total, last = state.get(row["user"], (0, row["ts"]))
            state[row["user"]] = (total + 1, max(last, row["ts"]))


@dataclass
class Forgetful:
    """State with a ttl."""

    ttl: timedelta
    latest: dict[Any, datetime] = field(default_factory=dict)
    values: dict[Any, Any] = field(default_factory=dict)

    def expire(self, watermark: datetime | None) -> None:
        for key, at in list(self.latest.items()):
            if watermark is not None and at + self.ttl <= watermark:
                del self.latest[key]
                self.values.pop(key, None)

    def see(self, key: Any, at: datetime) -> None:
        self.latest[key] = max(at, self.latest.get(key, at))


def unique(epochs: Sequence[Sequence[Row]]) -> Iterator[Row]:
    state = Forgetful(timedelta(hours=1))
    for watermark, rows in timed(epochs):
        state.expire(watermark)
        for row in rows:
            if row["id"] not in state.latest:
                yield {"id": row["id"], "user": row["user"]}
            state.see(row["id"], row["ts"])


def alarms(epochs: Sequence[Sequence[Row]]) -> Iterator[Row]:
    state = Forgetful(timedelta(minutes=1))
    for watermark, rows in timed(epochs):
        state.expire(watermark)
        for row in rows:
            user, amount, at = row["user"], row["amount"], row["ts"]
            small_at = state.values.get(user)
            is_soon = small_at is not None and at - small_at <= timedelta(minutes=1)
            if amount is not None and amount > 500 and is_soon:
                yield {"user": user, "amount": amount, "ts": at}
            if amount is not None and amount < 1:
                state.values[user] = at
            state.see(user, at)


MODELS: dict[str, Callable[[Sequence[Sequence[Row]]], Iterable[Row]]] = {
    "visits": visits,
    "unique": unique,
    "alarms": alarms,
}
