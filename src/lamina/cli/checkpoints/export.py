"""`lamina export`: a checkpoint as one tar file."""

from __future__ import annotations

from pathlib import Path

import click

from lamina.checkpoint.exporting import ExportPlan, export_checkpoint, plan_export
from lamina.checkpoint.finding import find_checkpoint
from lamina.cli.support import shapes
from lamina.cli.support.places import place_of
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.target import Target, missing_is_damage, require_log, store_options
from lamina.cli.support.words import counted, size
from lamina.errors import AlreadyExists


@click.command("export")
@store_options(always=True)
@click.option("--dry-run", is_flag=True, help="Show what would be written, and how much.")
@click.argument(
    "words", metavar="[PIPELINE] ID|SAVEPOINT|EPOCH|latest FILE.tar", nargs=-1, required=True
)
@json_option
def export_command(
    *, target: Target, dry_run: bool, words: tuple[str, ...], screen: Screen
) -> None:
    """Write a checkpoint to one tar file.

    FILE.tar is new, complete and synced, or not there. The same checkpoint is always the same
    bytes. `lamina import` takes it into a store; `tar` unpacks it, and `sha256sum -c` checks it.
    """
    target, reference, path = _parsed(words, target)
    source = target.to_read()
    require_log(source)
    id = find_checkpoint(source, reference).id
    if dry_run:
        if path.exists():
            raise AlreadyExists("this file exists", where=str(path), advice="Choose another name")
        plan = plan_export(source, id)
    else:
        with screen.progress("exporting") as report, missing_is_damage():
            plan = export_checkpoint(source, id, path, report=report)
    if screen.as_json:
        told = {"dry_run": dry_run, "file": str(path.absolute())} | _shape(plan)
        screen.json(shapes.place(source) | told)
    else:
        verb = "would export" if dry_run else "exported"
        amount = f"{counted(len(plan.files) + 1, 'object')}, {size(plan.bytes)}"
        screen.line(f"{verb} {plan.id}, epoch {plan.epoch}: {amount}")
        screen.line(f"    to {path}")


def _parsed(words: tuple[str, ...], target: Target) -> tuple[Target, str, Path]:
    if len(words) == 3 and words[0].endswith(".sql"):
        if target.base or target.options:
            raise click.UsageError("--base and --option go with --store, without a PIPELINE.")
        url = place_of(words[0], None, target.url or None).store
        return Target(url, "", {}), words[1], Path(words[2])
    if len(words) != 2:
        raise click.UsageError("Give [PIPELINE] CHECKPOINT FILE.tar.")
    if not target.url:
        raise click.UsageError("Whose checkpoint? Give a PIPELINE file, or --store.")
    return target, words[0], Path(words[1])


def _shape(plan: ExportPlan) -> shapes.Shape:
    return {
        "id": str(plan.id),
        "epoch": plan.epoch,
        "objects": len(plan.files) + 1,
        "bytes": plan.bytes,
    }
