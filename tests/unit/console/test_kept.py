"""A value that is read anew when it is old: however many ask, one reads, and nobody waits twice."""

from __future__ import annotations

import contextlib
import threading

from lamina.console.kept import Kept
from lamina.testing import ManualClock


class Counter:
    def __init__(self) -> None:
        self.calls = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def __call__(self, _: int | None) -> int:
        assert self.may_go_on.wait(30)
        self.calls += 1
        return self.calls


def test_what_is_fresh_is_not_read_again() -> None:
    clock, counter = ManualClock(), Counter()
    kept = Kept(counter, clock, fresh_s=1.0)
    assert [kept.get(), kept.get()] == [1, 1]
    kept.expire()
    assert kept.get() == 2


def test_many_readers_cost_one_read() -> None:
    counter = Counter()
    counter.may_go_on.clear()
    kept = Kept(counter, ManualClock(), fresh_s=1.0)
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(kept.get())) for _ in range(50)]
    for thread in threads:
        thread.start()
    counter.may_go_on.set()
    for thread in threads:
        thread.join()
    assert (seen, counter.calls) == ([1] * 50, 1)


def test_what_is_stale_is_given_at_once_while_somebody_reads() -> None:
    clock, counter = ManualClock(), Counter()
    kept = Kept(counter, clock, fresh_s=1.0)
    kept.get()
    counter.may_go_on.clear()
    clock.advance(5)
    assert [kept.get(), kept.get()] == [1, 1]  # nobody waits for the slow store
    counter.may_go_on.set()
    while kept.last != 2:
        clock.wait(0)
    assert counter.calls == 2


def test_what_is_too_old_is_waited_for() -> None:
    clock, counter = ManualClock(), Counter()
    kept = Kept(counter, clock, fresh_s=1.0)
    kept.get()
    clock.advance(100)
    assert kept.get() == 2


def test_a_read_that_fails_is_tried_again() -> None:
    def read(_: int | None) -> int:
        failures.append(1)
        if len(failures) == 1:
            raise ValueError("first")
        return 7

    failures: list[int] = []
    kept = Kept(read, ManualClock(), fresh_s=1.0)
    with contextlib.suppress(ValueError):
        kept.get()
    assert kept.get() == 7
