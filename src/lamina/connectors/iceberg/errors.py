"""What pyiceberg, its catalogs and file systems say, in the words of our tree of errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyiceberg import exceptions as iceberg
from requests.exceptions import RequestException
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from lamina.errors import (
    AccessDenied,
    Corrupt,
    LaminaError,
    NotFound,
    Refused,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UsageError,
)
from lamina.os_errors import from_os_error

_BY_CLASS: tuple[tuple[type[Exception], type[LaminaError]], ...] = (
    (iceberg.UnauthorizedError, AccessDenied),
    (iceberg.ForbiddenError, AccessDenied),
    (iceberg.AuthorizationExpiredError, AccessDenied),
    (iceberg.OAuthError, AccessDenied),
    (iceberg.SignError, AccessDenied),
    (iceberg.NoSuchTableError, NotFound),
    (iceberg.NoSuchNamespaceError, NotFound),
    (iceberg.BadRequestError, Refused),
    (iceberg.RESTError, StoreUnavailable),  # of all kinds that may pass
    (iceberg.NotInstalledError, UsageError),
    (ModuleNotFoundError, UsageError),  # a database driver, or one for a cloud
    (RequestException, StoreUnavailable),
)
_BY_WORDS: tuple[tuple[str, type[LaminaError]], ...] = (
    # of SQLite and of databases behind SQLAlchemy
    ("file is not a database", Corrupt),
    ("database or disk is full", StoreFull),
    ("readonly database", StoreReadOnly),
    ("password authentication failed", AccessDenied),
    ("permission denied", AccessDenied),
    ("access denied", AccessDenied),
    # of Arrow's file systems, which give no number
    ("ACCESS_DENIED", AccessDenied),
    ("INVALID_ACCESS_KEY_ID", AccessDenied),
    ("INVALID_CLIENT_TOKEN_ID", AccessDenied),
    ("SIGNATURE_DOES_NOT_MATCH", AccessDenied),
    ("HTTP status 403", AccessDenied),
    ("NO_SUCH_BUCKET", NotFound),
    ("No space left on device", StoreFull),
)
_KNOWN = (
    OSError,  # requests' errors, too
    iceberg.RESTError,
    iceberg.OAuthError,
    iceberg.SignError,
    iceberg.NoSuchTableError,
    iceberg.NoSuchNamespaceError,
    iceberg.NotInstalledError,
    iceberg.ValidationError,
    ModuleNotFoundError,
    RuntimeError,  # what pyiceberg has not got
    SQLAlchemyError,
    pa.ArrowException,
    ValueError,
    OverflowError,
    TypeError,
    KeyError,
)


@contextmanager
def typed_errors(where: str, secrets: tuple[str, ...] = ()) -> Iterator[None]:
    """Raise the error of our tree that says what to do; *secrets* are in no message."""
    try:
        yield
    except LaminaError:
        raise
    except _KNOWN as error:
        raise translated(error, where, secrets) from error


def translated(error: Exception, where: str, secrets: tuple[str, ...] = ()) -> LaminaError:
    text = str(error.orig if isinstance(error, DBAPIError) and error.orig else error).strip()
    for secret in secrets:
        text = text.replace(secret, "***")
    kind = _kind(error, text)
    if isinstance(error, OSError) and error.errno and kind is None:
        return from_os_error(error, where)
    said = " ".join(text.split()) or type(error).__name__
    if isinstance(error, OverflowError):
        message = f"a value is beyond what pyiceberg can write, as a date after 9999: {said}"
        advice = "Do not partition by it, or filter such rows out in the SELECT"
        return Refused(message, where=where, advice=advice)
    return (kind or Refused)(said, where=where)


def _kind(error: Exception, text: str) -> type[LaminaError] | None:
    for known, kind in _BY_CLASS:
        if isinstance(error, known):
            return kind
    if isinstance(error, OSError | SQLAlchemyError):
        for words, kind in _BY_WORDS:
            if words.lower() in text.lower():
                return kind
    if isinstance(error, OSError) and not error.errno:
        return StoreUnavailable  # Arrow's: a timeout, a reset, a host that is not there
    if isinstance(error, OperationalError):
        return StoreUnavailable  # locked, not reached, or gone
    return StoreError if isinstance(error, SQLAlchemyError) else None
