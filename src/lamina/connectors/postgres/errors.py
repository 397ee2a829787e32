"""What a refusal of PostgreSQL means to a caller: its SQLSTATE decides.

libpq gives no SQLSTATE for a connection that was not made, or that broke: there its text decides,
and what is not known counts as a server that is away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.errors import (
    AccessDenied,
    LaminaError,
    NotFound,
    Refused,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

DETAIL_MAX = 300

_RIGHTS = "Check user and password, and the rights of that role: {grants}"
_GRANTS = (
    "CREATE on the schema if tables are to be made, else SELECT, INSERT, UPDATE (and DELETE) on "
    "them; TEMPORARY on the database"
)
_AGAIN = "It is tried again"
_MEND = "Nothing of the epoch was written. Mend the table or the stream, and start again"
NEVER = (
    "This epoch can never be written: change the SELECT, leave the sink out for one run, and bring "
    "it back with --sink-from-now"
)

_EXACT: Mapping[str, tuple[type[LaminaError], str]] = {
    "0A000": (
        Refused,
        "PostgreSQL cannot do this with the table: rules of it, for example, keep rows from being "
        "written by key. " + _MEND,
    ),
    "25006": (StoreReadOnly, "Connect to the primary: this server or session takes no writes"),
    "3D000": (NotFound, "Create the database, or correct the option database"),
    "3F000": (NotFound, "Create the schema, or correct the option schema"),
    "42501": (AccessDenied, _RIGHTS.format(grants=_GRANTS)),
    "42P01": (NotFound, "Restore the table; " + _MEND.lower()),
    "42P07": (StoreError, _AGAIN),
    "53100": (StoreFull, "Free space on the server; nothing of the epoch was written"),
    "53400": (StoreFull, "Raise the limit, such as temp_file_limit; nothing was written"),
    "55000": (Refused, _MEND),  # a table without replica identity that publishes deletes
    "55P03": (
        StoreUnavailable,
        "Another session holds a lock: `SELECT pid, application_name, state, query FROM "
        "pg_stat_activity` shows it. It is tried again",
    ),
    "57014": (
        StoreUnavailable,
        "Did somebody cancel it? Else raise answer_timeout, or write_timeout for large epochs. "
        + _AGAIN,
    ),
    "23505": (
        Refused,
        "A row with this key is there: leave out mode, or set it to 'upsert', to replace it; "
        "or remove what another writer put there. " + _MEND,
    ),
    "23502": (Refused, "Use coalesce in the SELECT, or let the column be null. " + _MEND),
    "21000": (
        Refused,
        "Keys that differ in the stream are equal in the table, by a collation or a type that "
        "ignores case, for example. " + _MEND,
    ),
    "22021": (
        Refused,
        "PostgreSQL's text cannot hold the character NUL: remove it in the SELECT, with "
        "replace(column, char(0), ''), or write the column as BINARY. " + NEVER,
    ),
    "22003": (Refused, "The value does not fit the column: use a wider type. " + _MEND),
    "XX000": (StoreError, "Look into the server's log. " + _AGAIN),  # "tuple concurrently updated"
    "22001": (Refused, "The text does not fit the column: make it longer. " + _MEND),
}
# Only what can pass by itself is tried again: anything else would be for ever, and unnoticed.
_CLASSES: Mapping[str, tuple[type[LaminaError], str]] = {
    "08": (StoreUnavailable, _AGAIN),
    "25": (StoreUnavailable, _AGAIN),  # the session timed out, or was ended
    "28": (AccessDenied, _RIGHTS.format(grants=_GRANTS)),
    "40": (StoreUnavailable, _AGAIN),  # deadlock, serialization: nothing was written
    "53": (StoreUnavailable, _AGAIN),
    "55": (StoreUnavailable, _AGAIN),
    "57": (StoreUnavailable, _AGAIN),
    "58": (StoreUnavailable, "Look into the server's log"),
    "P0": (Refused, "A trigger or rule of the table said so. " + _MEND),
}
_CONNECTING: tuple[tuple[tuple[str, ...], type[LaminaError], str], ...] = (
    (
        ("password", "authentication failed", "no pg_hba.conf entry", "role "),
        AccessDenied,
        "Check user, password and the server's pg_hba.conf",
    ),
    (
        ("certificate", "SSL", "sslmode", "sslrootcert", "private key"),
        AccessDenied,
        "Check sslmode, sslrootcert, sslcert and sslkey",
    ),
    (("permission denied for database",), AccessDenied, "GRANT CONNECT ON DATABASE"),
    (("does not exist",), NotFound, "Create the database, or correct the option database"),
)
_AWAY = "Check that the server runs and that host and port are right. " + _AGAIN


def typed_error(error: Any, where: str, *, call: str) -> LaminaError:
    """The error of our tree for one of the driver's."""
    state, message = error.sqlstate, _message(error)
    if state is None:
        return _without_state(message, where)
    kind, advice = _EXACT.get(state) or _CLASSES.get(state[:2]) or (Refused, _MEND)
    return kind(f"PostgreSQL refused to {call}: {message} ({state})", where=where, advice=advice)


def _without_state(message: str, where: str) -> LaminaError:
    for words, kind, advice in _CONNECTING:
        if "Failed to connect" in message and any(word in message for word in words):
            return kind(_cut(message), where=where, advice=advice)
    return StoreUnavailable(f"no connection: {_cut(message)}", where=where, advice=_AWAY)


def _message(error: Any) -> str:
    """What the server said, without the statement: that is ours, and long."""
    said = {_text(name): _text(value) for name, value in error.details or ()}
    primary = said.get("PG_DIAG_MESSAGE_PRIMARY")
    if primary is None:
        return " ".join(str(error).split("Query was:", maxsplit=1)[0].split())
    more = (said.get("PG_DIAG_MESSAGE_DETAIL", ""), said.get("PG_DIAG_CONTEXT", ""))
    return "; ".join([primary, *(_cut(each) for each in more if each)])


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _cut(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= DETAIL_MAX else f"{one_line[:DETAIL_MAX]}..."
