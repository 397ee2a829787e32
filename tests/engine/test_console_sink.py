"""A terminal as a sink: every epoch is shown at least once, whatever is killed."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamina.connectors.console import ConsoleSink
from lamina.connectors.opening import open_sink
from lamina.connectors.positions import NotedPosition
from lamina.engine.ports import CHANGE, Change, Publication, Sink
from lamina.errors import BadPipeline, Fenced
from lamina.format.commit import Point
from lamina.format.pipeline_record import Owner
from lamina.pipeline.model import DeclaredSink as Definition
from lamina.pipeline.model import Option
from lamina.protocol.sinks import SinkPosition
from lamina.testing.faulty import Killed
from lamina.workspace.model import Staged
from lamina.workspace.notes import LocalNotes
from lamina.workspace.staging import HomeStaged
from tests.engine.pipelines import LIMITS, ORDERS, TRADES, World, expected, kill, run_out

assert LIMITS.rows is not None
TOTALS = expected({"trades": TRADES, "orders": ORDERS}, LIMITS.rows)["totals"]
TITLE = re.compile(r"^totals, epoch ([0-9]+): ([0-9]+) rows$", re.MULTILINE)


@dataclass
class Terminal(World):
    """The sink `totals` is a terminal."""

    screen: StringIO = field(default_factory=StringIO)

    def sinks(self) -> dict[str, Sink]:
        shown = ConsoleSink(
            "totals", NotedPosition(LocalNotes(self.home), "totals"), self.screen, rows_max=3
        )
        return {**super().sinks(), "totals": shown}

    def shown(self) -> list[tuple[int, int]]:
        return [(int(epoch), int(rows)) for epoch, rows in TITLE.findall(self.screen.getvalue())]


class Dying(NotedPosition):
    """Killed when the rows of its third epoch are out, before it has made a note of that."""

    def save(self, position: SinkPosition) -> None:
        if position.point is not None and position.point.epoch == 3:
            raise Killed("shown")
        super().save(position)


def test_every_epoch_is_shown_once_with_its_rows(tmp_path: Path) -> None:
    world = Terminal(tmp_path)
    world.finish()
    assert [rows for _, rows in world.shown()] == [len(rows) for rows in TOTALS]
    text = world.screen.getvalue()
    assert "  key  total  rows\n" in text
    assert f"... and {len(TOTALS[0]) - 3} more" in text
    again = len(world.shown())
    world.finish()
    assert len(world.shown()) == again, "a new start shows nothing again"


def test_killed_after_it_was_shown_an_epoch_is_shown_again_and_none_is_left_out(
    tmp_path: Path,
) -> None:
    world = Terminal(tmp_path)
    dying = ConsoleSink("totals", Dying(LocalNotes(world.home), "totals"), world.screen)
    engine = world.open(sinks={**world.sinks(), "totals": dying})
    with pytest.raises(Killed):
        run_out(engine)
    kill(engine)
    world.finish()
    epochs = [epoch for epoch, _ in world.shown()]
    assert epochs.count(3) == 2
    assert sorted({*epochs}) == sorted(epochs[:3] + epochs[4:])
    assert len({*epochs}) == len(TOTALS)


def test_who_was_fenced_shows_nothing(tmp_path: Path) -> None:
    screen = StringIO()
    old, new = (
        ConsoleSink("out", NotedPosition(LocalNotes(tmp_path), "out"), screen) for _ in range(2)
    )
    old.fence(1, Owner("p"))
    new.fence(2, Owner("p"))
    with pytest.raises(Fenced):
        old.publish(Publication(Owner("p"), 1, Point(1, "ab" * 32), (), HomeStaged(tmp_path)))
    with pytest.raises(Fenced):
        old.fence(1, Owner("p"))
    assert screen.getvalue() == ""


def test_the_options_of_a_console_are_checked(tmp_path: Path) -> None:
    for name, value, said in (("rows", "none", "'none'"), ("path", "x", "'path'")):
        sink = Definition("out", "s", "console", {name: Option.plain(value)})
        with pytest.raises(BadPipeline, match=said):
            open_sink(sink, tmp_path, notes=LocalNotes(tmp_path))
    opened = open_sink(Definition("out", "s", "console"), tmp_path, notes=LocalNotes(tmp_path))
    assert opened.delivery.startswith("at least once")


@pytest.mark.parametrize("url", ["dbfs:/out", "file:///out", "hdfs:/x"])
def test_a_url_of_no_object_store_is_no_path_of_a_sink(url: str, tmp_path: Path) -> None:
    """It became a folder that was called `hdfs:`."""
    sink = Definition("out", "s", "parquet", {"path": Option.plain(url)})
    with pytest.raises(BadPipeline, match="no object store has the scheme"):
        open_sink(sink, tmp_path, notes=LocalNotes(tmp_path))


def test_times_beyond_pythons_years_are_shown_as_numbers(tmp_path: Path) -> None:
    """They raised, and the epoch is committed: every start would have ended there."""
    far = pa.table(
        {
            "at": pa.array([2**58, 0], pa.timestamp("us", "UTC")),
            "day": pa.array([5_000_000, 0], pa.date32()),
            "in": pa.array([{"t": 2**58}, None], pa.struct({"t": pa.timestamp("us")})),
        }
    )
    pq.write_table(far, tmp_path / "far.parquet")
    data = (tmp_path / "far.parquet").read_bytes()
    staged = Staged("far.parquet", len(data), hashlib.sha256(data).hexdigest(), 2)
    screen = TextIOWrapper(BytesIO(), encoding="ascii")
    sink = ConsoleSink("\u00fcber", NotedPosition(LocalNotes(tmp_path), "\u00fcber"), screen)
    sink.fence(1, Owner("p"))
    sink.publish(Publication(Owner("p"), 1, Point(1, "d"), [staged], HomeStaged(tmp_path)))
    screen.seek(0)
    text = screen.read()
    assert f"{2**58} timestamp" in text
    assert "1970-01-01" in text
    assert "?ber, epoch 1: 2 rows" in text


def test_changes_are_shown_before_their_rows(tmp_path: Path) -> None:
    changes = pa.table({"k": ["a", "a"], "n": [1, 2], CHANGE: ["-U", "+U"]})
    pq.write_table(changes, tmp_path / "changes.parquet")
    data = (tmp_path / "changes.parquet").read_bytes()
    staged = Staged("changes.parquet", len(data), hashlib.sha256(data).hexdigest(), 2)
    screen = StringIO()
    sink = ConsoleSink("s", NotedPosition(LocalNotes(tmp_path), "s"), screen)
    assert Change.CHANGES in sink.takes
    sink.fence(1, Owner("p"))
    sink.publish(Publication(Owner("p"), 1, Point(1, "d"), [staged], HomeStaged(tmp_path)))
    lines = [line.split() for line in screen.getvalue().splitlines()[1:4]]
    assert lines == [[CHANGE, "k", "n"], ["-U", "a", "1"], ["+U", "a", "2"]]
