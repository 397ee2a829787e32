"""The loop of a pipeline: when it ends, what it is asked, and what it says of itself."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from pathlib import Path

import pytest

from lamina.engine.plans import EpochReport
from lamina.errors import Fenced, Refused, SparkLost
from lamina.format.home_names import STATUS
from lamina.running.control import (
    Ask,
    Process,
    Status,
    ask,
    is_asked,
    read_status,
    take_request,
    this_process,
    write_status,
)
from lamina.running.holder import find_holder
from lamina.running.loop import POLL_S, Loop, Until, Watcher, stopping
from lamina.running.presence import present
from lamina.testing import ManualClock
from tests.support.running_engines import FakeEngine


def run(
    engine: FakeEngine,
    home: Path,
    until: Until | None = None,
    *,
    stop: threading.Event | None = None,
    watcher: Watcher | None = None,
    interval_s: float = 0.0,
    clock: ManualClock | None = None,
) -> Status:
    watcher, clock = watcher or Watcher(), clock or ManualClock()
    with present(home, "orders", clock=clock, listener=watcher.status) as here:
        return Loop(
            engine,
            here=here,
            clock=clock,
            stop=stop or threading.Event(),
            watcher=watcher,
            until=until,
            interval_s=interval_s,
        ).run()


def ask_the_run(home: Path, what: Ask) -> None:
    """As `lamina stop` and `lamina checkpoint` do."""
    said = read_status(home)
    assert said is not None
    ask(home, what, said)


def test_available_now_reads_everything_then_drains_and_saves(tmp_path: Path) -> None:
    engine, seen = FakeEngine(input=3), list[EpochReport]()
    watcher = Watcher(epoch=seen.append)
    status = run(engine, tmp_path, Until(available_now=True), watcher=watcher)
    assert [report.epoch for report in seen] == [1, 2, 3]
    assert engine.calls[-2:] == ["drain", "checkpoint"]
    assert (status.phase, status.epoch, status.saved_epoch, status.rows) == ("ended", 3, 3, 300)
    assert (status.late, status.rows_per_s, status.sinks) == (3, 200, {"out": 3})
    assert read_status(tmp_path) == status


def test_once_is_one_epoch_or_none(tmp_path: Path) -> None:
    assert run(FakeEngine(input=3), tmp_path, Until(once=True)).epoch == 1
    assert run(FakeEngine(input=0), tmp_path, Until(once=True)).epoch == 0


def test_it_ends_at_the_epoch_that_was_asked_for(tmp_path: Path) -> None:
    engine = FakeEngine(input=9)
    assert run(engine, tmp_path, Until(epoch=4)).epoch == 4
    assert engine.calls.count("step") == 4


def test_what_is_tried_again_is_said_while_it_waits_too(tmp_path: Path) -> None:
    """It was forgotten as soon as there was nothing to read: the status of a failing sink."""
    said: list[tuple[str, str]] = []
    stop = threading.Event()

    def note(status: Status) -> None:
        said.append((status.phase, status.why))
        if status.phase == "waiting":
            stop.set()

    engine = FakeEngine(input=1, trouble="out: no answer")
    run(engine, tmp_path, stop=stop, watcher=Watcher(status=note))
    assert ("running", "out: no answer") in said
    assert ("waiting", "out: no answer") in said


def test_a_held_pipeline_has_not_read_everything(tmp_path: Path) -> None:
    """It ended with --available-now while the store was slow, and data was left."""

    def let_go(engine: FakeEngine) -> None:
        engine.held = "a checkpoint is being made" if engine.calls.count("step") < 5 else ""

    phases = list[str]()
    watcher = Watcher(status=lambda status: phases.append(status.phase))
    engine = FakeEngine(input=2, on_step=let_go)
    assert run(engine, tmp_path, Until(available_now=True), watcher=watcher).epoch == 2
    assert "held" in phases


def test_it_does_not_end_while_a_sink_is_behind(tmp_path: Path) -> None:
    def catch_up(engine: FakeEngine) -> None:
        engine.publisher.behind = 0 if engine.calls.count("step") > 6 else 1

    engine = FakeEngine(input=1, on_step=catch_up)
    run(engine, tmp_path, Until(available_now=True))
    assert engine.calls.count("step") == 7


def test_an_interval_is_kept_between_epochs(tmp_path: Path) -> None:
    clock = ManualClock()
    run(FakeEngine(input=3), tmp_path, Until(epoch=3), interval_s=10, clock=clock)
    assert clock.monotonic() >= 20


def test_a_stop_request_ends_it_after_its_epoch_with_a_checkpoint(tmp_path: Path) -> None:
    def asked(engine: FakeEngine) -> None:
        if engine.epoch == 2:
            ask_the_run(tmp_path, Ask.STOP)

    engine = FakeEngine(input=100, on_step=asked)
    assert run(engine, tmp_path).epoch == 3
    assert engine.calls[-1] == "checkpoint"
    assert not is_asked(tmp_path, Ask.STOP)


def test_a_request_is_seen_in_a_long_interval(tmp_path: Path) -> None:
    clock = ManualClock()

    def asked(engine: FakeEngine) -> None:
        ask_the_run(tmp_path, Ask.STOP)

    engine = FakeEngine(input=100, on_step=asked)
    assert run(engine, tmp_path, interval_s=3600, clock=clock).epoch == 1
    assert clock.monotonic() <= 2 * POLL_S


def test_a_stop_request_left_for_an_older_run_with_the_same_pid_and_host_was_obeyed(
    tmp_path: Path,
) -> None:
    """In a new container the pid and the host name are often those of the one before."""
    with present(tmp_path, "orders", clock=ManualClock(seed=1)) as killed:
        older = killed.status
    assert older.process == this_process()
    ask(tmp_path, Ask.STOP, older)
    assert run(FakeEngine(input=2), tmp_path, Until(available_now=True)).epoch == 2
    assert not is_asked(tmp_path, Ask.STOP)
    for data in (b"\xff no JSON", b'{"host":"%s","pid":%d}' % (older.host.encode(), older.pid)):
        (tmp_path / "requests" / "stop").write_bytes(data)
        assert not take_request(tmp_path, Ask.STOP, "a new run")
        assert not is_asked(tmp_path, Ask.STOP)


def test_a_run_of_a_release_without_names_for_runs_is_still_asked(tmp_path: Path) -> None:
    ask(tmp_path, Ask.STOP, said(host="here", pid=7))
    assert (tmp_path / "requests" / "stop").read_bytes() == b'{"host":"here","pid":7}'


def test_a_checkpoint_is_made_when_asked_and_the_request_goes(tmp_path: Path) -> None:
    def asked(engine: FakeEngine) -> None:
        if engine.epoch == 1:
            ask_the_run(tmp_path, Ask.CHECKPOINT)

    engine = FakeEngine(input=3, on_step=asked)
    run(engine, tmp_path, Until(available_now=True))
    assert engine.calls.count("checkpoint") == 2
    assert engine.calls[2:5] == ["drain", "checkpoint", "step"]
    assert not is_asked(tmp_path, Ask.CHECKPOINT)


def test_a_store_that_is_down_refuses_a_checkpoint_and_the_pipeline_goes_on(
    tmp_path: Path,
) -> None:
    def asked(engine: FakeEngine) -> None:
        engine.store_down = engine.epoch == 1
        if engine.epoch == 1:
            ask_the_run(tmp_path, Ask.CHECKPOINT)

    engine = FakeEngine(input=3, on_step=asked)
    assert "down" in run(engine, tmp_path, Until(available_now=True)).refused
    assert engine.epoch == 3


def test_the_last_words_of_a_run_that_fails_say_why(tmp_path: Path) -> None:
    engine = FakeEngine(failure=Fenced("another process took over"))
    with pytest.raises(Fenced):
        run(engine, tmp_path)
    status = read_status(tmp_path)
    assert status is not None
    assert status.phase == "failed"
    assert "another process took over" in status.why


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_epoch_end(tmp_path: Path, number: int) -> None:
    stop = threading.Event()

    def kill(engine: FakeEngine) -> None:
        if engine.epoch == 1:
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    engine = FakeEngine(input=100, on_step=kill)
    with stopping(stop):
        assert run(engine, tmp_path, stop=stop).epoch == 2
    assert engine.calls[-1] == "checkpoint"
    assert signal.getsignal(number) is before


def test_a_second_interrupt_does_not_wait() -> None:
    stop = threading.Event()
    with stopping(stop):
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_status_of_another_release_or_half_a_status_is_none(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    for data in (b"{", b"[]", b'{"pid":1}', b"\xff"):
        (tmp_path / STATUS).write_bytes(data)
        assert read_status(tmp_path) is None


# who has the lock


def said(**changes: object) -> Status:
    me = this_process()
    given = {"pid": me.pid, "host": me.host, "phase": "running"} | changes
    return Status("orders", started_ms=0, updated_ms=0, **given)  # type: ignore[arg-type]


def test_a_run_killed_on_another_host_kept_every_later_one_from_starting(tmp_path: Path) -> None:
    """Its status said that it runs, and nobody could ask: only the lock may decide."""
    write_status(tmp_path, said(host="a container that is gone"))
    assert find_holder(tmp_path, read_status(tmp_path)) is None
    assert run(FakeEngine(input=1), tmp_path, Until(available_now=True)).epoch == 1


def test_a_run_on_another_host_that_has_the_lock_is_found(tmp_path: Path) -> None:
    """/proc/locks does not show it: the lock itself does."""
    far, nowhere = Process(7, "far away"), tmp_path / "no proc"
    with present(tmp_path, "orders", clock=ManualClock()):
        assert find_holder(tmp_path, said(pid=7, host="far away"), locks=nowhere) == far
        assert find_holder(tmp_path, said(phase="ended"), locks=nowhere) is None
    assert find_holder(tmp_path, said(pid=7, host="far away"), locks=nowhere) is None


def test_a_process_without_an_flock_on_this_very_file_does_not_run_it(tmp_path: Path) -> None:
    gone = 2**22 + 1  # above the highest pid of Linux
    (tmp_path / "lock").touch()
    locks = tmp_path / "locks"
    inode = (tmp_path / "lock").stat().st_ino
    locks.write_text(f"1: FLOCK  ADVISORY  WRITE {gone} fd:00:{inode} 0 EOF\n2: -> POSIX x\n")
    assert find_holder(tmp_path, said(), locks=locks) is None


# from the start to the end


def test_a_second_run_is_refused_and_says_who_has_the_home(tmp_path: Path) -> None:
    with present(tmp_path, "orders", clock=ManualClock()):
        with pytest.raises(Fenced, match=f"pid {os.getpid()} on "):
            run(FakeEngine(), tmp_path)
        status = read_status(tmp_path)
        assert status is not None
        assert status.phase == "starting", "the second one leaves no word"
    assert run(FakeEngine(input=1), tmp_path, Until(available_now=True)).epoch == 1


def test_a_look_at_the_lock_does_not_keep_a_pipeline_from_starting(tmp_path: Path) -> None:
    """`lamina status` has a shared lock for an instant; so the lock is tried more than once."""
    (tmp_path / "lock").touch()
    looking = os.open(tmp_path / "lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)

    class Patient(ManualClock):
        def wait(self, seconds: float, cancel: threading.Event | None = None) -> bool:
            fcntl.flock(looking, fcntl.LOCK_UN)
            return super().wait(seconds, cancel)

    with present(tmp_path, "orders", clock=Patient()) as here:
        assert here.status.phase == "starting"
    os.close(looking)


def test_a_stop_asked_while_spark_starts_is_honoured(tmp_path: Path) -> None:
    """Nothing was to be seen of a run before its first epoch: `lamina stop` found nobody."""
    clock, engine = ManualClock(), FakeEngine(input=9)
    with present(tmp_path, "orders", clock=clock) as here:
        status = read_status(tmp_path)
        assert status is not None
        assert (status.phase, find_holder(tmp_path, status)) == ("starting", this_process())
        ask(tmp_path, Ask.STOP, status)
        ended = Loop(engine, here=here, clock=clock, stop=threading.Event()).run()
    assert (ended.phase, ended.epoch) == ("ended", 0)
    assert "step" not in engine.calls


def test_a_run_that_fails_before_its_first_epoch_says_why(tmp_path: Path) -> None:
    with pytest.raises(Refused), present(tmp_path, "orders", clock=ManualClock()):
        raise Refused("Spark is too old")
    status = read_status(tmp_path)
    assert status is not None
    assert (status.phase, "too old" in status.why) == ("failed", True)
    assert find_holder(tmp_path, status) is None


def test_a_run_that_ended_well_kept_saying_why_it_had_been_held(tmp_path: Path) -> None:
    engine = FakeEngine(input=1, trouble="out: no answer")
    ended = run(engine, tmp_path, Until(available_now=True))
    assert (ended.phase, ended.why) == ("ended", "")


def test_a_jvm_that_is_gone_while_the_run_is_stopping_is_a_stop(tmp_path: Path) -> None:
    stop = threading.Event()

    def end_both(engine: FakeEngine) -> None:
        if engine.epoch == 1:
            stop.set()
            engine.failure = SparkLost("connection refused")

    engine = FakeEngine(input=9, on_step=end_both)
    ended = run(engine, tmp_path, stop=stop)
    assert (ended.phase, ended.epoch, engine.calls[-1]) == ("ended", 1, "checkpoint")
    with pytest.raises(SparkLost):
        run(FakeEngine(failure=SparkLost("connection refused")), tmp_path)
