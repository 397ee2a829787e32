"""Parquet files as a sink: an epoch is visible as a whole or not at all, and only once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lamina.connectors.parquet import ParquetSink
from lamina.disk.files import LocalFiles
from lamina.engine.ports import Publication, Sink
from lamina.errors import Corrupt, DigestMismatch, Diverged, Fenced, NotFound, SizeMismatch
from lamina.format.commit import Point
from lamina.format.pipeline_record import Owner
from lamina.testing.faulty import Killed
from lamina.workspace.model import Staged
from lamina.workspace.staging import HomeStaged
from tests.engine.pipelines import (
    LIMITS,
    ORDERS,
    TRADES,
    Epochs,
    World,
    expected,
    kill,
    run_out,
    table_of,
)

assert LIMITS.rows is not None
EXPECTED = expected({"trades": TRADES, "orders": ORDERS}, LIMITS.rows)
CALLS = ("link", "entry", "before rename", "rename")


@dataclass
class ParquetWorld(World):
    """Every sink is a folder."""

    def folder(self, sink: str) -> Path:
        return self.root / "out" / sink

    def sinks(self) -> dict[str, Sink]:
        return {name: ParquetSink(name, self.folder(name)) for name in self.plan.sinks}

    def got(self, sink: str) -> Epochs:
        """As a reader sees it who knows nothing of the sink."""
        found: Epochs = []
        for epoch in sorted(self.folder(sink).glob("epoch-*")):
            rows = [
                row for file in epoch.glob("*.parquet") for row in pq.read_table(file).to_pylist()
            ]
            found.append(sorted(tuple(row.values()) for row in rows))
        return found


class Dying(LocalFiles):
    """Killed at one call, while the third epoch with rows is published."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self._call = call
        self._shown = 0

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self._die_after("link" if target.suffix == ".parquet" else "entry")

    def rename(self, source: Path, target: Path) -> None:
        self._die_after("before rename")
        super().rename(source, target)
        self._die_after("rename")
        self._shown += 1

    def _die_after(self, call: str) -> None:
        if self._shown == 2 and self._call == call:
            raise Killed(call)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("sink", ["vwap", "totals"])
def test_killed_while_an_epoch_is_published_it_is_there_once(
    sink: str, call: str, tmp_path: Path
) -> None:
    world = ParquetWorld(tmp_path)
    dying = ParquetSink(sink, world.folder(sink), Dying(call))
    engine = world.open(sinks={**world.sinks(), sink: dying})
    with pytest.raises(Killed):
        run_out(engine)
    kill(engine)
    world.finish()
    assert world.outcome() == EXPECTED
    assert not list(world.folder(sink).glob(".epoch-*")), "what was left is swept"


def test_an_entry_of_another_history_is_never_written_over(tmp_path: Path) -> None:
    """Once a publication without rows did."""
    sink = ParquetSink("out", tmp_path)
    sink.fence(1, Owner("p"))
    first = Publication(Owner("p"), 1, Point(1, "ab" * 32), (), HomeStaged(tmp_path))
    for _ in range(2):
        sink.publish(first)
    with pytest.raises(Diverged, match="another epoch 1"):
        sink.publish(replace(first, point=Point(1, "cd" * 32)))
    assert sink.position().point == first.point


def test_who_was_fenced_publishes_nothing(tmp_path: Path) -> None:
    old, new = ParquetSink("out", tmp_path), ParquetSink("out", tmp_path)
    old.fence(1, Owner("p"))
    new.fence(2, Owner("p"))
    with pytest.raises(Fenced):
        old.publish(Publication(Owner("p"), 1, Point(1, "ab" * 32), (), HomeStaged(tmp_path)))
    with pytest.raises(Fenced):
        old.fence(1, Owner("p"))
    assert new.position().point is None


def staged(home: Path) -> Publication:
    """An epoch of one file with one row."""
    home.mkdir()
    pq.write_table(table_of([("k", 1, 0)]), home / "file")
    data = (home / "file").read_bytes()
    file = Staged("file", len(data), hashlib.sha256(data).hexdigest(), 1)
    return Publication(Owner("p"), 1, Point(1, "ab" * 32), (file,), HomeStaged(home))


def flip(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


@pytest.mark.parametrize(
    ("damage", "error"), [(flip, DigestMismatch), (lambda data: data[:-1], SizeMismatch)]
)
def test_a_staged_file_that_is_damaged_is_never_shown(
    damage: Callable[[bytes], bytes], error: type[Corrupt], tmp_path: Path
) -> None:
    publication = staged(tmp_path / "home")
    file = tmp_path / "home" / "file"
    whole = file.read_bytes()
    sink = ParquetSink("out", tmp_path / "out")
    sink.fence(1, Owner("p"))
    file.write_bytes(damage(whole))
    with pytest.raises(error) as raised:
        sink.publish(publication)
    assert raised.value.where == str(file)
    file.unlink()
    with pytest.raises(NotFound, match="is missing"):
        sink.publish(publication)
    assert sink.position().point is None
    assert not list((tmp_path / "out").glob("epoch-*"))
    file.write_bytes(whole)
    sink.publish(publication)
    assert pq.read_table(next((tmp_path / "out").glob("*/*.parquet"))).num_rows == 1
    assert sink.position() == ParquetSink("out", tmp_path / "out").position()


def test_a_newer_fence_is_seen_before_every_publication(tmp_path: Path) -> None:
    """Also one that is several generations ahead, and by who knows its position by heart."""
    old, new = ParquetSink("out", tmp_path), ParquetSink("out", tmp_path)
    old.fence(1, Owner("p"))
    for epoch in (1, 2):
        old.publish(Publication(Owner("p"), 1, Point(epoch, "ab" * 32), (), HomeStaged(tmp_path)))
    assert new.fence(9, Owner("p")).point == Point(2, "ab" * 32)
    assert old.position().generation == 9
    with pytest.raises(Fenced):
        old.publish(Publication(Owner("p"), 1, Point(3, "ab" * 32), (), HomeStaged(tmp_path)))
    assert new.position().point == Point(2, "ab" * 32)


def test_fences_of_the_first_layout_are_seen(tmp_path: Path) -> None:
    sink = ParquetSink("out", tmp_path)
    (tmp_path / "_lamina").mkdir()
    (tmp_path / "_lamina" / f"fence-{5:020d}.json").write_bytes(b"{}")
    assert sink.position().generation == 5
    with pytest.raises(Fenced):
        sink.fence(4, Owner("p"))
    assert sink.fence(6, Owner("p")).generation == 6
