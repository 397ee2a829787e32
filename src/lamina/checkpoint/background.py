"""One piece of work in a thread of its own, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Runs at once; `wait` gives the result, or raises what went wrong."""

    def __init__(self, name: str, work: Callable[[], T]) -> None:
        self._done: list[T] = []
        self._error: BaseException | None = None
        # The thread forgets its work when it is over, and with it what the work holds in memory.
        self._thread = Thread(target=self._run, args=(work,), name=name, daemon=True)
        self._thread.start()

    @property
    def has_succeeded(self) -> bool:
        return bool(self._done)

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> None:
        """Wait until it is over, whatever came of it."""
        self._thread.join()

    def wait(self) -> T:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._done[0]

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._done.append(work())
        except BaseException as error:  # noqa: BLE001  handed to whoever waits
            self._error = error
