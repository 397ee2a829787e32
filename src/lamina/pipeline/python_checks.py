"""Checks of streams that are Python functions, as far as they need no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lamina.errors import BadPipeline
from lamina.pipeline.model import DeclaredSource, KeyedFunction, Stream

NO_WATERMARK = "Give the source a WATERMARK column DELAY OF INTERVAL n unit"


def check_python(
    stream: Stream,
    updating: str | None,
    changing: str | None,
    sources: Iterable[DeclaredSource],
    bad: Callable[[str, Stream, str], BadPipeline],
) -> None:
    """BadPipeline at what a function cannot read: updates; or, if it has timers, no watermark."""
    if updating is not None:
        raise bad(
            f"a Python function over the updating stream {updating!r}: which of its rows replaces "
            "which cannot be told",
            stream,
            f"Let {updating!r} EMIT ON WINDOW CLOSE, or read what it reads",
        )
    if changing is not None:
        raise bad(
            f"a Python function over the changes of {changing!r}: whether it gives the same rows "
            "again cannot be told",
            stream,
            f"Let it read what {changing!r} reads",
        )
    if not isinstance(stream.python, KeyedFunction) or not stream.python.follows_time:
        return
    for source in sources:
        if source.watermark is None:
            message = f"timers or a ttl over {source.name!r}, which has no watermark"
            raise bad(f"{message}: none would ever be due", stream, NO_WATERMARK)
