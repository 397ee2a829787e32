"""`lamina demo`: its verdict can fail, its data is the same for the same seed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.cli.demo.trades import BEGIN, DELAY, JITTER_MS, PIPELINE, write_project
from lamina.cli.demo.truth import published, verdict_on
from lamina.pipeline import check_pipeline, parse_pipeline
from tests.support.command_line import lamina, tree

ROWS = [{"symbol": "A", "n": 1}, {"symbol": "B", "n": 2}]


def test_a_lost_a_doubled_and_a_changed_row_are_each_counted() -> None:
    assert verdict_on("same", ROWS, ROWS[::-1]).equal
    lost = verdict_on("lost", ROWS[:1], ROWS)
    assert (lost.missing, lost.extra, lost.equal) == (1, 0, False)
    doubled = verdict_on("doubled", [*ROWS, ROWS[0]], ROWS)
    assert (doubled.missing, doubled.extra, doubled.equal) == (0, 1, False)
    changed = verdict_on("changed", [ROWS[0], {"symbol": "B", "n": 3}], ROWS)
    assert (changed.missing, changed.extra, changed.equal) == (1, 1, False)


def test_rows_of_a_sink_come_in_the_order_of_their_epochs(tmp_path: Path) -> None:
    for epoch in (2, 10):
        folder = tmp_path / f"epoch-{epoch:020d}"
        folder.mkdir()
        pq.write_table(pa.table({"n": [epoch]}), folder / "part-00000.parquet")
    assert published(tmp_path) == [(2, {"n": 2}), (10, {"n": 10})]


def test_the_same_seed_gives_the_same_files_and_no_trade_is_late(tmp_path: Path) -> None:
    latest = write_project(tmp_path / "a", files=2, seed=3)
    assert latest == write_project(tmp_path / "b", files=2, seed=3)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    write_project(tmp_path / "c", files=2, seed=4)
    assert tree(tmp_path / "a") != tree(tmp_path / "c")
    assert latest > BEGIN
    assert DELAY.total_seconds() * 1000 > JITTER_MS


def test_its_pipeline_passes_check() -> None:
    check_pipeline(parse_pipeline(PIPELINE))


def test_it_works_in_an_empty_folder_only(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    result = lamina("demo", "--dir", tmp_path)
    assert result.exit_code == 5
    assert tree(tmp_path) == {"mine": b""}
