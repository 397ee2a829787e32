"""What can be said of a stream without Spark."""

from __future__ import annotations

from dataclasses import dataclass

from lamina.pipeline.keys import Key, Names
from lamina.pipeline.model import Emit, Stream
from lamina.pipeline.select import Select


@dataclass(frozen=True, slots=True)
class Shape:
    """A stream and its SELECT, with the keys that it is grouped by."""

    stream: Stream
    select: Select
    names: Names
    keys: tuple[Key, ...]
    is_aggregate: bool

    @property
    def has_window(self) -> bool:
        return any(key.is_window for key in self.keys)

    @property
    def is_updating(self) -> bool:
        """Whether its rows replace earlier ones."""
        if self.select.distinct is not None:
            return False
        return self.is_aggregate and self.stream.emit not in (Emit.ON_WINDOW_CLOSE, Emit.CHANGES)
