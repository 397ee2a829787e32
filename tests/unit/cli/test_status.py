"""`lamina status`, `stop` and `checkpoint`: from the files of a home, running or dead."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lamina.cli.pipeline.requests import still_runs
from lamina.clock import SystemClock
from lamina.disk import LocalDisk
from lamina.running.control import Ask, Status, is_asked, this_process, write_status
from lamina.running.loop import Loop
from lamina.running.presence import present
from tests.support.command_line import answer, lamina, tree
from tests.support.homes import HomeAndStore, make_home
from tests.support.running_engines import FakeEngine

SQL = """CREATE SOURCE clicks (symbol STRING, ts TIMESTAMP) USING trades;
CREATE STREAM rows AS SELECT * FROM clicks;
CREATE SINK lake FROM rows USING parquet OPTIONS (path 'lake');
"""


@pytest.fixture
def made(tmp_path: Path) -> HomeAndStore:
    (tmp_path / "orders.sql").write_text(SQL)
    return make_home(tmp_path)


def places(made: HomeAndStore) -> tuple[str | Path, ...]:
    return "--home", made.home, "--store", made.store


@contextmanager
def running(home: Path, *, until: int = 10**9) -> Iterator[FakeEngine]:
    """A pipeline with the lock of its home, in a thread."""
    engine, stop, ready = FakeEngine(input=until), threading.Event(), threading.Event()
    clock = SystemClock()

    def note(status: Status) -> None:
        if status.phase == "running":
            ready.set()

    def run() -> None:
        with present(home, "orders", clock=clock, listener=note) as here:
            Loop(engine, here=here, clock=clock, stop=stop, interval_s=0.05).run()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        yield engine
    finally:
        stop.set()
        thread.join()


def test_a_dead_pipeline_is_where_its_logs_say(made: HomeAndStore) -> None:
    before = tree(made.home)
    said = answer(lamina("status", *places(made), "--json"))
    assert (said["running"], said["process"], said["state"]) == (False, None, "not running")
    assert (said["epoch"], said["unsaved_epochs"], said["watermark"]) == (6, 2, 6_000_000)
    assert said["checkpoint"]["epoch"] == 4
    assert said["source_offsets"] == {"clicks": {"file": "part-6"}}
    assert said["wal_bytes"] == sum(p.stat().st_size for p in made.home.rglob("*.wal"))
    assert said["said"] is None
    assert tree(made.home) == before


def test_the_logs_are_the_truth_and_not_what_was_said_last(made: HomeAndStore) -> None:
    me = this_process()
    old = Status("orders", 2**22 + 1, me.host, "running", 0, 0, epoch=3, sinks={"lake": 3})
    write_status(made.home, old)
    said = answer(lamina("status", *places(made), "--json"))
    assert said["epoch"] == 6
    assert said["state"] == "not running: it was killed"
    assert said["sinks"] == {"lake": 3}


def test_late_rows_of_joins_are_shown_by_side(made: HomeAndStore) -> None:
    sides = {"paid.join": {"left": 3, "right": 1}, "seen.join": {"left": 0, "right": 0}}
    write_status(made.home, Status("orders", 7, "here", "ended", 0, 0, late_sides=sides))
    assert answer(lamina("status", *places(made), "--json"))["said"]["late_sides"] == sides
    shown = lamina("status", *places(made)).output
    assert "late:       paid.join: 3 left, 1 right\n" in shown


def test_full_listings_of_the_last_run_are_shown(made: HomeAndStore) -> None:
    listings = {"clicks": {"full": 3, "requests": 41}}
    write_status(made.home, Status("orders", 7, "here", "ended", 0, 0, listings=listings))
    assert answer(lamina("status", *places(made), "--json"))["said"]["listings"] == listings
    shown = lamina("status", *places(made)).stdout
    assert "listings:   clicks: 3 full listings, 41 requests\n" in shown


def test_with_the_file_the_sinks_are_asked_themselves(made: HomeAndStore) -> None:
    file = made.home.parent / "orders.sql"
    said = answer(lamina("status", file, *places(made), "--json"))
    assert said["sinks"] == {"lake": 0}
    text = lamina("status", file, *places(made)).stdout
    assert "epoch:      6\n" in text
    assert "checkpoint: epoch 4, " in text
    assert "2 epochs after it" in text
    assert "clicks  file=part-6" in text
    assert text.splitlines()[-1].split() == ["lake", "0", "6"]


def test_a_running_pipeline_is_seen_and_keeps_running(made: HomeAndStore) -> None:
    with running(made.home):
        said = answer(lamina("status", *places(made), "--json"))
        assert said["running"]
        assert said["process"]["pid"] == os.getpid()
        assert said["state"] == "running"
    assert not answer(lamina("status", *places(made), "--json"))["running"]


def test_stop_waits_for_the_end(made: HomeAndStore) -> None:
    file = made.home.parent / "orders.sql"
    with running(made.home) as engine:
        result = lamina("stop", file, *places(made), "--timeout", "30")
        assert result.exit_code == 0
        assert "ended at epoch" in result.stdout
        assert engine.calls[-1] == "checkpoint"
    again = lamina("stop", file, *places(made))
    assert (again.exit_code, again.stdout) == (0, "nothing is running in this home\n")
    assert answer(lamina("stop", file, *places(made), "--json"))["stopped"] is None


def test_stop_found_nothing_while_spark_was_starting(tmp_path: Path) -> None:
    """At the first start there is neither a home.json nor a log; the process is seen anyway."""
    file = tmp_path / "orders.sql"
    file.write_text(SQL)
    home = tmp_path / ".lamina" / "orders" / "home"
    with present(home, "orders", clock=SystemClock()) as here:
        said = answer(lamina("status", file, "--json"))
        assert (said["running"], said["state"], said["epoch"]) == (True, "starting", 0)
        assert "starting" in lamina("status", file).stdout
        asked = lamina("stop", file, "--timeout", "0")
        assert (asked.exit_code, f"pid {os.getpid()}" in asked.stderr) == (6, True)
        assert here.is_asked(Ask.STOP)
    assert lamina("stop", file).stdout == "nothing is running in this home\n"


def test_what_runs_on_a_host_that_is_gone_is_last_seen_and_no_refusal(made: HomeAndStore) -> None:
    write_status(made.home, Status("orders", 7, "far-away", "running", 0, 0))
    said = answer(lamina("status", *places(made), "--json"))
    assert not said["running"]
    assert said["state"].startswith("not running: last seen running on far-away (pid 7) at 1970-")
    stopped = lamina("stop", "orders.sql", *places(made))
    assert (stopped.exit_code, "last seen on far-away" in stopped.stdout) == (0, True)
    with running(made.home):
        assert answer(lamina("status", *places(made), "--json"))["running"]


def test_stop_does_not_stop_the_run_that_a_supervisor_starts_next(made: HomeAndStore) -> None:
    clock = SystemClock()
    with present(made.home, "orders", clock=clock) as first:
        old = first.status
    with present(made.home, "orders", clock=clock) as second:
        assert not still_runs(made.home, old)
        assert still_runs(made.home, second.status)


def test_who_does_not_answer_is_named(made: HomeAndStore) -> None:
    lock = LocalDisk(made.home).try_lock("lock")
    assert lock is not None
    result = lamina("stop", "orders.sql", *places(made), "--timeout", "0.1")
    lock.release()
    assert result.exit_code == 6
    assert f"pid {os.getpid()}" in result.stderr


def test_a_checkpoint_is_asked_of_who_runs(made: HomeAndStore) -> None:
    with running(made.home) as engine:
        said = answer(lamina("checkpoint", "orders.sql", *places(made), "--json"))
        assert engine.calls.count("checkpoint") == 1
        assert said["checkpoint"]["epoch"] == 4  # the newest of the store; this engine makes none
        engine.store_down = True
        failed = lamina("checkpoint", "orders.sql", *places(made))
        assert failed.exit_code == 6
        assert "the store is down" in failed.stderr
        engine.store_down = False
    assert not is_asked(made.home, Ask.CHECKPOINT)


def test_a_checkpoint_of_what_does_not_run_cannot_be_made(made: HomeAndStore) -> None:
    result = lamina("checkpoint", "orders.sql", *places(made))
    assert result.exit_code == 3
    assert "the pipeline is not running" in result.stderr
    assert not (made.home / "requests").exists()


def test_what_never_ran_has_no_home(tmp_path: Path) -> None:
    (tmp_path / "orders.sql").write_text(SQL)
    for command in ("status", "stop", "checkpoint"):
        result = lamina(command, tmp_path / "orders.sql")
        assert result.exit_code == 3, command
        assert "Has it ever run?" in result.stderr
    assert not (tmp_path / ".lamina").exists()


def test_status_wants_to_know_of_what() -> None:
    assert lamina("status").exit_code == 2
    assert lamina("status", "--home", "x").exit_code == 2
