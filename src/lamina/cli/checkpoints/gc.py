"""`lamina gc`: plan, show, ask, then forget and delete."""

from __future__ import annotations

import click

from lamina.checkpoint import GcPlan, plan_gc, run_gc
from lamina.cli.support import shapes
from lamina.cli.support.consent import ask, require_somebody
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.target import Target, require_log, store_options
from lamina.cli.support.words import counted, size
from lamina.protocol.retention import Fate


@click.command("gc")
@store_options()
@click.option(
    "--retain",
    metavar="N",
    type=click.IntRange(min=1),
    required=True,
    help="Number of newest checkpoints to keep, besides savepoints.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def gc_command(target: Target, retain: int, dry_run: bool, yes: bool, screen: Screen) -> None:
    """Delete old checkpoints and files that nothing needs.

    Keeps the newest N checkpoints, overall and of the pipeline's current line, all savepoints, and
    the checkpoint that the pipeline continues from. If interrupted, the next run finishes the
    work.
    """
    require_somebody(yes=yes, dry_run=dry_run)
    checkpointer = target.to_read()
    require_log(checkpointer)
    plan = plan_gc(checkpointer, retain=retain)
    if not screen.as_json:
        _print(screen, plan)
    if not dry_run and (plan.forget or plan.delete):
        ask(f"Delete {_amount(plan)}?", yes=yes)
        with screen.progress("deleting") as report:
            plan = run_gc(target.to_write(), retain=retain, report=report)
    if screen.as_json:
        answer = shapes.gc(plan, retain=retain, dry_run=dry_run)
        screen.json(shapes.place(checkpointer) | answer)
    else:
        screen.line(f"{'would delete' if dry_run else 'deleted'} {_amount(plan)}")


def _print(screen: Screen, plan: GcPlan) -> None:
    rows = [("forget", str(id), "beyond the newest that are retained") for id in plan.forget]
    rows += [("keep", str(id), why) for id, why in plan.held]
    for folder in plan.folders:
        rows.append(
            (_ACTIONS[folder.fate], str(folder.id), _says(shapes.folder(folder), folder.fate))
        )
    if rows:
        screen.table(("ACTION", "CHECKPOINT", "WHAT"), rows)
        screen.line()


_ACTIONS = {Fate.GARBAGE: "delete", Fate.IN_FLIGHT: "keep", Fate.UNKNOWN: "keep"}


def _says(folder: shapes.Shape, fate: Fate) -> str:
    if fate is Fate.IN_FLIGHT:
        return "in flight: it may still be committed"
    if fate is Fate.UNKNOWN:
        return "unknown: no begin.json, so it is not ours to judge"
    what = f"{counted(folder['objects'], 'object')}, {size(folder['bytes'])}"
    shared = len(folder["shared"])
    return f"{what}; {shared} stay for other checkpoints" if shared else what


def _amount(plan: GcPlan) -> str:
    forgotten = counted(len(plan.forget), "checkpoint")
    return f"{forgotten}, {counted(len(plan.delete), 'object')}, {size(plan.bytes)}"
