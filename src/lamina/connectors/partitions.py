"""Columns in the names of folders: `day=2024-01-01/hour=3/file`. Pure.

A column of the source that is in the path of a file has its value from there, as in Spark; so each
file decides for itself, and files with and without such folders may lie side by side. Spark takes
only an unbroken chain of such folders: what it would misread is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from lamina.errors import Refused

NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Chain:
    """Folders that name columns, and the folder they are in; no columns: the file has none."""

    base: str = ""
    columns: tuple[str, ...] = ()


def by_chain(
    folder: Path | str, paths: Iterable[str], columns: Collection[str]
) -> dict[Chain, list[str]]:
    """Paths below a source's folder, by where the *columns* of the source are in them."""
    wanted = {column.lower() for column in columns}
    groups: dict[Chain, list[str]] = {}
    for path in paths:
        groups.setdefault(chain_of(folder, path, wanted), []).append(path)
    return groups


def chain_of(folder: Path | str, path: str, wanted: Collection[str]) -> Chain:
    """Where the *wanted* columns, in lower case, are in a path."""
    folders = path.split("/")[:-1]
    names = [_name(folder) for folder in folders]
    hits = [at for at, name in enumerate(names) if name in wanted]
    if not hits:
        return Chain()
    start, end = hits[0], max(at for at, name in enumerate(names) if name is not None) + 1
    while start and names[start - 1] is not None:
        start -= 1
    chain = [name for name in names[start:end] if name is not None]
    if len(chain) < end - start or len(set(chain)) < len(chain):
        raise Refused(
            "columns in folder names must directly follow each other, each column once",
            where=f"{folder}/{path}",
            advice="Rename the folders as in a=1/b=2/file",
        )
    if any(part.startswith("=") or part.endswith("=") for part in folders[start:end]):
        raise Refused(
            "a folder name like column=value lacks the column or the value",
            where=f"{folder}/{path}",
            advice="Rename it; the value null is __HIVE_DEFAULT_PARTITION__",
        )
    return Chain("/".join(folders[:start]), tuple(name for name in chain if name in wanted))


def values_in(path: str, chain: Chain) -> list[str | None]:
    """The values of a chain's columns in a path, as Spark reads them: in its escapes, null too."""
    found: dict[str | None, str] = {}
    for folder in path.split("/")[:-1]:
        found.setdefault(_name(folder), folder.partition("=")[2])
    return [None if found[c] == NULL else _unescaped(found[c]) for c in chain.columns]


def _unescaped(value: str) -> str:
    return _ESCAPED.sub(lambda code: chr(int(code[1], 16)), value)


def _name(folder: str) -> str | None:
    name, found, _ = folder.partition("=")
    return name.lower() if found else None
