"""`lamina delete`: one checkpoint, now."""

from __future__ import annotations

import click

from lamina.checkpoint import Checkpointer, FolderPlan, delete_checkpoint
from lamina.cli.support import shapes
from lamina.cli.support.consent import ask, require_somebody
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.target import Target, missing_is_damage, store_options
from lamina.cli.support.words import counted, size
from lamina.ids import CheckpointId
from lamina.protocol.history import judge_forget
from lamina.protocol.retention import Fate, forgotten, plan_sweep


@click.command("delete")
@store_options()
@click.argument("id", metavar="ID")
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def delete_command(target: Target, id: str, dry_run: bool, yes: bool, screen: Screen) -> None:
    """Delete one checkpoint.

    Files that other checkpoints use are kept. Refused for a savepoint, for the newest checkpoint
    and for the one that the pipeline continues from.
    """
    require_somebody(yes=yes, dry_run=dry_run)
    chosen = CheckpointId.parse(id)
    checkpointer = target.to_read()
    plan = plan_delete(checkpointer, chosen)
    if not dry_run:
        ask(f"Delete checkpoint {chosen}, {_amount(plan)}?", yes=yes)
        plan = delete_checkpoint(target.to_write(), chosen)
    if screen.as_json:
        answer = {"dry_run": dry_run} | shapes.folder(plan)
        screen.json(shapes.place(checkpointer) | answer)
        return
    screen.line(f"{'would delete' if dry_run else 'deleted'} {chosen}: {_amount(plan)}")
    for key in plan.shared:
        screen.line(f"  stays for another checkpoint: {key}")


def plan_delete(checkpointer: Checkpointer, id: CheckpointId) -> FolderPlan:
    """What `delete_checkpoint` would do now; raises what it would raise."""
    checkpointer.find(id)
    history = checkpointer.history()
    judge_forget(history, id)
    paths = checkpointer.paths
    with missing_is_damage():  # an unreadable manifest may need any file: then nothing is deleted
        named = {
            paths.absolute(artifact.path)
            for committed in forgotten(history, {id}).checkpoints
            for artifact in checkpointer.load_manifest(committed.id).artifacts()
        }
    objects = {info.key: info for info in checkpointer.store.list(paths.checkpoint_dir(id))}
    sweep = plan_sweep(objects, paths.begin(id), named)
    delete = tuple(objects[key] for key in sweep.delete if key in objects)
    return FolderPlan(id, Fate.GARBAGE, delete, sweep.shared)


def _amount(plan: FolderPlan) -> str:
    total = size(sum(info.size for info in plan.delete))
    return f"{counted(len(plan.delete), 'object')}, {total}"
