"""Many calls at once: bounded, all waited for, and no result lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

import pytest

from lamina.checkpoint.parallel import Done, run_all, run_bounded
from lamina.testing import Killed


def every(
    items: Iterable[int], work: Callable[[int], int | None], *, limit: int, stop: bool = False
) -> list[Done[int, int | None]]:
    with run_bounded(items, work, limit=limit, stop_on_error=stop) as jobs:
        return list(jobs)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 100])
@pytest.mark.parametrize("limit", [1, 4, 16])
def test_every_item_comes_back_once(count: int, limit: int) -> None:
    done = every(range(count), lambda n: n * n, limit=limit)
    assert sorted((d.item, d.result) for d in done) == [(n, n * n) for n in range(count)]
    assert all(d.error is None for d in done)


def test_never_more_than_the_limit_at_once_and_the_limit_is_reached() -> None:
    lock, meeting = threading.Lock(), threading.Barrier(4)
    now, most = 0, 0

    def work(_: int) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        meeting.wait(timeout=10)
        with lock:
            now -= 1

    assert len(every(range(40), work, limit=4)) == 40
    assert most == 4


def test_items_are_drawn_only_when_there_is_room() -> None:
    drawn = 0

    def items() -> Iterator[int]:
        nonlocal drawn
        for number in range(10_000):
            drawn += 1
            yield number

    with run_bounded(items(), lambda n: n, limit=3) as jobs:
        for _ in range(5):
            next(jobs)
        assert drawn < 100
    assert drawn < 100


def test_a_failure_is_a_result_and_the_others_go_on() -> None:
    def work(number: int) -> int:
        if number == 3:
            raise ValueError(number)
        return number

    done = every(range(10), work, limit=2)
    assert len(done) == 10
    [failed] = [d for d in done if d.error]
    assert (failed.item, failed.result) == (3, None)
    assert isinstance(failed.error, ValueError)


def test_after_a_failure_nothing_new_starts_and_what_runs_is_waited_for() -> None:
    started: list[int] = []
    both = threading.Barrier(2)
    failed = threading.Event()

    def work(number: int) -> int:
        started.append(number)
        if number < 2:
            both.wait(timeout=10)
        if number == 0:
            failed.set()
            raise ValueError(number)
        failed.wait(timeout=10)
        return number

    done = every(range(1000), work, limit=2, stop=True)
    assert {0, 1} <= {d.item for d in done}
    assert {d.item for d in done} == set(started)
    assert len(started) < 1000


def test_a_kill_is_nobodys_result() -> None:
    def work(number: int) -> int:
        if number == 5:
            raise Killed
        return number

    with pytest.raises(Killed):
        every(range(50), work, limit=3)


def test_a_consumer_that_stops_early_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    running = 0
    lock = threading.Lock()

    def work(number: int) -> int:
        nonlocal running
        with lock:
            running += 1
        with lock:
            running -= 1
        return number

    with run_bounded(range(1000), work, limit=8) as jobs:
        stopped_at = next(done.item for done in jobs if done.item > 3)
    assert stopped_at < 1000
    assert threading.active_count() == before
    assert running == 0


def test_a_reader_that_raised_did_not_wait_for_what_was_under_way() -> None:
    """Its threads were left to the garbage collector, which may run in one of them."""
    slow = threading.Event()

    def work(number: int) -> int:
        if number == 0:
            return number
        slow.wait(timeout=10)
        return number

    def refuse(_item: int, _result: int) -> None:
        slow.set()
        raise LookupError("no such thing")

    with pytest.raises(LookupError):
        run_all(range(2), work, limit=2, each=refuse)
    assert not any(t.name.startswith("lamina-") for t in threading.enumerate())


def test_a_source_of_items_that_fails_ends_with_its_error() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise LookupError("no more")

    with pytest.raises(LookupError):
        every(items(), lambda n: n, limit=2)
