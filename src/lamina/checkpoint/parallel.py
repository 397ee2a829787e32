"""Many store calls at once, with a bound; every one is waited for, whatever happens to others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Done(Generic[T, R]):
    """One finished call: its result, or the error it ended with."""

    item: T
    result: R | None
    error: Exception | None


def run_bounded(
    items: Iterable[T], work: Callable[[T], R], *, limit: int, stop_on_error: bool = False
) -> Iterator[Done[T, R]]:
    """Run *work* on every item, at most *limit* at once; yield each as it ends, in any order.

    Items are drawn only when there is room, so they may be many. With *stop_on_error* no new one
    starts after a failure, but those under way are waited for and yielded.
    """
    pool = ThreadPoolExecutor(max_workers=limit, thread_name_prefix="lamina")
    waiting: dict[Future[R], T] = {}
    source = iter(items)
    failed = False
    try:
        while True:
            while len(waiting) < limit and not (failed and stop_on_error):
                try:
                    item = next(source)
                except StopIteration:
                    break
                waiting[pool.submit(work, item)] = item
            if not waiting:
                return
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                done = _done(waiting.pop(future), future)
                failed = failed or done.error is not None
                yield done
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _done(item: T, future: Future[R]) -> Done[T, R]:
    error = future.exception()
    if error is None:
        return Done(item, future.result(), None)
    if not isinstance(error, Exception):
        raise error  # a kill or an interrupt is nobody's result
    return Done(item, None, error)
