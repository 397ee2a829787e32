"""Sources of files that are silent: what the option asks for, and the clock that it goes by."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.connectors.opening import check_connectors
from lamina.connectors.silent import SilentFor
from lamina.errors import BadPipeline
from lamina.pipeline import parse_pipeline
from lamina.testing.clock import ManualClock

TEXT = """CREATE SOURCE t (k STRING, ts TIMESTAMP) USING {kind}
  OPTIONS (path 'in', idle_after '{after}') {mark};
CREATE STREAM s AS SELECT k FROM t;
CREATE SINK o FROM s USING parquet OPTIONS (path 'out');"""
MARK = "WATERMARK ts DELAY OF INTERVAL 1 MINUTE"


def check(folder: Path, kind: str, after: str, mark: str) -> None:
    (folder / "in").mkdir()
    text = TEXT.format(kind=kind, after=after, mark=mark)
    check_connectors(parse_pipeline(text, {}, file="p.sql"), folder, file="p.sql")


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_every_kind_of_file_takes_it(tmp_path: Path, kind: str) -> None:
    check(tmp_path, kind, "5 minutes", MARK)


@pytest.mark.parametrize(
    ("after", "mark", "said"),
    [("5 minutes", "", "has idle_after, and no watermark"), ("soon", MARK, "idle_after 'soon'")],
)
def test_what_means_nothing_is_refused(tmp_path: Path, after: str, mark: str, said: str) -> None:
    with pytest.raises(BadPipeline, match=said):
        check(tmp_path, "json", after, mark)


def test_silence_is_measured_by_the_clock_that_wall_time_does_not_move() -> None:
    class Stepped(ManualClock):
        def now_ms(self) -> int:
            raise AssertionError("the time of day may be set back or ahead")

    clock = Stepped()
    silent = SilentFor(30_000_000, clock)
    assert silent.holding(has_more=False) is None, "counted from the start"
    clock.advance(29)
    assert silent.holding(has_more=False) is None
    clock.advance(1)
    assert silent.holding(has_more=False) == ()
    assert silent.holding(has_more=True) is None, "it speaks"
    clock.advance(29)
    assert silent.holding(has_more=False) is None
    assert SilentFor(None, clock).holding(has_more=False) is None
