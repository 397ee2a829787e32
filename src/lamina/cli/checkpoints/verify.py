"""`lamina verify`: is every byte still what was saved?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import click

from lamina.checkpoint import Checkpointer, Problem, VerifyReport, verify
from lamina.checkpoint.finding import find_checkpoint
from lamina.cli.checkpoints.home_report import home_shape, print_home
from lamina.cli.support import shapes
from lamina.cli.support.exits import Exit
from lamina.cli.support.homes import home_target
from lamina.cli.support.places import place_of, place_options
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.shapes import Shape
from lamina.cli.support.target import Target, nothing_here, store_options
from lamina.cli.support.words import counted, size
from lamina.connectors.opening import close_sinks, open_sinks
from lamina.disk.base import Disk
from lamina.errors import NotFound
from lamina.format.findings import Severity
from lamina.front.homes import seen
from lamina.ids import CheckpointId
from lamina.inspect.verification import PipelineReport, verify_pipeline
from lamina.recovery.scan import RecoverableSink

PIPELINE_FILE = ".sql"
NEVER_RUN = "Has it ever run? `lamina run` creates its home; --home says where it is"


@click.command("verify")
@store_options(always=True)
@place_options()[0]
@click.argument("references", metavar="[PIPELINE | ID|SAVEPOINT|EPOCH|latest ...]", nargs=-1)
@click.option(
    "--sample",
    type=click.FloatRange(0, 1),
    default=1.0,
    show_default=True,
    help="Fraction of files to read in full; the others are checked for presence and size.",
)
@json_option
def verify_command(
    target: Target, home: str | None, references: tuple[str, ...], sample: float, screen: Screen
) -> None:
    """Verify a pipeline, or the checkpoints of a store.

    With a PIPELINE file (or --home): everything its next start would read, in its home and its
    store. With --store: the commit log and the checkpoints named, by default all of them. Works
    whether or not the pipeline is running; takes no lock and changes nothing.

    Exits with 0 if all is well, 1 if there are only warnings, 4 if anything is damaged or missing.
    """
    subject = _subject(target, home, references)
    if subject.disk is not None:
        found = _pipeline(subject, sample, screen)
    else:
        found = PipelineReport(None, _store(subject, sample, screen))
    if screen.as_json:
        screen.json(_shape(subject, found, sample))
    else:
        _print(screen, found)
    click.get_current_context().exit(_exit(found))


@dataclass(frozen=True, slots=True)
class Subject:
    """What to verify: a store or some of its checkpoints, or a home and what belongs to it."""

    store: Target | None
    references: tuple[str, ...] = ()
    disk: Disk | None = None
    sinks: tuple[RecoverableSink, ...] | None = None


def _subject(target: Target, home: str | None, references: tuple[str, ...]) -> Subject:
    store = target if target.url else None
    named = references and (references[0].lower().endswith(PIPELINE_FILE) or not (store or home))
    if named:
        if len(references) > 1:
            raise click.UsageError("A pipeline is verified as a whole: name nothing but its file.")
        place = place_of(references[0], home, target.url or None)
        home_seen = click.get_current_context().with_resource(seen(place))
        sinks = open_sinks(place.read(), place.folder, notes=home_seen.notes, file=str(place.file))
        click.get_current_context().call_on_close(lambda: close_sinks(sinks))
        kept = replace(target, url=place.store)
        return Subject(kept, (), home_seen.disk, tuple(sinks.values()))
    if store is None and home is None:
        raise click.UsageError("Name the pipeline file, or give --store, --home or both.")
    if references or home is None:
        if store is None:
            raise click.UsageError("Checkpoints are in a store: give --store.")
        return Subject(store, references)
    target_home = click.get_current_context().with_resource(home_target(home))
    return Subject(store, (), target_home.disk())


def _pipeline(subject: Subject, sample: float, screen: Screen) -> PipelineReport:
    assert subject.disk is not None
    checkpointer = subject.store.to_read() if subject.store else None
    with screen.progress("verifying") as report:
        try:
            return verify_pipeline(
                subject.disk, checkpointer, sinks=subject.sinks, sample=sample, report=report
            )
        except NotFound as error:
            raise NotFound(error.message, where=error.where, advice=NEVER_RUN) from error


def _store(subject: Subject, sample: float, screen: Screen) -> VerifyReport:
    assert subject.store is not None
    checkpointer = subject.store.to_read()
    ids = _ids(checkpointer, subject.references)
    with screen.progress("verifying") as report:
        found = verify(checkpointer, ids, sample=sample, report=report)
    if not found.entries and not found.problems:
        raise nothing_here(checkpointer)  # never "all is well" about a mistyped address
    return found


def _shape(subject: Subject, found: PipelineReport, sample: float) -> Shape:
    store = found.store or VerifyReport(0, (), ())
    where = shapes.place(subject.store.to_read()) if subject.store else {"store": None, "base": ""}
    home = None
    if found.home is not None and subject.disk is not None:
        home = home_shape(subject.disk, found.home)
    return where | shapes.verification(store, sample) | {"ok": found.ok, "home": home}


def _ids(
    checkpointer: Checkpointer, references: tuple[str, ...]
) -> tuple[CheckpointId, ...] | None:
    if not references:
        return None
    return tuple(dict.fromkeys(find_checkpoint(checkpointer, each).id for each in references))


def _print(screen: Screen, found: PipelineReport) -> None:
    if found.store is not None:
        _print_store(screen, found.store)
    if found.home is not None:
        print_home(screen, found.home)


def _print_store(screen: Screen, found: VerifyReport) -> None:
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


def _exit(found: PipelineReport) -> Exit:
    if not found.ok:
        return Exit.CORRUPT
    severities = [p.severity for p in found.store.problems] if found.store else []
    severities += [t.severity for t in found.home.troubles] if found.home else []
    return Exit.FINDINGS if Severity.WARNING in severities else Exit.OK
