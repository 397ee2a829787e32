"""Many store calls at once, with a bound; every one is waited for, whatever happens to others.

Each thread draws its next item itself: no thread waits for another to be given work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar, cast

T = TypeVar("T")
R = TypeVar("R")

RESULTS_PER_THREAD = 4
"""How far threads may run ahead of a slow reader of their results."""


@dataclass(frozen=True, slots=True)
class Done(Generic[T, R]):
    """One finished call: its result, or the error it ended with."""

    item: T
    result: R | None
    error: Exception | None


@contextmanager
def run_bounded(
    items: Iterable[T], work: Callable[[T], R], *, limit: int, stop_on_error: bool = False
) -> Iterator[Iterator[Done[T, R]]]:
    """Run *work* on every item, at most *limit* at once; give each as it ends, in any order.

    Items are drawn only when there is room, so they may be many. With *stop_on_error* no new one
    starts after a failure. Leaving the block draws no more, and waits for what is under way. One
    at a time needs no thread.
    """
    if limit == 1:
        yield _one_by_one(items, work, stop_on_error)
        return
    workers = _Workers(iter(items), work, limit, stop_on_error)
    try:
        yield workers.results()
    finally:
        workers.stop()


def run_all(
    items: Iterable[T],
    work: Callable[[T], R],
    *,
    limit: int,
    each: Callable[[T, R], None] = lambda _item, _result: None,
) -> None:
    """Run *work* on every item, at most *limit* at once; *each* is told what has succeeded.

    After a failure no new one starts; what is under way is waited for, then the first is raised.
    """
    errors = []
    with run_bounded(items, work, limit=limit, stop_on_error=True) as jobs:
        for done in jobs:
            if done.error is not None:
                errors.append(done.error)
            else:
                each(done.item, cast(R, done.result))
    if errors:
        raise errors[0]


def _one_by_one(
    items: Iterable[T], work: Callable[[T], R], stop_on_error: bool
) -> Iterator[Done[T, R]]:
    for item in items:
        done = _call(item, work)
        yield done
        if done.error is not None and stop_on_error:
            return


def _call(item: T, work: Callable[[T], R]) -> Done[T, R]:
    try:
        return Done(item, work(item), None)
    except Exception as error:  # noqa: BLE001  the caller decides what it means
        return Done(item, None, error)


class _Workers(Generic[T, R]):
    """Threads that draw, work and hand over, until there is nothing more to draw."""

    def __init__(
        self, source: Iterator[T], work: Callable[[T], R], limit: int, stop_on_error: bool
    ) -> None:
        self._source = source
        self._work = work
        self._limit = limit
        self._stop_on_error = stop_on_error
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._ended = False
        self._done: SimpleQueue[Done[T, R] | BaseException | None] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(limit * RESULTS_PER_THREAD):
            self._room.put(None)

    def results(self) -> Iterator[Done[T, R]]:
        with self._lock:
            self._start_thread()
        ended = 0
        while ended < len(self._threads):  # a thread is started before its starter ends
            match self._done.get():
                case None:
                    ended += 1
                case Done() as done:
                    yield done
                    self._room.put(None)
                case error:
                    raise error  # a kill or an interrupt is nobody's result

    def stop(self) -> None:
        """Draw no more, and wait for what is under way."""
        self._ended = True
        for _ in range(self._limit):
            self._room.put(None)
        for thread in self._threads:
            thread.join()

    def _start_thread(self) -> None:
        """Under the lock, so that it cannot end before it is in the list."""
        name = f"lamina-{len(self._threads)}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _run(self) -> None:
        try:
            while (drawn := self._draw()) is not None:
                done = _call(drawn[0], self._work)
                self._ended = self._ended or (self._stop_on_error and done.error is not None)
                self._done.put(done)
        except BaseException as error:  # noqa: BLE001  raised again by whoever reads the results
            self._ended = True
            self._done.put(error)
        finally:
            self._done.put(None)

    def _draw(self) -> tuple[T] | None:
        self._room.get()
        with self._lock:
            if self._ended:
                return None
            for item in self._source:
                if len(self._threads) < self._limit:
                    self._start_thread()  # there may be more: not before there is one item
                return (item,)
            self._ended = True
            return None
