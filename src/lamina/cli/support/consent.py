"""Nothing is deleted or cut before a person or a script has said yes."""

from __future__ import annotations

import click

from lamina.cli.support.exits import Exit
from lamina.cli.support.screen import stdin_is_terminal


def require_somebody(*, yes: bool, dry_run: bool, does: str = "deletes") -> None:
    """Refuse at once what could only be asked of nobody."""
    if not yes and not dry_run and not stdin_is_terminal():
        raise click.UsageError(
            f"This {does}, and nobody is at the terminal to ask. "
            "Look at the plan with --dry-run, then give --yes."
        )


def ask(question: str, *, yes: bool) -> None:
    """Go on with a yes only; the question is on stderr, so that stdout stays the answer."""
    if not yes and not click.confirm(question, err=True):
        click.echo("nothing was changed", err=True)
        raise click.exceptions.Exit(int(Exit.INTERRUPTED))
