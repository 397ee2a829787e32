"""Which types of Spark's DDL cannot be keys of state (R9)."""

from __future__ import annotations

import re

_REASONS = (
    (re.compile(r"\bMAP\b"), "Spark cannot group by a MAP"),
    (re.compile(r"\bVARIANT\b"), "Spark cannot group by a VARIANT"),
    (
        re.compile(r"\bINTERVAL\s+(YEAR|MONTH)"),
        "an interval of years and months has no stable hash",
    ),
    (
        re.compile(r"\bCOLLATE\s+(?!UTF8_BINARY\b)"),
        "texts that are equal in a collation are other bytes",
    ),
)


def refused_key(kind: str) -> str | None:
    """Why a column of this type cannot be a key; None if it can."""
    said = re.sub(r"(?i)\bCOMMENT\s+('[^']*'|\"[^\"]*\")", "", kind).upper()
    return next((reason for pattern, reason in _REASONS if pattern.search(said)), None)
