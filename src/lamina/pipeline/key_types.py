"""Which types cannot be keys of state (R9), and which values cannot be merged."""

from __future__ import annotations

import re

MAPS = "Spark cannot group by a MAP"
VARIANTS = "Spark cannot group by a VARIANT"
YEARS = "an interval of years and months has no stable hash"
COLLATED = "texts that are equal in a collation are other bytes"
_NAME_ENDS = r"(?!\s*:)"  # `map: INT` is a field of a struct
_REASONS = (
    (re.compile(r"\bMAP\s*<"), MAPS),
    (re.compile(rf"\bVARIANT\b{_NAME_ENDS}"), VARIANTS),
    (re.compile(r"\bINTERVAL\s+(YEAR|MONTH)"), YEARS),
    (re.compile(r"\bCOLLATE\s+(?!UTF8_BINARY\b)"), COLLATED),
)
_ORDERED = re.compile(
    r"tinyint|smallint|int|bigint|float|double|decimal\(.*\)|boolean|string|binary|date|timestamp"
    r"|timestamp_ntz|interval (day|hour|minute|second).*"
)


def refused_key(kind: str) -> str | None:
    """Why a column of this type of Spark's DDL cannot be a key; None if it can."""
    said = re.sub(r"(?i)\bCOMMENT\s+('[^']*'|\"[^\"]*\")", "", kind).upper()
    return next((reason for pattern, reason in _REASONS if pattern.search(said)), None)


def refused_value(merge: str, kind: str) -> str | None:
    """Why old and new values of this type cannot be merged so; None if they can."""
    if merge in ("min", "max", "first_by", "last_by") and not _ORDERED.fullmatch(kind):
        if kind.startswith("string"):
            return "its order is not that of its bytes"
        return "there is no order of such values here"
    if merge == "sum" and kind == "void":
        return "NULL has no type; CAST it to one"
    return None
