"""`lamina wal`: the write-ahead log in a home."""

from __future__ import annotations

import click

from lamina.cli.records import wal_dump_command
from lamina.cli.repairs import wal_repair_command
from lamina.cli.segments import wal_list_command
from lamina.cli.wal_verification import wal_verify_command


@click.group("wal")
def wal_group() -> None:
    """Look at the write-ahead log in a home, verify it, repair it."""


for command in (wal_list_command, wal_dump_command, wal_verify_command, wal_repair_command):
    wal_group.add_command(command)
