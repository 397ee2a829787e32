"""docs/state.md: its examples run one after the other, and so do its commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import lamina

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "state.md").read_text()


def test_the_examples_and_commands_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "state.md", "exec"), names)  # the reader would do the same
    assert "'change': 'removed', 'customer': 'ada'" in capsys.readouterr().out
    commands = re.findall(r"^lamina (.+)$", PAGE, re.MULTILINE)
    assert len(commands) >= 6
    for command in commands:
        result = lamina(*command.split())
        assert result.exit_code == 0, (command, result.output)


def test_the_reader_of_the_page_prints_the_rows(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    code = f"import os; os.chdir({str(tmp_path)!r})\n" + "".join(blocks[:2])
    subprocess.run([sys.executable, "-c", code], check=True)
    (command,) = re.findall(r"^python (.+)$", PAGE, re.MULTILINE)
    program, *arguments = command.split()
    ran = subprocess.run(
        [sys.executable, str(DOCS / program), *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    assert sorted(ran.stdout.splitlines()) == [
        '{"customer": "ada", "orders": 1, "amount": 10}',
        '{"customer": "bob", "orders": 1, "amount": 20}',
    ]
