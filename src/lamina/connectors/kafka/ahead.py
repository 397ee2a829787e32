"""The next items of an iterator, made in a thread while somebody works on the ones before.

Arrow and hashlib let other threads run, and so does a client that waits for a broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def made_ahead(items: Generator[T, None, None], count: int) -> Iterator[Iterator[T]]:
    """Begin with *items* at once, and be at most *count* of them ahead.

    An error in one of them comes when that one is asked for. At the end nothing runs any more, and
    *items* is closed, however many were taken.
    """
    with ThreadPoolExecutor(1, "kafka-ahead") as pool:
        waiting = deque(pool.submit(next, items, None) for _ in range(count))
        try:
            yield _taken(pool, items, waiting)
        finally:
            pool.shutdown(cancel_futures=True)
            items.close()


def _taken(
    pool: ThreadPoolExecutor, items: Generator[T, None, None], waiting: deque[Future[T | None]]
) -> Iterator[T]:
    while (item := waiting.popleft().result()) is not None:
        waiting.append(pool.submit(next, items, None))
        yield item
