"""Checks of sinks that need no Spark, beyond one sink alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from posixpath import normpath

from lamina.errors import BadPipeline
from lamina.pipeline.model import DeclaredSink


def check_paths(
    sinks: Iterable[DeclaredSink], bad: Callable[[str, DeclaredSink, str], BadPipeline]
) -> None:
    """BadPipeline if two of them write to one path."""
    taken: dict[str, DeclaredSink] = {}
    for sink in sinks:
        for key, option in sink.options.items():
            if key.lower() != "path":
                continue
            other = taken.setdefault(normpath(option.value), sink)
            if other is not sink:
                message = f"the sinks {other.name!r} and {sink.name!r} have the same path"
                raise bad(message, sink, "Give each sink a path of its own")
