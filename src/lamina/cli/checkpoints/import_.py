"""`lamina import`: a checkpoint of LaminarDB into a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from lamina.checkpoint import import_checkpoint, read_checkpoint
from lamina.checkpoint.importing import MANIFEST
from lamina.cli.checkpoints.copy import print_copied
from lamina.cli.support import shapes
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.target import Target, open_at, option_option, store_options


@click.command("import")
@store_options()
@click.argument("source", metavar="FOLDER")
@option_option("--from-option")
@json_option
def import_command(
    *, target: Target, source: str, from_option: Mapping[str, Any], screen: Screen
) -> None:
    """Import a LaminarDB checkpoint.

    FOLDER is a path or a URL with a manifest.json (version 1 or 2) and its files, or the path of
    the manifest itself. The store must be empty or hold only copies; a pipeline that is started
    with it begins at the offsets of the checkpoint. If interrupted, run the same command again.
    """
    folder, key = _split(source)
    found = read_checkpoint(open_at(folder, from_option, writable=False), key)
    receiver = target.to_create()
    with screen.progress("importing") as report:
        imported = import_checkpoint(found, receiver, report=report)
    if screen.as_json:
        origin = found.manifest.origin
        assert origin is not None
        laminar = {"version": origin.version, "checkpoint_id": origin.checkpoint_id}
        screen.json(shapes.place(receiver) | {"origin": laminar} | shapes.copy(imported))
    else:
        where = receiver.paths.checkpoint_dir(imported.checkpoint.id)
        print_copied(screen, "imported", imported, f"{receiver.store.url}/{where}")


def _split(source: str) -> tuple[str, str]:
    """The folder, and the name of the manifest in it."""
    folder, _, name = source.rpartition("/")
    if name.endswith(MANIFEST):
        return folder or ("/" if source.startswith("/") else "."), name
    return source, MANIFEST
