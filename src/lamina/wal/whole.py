"""A record and what its writer notes about it belong together.

An exception in between (a signal handler that raises, no memory) leaves a writer that knows less
than its file says: it must not go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lamina.errors import LaminaError, StoreError


class Whole:
    """Whether every step so far was finished; one per writer."""

    def __init__(self) -> None:
        self._broken = False

    def check(self) -> None:
        if self._broken:
            raise StoreError(
                "an earlier write was interrupted, so nothing more is written",
                advice="Close the log and open it again: it then reads what it holds",
            )

    @contextmanager
    def step(self) -> Iterator[None]:
        """Our own errors come before the record, or end the segment: they break nothing off."""
        self.check()
        self._broken = True
        try:
            yield
        except LaminaError:
            self._broken = False
            raise
        self._broken = False
