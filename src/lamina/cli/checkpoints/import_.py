"""`lamina import`: an export, or a checkpoint of LaminarDB, into a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from lamina.checkpoint import import_checkpoint, read_checkpoint
from lamina.checkpoint.exporting import import_export, read_export
from lamina.checkpoint.importing import MANIFEST
from lamina.cli.checkpoints.copy import print_copied
from lamina.cli.support import shapes
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.target import Target, open_at, option_option, store_options
from lamina.cli.support.words import counted, size


@click.command("import")
@store_options()
@click.argument("source", metavar="FILE.tar|FOLDER")
@option_option("--from-option")
@click.option("--dry-run", is_flag=True, help="Check a FILE.tar, and import nothing.")
@json_option
def import_command(
    *,
    target: Target,
    source: str,
    from_option: Mapping[str, Any],
    dry_run: bool,
    screen: Screen,
) -> None:
    """Import an exported or a LaminarDB checkpoint.

    FILE.tar is what `lamina export` has written: every byte of it is checked before anything is
    put into the store. FOLDER is a path or a URL with a manifest.json of LaminarDB (version 1 or
    2) and its files, or the path of the manifest itself. The store must be empty or hold only
    copies; a pipeline that is started with it begins at the offsets of the checkpoint. If
    interrupted, run the same command again.
    """
    if source.endswith(".tar"):
        if from_option:
            raise click.UsageError("--from-option is for a FOLDER; a FILE.tar is on this machine.")
        _import_export(screen, Path(source), target, dry_run=dry_run)
        return
    if dry_run:
        raise click.UsageError("--dry-run is for a FILE.tar.")
    folder, key = _split(source)
    found = read_checkpoint(open_at(folder, from_option, writable=False), key)
    receiver = target.to_create()
    with screen.progress("importing") as report:
        imported = import_checkpoint(found, receiver, report=report)
    if screen.as_json:
        origin = found.manifest.origin
        assert origin is not None
        laminar = {"version": origin.version, "checkpoint_id": origin.checkpoint_id}
        told = {"origin": laminar, "dry_run": False} | shapes.copy(imported)
        screen.json(shapes.place(receiver) | told)
    else:
        where = receiver.paths.checkpoint_dir(imported.checkpoint.id)
        print_copied(screen, "imported", imported, f"{receiver.store.url}/{where}")


def _import_export(screen: Screen, path: Path, target: Target, *, dry_run: bool) -> None:
    with screen.progress("checking") as report:
        found = read_export(path, report=report)
    id, epoch = found.manifest.checkpoint_id, found.manifest.epoch
    if dry_run:
        objects = len(set(found.manifest.artifacts())) + 1
        told = {"dry_run": True, "id": str(id), "epoch": epoch, "objects": objects}
        if screen.as_json:
            screen.json({"store": target.url, "base": target.base} | told | {"bytes": found.bytes})
        else:
            amount = f"{counted(objects, 'object')}, {size(found.bytes)}"
            screen.line(f"would import {id}, epoch {epoch}: {amount}")
        return
    receiver = target.to_create()
    with screen.progress("importing") as report:
        imported = import_export(found, receiver, report=report)
    if screen.as_json:
        answer = {"origin": None, "dry_run": False} | shapes.copy(imported)
        screen.json(shapes.place(receiver) | answer)
    else:
        where = receiver.paths.checkpoint_dir(id)
        print_copied(screen, "imported", imported, f"{receiver.store.url}/{where}")


def _split(source: str) -> tuple[str, str]:
    """The folder, and the name of the manifest in it."""
    folder, _, name = source.rpartition("/")
    if name.endswith(MANIFEST):
        return folder or ("/" if source.startswith("/") else "."), name
    return source, MANIFEST
