"""`lamina savepoint create PIPELINE`: all that is committed, whether the pipeline runs or not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lamina.checkpoint import Checkpointer
from lamina.cli.pipeline import savepoint
from lamina.clock import SystemClock
from lamina.engine.opening import open_engine
from lamina.engine.stopped import save_stopped, unsaved
from lamina.errors import LaminaError
from lamina.inspect import open_view
from lamina.recovery.scan import RecoverableSink
from lamina.running.control import Ask, is_asked, read_status
from lamina.running.loop import Loop
from lamina.running.presence import present
from lamina.testing import ManualClock
from lamina.testing.faulty import Fault, FaultKind, FaultyStore, Killed
from lamina.wal.home import read_home
from lamina.workspace import LocalWorkspace
from lamina.workspace.remote.copying import HomeCopy, copy_home
from tests.engine.pipelines import (
    LIMITS,
    ORDERS,
    TRADES,
    Bomb,
    World,
    expected,
    kill,
    nothing,
    run_out,
)
from tests.engine.rewinds import KEEP, rewound
from tests.engine.test_cli_verify import SQL, Project
from tests.engine.test_remote_homes import Machines
from tests.support.command_line import answer, lamina, tree

DATA = {"trades": TRADES[:75], "orders": ORDERS[:60]}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Killed after epoch 5; its newest checkpoint is of epoch 3."""
    made = Project(tmp_path, data=DATA)
    engine = made.open()
    run_out(engine, epochs=5)
    kill(engine)
    return made


def create(project: Project, *words: str) -> dict[str, object]:
    result = lamina("savepoint", "create", project.root / "p.sql", *words, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, object] = answer(result)
    return found


def state_of(project: Project, at: str) -> dict[str, list[object]]:
    with open_view(str(project.store.url), at, home=project.home) as view:
        return {name: view.to_arrow(name).to_pylist() for name in view.operators}


def test_a_dead_pipeline_is_saved_up_to_its_last_epoch_and_goes_on_as_if_nothing_was(
    project: Project,
) -> None:
    head = state_of(project, "head")
    made = create(project, "before")
    assert (made["epoch"], made["saved_epochs"], made["running"]) == (5, 2, False)
    assert made["savepoint"]["checkpoint"]["epoch"] == 5  # type: ignore[index]
    assert state_of(project, "before") == head
    project.finish()
    wanted = expected(DATA, LIMITS.rows or 0)
    assert project.outcome() == {
        sink: wanted[sink.removesuffix("_out")] for sink in project.plan.sinks
    }


def test_asked_twice_it_is_the_same_savepoint(project: Project) -> None:
    first = create(project, "before")
    again = create(project, "before")
    assert again["savepoint"] == first["savepoint"]
    assert again["saved_epochs"] == 0


def test_a_dry_run_says_what_it_would_save_and_changes_nothing(project: Project) -> None:
    before = tree(project.root)
    said = create(project, "before", "--dry-run")
    assert said["dry_run"] is True
    assert (said["epoch"], said["saved_epochs"], said["savepoint"]) == (5, 2, None)
    assert isinstance(said["saved_bytes"], int)
    assert said["saved_bytes"] > 0
    text = lamina("savepoint", "create", project.root / "p.sql", "x", "--dry-run").output
    assert "would save what the newest checkpoint did not have: 2 epochs of the log" in text
    assert "would name epoch 5 'x'" in text
    assert tree(project.root) == before


def test_after_a_rewind_that_was_killed_it_names_where_the_pipeline_is(project: Project) -> None:
    """What counts as the newest in the store is then the place that nobody has gone back to."""
    create(project, "old", "latest")
    project.finish()
    before = create(project, "before")
    with pytest.raises(Killed):
        rewound(project, "old", KEEP, bomb=Bomb("after REWIND", 1))
    after = create(project, "after")
    assert (after["epoch"], after["saved_epochs"]) == (before["epoch"], 0)
    assert after["savepoint"]["checkpoint"]["id"] == before["savepoint"]["checkpoint"]["id"]  # type: ignore[index]


def test_a_name_that_is_taken_is_refused_before_anything_is_claimed(project: Project) -> None:
    create(project, "before", "latest")
    home = tree(project.home)
    result = lamina("savepoint", "create", project.root / "p.sql", "before")
    assert result.exit_code == 5
    assert "epoch 3; the pipeline is at epoch 5" in result.output
    assert tree(project.home) == home


def test_a_checkpoint_that_exists_can_be_named_by_the_pipeline(project: Project) -> None:
    made = create(project, "older", "latest")
    assert (made["epoch"], made["saved_epochs"]) == (3, 0)


def test_a_sink_that_lacks_an_epoch_is_named_and_nothing_is_claimed(project: Project) -> None:
    engine = project.open(fail_point=Bomb("before publish", 1))
    with pytest.raises(Killed):
        run_out(engine)
    kill(engine)
    before = tree(project.root)
    result = lamina("savepoint", "create", project.root / "p.sql", "before")
    assert result.exit_code == 5
    assert "sinks have still to get epochs that are committed: busiest lacks 1" in result.output
    assert "lamina run --once" in result.output
    assert tree(project.root) == before


def test_a_sink_that_the_file_no_longer_has_is_named(project: Project) -> None:
    text = SQL.replace("CREATE SINK busiest", "CREATE SINK other")
    (project.root / "p.sql").write_text(text)
    result = lamina("savepoint", "create", project.root / "p.sql", "before")
    assert result.exit_code == 5
    assert "the sinks have changed since the last epoch: busiest, other" in result.output


def test_before_the_first_checkpoint_a_run_is_needed(tmp_path: Path) -> None:
    made = Project(tmp_path, data=DATA)
    engine = made.open()
    run_out(engine, epochs=2)
    kill(engine)
    result = lamina("savepoint", "create", tmp_path / "p.sql", "first")
    assert result.exit_code == 5
    assert "has never made a checkpoint" in result.output


@pytest.mark.parametrize("when", [FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER])
def test_killed_at_any_put_of_a_dead_pipelines_checkpoint_nothing_is_lost(
    when: FaultKind, tmp_path: Path
) -> None:
    call = 0
    while True:
        call += 1
        world = World(tmp_path / f"{when.name}-{call}", data=DATA)
        engine = world.open()
        run_out(engine, epochs=5)
        kill(engine)
        faulty = FaultyStore(world.store, faults=[Fault("put_if_absent", when, call=call)])
        try:
            _save(world, Checkpointer(faulty, clock=ManualClock(call)))
        except Killed:
            killed = True
        else:
            killed = False
        world.finish()
        assert world.outcome() == expected(DATA, LIMITS.rows or 0), call
        if not killed:
            break
    assert call > 3, "TAKEOVER, begin.json, manifest, CHECKPOINT"


def test_an_older_process_decides_nothing_more_after_somebody_has_saved_for_it(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, data=DATA)
    engine = world.open()
    run_out(engine, epochs=5)
    engine._recovered.home.release()  # its lock is free, as of a process on a machine that hangs
    _save(world, Checkpointer(world.store, clock=ManualClock(99)))
    with pytest.raises(LaminaError):  # Fenced, or its run files are gone
        engine.step()
    kill(engine)
    world.finish()
    assert world.outcome() == expected(DATA, LIMITS.rows or 0)


def test_a_home_in_an_object_store_is_saved_from_another_machine(tmp_path: Path) -> None:
    world = Machines(tmp_path, data=DATA)
    engine = world.open()
    run_out(engine, epochs=5)
    kill(engine)
    copy_home(world.objects, tmp_path / "copy")
    clock, sinks = ManualClock(78), list(world.sinks().values())
    checkpointer = Checkpointer(world.store, clock=clock)
    found = unsaved(read_home(HomeCopy(tmp_path / "copy", "s3://home")), checkpointer, sinks)
    made = save_stopped(world.space(clock, world.store), checkpointer, found, sinks, clock=clock)
    assert made is not None
    assert (found.epochs, made.epoch) == (2, 5)
    world.finish()
    assert world.outcome() == expected(DATA, LIMITS.rows or 0)


def _save(world: World, checkpointer: Checkpointer) -> None:
    clock = ManualClock(77)
    space = LocalWorkspace(world.home, clock)
    sinks: list[RecoverableSink] = list(world.sinks().values())
    found = unsaved(read_home(space._disk), checkpointer, sinks)
    save_stopped(space, checkpointer, found, sinks, clock=clock)


# running


@contextmanager
def running(project: Project) -> Iterator[threading.Event]:
    """The pipeline in a thread, with its lock, an epoch every now and then."""
    clock, stop, ready = SystemClock(), threading.Event(), threading.Event()

    def run() -> None:
        with present(project.home, "p", clock=clock) as here:
            engine = open_engine(
                project.plan,
                space=LocalWorkspace(project.home, clock),
                store=project.store,
                runner=project.runner(nothing),
                sources=project.sources(),
                sinks=project.sinks(),
                settings=replace(project.settings, checkpoint_epochs=0),
                clock=clock,
                lock=here.lock,
            )
            loop = Loop(engine, here=here, clock=clock, stop=stop)
            ready.set()
            loop.run()
            engine.close()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        yield stop
    finally:
        stop.set()
        thread.join()


def test_a_running_pipeline_is_asked_and_what_is_named_is_the_current_epoch_or_later(
    project: Project,
) -> None:
    with running(project):
        said = create(project, "now", "--dry-run")
        current = read_status(project.home)
        made = create(project, "now")
    assert (said["running"], said["savepoint"]) == (True, None)
    assert made["running"]
    assert current is not None
    assert int(made["epoch"]) >= current.epoch >= 5  # type: ignore[call-overload]
    assert state_of(project, "now")


def test_a_taken_name_of_a_running_pipeline_is_refused_before_it_is_asked(project: Project) -> None:
    create(project, "old", "latest")
    with running(project):
        result = lamina("savepoint", "create", project.root / "p.sql", "old")
    assert result.exit_code == 5
    assert not is_asked(project.home, Ask.CHECKPOINT)


def test_who_never_answers_is_named_and_so_is_what_has_happened(project: Project) -> None:
    with present(project.home, "p", clock=SystemClock()):
        result = lamina("savepoint", "create", project.root / "p.sql", "now", "--timeout", "0")
        assert is_asked(project.home, Ask.CHECKPOINT)
    assert result.exit_code == 6
    assert "has not answered in 0 s; 'now' names nothing yet" in result.output
    assert "Run the same command again to name it" in result.output


def test_a_run_that_ends_without_an_answer_leaves_the_work_to_the_command(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with present(project.home, "p", clock=SystemClock()) as here:
        run = here.status

    def ended(*_: object) -> bool:
        return False

    monkeypatch.setattr(savepoint.Wait, "for_a_run", lambda _: run)
    monkeypatch.setattr(savepoint, "has_saved", ended)
    assert create(project, "now")["saved_epochs"] == 2
