"""`lamina move`: what it says, and what is at both places after it."""

from __future__ import annotations

from pathlib import Path

from lamina.cli.support.exits import Exit
from lamina.errors import Refused, UsageError
from tests.support.command_line import answer, lamina
from tests.support.homes import make_home


def test_a_home_moves_into_a_store_and_back(tmp_path: Path) -> None:
    made = make_home(tmp_path)
    remote, back = f"file://{tmp_path}/remote", str(tmp_path / "back")
    move = ["move", "--home", str(made.home), "--to-home", remote]
    plan = answer(lamina(*move, "--dry-run", "--json"))
    assert not (tmp_path / "remote" / "home.json").exists()
    assert not plan["moved"]
    assert plan["files"] > 0
    moved = answer(lamina(*move, "--json"))
    assert moved["moved"]
    assert moved["target"] == remote
    again = lamina(*move)
    assert again.exit_code != Exit.OK
    assert f"{Refused.code}: this home has moved to {remote}" in again.stderr
    told = lamina("move", "--home", remote, "--to-home", back, "--take-over")
    assert told.exit_code == Exit.OK, told.stderr
    assert f"to {back}" in told.stdout
    assert "verified" in told.stdout
    shown = lamina("recover", "--dry-run", "--home", back, "--store", str(made.store))
    assert shown.exit_code == Exit.OK, shown.stderr


def test_it_has_to_be_said_which_home(tmp_path: Path) -> None:
    said = lamina("move", "--to-home", str(tmp_path / "new"))
    assert UsageError.code in said.stderr
