"""What an operating system's refusal means to a caller: the one table for store and disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lamina.errors import (
    AccessDenied,
    AlreadyExists,
    BadName,
    LaminaError,
    NotFound,
    StoreError,
    StoreFull,
    StoreReadOnly,
)

_KINDS: dict[int, type[LaminaError]] = {
    errno.ENOENT: NotFound,
    errno.ENOTDIR: NotFound,  # a part of the way is an object, so nothing can lie below it
    errno.EEXIST: AlreadyExists,
    errno.EACCES: AccessDenied,
    errno.EPERM: AccessDenied,
    errno.EROFS: StoreReadOnly,
    errno.ENOSPC: StoreFull,
    errno.EDQUOT: StoreFull,
    errno.ENAMETOOLONG: BadName,
}


@contextmanager
def typed_errors(where: Path | str) -> Iterator[None]:
    """Turn an OSError into the error of our tree that says what to do."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, where) from error


def from_os_error(error: OSError, where: Path | str) -> LaminaError:
    """The error of our tree for *error*; the message keeps its number and name."""
    number = error.errno or 0
    name = errno.errorcode.get(number, "unknown")
    text = f"{os.strerror(number)} (errno {number}, {name})" if number else str(error)
    return _KINDS.get(number, StoreError)(text, where=str(where))
