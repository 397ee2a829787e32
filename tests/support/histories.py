"""Epochs as the history has them, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lamina.format.epoch_row import EpochRow
from lamina.running.history import HistoryWriter
from lamina.testing import ManualClock


def row(epoch: int, generation: int = 1, *, saved: int = 0) -> EpochRow:
    return EpochRow(
        epoch=epoch,
        generation=generation,
        time_ms=1_700_000_000_000 + epoch * 1000,
        took_us=250_000,
        waited_us=1_000,
        phases_us={"plan": 1000, "run": 200_000, "decide": 1000, "commit": 5000, "publish": 43_000},
        streams_us={"vwap": 200_000},
        rows={"trades": 100 + epoch},
        rows_out={"vwap": epoch % 7},
        late=epoch % 3,
        watermark=1_700_000_000_000_000 + epoch,
        watermarks={"trades": 1_700_000_000_000_000 + epoch},
        keys=500,
        state_runs=4,
        state_bytes=20_000,
        wal_bytes=900,
        saved_epoch=saved,
        saved_id="019a3f63-3e60-74c7-8d7a-e2e483a62529" if saved else "",
        sinks={"vwap": epoch},
    )


def write(home: Path, epochs: Iterable[int], generation: int = 1) -> None:
    """The epochs of one process that ends in order."""
    history = HistoryWriter(home, ManualClock())
    try:
        for epoch in epochs:
            history.add(row(epoch, generation))
        history.finish()
    finally:
        history.close()
