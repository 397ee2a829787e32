"""What a log line is about: its epoch, stream and partition, for handlers that a program installs.

Lamina logs through `logging.getLogger` and configures nothing. `ContextFilter` gives every record
the fields; `JsonFormatter` writes one JSON object a line. `lamina run --log-json` installs both.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

FIELDS = ("pipeline", "epoch", "stream", "partition")
_ABOUT: ContextVar[Mapping[str, object] | None] = ContextVar("lamina_logs", default=None)


@contextmanager
def about(**fields: object) -> Iterator[None]:
    """What is logged inside is about *fields*, in this thread."""
    token = _ABOUT.set({**(_ABOUT.get() or {}), **fields})
    try:
        yield
    finally:
        _ABOUT.reset(token)


class ContextFilter(logging.Filter):
    """Lets everything pass, with the fields; None where a record is about nothing of the kind."""

    def __init__(self, always: Mapping[str, object] | None = None) -> None:
        """*always* are fields of every record."""
        super().__init__()
        self._always = always or {}

    def filter(self, record: logging.LogRecord) -> bool:
        known = {**self._always, **(_ABOUT.get() or {})}
        for name in FIELDS:
            if not hasattr(record, name):
                setattr(record, name, known.get(name))
        return True


class JsonFormatter(logging.Formatter):
    """One object a line: time (Unix milliseconds), level, logger, message, the fields, error."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time_ms": round(record.created * 1000),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        found = {name: getattr(record, name, None) for name in FIELDS}
        line |= {name: value for name, value in found.items() if value is not None}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
