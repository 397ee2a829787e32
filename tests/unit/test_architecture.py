"""docs/ARCHITECTURE.md names files and functions: each of them exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
SOURCE = ROOT / "src" / "lamina"


def defined(body: list[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """The names that a module or a class defines, each with what is inside of it."""
    names: dict[str, list[ast.stmt]] = {}
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names[node.name] = node.body
        elif isinstance(node, ast.Assign):
            names.update({t.id: [] for t in node.targets if isinstance(t, ast.Name)})
    return names


def test_every_file_and_every_name_in_the_architecture_exists() -> None:
    named = re.findall(r"`([a-z_0-9/]+\.py)(?:::([\w.]+))?`", PAGE)
    assert len(named) > 80
    for path, name in named:
        folder = ROOT if path.startswith(("tests/", "examples/")) else SOURCE
        body = ast.parse((folder / path).read_text()).body
        for part in name.split(".") if name else ():
            inside = defined(body)
            assert part in inside, f"{path}::{name}"
            body = inside[part]


def test_every_package_has_a_place_in_the_layers() -> None:
    layers = PAGE.partition("## The layers")[2].partition("```\n")[2].partition("```")[0]
    listed = set(re.findall(r"\w+", "\n".join(line[:27] for line in layers.splitlines())))
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages <= listed
