"""Home, store and sinks belong to one pipeline: asked before anything is claimed or fenced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest

import lamina
from lamina.checkpoint import Checkpointer, copy_checkpoint
from lamina.connectors.parquet import ParquetSink
from lamina.engine.engine import EnginePlan, StreamPlan
from lamina.errors import Refused, WalDamaged, WouldLose
from lamina.format.home_file import decode_home, encode_home
from lamina.format.pipeline_record import NOBODY, Owner
from lamina.recovery import RecoveryConfig
from lamina.store import MemoryStore, open_store
from tests.engine.pipelines import (
    DELAY,
    LOCAL,
    ORDERS,
    PLAN,
    STREAMS,
    UPDATING,
    World,
    expected,
    kill,
    run_out,
)
from tests.support.memory_sink import MemoryTable
from tests.support.wal_logs import everything_below

OLD = Path(__file__).parents[1] / "golden/homes/before-ids.zip"
SAME = RecoveryConfig(same_pipeline=True)


def called(name: str, *, changed: bool = False) -> EnginePlan:
    return replace(PLAN, pipeline=name, pipeline_hash=("cd" if changed else "ab") * 32)


def id_of(world: World) -> str:
    path = world.home / "home.json"
    return decode_home(path.read_bytes(), str(path)).pipeline.id


def everything(world: World) -> object:
    """What no refused start may change."""
    assert isinstance(world.store, MemoryStore)
    tables = {n: (t.pipeline, t.generation, t.point) for n, t in world.tables.items()}
    return everything_below(world.root), dict(world.store._objects), tables


def begun(root: Path, epochs: int = 4) -> World:
    world = World(root)
    engine = world.open()
    run_out(engine, epochs=epochs)
    engine.close()
    return world


OTHER = EnginePlan(
    "q",
    "cd" * 32,
    (StreamPlan("sums", "clicks", frozenset({"clicks"}), UPDATING),),
    {"clicked": "sums"},
    {},
)


@pytest.mark.parametrize("other", [OTHER, called("q", changed=True)], ids=["strange", "edited"])
def test_another_pipeline_in_the_same_home_and_store_committed_an_epoch(
    other: EnginePlan, tmp_path: Path
) -> None:
    """By a copied command or LAMINA_HOME and LAMINA_STORE: the first one then lacked its input."""
    world = begun(tmp_path)
    before = everything(world)
    stranger = replace(world, plan=other, tables=world.tables.copy())
    stranger.data = {"clicks": ORDERS} if other is OTHER else world.data
    with pytest.raises(Refused, match="belong to the pipeline 'p'") as caught:
        stranger.open()
    assert "--same-pipeline" in caught.value.advice
    assert everything(world) == before
    world.finish()
    assert world.outcome() == expected(world.data, 15)


def test_a_copied_pipeline_fenced_the_sinks_of_the_running_one(tmp_path: Path) -> None:
    world = World(tmp_path / "p")
    engine = world.open()
    run_out(engine, epochs=3)
    copied = World(tmp_path / "q", plan=called("q"), tables=world.tables)
    with pytest.raises(Refused, match="the sink 'busiest' belongs to the pipeline 'p'"):
        copied.open()
    assert not copied.home.exists()
    assert not copied.store._objects  # type: ignore[attr-defined]
    run_out(engine)
    engine.close()
    assert world.outcome() == expected(world.data, 15)


def test_a_pipeline_that_has_published_nothing_yet_owns_its_sinks_too(tmp_path: Path) -> None:
    world = World(tmp_path / "p")
    engine = world.open()
    with pytest.raises(Refused, match="belongs to the pipeline 'p'"):
        World(tmp_path / "q", plan=called("q"), tables=world.tables).open()
    run_out(engine)
    engine.close()


def test_a_renamed_pipeline_goes_on(tmp_path: Path) -> None:
    world = begun(tmp_path)
    id = id_of(world)
    world.plan = called("orders")
    run_out(engine := world.open(), epochs=2)
    engine.close()
    world.plan = replace(called("orders", changed=True))
    world.finish()
    assert id_of(world) == id == world.tables["totals"].pipeline.id
    assert world.outcome() == expected(world.data, 15)


def test_a_pipeline_that_is_renamed_and_changed_needs_a_persons_word(tmp_path: Path) -> None:
    world = begun(tmp_path)
    id = id_of(world)
    world.plan = called("orders", changed=True)
    with pytest.raises(Refused, match="this one is called 'orders'"):
        world.open()
    run_out(engine := world.open(recovery=SAME))
    engine.close()
    assert id_of(world) == id
    assert world.outcome() == expected(world.data, 15)
    world.open().close()  # from now on that is its name


def test_the_home_of_one_pipeline_and_the_store_of_another_are_refused(tmp_path: Path) -> None:
    one, two = begun(tmp_path / "one"), begun(tmp_path / "two")
    two.store = one.store
    for recovery in (RecoveryConfig(take_over_home=True), SAME):
        with pytest.raises(Refused, match=r"belongs? to the pipeline 'p'"):
            two.open(recovery=replace(recovery, take_over_home=True))


def test_another_home_takes_over_with_the_id_of_the_store(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.finish()
    id = id_of(world)
    world.home_name = "second"
    with pytest.raises(Refused, match="belongs to the pipeline 'p'"):
        world.open()
    assert not world.home.exists()
    world.open(recovery=RecoveryConfig(take_over_home=True)).close()
    assert id_of(world) == id


def test_a_new_home_and_a_new_store_get_old_sinks_only_by_a_persons_word(tmp_path: Path) -> None:
    old = begun(tmp_path / "lost")
    world = World(tmp_path / "new", tables=old.tables)
    with pytest.raises(Refused, match="belongs to the pipeline 'p'") as caught:
        world.open()
    assert "--same-pipeline" in caught.value.advice
    with pytest.raises(WouldLose):
        world.open(recovery=SAME)
    run_out(engine := world.open(recovery=replace(SAME, start_fresh=True)), epochs=1)
    engine.close()
    assert id_of(world) == id_of(old)


def test_a_copied_store_is_a_fork_and_does_not_get_the_sinks(tmp_path: Path) -> None:
    world = World(tmp_path / "p")
    world.finish()
    newest = Checkpointer(world.store).history().newest
    assert newest is not None
    fork = World(tmp_path / "fork", plan=called("q", changed=True), tables=world.tables)
    copy_checkpoint(Checkpointer(world.store), newest.id, Checkpointer(fork.store))
    with pytest.raises(Refused, match="belongs to the pipeline 'p'"):
        fork.open()
    fork.tables = {name: MemoryTable() for name in PLAN.sinks}
    config = RecoveryConfig(sinks_from_now=frozenset(PLAN.sinks))
    fork.open(recovery=config).close()
    assert id_of(fork) != id_of(world)


def test_the_home_of_a_lost_store_goes_on_with_a_copy_as_the_same_pipeline(tmp_path: Path) -> None:
    world = World(tmp_path / "p")
    world.finish()
    newest = Checkpointer(world.store).history().newest
    assert newest is not None
    backup = MemoryStore()
    copy_checkpoint(Checkpointer(world.store), newest.id, Checkpointer(backup))
    id, world.store = id_of(world), backup
    world.open().close()
    assert id_of(world) == id


def test_state_of_a_pipeline_is_not_opened_as_a_store_of_ones_own(tmp_path: Path) -> None:
    world = World(tmp_path, home_name="home", store=open_store(str(tmp_path / "checkpoints")))
    world.finish()
    before = everything_below(tmp_path)
    with pytest.raises(Refused, match="belong to the pipeline 'p'"):
        lamina.open(tmp_path)
    assert everything_below(tmp_path) == before


def test_a_store_of_lamina_open_is_no_pipelines(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        store.put(b"a", b"1")
        store.commit()
    world = World(tmp_path, store=open_store(str(tmp_path / "checkpoints")))
    with pytest.raises(Refused, match="nothing in common"):
        world.open()


def test_a_home_that_lost_its_identity_does_not_get_another(tmp_path: Path) -> None:
    world = begun(tmp_path)
    (world.home / "home.json").unlink()
    before = everything(world)
    with pytest.raises(WalDamaged, match=r"home\.json is missing, and there are segments"):
        world.open()
    assert everything(world) == before


# what has changed is said

DEFINED = dict.fromkeys(("trades", "orders", *(s.name for s in STREAMS), *PLAN.sinks), "1" * 64)


@pytest.mark.parametrize("checkpoint_epochs", [0, 1])
def test_what_has_changed_since_the_last_epoch_is_said(
    checkpoint_epochs: int, tmp_path: Path
) -> None:
    world = World(tmp_path, plan=replace(PLAN, definitions=DEFINED))
    world.settings = replace(world.settings, checkpoint_epochs=checkpoint_epochs)
    engine = world.open()
    assert engine.report.changes == ()
    run_out(engine, epochs=2)
    kill(engine)
    changed = {**DEFINED, "large": "2" * 64, "orders": "3" * 64}
    world.plan = replace(called("p", changed=True), definitions=changed)
    for _ in range(2):  # a start that commits nothing changes nothing
        engine = world.open()
        said = [str(each) for each in engine.report.changes]
        assert said == ["source 'orders' changed", "stream 'large' changed"]
        kill(engine)
    run_out(engine := world.open(), epochs=1)
    engine.close()
    assert world.open().report.changes == ()


def test_parts_that_come_and_go_are_said(tmp_path: Path) -> None:
    world = begun(tmp_path)
    stream = replace(STREAMS[2], name="sums", operators={"sums": UPDATING})
    sinks = {"vwap": "vwap", "totals": "totals", "sums": "sums"}
    world.plan = replace(called("p", changed=True), streams=(*STREAMS[:3], stream), sinks=sinks)
    world.streams = {**LOCAL, "sums": LOCAL["totals"]}
    engine = world.open(recovery=RecoveryConfig(sinks_from_now=frozenset({"sums"})))
    assert [str(each) for each in engine.report.changes] == [
        "stream 'busiest' removed",
        "stream 'sums' added",
        "sink 'busiest' removed",
        "sink 'sums' added",
    ]
    engine.close()


# what was written before pipelines had ids


def old_world(root: Path, *, name: str = "p") -> World:
    with ZipFile(OLD) as packed:
        packed.extractall(root)
    root = root / "before-ids"
    plan = EnginePlan(name, "ab" * 32, STREAMS[2:3], {"totals": "totals"}, {"orders": DELAY})
    return World(
        root,
        plan=plan,
        data={"orders": ORDERS},
        streams={"totals": LOCAL["totals"]},
        store=open_store(str(root / "store")),
    )


def old_sink(world: World) -> ParquetSink:
    return ParquetSink("totals", world.root / "out")


def test_a_pipeline_from_before_ids_gets_one_and_goes_on(tmp_path: Path) -> None:
    world = old_world(tmp_path)
    assert old_sink(world).position().pipeline == Owner(name="p")
    engine = world.open(sinks={"totals": old_sink(world)})
    assert engine.epoch == 4
    assert engine.report.changes == ()
    run_out(engine)
    engine.close()
    id = id_of(world)
    assert old_sink(world).position().pipeline == Owner(id, "p")
    history = Checkpointer(world.store).history()
    assert history.pipeline is not None
    assert history.pipeline.owner == Owner(id, "p")
    world.plan = replace(world.plan, pipeline="renamed")
    world.open(sinks={"totals": old_sink(world)}).close()
    assert id_of(world) == id


def test_another_pipeline_does_not_adopt_what_is_from_before_ids(tmp_path: Path) -> None:
    world = old_world(tmp_path, name="q")
    before = everything_below(world.root)
    with pytest.raises(Refused, match="belong to the pipeline 'p'"):
        world.open(sinks={"totals": old_sink(world)})
    strange = replace(world, plan=replace(OTHER, pipeline="p"), data={"clicks": ORDERS})
    with pytest.raises(Refused, match="nothing in common"):
        strange.open(sinks={"clicked": ParquetSink("clicked", tmp_path / "clicked")})
    new = World(tmp_path / "new", plan=world.plan, data=world.data, streams=world.streams)
    with pytest.raises(Refused, match="the sink 'totals' belongs to the pipeline 'p'"):
        new.open(sinks={"totals": old_sink(world)})
    assert everything_below(world.root) == before
    world.open(sinks={"totals": old_sink(world)}, recovery=SAME).close()


def test_killed_between_takeover_and_home_the_id_is_that_of_the_store(tmp_path: Path) -> None:
    world = begun(tmp_path)
    id = id_of(world)
    path = world.home / "home.json"
    home = decode_home(path.read_bytes(), str(path))
    path.write_bytes(encode_home(replace(home, pipeline=NOBODY)))
    world.finish()
    assert id_of(world) == id
    assert world.outcome() == expected(world.data, 15)


def test_of_two_pipelines_that_want_one_new_sink_one_gets_it(tmp_path: Path) -> None:
    one, two = (ParquetSink("out", tmp_path) for _ in range(2))
    assert one.position() == two.position()  # both have looked, and nobody has it
    one.fence(1, Owner("1" * 32, "one"))
    before = everything_below(tmp_path)
    with pytest.raises(Refused, match="belongs to the pipeline 'one'"):
        two.fence(5, Owner("2" * 32, "two"))
    assert everything_below(tmp_path) == before
    assert one.fence(1, Owner("1" * 32, "renamed")).generation == 1
