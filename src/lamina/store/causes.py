"""Why an obstore call failed, as an error of our tree.

obstore 0.12 says most things in one class, GenericError, and in text: the HTTP status, the code in
the server's answer, or the kind of network failure. They are read here and nowhere else. What goes
into our message is picked, never passed through: the text of obstore holds addresses with signed
query strings, and servers answer with the string they wanted to be signed.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

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
    r"|\(code: (\w{1,80})\)$",  # of one key of many that were to be deleted
    re.MULTILINE,
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
_EXPIRED = (StoreUnavailable, "the credentials have expired")
_EXPIRED_FOR_GOOD = (AccessDenied, "the session token has expired")
_NOT_ALLOWED = (AccessDenied, "the store does not allow these credentials to {doing}")
_SKEWED = (AccessDenied, "the clocks of this machine and of the store are too far apart")
_NO_BUCKET = (StoreError, "there is no such bucket or container: create it, or correct its name")
_TOO_SHORT = (SizeMismatch, "the object ends before the wanted range")
_FULL = (StoreFull, "the store has no room left")

Meaning: TypeAlias = tuple[type[LaminaError], str]
Doing: TypeAlias = Literal["read", "write", "delete", "list", "use it"]

_RIGHTS: dict[str, dict[str, str]] = {
    "s3": {
        "read": "s3:GetObject (and s3:ListBucket: without it, what is not there looks like this)",
        "write": "s3:PutObject",
        "delete": "s3:DeleteObject",
        "list": "s3:ListBucket",
    },
    "gs": {
        "read": "storage.objects.get",
        "write": "storage.objects.create (and storage.objects.delete, to replace an object)",
        "delete": "storage.objects.delete",
        "list": "storage.objects.list",
    },
}

# What the code in the server's answer says, whatever the status is.
_BY_CODE: dict[str, Meaning] = {
    "BadDigest": _AGAIN,
    "ConditionalRequestConflict": _AGAIN,
    "ExpiredToken": _EXPIRED,  # those that can be had anew are, before a later request
    "ExpiredTokenException": _EXPIRED,
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
    "TokenRefreshRequired": _EXPIRED,
    "XAmzContentSHA256Mismatch": _AGAIN,
    "backendError": _AGAIN,
    "rateLimitExceeded": _AGAIN,
    "AccessDenied": _NOT_ALLOWED,
    "AuthenticationFailed": _DENIED,
    "AuthorizationPermissionMismatch": _NOT_ALLOWED,
    "InvalidAccessKeyId": _DENIED,
    "InvalidToken": _DENIED,
    "RequestTimeTooSkewed": _SKEWED,
    "SignatureDoesNotMatch": _DENIED,
    "ContainerNotFound": _NO_BUCKET,
    "NoSuchBucket": _NO_BUCKET,
    "InsufficientStorage": _FULL,
    "QuotaExceeded": _FULL,
    "XMinioStorageFull": _FULL,
}
_BY_STATUS: dict[int, Meaning] = {
    401: _DENIED,
    403: _NOT_ALLOWED,
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
    (obs.PermissionDeniedError, _NOT_ALLOWED),
    (obs.UnauthenticatedError, _DENIED),
)
OBSTORE_ERRORS = (obs.BaseError, OSError, ValueError)
"""What a call of obstore can raise; a ValueError is its answer to arguments it cannot use."""


def from_obstore(
    error: Exception, where: str, doing: Doing = "use it", *, is_fixed: bool = False
) -> LaminaError:
    """The error of our tree for what obstore raised; it holds no text of the server's.

    *is_fixed*: the client has a token that nobody can renew in this process.
    """
    if isinstance(error, OSError) and error.errno:
        return from_os_error(error, error.filename or where)  # a file that was to be uploaded
    text = str(error)
    status, code = _status(text), _code(text)
    meaning = _meaning(error, text, status, code)
    if meaning == _EXPIRED and is_fixed:
        meaning = _EXPIRED_FOR_GOOD
    message = meaning[1].format(doing=doing)
    said = " ".join(str(part) for part in (status, code) if part)
    advice = _advice(meaning, where, doing)
    return meaning[0](f"{message} ({said})" if said else message, where=where, advice=advice)


def _advice(meaning: Meaning, where: str, doing: Doing) -> str:
    """What to do about it; empty: what the kind of error says anyway."""
    if meaning == _SKEWED:
        return "Set the clock of this machine (NTP), and start again"
    if meaning == _EXPIRED:
        return "If nobody renews them, start again with new ones (docs/stores.md)"
    if meaning == _EXPIRED_FOR_GOOD:
        return (
            "It came from an option or a variable, which nobody can renew in a running process: "
            "start again with a new one, or use credentials that are renewed (docs/stores.md)"
        )
    right = _RIGHTS.get(where.partition("://")[0], {}).get(doing, "")
    if meaning != _NOT_ALLOWED or not right:
        return ""
    return f"Give them the right {right} on this bucket or folder (docs/stores.md)"


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
    return (found[1] or found[2] or found[3]) if found else ""
