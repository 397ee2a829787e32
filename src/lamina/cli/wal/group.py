"""`lamina wal`: the write-ahead log in a home."""

from __future__ import annotations

import click

from lamina.cli.commands import WAL, LazyGroup


@click.group("wal", cls=LazyGroup, sections={"Commands": WAL})
def wal_group() -> None:
    """List, print, verify and repair the write-ahead log in a home."""
