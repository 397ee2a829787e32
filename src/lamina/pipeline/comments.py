"""Where comments and literals of Spark's SQL end."""

from __future__ import annotations


def after_comment(text: str, at: int) -> int | None:
    """Where the comment that begins at *at* ends; None if none begins there, or it has no end."""
    if text.startswith("--", at):
        end = text.find("\n", at)
        return len(text) if end < 0 else end + 1
    if not text.startswith("/*", at):
        return None
    depth = 0
    while at < len(text):  # they nest
        if text.startswith("/*", at):
            depth, at = depth + 1, at + 2
        elif text.startswith("*/", at):
            depth, at = depth - 1, at + 2
            if not depth:
                return at
        else:
            at += 1
    return None


def unclosed(text: str) -> int | None:
    """Where the first literal, quoted name or comment begins that has no end."""
    at = 0
    while at < len(text):
        if text.startswith(("--", "/*"), at):
            end = after_comment(text, at)
        elif text[at] in "'\"`":
            end = _after_quoted(text, at)
        else:
            end = at + 1
        if end is None:
            return at
        at = end
    return None


def _after_quoted(text: str, at: int) -> int | None:
    quote = text[at]
    is_raw = at > 0 and text[at - 1] in "rR" and not text[at - 2 : at - 1].isalnum()
    escapes = quote != "`" and not is_raw
    at += 1
    while at < len(text):
        if text[at] == "\\" and escapes:
            at += 2
        elif text[at] == quote:
            return at + 1
        else:
            at += 1
    return None
