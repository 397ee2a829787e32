"""A pipeline file with its words in colour. Only the look: nothing here understands SQL."""

from __future__ import annotations

import re

from markupsafe import Markup

from lamina.console.drawing.svg import join, tag

_WORDS = (
    "ALLOWED|AND|AS|ASOF|BETWEEN|BY|CASE|CAST|CHANGES|CLOSE|CREATE|DISTINCT|ELSE|EMIT|END|EVERY|"
    "EXISTS|FOR|FROM|FULL|FUNCTION|GROUP|HAVING|IN|INNER|INTERVAL|INTO|IS|JOIN|LANGUAGE|LATE|LEFT|"
    "LIKE|LIMIT|MATCH_CONDITION|METADATA|NOT|NULL|ON|OPTIONS|OR|ORDER|OUTER|OVER|PARTITION|"
    "RETURNS|RIGHT|ROWS|SELECT|SINK|SOURCE|STATE|STREAM|SYSTEM_TIME|TABLE|THEN|TO|UNION|UPDATE|"
    "USING|WATERMARK|WHEN|WHERE|WINDOW|WITH"
)
_TOKENS = re.compile(
    r"(?P<c>--[^\n]*|/\*.*?\*/)|(?P<s>'(?:[^']|'')*')|(?P<v>\$\{\w+\})|(?P<n>\b\d+(?:\.\d+)?\b)"
    rf"|(?P<k>\b(?:{_WORDS})\b)",
    re.IGNORECASE | re.DOTALL,
)


def highlight(text: str) -> Markup:
    """Comments, strings, variables, numbers and key words as spans; the rest as it is, escaped."""
    parts: list[Markup] = []
    at = 0
    for token in _TOKENS.finditer(text):
        parts.append(Markup.escape(text[at : token.start()]))
        parts.append(tag("span", token.group(), class_=f"sql-{token.lastgroup}"))
        at = token.end()
    parts.append(Markup.escape(text[at:]))
    return join(parts)
