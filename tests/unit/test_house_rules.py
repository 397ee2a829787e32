"""The rules of the house, as tests: sizes, bans, and nothing of the workplace in the tree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lamina

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60


def _tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=False, text=True
    )
    names = [name for name in listed.stdout.split("\0") if name]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_file_grows_into_the_system(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= FILE_LINES_MAX, "is there a second noun in it?"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            assert size <= FUNCTION_LINES_MAX, f"{node.name} has {size} lines"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is_for(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)) or not text.strip()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_left_to_do_and_nothing_prints(path: Path) -> None:
    text = path.read_text()
    unfinished = re.search(r"\b(TODO|FIXME|XXX)\b|\bNotImplementedError", text)
    assert unfinished is None, unfinished
    if "/cli/" not in str(path):
        assert not re.search(r"^\s*print\(|logging\.basicConfig", text, re.MULTILINE)


def test_private_parts_of_spark_are_touched_in_one_module() -> None:
    private = re.compile(r"\._(jdf|jc|jsc|jvm|jsparkSession|activeSession|get_j_\w+)\b")
    folder = ROOT / "src" / "lamina"
    found = [str(p.relative_to(folder)) for p in SOURCES if private.search(p.read_text())]
    assert found == ["spark/internals.py"]


def test_the_tree_names_no_machine_and_no_registry() -> None:
    banned = re.compile(rb"/work/main|/root/|file:///opt/pypi|registry\.npmjs|pypi\.org/simple")
    found = [
        str(path.relative_to(ROOT))
        for path in _tracked()
        if path != Path(__file__) and banned.search(path.read_bytes())
    ]
    assert found == []


def test_the_core_imports_without_spark_and_without_java() -> None:
    code = "import sys, lamina, lamina.recovery; print([m for m in sys.modules if 'spark' in m])"
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    assert ran.stdout.strip() == "[]"


def test_what_the_package_exports_is_there() -> None:
    assert sorted(lamina.__all__) == sorted(set(lamina.__all__))
    for name in lamina.__all__:
        assert getattr(lamina, name) is not None
    assert (ROOT / "src/lamina/py.typed").exists()
