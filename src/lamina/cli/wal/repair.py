"""`lamina wal repair`: cut what cannot be read off a segment, and keep it beside."""

from __future__ import annotations

import click

from lamina.cli.support.consent import ask, require_somebody
from lamina.cli.support.homes import HomeTarget, find_segment, home_option, place
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.shapes import Shape
from lamina.cli.support.words import counted
from lamina.errors import UsageError
from lamina.wal.repair import Repair, plan_repair, repair


@click.command("repair")
@home_option
@click.argument("segment", metavar="SEGMENT")
@click.option("--dry-run", is_flag=True, help="Show what would be cut and change nothing.")
@click.option("--damage", is_flag=True, help="Cut at damage, too, with everything behind it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def wal_repair_command(
    *,
    home_target: HomeTarget,
    segment: str,
    dry_run: bool,
    damage: bool,
    yes: bool,
    screen: Screen,
) -> None:
    """Cut the torn end off a segment.

    What is cut is kept in a file next to the segment. Recovery does not need this, since it skips
    a torn end; it is for reading a log with other tools. Refused while another process holds the
    lock of the home or of the core.
    """
    if home_target.address:
        raise UsageError(
            "a home in an object store has nothing to repair: its log is objects, which are there "
            "as a whole or not at all",
            where=home_target.address,
            advice="`lamina wal verify` says what is wrong with it",
        )
    require_somebody(yes=yes, dry_run=dry_run, does="cuts a file")
    home = home_target.to_read()
    path = find_segment(home.disk, segment)
    if dry_run:
        plan = plan_repair(home.disk, path, damage=damage)
    else:
        plan = repair(
            home.disk,
            path,
            damage=damage,
            agree=lambda plan: ask(f"Cut {_amount(plan)}: {plan.reason}?", yes=yes),
        )
    if screen.as_json:
        answer = {"dry_run": dry_run, "segment": path, "repair": plan and _shape(plan)}
        screen.json(place(home) | answer)
    elif plan is None:
        screen.line(f"{path} ends with a whole record: there is nothing to cut")
    else:
        screen.line(f"{'would cut' if dry_run else 'cut'} {_amount(plan)}: {plan.reason}")
        screen.line(f"  {'to be kept' if dry_run else 'kept'} in {home.disk.root}/{plan.kept}")


def _amount(plan: Repair) -> str:
    return f"{counted(plan.bytes, 'byte')} from byte {plan.offset} of {plan.path}"


def _shape(plan: Repair) -> Shape:
    return {
        "path": plan.path,
        "offset": plan.offset,
        "bytes": plan.bytes,
        "reason": plan.reason,
        "kept": plan.kept,
    }
