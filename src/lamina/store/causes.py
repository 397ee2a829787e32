"""Why an obstore call failed, as an error of our tree.

obstore 0.12 says most things in one class, GenericError, and in text: the HTTP status, the code in
the server's answer, or the kind of network failure. They are read here and nowhere else. What goes
into our message is picked, never passed through: the text of obstore holds addresses with signed
query strings, and servers answer with the string they wanted to be signed.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from obstore import exceptions as obs

from lamina.errors import (
    AccessDenied,
    AlreadyExists,
    LaminaError,
    NotFound,
    SizeMismatch,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from lamina.os_errors import from_os_error

_STATUS = re.compile(r"status code: ([1-5][0-9]{2})\b")
_CODE = re.compile(
    r"<Code>\s*([A-Za-z0-9_.-]{1,80})\s*</Code>|\"(?:code|reason)\": *\"(\w{1,80})\""
)
_TIMEOUT = re.compile(r"(?<!retry_)timed? ?out|kind: Timeout", re.IGNORECASE)
_CONNECT = re.compile(r"refused|kind: Connect|dns error", re.IGNORECASE)
_BROKEN = re.compile(
    r"error sending request|error decoding response|connection (?:reset|closed)|broken pipe"
    r"|IncompleteMessage|unexpected eof|end of file|kind: (?:Interrupted|Request|Decode)",
    re.IGNORECASE,
)
# obstore itself compares the range with the size; Azurite answers for an empty object like this.
_RANGE = re.compile(r"Wanted range starting at|CONTENT_RANGE header: \"bytes 0--1/0\"")
_METADATA_HOST = re.compile(r"https?://(?:169\.254\.|metadata\.google|\[fd00:ec2::254\])")
_AGAIN = (StoreUnavailable, "the store asks to try again")
_DENIED = (AccessDenied, "the store refused the credentials")
_NO_BUCKET = (StoreError, "there is no such bucket or container: create it, or correct its name")
_TOO_SHORT = (SizeMismatch, "the object ends before the wanted range")
_FULL = (StoreFull, "the store has no room left")

Meaning: TypeAlias = tuple[type[LaminaError], str]

# What the code in the server's answer says, whatever the status is.
_BY_CODE: dict[str, Meaning] = {
    "BadDigest": _AGAIN,
    "ConditionalRequestConflict": _AGAIN,
    "ExpiredToken": _AGAIN,  # obstore asks for a new one before the next request
    "ExpiredTokenException": _AGAIN,
    "IncompleteBody": _AGAIN,
    "InternalError": _AGAIN,
    "OperationAborted": _AGAIN,
    "OperationTimedOut": _AGAIN,
    "RequestLimitExceeded": _AGAIN,
    "RequestTimeout": _AGAIN,
    "ServerBusy": _AGAIN,
    "ServiceUnavailable": _AGAIN,
    "SlowDown": _AGAIN,
    "SlowDownRead": _AGAIN,
    "SlowDownWrite": _AGAIN,
    "Throttling": _AGAIN,
    "ThrottlingException": _AGAIN,
    "TokenRefreshRequired": _AGAIN,
    "XAmzContentSHA256Mismatch": _AGAIN,
    "backendError": _AGAIN,
    "rateLimitExceeded": _AGAIN,
    "AccessDenied": _DENIED,
    "InvalidAccessKeyId": _DENIED,
    "InvalidToken": _DENIED,
    "SignatureDoesNotMatch": _DENIED,
    "ContainerNotFound": _NO_BUCKET,
    "NoSuchBucket": _NO_BUCKET,
    "InsufficientStorage": _FULL,
    "QuotaExceeded": _FULL,
    "XMinioStorageFull": _FULL,
}
_BY_STATUS: dict[int, Meaning] = {
    401: _DENIED,
    403: _DENIED,
    404: (NotFound, "no such object"),
    408: _AGAIN,
    409: _AGAIN,
    416: _TOO_SHORT,
    425: _AGAIN,
    429: _AGAIN,
    507: _FULL,
}
_BY_CLASS: tuple[tuple[type[Exception], Meaning], ...] = (
    (FileNotFoundError, (NotFound, "no such object")),
    (obs.AlreadyExistsError, (AlreadyExists, "the key is taken")),
    (obs.PreconditionError, (AlreadyExists, "the key is taken")),
    (obs.PermissionDeniedError, _DENIED),
    (obs.UnauthenticatedError, _DENIED),
)
OBSTORE_ERRORS = (obs.BaseError, OSError, ValueError)
"""What a call of obstore can raise; a ValueError is its answer to arguments it cannot use."""


def from_obstore(error: Exception, where: str) -> LaminaError:
    """The error of our tree for what obstore raised; it holds no text of the server's."""
    if isinstance(error, OSError) and error.errno:
        return from_os_error(error, error.filename or where)  # a file that was to be uploaded
    text = str(error)
    status, code = _status(text), _code(text)
    kind, message = _meaning(error, text, status, code)
    said = " ".join(str(part) for part in (status, code) if part)
    return kind(f"{message} ({said})" if said else message, where=where)


def _meaning(error: Exception, text: str, status: int, code: str) -> Meaning:
    """The code says most, then the class of the exception, then the status, then the network."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    if _METADATA_HOST.search(text) and status < 500 and status != 429:
        # Without any credentials obstore asks the machine it runs on, as if it were in a cloud.
        return AccessDenied, "no credentials were given, and this machine has none"
    for cause, meaning in _BY_CLASS:
        if isinstance(error, cause):
            return meaning
    return _of_status(status) if status else _of_network(text)


def _of_status(status: int) -> Meaning:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return _AGAIN if status >= 500 else (StoreError, "the store refused the request")


def _of_network(text: str) -> Meaning:
    if _RANGE.search(text):
        return _TOO_SHORT
    if _TIMEOUT.search(text):
        return StoreUnavailable, "the store did not answer in time"
    if _CONNECT.search(text):
        return StoreUnavailable, "the store cannot be reached"
    if _BROKEN.search(text):
        return StoreUnavailable, "the connection broke before the answer was there"
    return StoreError, "the store client failed for a reason it does not name"


def _status(text: str) -> int:
    found = _STATUS.search(text)
    return int(found[1]) if found else 0


def _code(text: str) -> str:
    found = _CODE.search(text)
    return (found[1] or found[2]) if found else ""
