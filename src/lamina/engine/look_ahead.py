"""The next epoch, planned and run while the decision of this one is on its way to a store.

Nothing of it counts: it is decided after the one before it, like any other, or thrown away.
"""

from __future__ import annotations

from collections.abc import Callable

from lamina.engine.model import StreamResult
from lamina.engine.phases import Phases
from lamina.engine.planning import EpochPlan
from lamina.errors import LaminaError

Read = tuple[EpochPlan | None, dict[str, StreamResult], Phases]
"""What an epoch reads, what its streams have made of it, and how long that took."""


class LookAhead:
    """At most one epoch that waits for its turn."""

    def __init__(self, is_on: bool) -> None:
        self.is_on = is_on
        self._ready: Read | None = None
        self._failure: LaminaError | None = None

    def read(self, read: Callable[[], Read]) -> None:
        """Read an epoch, if that is wanted; what goes wrong is its own affair, when it is taken."""
        if not self.is_on:
            return
        try:
            self._ready = read()
        except LaminaError as error:
            self._failure = error

    def take(self) -> Read | None:
        """The epoch that is ready. None if none is, or if there was nothing to read."""
        ready, failure = self._ready, self._failure
        self._ready = self._failure = None
        if failure is not None:
            raise failure
        return ready if ready is not None and ready[0] is not None else None
