"""The README's examples are run, and its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from lamina.cli.main import cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_examples_of_the_readme_run_one_after_the_other_and_so_do_its_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(code, "README.md", "exec"), {})  # the reader would do the same
    commands = re.findall(r"^lamina (.+)$", README, re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        result = CliRunner().invoke(cli, command.split())
        differ = command.startswith("diff ")  # its states do, and then it ends with 1 like diff(1)
        assert result.exit_code == int(differ), (command, result.output)
        assert "no checkpoints" not in result.output
        assert "no segments" not in result.output


def test_the_two_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_links_and_test_paths_in_the_documents_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
    for path in re.findall(r"pytest (tests/[\w/.]+)", README):
        assert (ROOT / path).exists(), path
