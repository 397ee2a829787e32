"""The loop of a pipeline: when it ends, what it is asked, and what it says of itself."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from lamina.engine.plans import EpochReport
from lamina.errors import Fenced
from lamina.running.control import (
    STATUS,
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
from lamina.testing import ManualClock
from tests.unit.running_engines import FakeEngine


def loop(
    engine: FakeEngine,
    home: Path,
    until: Until | None = None,
    *,
    stop: threading.Event | None = None,
    watcher: Watcher | None = None,
    interval_s: float = 0.0,
    clock: ManualClock | None = None,
) -> Loop:
    return Loop(
        engine,
        home=home,
        name="orders",
        clock=clock or ManualClock(),
        stop=stop or threading.Event(),
        watcher=watcher,
        until=until,
        interval_s=interval_s,
    )


def test_available_now_reads_everything_then_drains_and_saves(tmp_path: Path) -> None:
    engine, seen = FakeEngine(input=3), list[EpochReport]()
    ended = loop(engine, tmp_path, Until(available_now=True), watcher=Watcher(epoch=seen.append))
    status = ended.run()
    assert [report.epoch for report in seen] == [1, 2, 3]
    assert engine.calls[-2:] == ["drain", "checkpoint"]
    assert (status.phase, status.epoch, status.saved_epoch, status.rows) == ("ended", 3, 3, 300)
    assert (status.late, status.rows_per_s, status.sinks) == (3, 200, {"out": 3})
    assert read_status(tmp_path) == status


def test_once_is_one_epoch_or_none(tmp_path: Path) -> None:
    assert loop(FakeEngine(input=3), tmp_path, Until(once=True)).run().epoch == 1
    assert loop(FakeEngine(input=0), tmp_path, Until(once=True)).run().epoch == 0


def test_it_ends_at_the_epoch_that_was_asked_for(tmp_path: Path) -> None:
    engine = FakeEngine(input=9)
    assert loop(engine, tmp_path, Until(epoch=4)).run().epoch == 4
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
    loop(engine, tmp_path, stop=stop, watcher=Watcher(status=note)).run()
    assert ("running", "out: no answer") in said
    assert ("waiting", "out: no answer") in said


def test_a_held_pipeline_has_not_read_everything(tmp_path: Path) -> None:
    """It ended with --available-now while the store was slow, and data was left."""

    def let_go(engine: FakeEngine) -> None:
        engine.held = "a checkpoint is being made" if engine.calls.count("step") < 5 else ""

    phases = list[str]()
    watcher = Watcher(status=lambda status: phases.append(status.phase))
    engine = FakeEngine(input=2, on_step=let_go)
    assert loop(engine, tmp_path, Until(available_now=True), watcher=watcher).run().epoch == 2
    assert "held" in phases


def test_it_does_not_end_while_a_sink_is_behind(tmp_path: Path) -> None:
    def catch_up(engine: FakeEngine) -> None:
        engine.publisher.behind = 0 if engine.calls.count("step") > 6 else 1

    engine = FakeEngine(input=1, on_step=catch_up)
    loop(engine, tmp_path, Until(available_now=True)).run()
    assert engine.calls.count("step") == 7


def test_an_interval_is_kept_between_epochs(tmp_path: Path) -> None:
    clock = ManualClock()
    loop(FakeEngine(input=3), tmp_path, Until(epoch=3), interval_s=10, clock=clock).run()
    assert clock.monotonic() >= 20


def test_a_stop_request_ends_it_after_its_epoch_with_a_checkpoint(tmp_path: Path) -> None:
    def asked(engine: FakeEngine) -> None:
        if engine.epoch == 2:
            ask(tmp_path, Ask.STOP, this_process())

    engine = FakeEngine(input=100, on_step=asked)
    assert loop(engine, tmp_path).run().epoch == 3
    assert engine.calls[-1] == "checkpoint"
    assert not is_asked(tmp_path, Ask.STOP)


def test_a_request_is_seen_in_a_long_interval(tmp_path: Path) -> None:
    clock = ManualClock()

    def asked(engine: FakeEngine) -> None:
        ask(tmp_path, Ask.STOP, this_process())

    engine = FakeEngine(input=100, on_step=asked)
    assert loop(engine, tmp_path, interval_s=3600, clock=clock).run().epoch == 1
    assert clock.monotonic() <= 2 * POLL_S


def test_a_request_to_a_process_of_the_past_is_swept_away(tmp_path: Path) -> None:
    ask(tmp_path, Ask.STOP, Process(1, "another computer"))
    assert loop(FakeEngine(input=2), tmp_path, Until(available_now=True)).run().epoch == 2
    assert not is_asked(tmp_path, Ask.STOP)
    (tmp_path / "requests" / "stop").write_bytes(b"\xff no JSON")
    assert not take_request(tmp_path, Ask.STOP, this_process())
    assert not is_asked(tmp_path, Ask.STOP)


def test_a_checkpoint_is_made_when_asked_and_the_request_goes(tmp_path: Path) -> None:
    def asked(engine: FakeEngine) -> None:
        if engine.epoch == 1:
            ask(tmp_path, Ask.CHECKPOINT, this_process())

    engine = FakeEngine(input=3, on_step=asked)
    loop(engine, tmp_path, Until(available_now=True)).run()
    assert engine.calls.count("checkpoint") == 2
    assert engine.calls[2:5] == ["drain", "checkpoint", "step"]
    assert not is_asked(tmp_path, Ask.CHECKPOINT)


def test_a_store_that_is_down_refuses_a_checkpoint_and_the_pipeline_goes_on(
    tmp_path: Path,
) -> None:
    def asked(engine: FakeEngine) -> None:
        engine.store_down = engine.epoch == 1
        if engine.epoch == 1:
            ask(tmp_path, Ask.CHECKPOINT, this_process())

    engine = FakeEngine(input=3, on_step=asked)
    assert "down" in loop(engine, tmp_path, Until(available_now=True)).run().refused
    assert engine.epoch == 3


def test_the_last_words_of_a_run_that_fails_say_why(tmp_path: Path) -> None:
    engine = FakeEngine(failure=Fenced("another process took over"))
    with pytest.raises(Fenced):
        loop(engine, tmp_path).run()
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
        assert loop(engine, tmp_path, stop=stop).run().epoch == 2
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


def test_a_process_of_another_computer_is_believed_until_it_says_it_is_over(
    tmp_path: Path,
) -> None:
    write_status(tmp_path, said(host="far away"))
    assert find_holder(tmp_path, read_status(tmp_path)) == Process(os.getpid(), "far away")
    assert find_holder(tmp_path, said(host="far away", phase="ended")) is None


def test_a_process_of_this_computer_is_asked_of_the_system(tmp_path: Path) -> None:
    nowhere = tmp_path / "no proc"
    gone = 2**22 + 1  # above the highest pid of Linux
    assert find_holder(tmp_path, said(pid=gone), locks=nowhere) is None
    assert find_holder(tmp_path, said(), locks=nowhere) == this_process()
    (tmp_path / "lock").touch()
    locks = tmp_path / "locks"
    inode = (tmp_path / "lock").stat().st_ino
    locks.write_text(f"1: FLOCK  ADVISORY  WRITE {gone} fd:00:{inode} 0 EOF\n2: -> POSIX x\n")
    assert find_holder(tmp_path, said(), locks=locks) is None
