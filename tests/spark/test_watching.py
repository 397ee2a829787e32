"""A run on Spark as others see it: metrics while it runs, events and history afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import lamina
from lamina.engine.plans import EpochReport
from lamina.running.loop import Watcher

SQL = """
CREATE SOURCE orders (name STRING, amount BIGINT)
  USING json OPTIONS (path 'in', bad_rows_path 'bad');
CREATE STREAM totals AS SELECT name, sum(amount) AS total FROM orders GROUP BY name EMIT ON UPDATE;
CREATE SINK out FROM totals USING parquet OPTIONS (path 'out');
"""


def test_a_run_is_seen_while_it_runs_and_afterwards(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"name": "ann", "amount": 1}\nno json\n')
    (tmp_path / "in" / "1.json").write_text('{"name": "bob", "amount": 2}\n')
    (tmp_path / "orders.sql").write_text(SQL)
    notes: list[str] = []
    seen: list[tuple[int, str]] = []

    def look(_: EpochReport) -> None:
        address = notes[0].removeprefix("metrics are at ").removesuffix("/metrics")
        with (
            urlopen(f"{address}/readyz", timeout=10) as ready,
            urlopen(f"{address}/metrics", timeout=10) as metrics,
        ):
            seen.append((ready.status, metrics.read().decode()))

    lamina.run(
        tmp_path / "orders.sql",
        spark=spark,
        available_now=True,
        max_files=1,
        metrics_port=0,
        events=tmp_path / "events.jsonl",
        watcher=Watcher(note=notes.append, epoch=look),
    )
    assert [status for status, _ in seen] == [200, 200]
    last = seen[-1][1]
    for sample in (
        'lamina_epochs_total{pipeline="orders"} 2.0',
        'lamina_rows_bad_total{pipeline="orders"} 1.0',
        'lamina_source_backlog_files{pipeline="orders",source="orders"} 0.0',
        'lamina_sink_status{pipeline="orders",sink="out",status="committed"} 1.0',
        'lamina_phase_seconds_count{phase="run",pipeline="orders"} 2.0',
    ):
        assert sample in last
    assert 'lamina_source_backlog_files{pipeline="orders",source="orders"} 1.0' in seen[0][1]
    page = lamina.history(tmp_path / "orders.sql")
    assert [(row.epoch, row.bad) for row in page.rows] in ([(2, 0), (1, 1)], [(2, 1), (1, 0)])
    assert all(0 < sum(row.phases_us.values()) <= row.took_us for row in page.rows)
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [each["epoch"] for each in events] == [1, 2]
