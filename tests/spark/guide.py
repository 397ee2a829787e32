"""The pages of docs/guide: examples with their results, read from the text.

An example is a block of SQL that is a query, followed by a table with its rows. The rows that it
is over are the JSON block behind `**name**` at the beginning of the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "docs" / "guide"
_EXAMPLE = re.compile(r"```sql\n((?:SELECT|WITH)\b[^`]*)```\n\n((?:\|[^\n]*\n)+)")
_QUERY = re.compile(r"```sql\n(?:SELECT|WITH)\b")
_SOURCES = re.compile(r"```sql\n(CREATE SOURCE.*?)```", re.DOTALL)
_ROWS = re.compile(r"\*\*`(\w+)`\*\*[^\n]*\n\n```json\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Example:
    query: str
    columns: list[str]
    rows: list[list[str]]  # as the page shows them


@dataclass(frozen=True, slots=True)
class Page:
    text: str

    @property
    def sources(self) -> str:
        (found,) = _SOURCES.findall(self.text)
        return str(found)

    @property
    def rows(self) -> Mapping[str, list[dict[str, Any]]]:
        """The rows of each source, in the order in which they come."""
        found = _ROWS.findall(self.text)
        return {name: [json.loads(line) for line in text.splitlines()] for name, text in found}

    @property
    def examples(self) -> Iterator[Example]:
        for query, table in _EXAMPLE.findall(self.text):
            head, _, *rows = [_cells(line) for line in table.splitlines()]
            yield Example(query.strip(), head, rows)

    @property
    def queries(self) -> int:
        """How many blocks are queries, with a table or without."""
        return len(_QUERY.findall(self.text))


def page(name: str) -> Page:
    return Page((FOLDER / name).read_text())


def shown(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Rows as the page shows them, sorted."""
    return sorted([_shown(value) for value in row.values()] for row in rows)


def _cells(line: str) -> list[str]:
    return [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        parts = ", ".join(map(_shown, value.values() if isinstance(value, dict) else value))
        return f"{{{parts}}}" if isinstance(value, dict) else f"[{parts}]"
    if isinstance(value, datetime):
        return value.strftime("%H:%M:%S" if value.second else "%H:%M")
    if isinstance(value, float):
        return f"{value:.6g}"
    return "NULL" if value is None else str(value)
