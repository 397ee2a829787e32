"""Many calls at once: all of them end, none is lost, and no more run than are allowed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from lamina.checkpoint.parallel import RESULTS_PER_THREAD, run_bounded
from lamina.testing import Killed


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 200])
def test_every_item_comes_back_once(count: int) -> None:
    done = list(run_bounded(range(count), lambda item: item * item, limit=8))
    assert sorted((d.item, d.result, d.error) for d in done) == [
        (n, n * n, None) for n in range(count)
    ]


def test_as_many_run_at_once_as_are_allowed_and_no_more() -> None:
    at_once, now, lock = [0], [0], threading.Lock()
    together = threading.Barrier(4)

    def work(item: int) -> None:
        with lock:
            now[0] += 1
            at_once[0] = max(at_once[0], now[0])
        together.wait(10)  # four have to be here before one may go on
        with lock:
            now[0] -= 1

    assert len(list(run_bounded(range(40), work, limit=4))) == 40
    assert at_once[0] == 4


def test_no_more_threads_start_than_there_is_work_for() -> None:
    names = {d.result for d in run_bounded([1], _thread_name, limit=8)}
    assert names == {"lamina-0"}


def _thread_name(_: int) -> str:
    return threading.current_thread().name


def test_an_error_is_a_result_and_the_others_go_on() -> None:
    done = list(run_bounded(range(50), _fail_at(7), limit=4))
    assert len(done) == 50
    assert [(d.item, str(d.error)) for d in done if d.error] == [(7, "item 7")]


def test_after_an_error_nothing_new_starts_and_what_runs_is_waited_for() -> None:
    failed, started = threading.Event(), threading.Event()
    drawn: list[int] = []

    def work(item: int) -> int:
        drawn.append(item)
        if item == 0:
            assert started.wait(10)
            raise ValueError("item 0")
        started.set()
        assert failed.wait(10)  # is still under way when the other has failed
        return item

    jobs = run_bounded(range(1000), work, limit=2, stop_on_error=True)
    first = next(jobs)
    assert str(first.error) == "item 0"
    failed.set()
    assert [d.result for d in jobs] == [1]
    assert sorted(drawn) == [0, 1]


def _fail_at(bad: int) -> Callable[[int], int]:
    def work(item: int) -> int:
        if item == bad:
            raise ValueError(f"item {item}")
        return item

    return work


def test_an_error_of_the_source_is_raised_after_what_was_under_way() -> None:
    def source() -> Iterator[int]:
        yield from range(3)
        raise OSError("the listing broke")

    ended: list[int] = []
    with pytest.raises(OSError, match="the listing broke"):
        list(run_bounded(source(), ended.append, limit=2))
    assert sorted(ended) == [0, 1, 2]
    assert not _our_threads()


def test_a_kill_is_raised_and_not_a_result() -> None:
    def work(item: int) -> int:
        if item == 3:
            raise Killed
        return item

    with pytest.raises(Killed):
        list(run_bounded(range(100), work, limit=4))
    assert not _our_threads()


def test_items_are_drawn_only_when_there_is_room() -> None:
    drawn: list[int] = []

    def source() -> Iterator[int]:
        for item in range(10**9):
            drawn.append(item)
            yield item

    jobs = run_bounded(source(), lambda item: item, limit=2)
    for _ in range(5):
        next(jobs)
    jobs.close()  # type: ignore[attr-defined]
    assert len(drawn) <= 5 + 2 * RESULTS_PER_THREAD
    assert not _our_threads()


def _our_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("lamina-")]
