"""Names in statements: always quoted, so that capitals, spaces and dots are what they are."""

from __future__ import annotations

from collections.abc import Iterable


def quoted(name: str) -> str:
    """An identifier."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str], prefix: str = "") -> str:
    """Identifiers, with commas."""
    return ", ".join(prefix + quoted(name) for name in names)
