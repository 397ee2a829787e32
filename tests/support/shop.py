"""A shop's keyed state in a folder of `lamina.open`, the same in every run, for tests and pages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import lamina
from lamina.testing import ManualClock

KEY = pa.schema([pa.field("customer", pa.string(), nullable=False), ("day", pa.date32())])
VALUE = pa.schema([("orders", pa.int64()), ("amount", pa.decimal128(12, 2))])
FIRST = date(2025, 11, 1)
SECOND = date(2025, 11, 2)


@dataclass(frozen=True)
class Shop:
    """Epochs 1 to 4; checkpoints at 1 (the savepoint `monday`) and 3, epochs 2 and 4 in the log."""

    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def home(self) -> Path:
        return self.folder / "home"


def make_shop(folder: Path, partitions: int = 2) -> Shop:
    clock = ManualClock(seed=11, now_ms=1_762_000_000_000)
    with lamina.open(folder, partitions=partitions, clock=clock) as store:
        totals = store.table("totals", KEY, VALUE)
        store.table("returns", KEY, VALUE)  # nothing is ever written to it
        totals.write(rows(ada=1, bob=2, cleo=3))
        store.put(b"cursor", b"part-1")
        store.put(b"\x00\x01", b"raw")
        store.commit({"orders": {"file": "part-1"}})
        clock.advance(60)
        store.savepoint("monday")
        totals.write(rows(bob=5, dora=1))
        store.commit({"orders": {"file": "part-2"}})
        totals.delete(keys("cleo"))
        store.commit({"orders": {"file": "part-3"}})
        clock.advance(60)
        store.checkpoint()
        totals.write(rows(day=SECOND, ada=7))
        store.put(b"cursor", b"part-4")
        store.commit({"orders": {"file": "part-4"}})
    return Shop(folder)


def rows(day: date = FIRST, **orders: int) -> pa.RecordBatch:
    """Customers with so many orders, at 9.50 each."""
    found = [
        {"customer": name, "day": day, "orders": count, "amount": Decimal("9.50") * count}
        for name, count in orders.items()
    ]
    return pa.RecordBatch.from_pylist(found, pa.schema([*KEY, *VALUE]))


def keys(*customers: str) -> pa.RecordBatch:
    found = [{"customer": name, "day": FIRST} for name in customers]
    return pa.RecordBatch.from_pylist(found, KEY)


def orders_of(table: pa.Table) -> dict[tuple[str, Any], int]:
    """What the shop's state is about, without the order of its rows."""
    return {(r["customer"], r["day"]): r["orders"] for r in table.to_pylist()}
