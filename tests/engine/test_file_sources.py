"""A source of files: each is read exactly once, whatever happens to the process or the file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamina.connectors.files import FilesSource
from lamina.engine.engine import Engine, EnginePlan, EngineSettings, StreamPlan
from lamina.engine.model import SourceRange
from lamina.engine.ports import Limits, Source
from lamina.errors import NotFound, Refused
from lamina.testing.faulty import Killed
from tests.engine.pipelines import (
    FROM_TRADES,
    LARGE,
    LOCAL,
    PLAN,
    SINKS,
    STREAMS,
    Bomb,
    Row,
    World,
    kill,
    run_out,
    table_of,
)
from tests.support.in_process import LocalStream

FILES = 14
PLACES = ("before COMMIT", "after COMMIT", "after append", "before rotate", "dropped staged")


@dataclass
class FilesWorld(World):
    """Both sources are folders of Parquet files."""

    settings: EngineSettings = field(
        default_factory=lambda: EngineSettings(
            partitions=2, limits=Limits(files=2), checkpoint_epochs=3, retain=1
        )
    )

    suffix: str = ""  # of the names of both folders

    def folder(self, source: str) -> Path:
        return self.root / f"{source}{self.suffix}"

    def put(self, number: int, rows: list[Row], source: str = "orders") -> Path:
        folder = self.folder(source)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{number:04d}.parquet"
        pq.write_table(table_of(rows), path)
        os.utime(path, (1_000_000 + number, 1_000_000 + number))
        return path

    def sources(self) -> dict[str, Source]:
        for name in ("trades", "orders"):
            self.folder(name).mkdir(parents=True, exist_ok=True)
        return {
            name: FilesSource(name, self.folder(name), written=f"{name}{self.suffix}")
            for name in ("trades", "orders")
        }

    def read(self, wanted: SourceRange) -> pa.Table:
        return pa.concat_tables(
            [table_of([]), *(pq.read_table(path) for path in wanted.data.paths)]
        )

    def newest(self, sink: str) -> dict[object, tuple[object, ...]]:
        return {row[0]: row for epoch in self.got(sink) for row in epoch}


def filled(root: Path) -> FilesWorld:
    world = FilesWorld(root)
    for number in range(FILES):
        world.put(number, [(f"k{key}", number, 0) for key in range(4)])
        world.put(number, [(f"k{key}", LARGE, 0) for key in range(3)], "trades")
    return world


TOTAL = sum(range(FILES))


def assert_each_was_read_once(world: FilesWorld) -> None:
    assert world.newest("totals") == {f"k{k}": (f"k{k}", TOTAL, FILES) for k in range(4)}
    assert world.newest("busiest") == {f"k{k}": (f"k{k}", LARGE * FILES, FILES) for k in range(3)}


@pytest.mark.parametrize("place", PLACES)
def test_every_file_is_read_once_across_kills(place: str, tmp_path: Path) -> None:
    world = filled(tmp_path)
    for nth in (1, 2, 3):
        engine = world.open(Bomb(place, nth))
        with suppress(Killed):
            run_out(engine)
        kill(engine)
    world.finish()
    assert_each_was_read_once(world)


def test_every_file_is_read_once_across_rescales(tmp_path: Path) -> None:
    world = filled(tmp_path)
    for partitions in (4, 1, 8):
        engine = world.open(partitions=partitions)
        run_out(engine, epochs=2)
        kill(engine)
    world.finish(partitions=2)
    assert_each_was_read_once(world)


def test_the_limit_of_files_is_that_of_an_epoch(tmp_path: Path) -> None:
    world = filled(tmp_path)
    engine = world.open()
    rows = [report.rows["orders"] for report in run_out(engine)]
    engine.close()
    assert rows[: FILES // 2] == [8] * (FILES // 2)


def test_files_that_were_read_are_remembered_when_nothing_else_has_changed(tmp_path: Path) -> None:
    """Files without rows: a checkpoint in which only memories have changed."""
    world = FilesWorld(tmp_path)
    for number in range(5):
        world.put(number, [])
    engine = world.open()
    run_out(engine)
    assert engine.checkpoint() is not None
    kill(engine)
    engine = world.open()
    assert engine.step() is None
    kill(engine)
    assert world.newest("totals") == {}


def vanish(path: Path) -> None:
    path.unlink()


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def touch(path: Path) -> None:
    os.utime(path, (2_000_000, 2_000_000))


@pytest.mark.parametrize("what", [vanish, grow, touch], ids=lambda what: what.__name__)
def test_a_file_that_is_another_one_at_the_decision_stops_the_epoch_by_name(
    what: Callable[[Path], None], tmp_path: Path
) -> None:
    world = filled(tmp_path)
    wrong = world.folder("orders") / "0004.parquet"
    kept = wrong.read_bytes()

    def change(place: str) -> None:
        if place == "after busiest" and engine.epoch == 2 and wrong.exists():
            what(wrong)

    engine: Engine = world.open(change)
    with pytest.raises((Refused, NotFound), match="orders") as stopped:
        run_out(engine)
    assert stopped.value.where == str(wrong)
    assert engine.epoch == 2
    engine.close()
    wrong.write_bytes(kept)
    os.utime(wrong, (1_000_004, 1_000_004))
    world.finish()
    assert_each_was_read_once(world)


def test_a_file_that_has_changed_since_it_was_read_stops_the_pipeline(tmp_path: Path) -> None:
    world = filled(tmp_path)
    world.finish()
    touch(world.folder("orders") / "0001.parquet")
    engine = world.open()
    with pytest.raises(Refused, match="has changed since"):
        engine.step()
    kill(engine)


def test_a_source_that_leaves_the_pipeline_does_not_begin_again_when_it_comes_back(
    tmp_path: Path,
) -> None:
    """Its streams' state is kept, so its offsets and files must be, too: once they were not."""
    world = filled(tmp_path)
    engine = world.open()
    run_out(engine, epochs=3)
    kill(engine)
    without = OnlyTrades(world.root, store=world.store, tables=world.tables)
    engine = without.open()
    run_out(engine, epochs=2)
    engine.checkpoint()
    run_out(engine, epochs=1)
    kill(engine)
    world.finish()
    assert_each_was_read_once(world)


WITHOUT_ORDERS = replace(
    PLAN,
    streams=(
        *(stream for stream in STREAMS if stream.inputs != ("orders",)),
        StreamPlan("silent", ("trades",), FROM_TRADES),
    ),
    sinks={**SINKS, "totals": "silent"},
)


@dataclass
class OnlyTrades(FilesWorld):
    """Without orders and what is made of them; the sink stays, and gets nothing."""

    plan: EnginePlan = WITHOUT_ORDERS
    streams: Mapping[str, LocalStream] = field(
        default_factory=lambda: {**LOCAL, "silent": LocalStream(lambda table: table.slice(0, 0))}
    )

    def sources(self) -> dict[str, Source]:
        return {"trades": super().sources()["trades"]}


def test_what_is_hidden_or_not_whole_is_passed_over_until_it_is_renamed(tmp_path: Path) -> None:
    world = filled(tmp_path)
    folder = world.folder("orders")
    last = folder / f"{FILES - 1:04d}.parquet"
    (folder / "_left").mkdir()
    for name in (".hidden", "_marker", "cut.tmp", "half.partial", "_left/inside"):
        (folder / name).write_bytes(b"no Parquet at all")
    last.rename(folder / "late.parquet.tmp")
    engine = world.open()
    run_out(engine)
    kill(engine)
    (folder / "late.parquet.tmp").rename(last)
    world.finish()
    assert_each_was_read_once(world)


def test_a_folder_that_is_none_is_named_and_read_when_it_is_one(tmp_path: Path) -> None:
    source = FilesSource("orders", tmp_path / "orders")
    nothing_read = SimpleNamespace(scan=lambda: iter(()))
    for what in ("not there", "is a file"):
        with pytest.raises(NotFound, match=what) as raised:
            source.plan({"files": "0"}, Limits(), nothing_read)
        assert raised.value.where == str(tmp_path / "orders")
        (tmp_path / "orders").touch()
    (tmp_path / "orders").unlink()
    (tmp_path / "orders" / "deep").mkdir(parents=True)
    (tmp_path / "orders" / "deep" / "1").touch()
    assert source.plan({"files": "0"}, Limits(), nothing_read).end == {"files": "1"}
