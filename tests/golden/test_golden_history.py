"""History files of version 1: what was written is read for ever, and is written so today."""

from __future__ import annotations

from pathlib import Path

from lamina.format.epoch_row import EpochRow, decode_line, encode_line, pack, unpack

HERE = Path(__file__).parent / "history"
ROW = EpochRow(
    epoch=12,
    generation=3,
    time_ms=1_700_000_000_123,
    took_us=250_000,
    waited_us=1_000,
    phases_us={"plan": 1_000, "run": 200_000, "decide": 1_000, "commit": 5_000, "publish": 43_000},
    streams_us={"vwap": 200_000},
    rows={"trades": 100},
    rows_out={"vwap": 7},
    late=1,
    bad=2,
    without_time=3,
    ahead=4,
    watermark=1_700_000_000_000_000,
    watermarks={"trades": 1_700_000_000_000_000},
    keys=500,
    state_runs=4,
    state_bytes=20_000,
    wal_bytes=900,
    saved_epoch=10,
    saved_id="019a3f63-3e60-74c7-8d7a-e2e483a62529",
    sinks={"vwap": 11},
    sink_errors={"vwap": "no answer"},
    held="vwap: no answer",
    why="vwap: no answer",
)


def test_a_line() -> None:
    data = (HERE / "line.jsonl").read_bytes()
    assert encode_line(ROW) == data
    assert decode_line(data.rstrip(b"\n"), "x") == ROW


def test_a_packed_file() -> None:
    """Not its bytes: another zlib may pack better."""
    data = (HERE / "packed.jsonl.gz").read_bytes()
    assert unpack(data, "x") == encode_line(ROW) * 2 == unpack(pack(encode_line(ROW) * 2), "x")


def test_a_line_with_the_fields_of_a_later_release() -> None:
    data = (HERE / "with-more.jsonl").read_bytes().rstrip(b"\n")
    assert decode_line(data, "x") == EpochRow(12)
