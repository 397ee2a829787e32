"""What can be said of a stream without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lamina.pipeline.key_types import refused_key
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


def check_key_types(shape: Shape, types: Mapping[str, str]) -> None:
    """BadPipeline at a key that is a column of a type that cannot be one; *types* by column."""
    for key, written in zip(shape.keys, shape.select.keys, strict=True):
        is_column = len(shape.names.elements(key.words)) == 1
        kind = types.get(key.words[-1].text.lower()) if is_column else None
        reason = refused_key(kind) if kind is not None else None
        if reason is not None:
            raise shape.select.script.bad(
                f"{key.words[-1].text!r} of type {kind} cannot be a key: {reason}",
                written[0],
                "Group by a field of it, or by a text: to_json(x)",
            )
