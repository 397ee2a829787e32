"""Calls of the driver that are given up when nobody answers.

libpq waits for an answer without end, and a connection cannot be closed while it does. So each call
runs in a thread of its own. Who gives up forgets the connection; the thread closes it when libpq
lets go of it. Until then the server may still do what it was asked to, as with any lost answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Progress:
    """What a call that takes something over has taken; a call that does not is never ahead."""

    def __init__(self) -> None:
        self._is_ours = False  # the other side waits for us
        self._has_moved = False
        self.is_given_up = False

    def pulled(self, items: Iterable[T]) -> Iterator[T]:
        """*items*, to be taken one by one; nobody takes them once the call is given up."""
        self._is_ours = True
        for item in items:
            self._is_ours, self._has_moved = False, True
            yield item
            if self.is_given_up:
                return
            self._is_ours, self._has_moved = True, True
        self._is_ours, self._has_moved = False, True

    def since_last_look(self) -> bool:
        moved = self._has_moved or self._is_ours
        self._has_moved = False
        return moved


class Call(Generic[T]):
    """One call, in a thread; *let_go* is called by it when it ends and nobody waits any more."""

    def __init__(
        self, work: Callable[[], T], *, let_go: Callable[[], None], progress: Progress | None = None
    ) -> None:
        self._work = work
        self._let_go = let_go
        self._progress = progress or Progress()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._answers: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="lamina postgres", daemon=True)

    def answer(self, limit_s: float) -> T | None:
        """What *work* returns or raises; None after *limit_s* without progress: it is given up."""
        self._thread.start()
        try:
            while not self._ended.wait(limit_s):
                if not self._progress.since_last_look():
                    break
        finally:
            with self._lock:
                self._progress.is_given_up = not self._ended.is_set()
        if self._error is not None:
            raise self._error
        return self._answers[0] if self._answers else None

    @property
    def is_given_up(self) -> bool:
        return self._progress.is_given_up

    def _run(self) -> None:
        try:
            self._answers.append(self._work())
        except BaseException as error:  # noqa: BLE001  raised where the answer is waited for
            self._error = error
        with self._lock:
            self._ended.set()
        if self._progress.is_given_up:
            self._let_go()
