"""`lamina verify`: is every byte still what was saved?"""

from __future__ import annotations

import click

from lamina.checkpoint import Checkpointer, Problem, VerifyReport, verify
from lamina.cli import shapes
from lamina.cli.exits import Exit
from lamina.cli.screen import Screen, json_option
from lamina.cli.target import Target, nothing_here, resolve, store_options
from lamina.cli.words import counted, size
from lamina.format.findings import Severity
from lamina.ids import CheckpointId


@click.command("verify")
@store_options()
@click.argument("references", metavar="[ID|SAVEPOINT|latest]...", nargs=-1)
@click.option(
    "--sample",
    type=click.FloatRange(0, 1),
    default=1.0,
    show_default=True,
    help="The share of files to read in full; of the others presence and size are checked.",
)
@json_option
def verify_command(
    target: Target, references: tuple[str, ...], sample: float, screen: Screen
) -> None:
    """Verify the commit log and these checkpoints, by default all.

    Ends with 0 if all is well, with 1 if there are only warnings, with 4 if anything is damaged or
    missing. Changes nothing.
    """
    checkpointer = target.to_read()
    ids = _ids(checkpointer, references)
    with screen.progress("verifying") as report:
        found = verify(checkpointer, ids, sample=sample, report=report)
    if not found.entries and not found.problems:
        raise nothing_here(checkpointer)  # never "all is well" about a mistyped address
    if screen.as_json:
        screen.json(shapes.place(checkpointer) | shapes.verification(found, sample))
    else:
        _print(screen, found)
    click.get_current_context().exit(_exit(found))


def _ids(
    checkpointer: Checkpointer, references: tuple[str, ...]
) -> tuple[CheckpointId, ...] | None:
    if not references:
        return None
    return tuple(dict.fromkeys(resolve(checkpointer, each).id for each in references))


def _print(screen: Screen, found: VerifyReport) -> None:
    problems = _grouped(found)
    if problems:
        rows = [
            (str(p.severity), p.code, ", ".join(map(str, epochs)) or "-", p.where, p.message)
            for p, epochs in problems.items()
        ]
        screen.table(("SEVERITY", "CODE", "EPOCHS", "WHERE", "MESSAGE"), rows)
        screen.line()
    reports = found.checkpoints
    read = sum(each.objects_read for each in reports)
    objects = sum(each.objects for each in reports)
    screen.line(
        f"{_verdict(tuple(problems))}: {counted(found.entries, 'log entry')}, "
        f"{counted(len(reports), 'checkpoint')}, {read} of {counted(objects, 'object')} read, "
        f"{size(sum(each.bytes_read for each in reports))}"
    )


def _grouped(found: VerifyReport) -> dict[Problem, list[int]]:
    """Each problem once, with the epochs of the checkpoints that share it; the log's with none."""
    grouped: dict[Problem, list[int]] = {problem: [] for problem in found.log_problems}
    for report in found.checkpoints:
        for problem in report.problems:
            grouped.setdefault(problem, []).append(report.epoch)
    return grouped


def _verdict(problems: tuple[Problem, ...]) -> str:
    errors = sum(p.severity is Severity.ERROR for p in problems)
    warnings = sum(p.severity is Severity.WARNING for p in problems)
    if errors:
        return f"DAMAGED, {counted(errors, 'error')}"
    return f"ok, {counted(warnings, 'warning')}" if warnings else "ok"


def _exit(found: VerifyReport) -> Exit:
    if not found.ok:
        return Exit.CORRUPT
    warned = any(p.severity is Severity.WARNING for p in found.problems)
    return Exit.FINDINGS if warned else Exit.OK
