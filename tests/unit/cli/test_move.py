"""`lamina move`: what it says, and what is at both places after it."""

from __future__ import annotations

from pathlib import Path

from lamina.checkpoint import Checkpointer
from lamina.checkpoint.forking import fork_checkpoint
from lamina.cli.support.exits import Exit
from lamina.errors import Refused, UsageError
from lamina.store import open_store
from tests.support.command_line import answer, lamina, tree
from tests.support.homes import make_home


def test_a_home_moves_and_both_places_say_so(tmp_path: Path) -> None:
    made = make_home(tmp_path)
    target = str(tmp_path / "new")
    move = ["move", "--home", str(made.home), "--to-home", target]
    before = tree(made.home)
    plan = answer(lamina(*move, "--dry-run", "--json"))
    assert tree(made.home) == before
    assert not Path(target).exists()
    assert (plan["moved"], plan["target"], plan["epoch"]) == (False, target, 6)
    assert plan["files"] > 0
    told = lamina(*move)
    assert told.exit_code == Exit.OK, told.stderr
    assert f"to {target}\n" in told.stdout
    assert "verified" in told.stdout
    again = lamina(*move)
    assert again.exit_code != Exit.OK
    assert f"{Refused.code}: this home has moved to {target}" in again.stderr
    shown = lamina("recover", "--dry-run", "--home", target, "--store", str(made.store))
    assert shown.exit_code == Exit.OK, shown.stderr


def test_a_store_from_which_a_fork_reads_is_to_be_kept(tmp_path: Path) -> None:
    """With all else at the old place it would be deleted, and with it what the fork stands on."""
    made = make_home(tmp_path)
    source = Checkpointer(open_store(str(made.store)), vnode_count=None)
    [*_, newest] = source.history().checkpoints
    there = Checkpointer(open_store(str(tmp_path / "fork")), vnode_count=None)
    name = fork_checkpoint(source, newest.id, there).savepoint
    stores = ["--store", str(made.store), "--to-store", str(tmp_path / "store-2")]
    told = lamina("move", "--home", str(made.home), "--to-home", str(tmp_path / "new"), *stores)
    assert told.exit_code == Exit.OK, told.stderr
    assert f"keep {made.store}: forks read files of it, of {name}\n" in told.stdout


def test_it_has_to_be_said_which_home(tmp_path: Path) -> None:
    said = lamina("move", "--to-home", str(tmp_path / "new"))
    assert UsageError.code in said.stderr
