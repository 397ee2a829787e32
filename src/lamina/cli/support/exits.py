"""Which error ends with which exit code: one table."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from lamina.errors import (
    AlreadyExists,
    Cancelled,
    Corrupt,
    Diverged,
    Fenced,
    LaminaError,
    NotFound,
    Refused,
    StoreError,
    Unsupported,
    UsageError,
    WouldLose,
)


class Exit(IntEnum):
    OK = 0
    FINDINGS = 1
    USAGE = 2
    NOT_FOUND = 3
    CORRUPT = 4
    CONFLICT = 5
    FAILED = 6
    INTERRUPTED = 130
    PIPE_CLOSED = 141


MEANINGS = {
    Exit.OK: "success",
    Exit.FINDINGS: "done, with warnings or differences",
    Exit.USAGE: "invalid command line; nothing was done",
    Exit.NOT_FOUND: "no such store, checkpoint, savepoint, home or segment",
    Exit.CORRUPT: "something is damaged or missing",
    Exit.CONFLICT: "refused by a rule or because of another process",
    Exit.FAILED: "the store or the environment failed",
    Exit.INTERRUPTED: "interrupted, or answered no",
    Exit.PIPE_CLOSED: "the reader of the output closed it early",
}

# A class that is not here has the code of its nearest ancestor that is.
CODES: dict[type[LaminaError], Exit] = {
    UsageError: Exit.USAGE,
    NotFound: Exit.NOT_FOUND,
    AlreadyExists: Exit.CONFLICT,
    Refused: Exit.CONFLICT,
    Corrupt: Exit.CORRUPT,
    Unsupported: Exit.FAILED,  # the file is fine: this Lamina is too old for it
    Fenced: Exit.CONFLICT,
    Diverged: Exit.CONFLICT,
    WouldLose: Exit.CONFLICT,
    StoreError: Exit.FAILED,
    Cancelled: Exit.INTERRUPTED,
}


def exit_code(kind: type[LaminaError]) -> Exit:
    """The exit code of an error of this class."""
    found = (CODES[each] for each in kind.__mro__ if each in CODES)
    return next(found, Exit.FAILED)


def error_shape(failure: LaminaError) -> dict[str, Any]:
    """An error as the JSON that scripts read."""
    return {
        "code": failure.code,
        "kind": type(failure).__name__,
        "message": failure.message,
        "where": failure.where,
        "advice": failure.advice,
        "exit_code": int(exit_code(type(failure))),
    }
