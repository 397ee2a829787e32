"""`lamina copy`: a checkpoint into another store or base, verified there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from lamina.checkpoint import CopyReport, copy_checkpoint
from lamina.checkpoint.finding import find_checkpoint
from lamina.cli.support import shapes
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.target import (
    Target,
    missing_is_damage,
    option_option,
    store_options,
)
from lamina.cli.support.words import counted, size


@click.command("copy")
@store_options()
@click.argument("reference", metavar="ID|SAVEPOINT|EPOCH|latest")
@click.option("--to", "to", metavar="URL", required=True, help="Store to copy to.")
@click.option(
    "--to-base", metavar="PATH", default="", help="The pipeline's folder within that store."
)
@option_option("--to-option")
@json_option
def copy_command(
    *,
    target: Target,
    reference: str,
    to: str,
    to_base: str,
    to_option: Mapping[str, Any],
    screen: Screen,
) -> None:
    """Copy a checkpoint and verify the copy.

    Copies everything that the checkpoint needs. The target must be empty or hold only copies. If
    interrupted, run the same command again.
    """
    source = target.to_read()
    id = find_checkpoint(source, reference).id
    receiver = Target(to, to_base, to_option).to_create()
    with screen.progress("copying") as report, missing_is_damage():
        copied = copy_checkpoint(source, id, receiver, report=report)
    if screen.as_json:
        places = {"from": shapes.place(source), "to": shapes.place(receiver)}
        screen.json(places | shapes.copy(copied))
    else:
        where = receiver.paths.checkpoint_dir(id)
        print_copied(screen, "copied", copied, f"{receiver.store.url}/{where}")


def print_copied(screen: Screen, verb: str, copied: CopyReport, where: str) -> None:
    amount = f"{counted(copied.objects, 'object')}, {size(copied.bytes)}"
    screen.line(f"{verb} {copied.checkpoint.id}, epoch {copied.checkpoint.epoch}: {amount}")
    screen.line(f"    to {where}")
    read = counted(copied.verified.objects_read, "object")
    screen.line(f"verified: {read} read back and compared by digest")
