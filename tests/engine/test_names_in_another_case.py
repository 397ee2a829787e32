"""Case does not tell names apart: with other capitals it is the same source, stream or sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lamina.connectors.files import FilesSource
from lamina.connectors.positions import NotedPosition
from lamina.engine.engine import StreamPlan
from lamina.engine.ports import Publication, Sink, Source
from lamina.engine.spelling import respelled, stored_name
from lamina.errors import BadPipeline, Refused, StateChanged, StoreUnavailable, UsageError
from lamina.format.commit import Point
from lamina.format.pipeline_record import Owner
from lamina.pipeline.statements import parse_pipeline
from lamina.protocol.driver import Commit
from lamina.protocol.sinks import SinkPosition
from lamina.recovery import RecoveryConfig
from lamina.workspace.notes import LocalNotes
from tests.engine.pipelines import LOCAL, PLAN, World, expected, kill, run_out
from tests.engine.test_file_sources import FilesWorld, assert_each_was_read_once, filled
from tests.support.memory_sink import MemorySink

Spell = Callable[[str], str]


def spelled(world: World, how: Spell) -> World:
    """The same pipeline, every name written in another way."""
    streams = tuple(
        StreamPlan(
            how(each.name),
            tuple(map(how, each.inputs)),
            frozenset(map(how, each.sources)),
            {how(name): operator for name, operator in each.operators.items()},
            each.output,
        )
        for each in PLAN.streams
    )
    plan = replace(
        PLAN,
        streams=streams,
        sinks={how(sink): how(stream) for sink, stream in PLAN.sinks.items()},
        delays_us={how(source): delay for source, delay in PLAN.delays_us.items()},
    )
    tables = {name.lower(): table for name, table in world.tables.items()}
    return replace(
        world,
        plan=plan,
        streams={how(name): each for name, each in LOCAL.items()},
        data={how(name.lower()): rows for name, rows in world.data.items()},
        tables={how(name): tables.get(name) or world.tables[name] for name in PLAN.sinks},
    )


@pytest.mark.parametrize("checkpoint_epochs", [0, 1, 3])
def test_names_in_another_case_began_state_and_offsets_anew(
    checkpoint_epochs: int, tmp_path: Path
) -> None:
    world = World(tmp_path)
    world.settings = replace(world.settings, checkpoint_epochs=checkpoint_epochs)
    for process, how in enumerate((str.lower, str.upper, str.title, str.lower, str.upper)):
        world = spelled(world, how)
        engine = world.open(partitions=(2, 4, 1)[process % 3])
        run_out(engine, epochs=2)
        kill(engine)
    world = spelled(world, str.title)
    world.finish()
    found = {name.lower(): epochs for name, epochs in world.outcome().items()}
    assert found == expected(world_of_lower(world), 15)


def world_of_lower(world: World) -> dict[str, list[tuple[str, int, int | None]]]:
    return {name.lower(): list(rows) for name, rows in world.data.items()}


def test_files_were_read_again_when_only_the_case_of_their_source_changed(tmp_path: Path) -> None:
    class Respelled(FilesWorld):
        how: Spell = staticmethod(str.lower)

        def sources(self) -> dict[str, Source]:
            return {
                self.how(name): FilesSource(self.how(name), self.folder(name), written=name)
                for name in ("trades", "orders")
            }

    before = filled(tmp_path)
    world: World = Respelled(tmp_path, tables=before.tables, store=before.store)
    for how in (str.lower, str.title, str.upper):
        world = spelled(world, how)
        assert isinstance(world, Respelled)
        world.how = how
        engine = world.open()
        run_out(engine, epochs=2)
        kill(engine)
    world.finish()
    before.tables = {name.lower(): table for name, table in world.tables.items()}
    assert_each_was_read_once(before)


def test_a_sink_in_another_case_gets_what_it_has_missed(tmp_path: Path) -> None:
    class Down(MemorySink):
        def publish(self, publication: Publication) -> None:
            raise StoreUnavailable("no answer")

    world = spelled(World(tmp_path), str.lower)
    sinks: dict[str, Sink] = {**world.sinks(), "totals": Down("totals", world.tables["totals"])}
    engine = world.open(sinks=sinks)
    run_out(engine, epochs=3)
    kill(engine)
    world = spelled(world, str.upper)
    world.finish()
    assert world.got("TOTALS") == expected(world_of_lower(world), 15)["totals"]


def test_a_sink_that_counts_as_elsewhere_does_so_in_another_case(tmp_path: Path) -> None:
    world = spelled(World(tmp_path), str.lower)
    world.settings = replace(world.settings, checkpoint_epochs=0)
    run_out(engine := world.open(), epochs=4)
    kill(engine)
    world.open(recovery=RecoveryConfig(lose_after=2)).close()
    world = spelled(world, str.upper)
    run_out(engine := world.open(), epochs=1)
    engine.close()
    assert world.tables["TOTALS"].point is not None
    assert world.tables["TOTALS"].point.epoch == 5


def test_state_in_use_under_another_case_is_not_dropped(tmp_path: Path) -> None:
    world = spelled(World(tmp_path), str.title)
    run_out(engine := world.open(), epochs=2)
    engine.close()
    world = spelled(world, str.lower)
    for name in ("Totals", "totals", "TOTALS", "orders"):
        world.settings = replace(world.settings, drop_state=frozenset({name}))
        with pytest.raises(UsageError, match="in use"):
            world.open()


def test_two_stored_names_that_differ_only_in_case_are_told_apart_by_exact_spelling() -> None:
    stored = {"Orders": 1, "orders": 2, "trades": 3}
    assert respelled(stored, ["orders", "Trades"], "x") == {"Orders": 1, "orders": 2, "Trades": 3}
    assert stored_name("Orders", stored, "x") == "Orders"
    assert stored_name("clicks", stored, "x") == "clicks"
    with pytest.raises(Refused, match="'Orders', 'orders', which differ only in case") as caught:
        respelled(stored, ["ORDERS"], "the offsets of")
    assert "exactly" in caught.value.advice


def test_the_position_of_a_console_sink_is_found_in_any_case(tmp_path: Path) -> None:
    position = SinkPosition(Owner("a" * 32, "p"), 3, Point(7, "ab" * 32))
    NotedPosition(LocalNotes(tmp_path), "Out").save(position)
    assert NotedPosition(LocalNotes(tmp_path), "out").load() == position
    later = replace(position, point=Point(8, "cd" * 32))
    NotedPosition(LocalNotes(tmp_path), "OUT").save(later)
    assert NotedPosition(LocalNotes(tmp_path), "Out").load() == later
    assert [path.name for path in (tmp_path / "sinks").iterdir()] == ["Out.json"]


def test_a_commit_is_for_a_sink_in_any_case() -> None:
    commit = Commit(Point(1, "ab"), None, None, 1, frozenset({"Out"}))
    assert commit.is_for("oUT")
    assert not commit.is_for("other")


# the memory of a source is state, too

SOURCE = "CREATE SOURCE s (k STRING) USING json OPTIONS (path 'in');"


def test_a_stream_had_the_name_of_the_memory_of_a_source() -> None:
    text = f"{SOURCE} CREATE STREAM `Files of S` AS SELECT k, count(*) AS n FROM s GROUP BY k;"
    with pytest.raises(BadPipeline, match="remembers its files"):
        parse_pipeline(text, {})


def test_the_state_of_a_stream_is_not_taken_for_the_memory_of_a_source(tmp_path: Path) -> None:
    stream = replace(PLAN.streams[2], name="files of x", operators={"files of orders": UPDATED})
    plan = replace(PLAN, streams=(*PLAN.streams, stream), sinks=PLAN.sinks)
    world = World(tmp_path, plan=plan, streams={**LOCAL, "files of x": LOCAL["totals"]})
    world.finish()
    other = FilesWorld(tmp_path, store=world.store, tables=world.tables)
    with pytest.raises(StateChanged, match="files of orders"):
        other.open()


UPDATED = PLAN.streams[2].operators["totals"]
