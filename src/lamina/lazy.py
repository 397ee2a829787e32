"""Packages that import what they export only when somebody asks for it.

`lamina --help` and `lamina list` need no Arrow, no SQL and no object store client; together these
take most of a second to import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exports(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of *package*; *where* maps modules to the names they have, by spaces.

    A name in its package may differ from that in the module: `open=open_state`.
    """
    places: dict[str, tuple[str, str]] = {}
    for module, names in where.items():
        for each in names.split():
            name, _, original = each.partition("=")
            places[name] = (module, original or name)

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = places[name]
        return getattr(import_module(module), original)

    return get
