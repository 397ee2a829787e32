"""Statements in the binary log: which of them does something to the table that rows do not tell."""

from __future__ import annotations

import re

_EXECUTED = re.compile(r"/\*M?!\d*|\*/")  # what is in such a comment is run
_LEADING = re.compile(r"^(?:\s|/\*(?!M?!).*?\*/|#[^\n]*\n|--\s[^\n]*\n)+", re.DOTALL)
_COMMENT = re.compile(r"/\*(?!M?!).*?\*/|#[^\n]*(?:\n|$)|--\s[^\n]*(?:\n|$)", re.DOTALL)
_ROWS = re.compile(r"(?:INSERT|UPDATE|DELETE|REPLACE|LOAD|MERGE)\b", re.IGNORECASE)
_ENDS = re.compile(r"(?:COMMIT|ROLLBACK)\s*;?\s*", re.IGNORECASE)
_DROPPED = re.compile(r"DROP\s+(?:DATABASE|SCHEMA)\b", re.IGNORECASE)
_NAMING = re.compile(
    r"(?:TRUNCATE|DROP\s+(?:TEMPORARY\s+)?TABLES?|RENAME\s+TABLES?)\b", re.IGNORECASE
)
_TARGET = re.compile(
    r"(ALTER|CREATE)\s+(?:OR\s+REPLACE\s+)?(?:ONLINE\s+|OFFLINE\s+|IGNORE\s+)*TABLE\s+"
    r"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?",
    re.IGNORECASE,
)
_ADDS = re.compile(r"\s*(?:(?:NO)?WAIT\s+\d*\s*)?ADD\b", re.IGNORECASE)
_MORE = re.compile(
    r"\b(?:DROP|MODIFY|CHANGE|RENAME|CONVERT|EXCHANGE|PARTITIONS?|ORDER|ENGINE|ALTER|IMPORT|"
    r"DISCARD|PRIMARY|PERIOD|VERSIONING)\b",
    re.IGNORECASE,
)


def ends_transaction(statement: str) -> bool:
    return bool(_ENDS.fullmatch(statement.strip()))


def problem(statement: str, used: str, database: str, table: str) -> str:
    """What a statement does to the table; empty: nothing that matters. *used* is its database.

    A comment may be a part of a text in quotes: whatever is found in either reading counts.
    """
    whole, bare = _LEADING.sub("", statement), _COMMENT.sub(" ", statement)
    read = (_EXECUTED.sub(" ", each).strip() for each in (whole, bare))
    return next(filter(None, (_problem(each, used, database, table) for each in read)), "")


def _problem(text: str, used: str, database: str, table: str) -> str:
    if _ROWS.match(text):
        return "rows were changed by a statement that the log has instead of the rows"
    named = _named(database, table, is_used=used.lower() == database.lower())
    if _DROPPED.match(text):
        is_ours = re.search(rf"(?<![\w$`])`?{re.escape(database)}`?(?![\w$])", text, re.IGNORECASE)
        return "the database was dropped" if is_ours else ""
    if _NAMING.match(text):
        return _said(text) if named.search(text) else ""
    target = _TARGET.match(text)
    found = named.match(text, target.end()) if target else None
    if target is None or found is None:
        return ""
    rest = text[found.end() :]
    only_adds = target[1].upper() == "ALTER" and _ADDS.match(rest) and not _MORE.search(rest)
    return "" if only_adds else _said(text)


def _said(text: str) -> str:
    if text[:8].upper() == "TRUNCATE":
        return "the table was truncated: the log does not say which rows were in it"
    shown = " ".join(text.split())
    return f"the table was changed: {shown[:100]}"


def _named(database: str, table: str, *, is_used: bool) -> re.Pattern[str]:
    """The table, with its database before it, or without if that is the one in use."""
    db, name = re.escape(database), re.escape(table)
    before = rf"(?:`{db}`|{db})\s*\.\s*"
    optional = "?" if is_used else ""
    pattern = rf"(?<![\w$.`])(?:{before}){optional}(?:`{name}`|{name}(?![\w$]))"
    return re.compile(pattern, re.IGNORECASE)
