"""`lamina rewind`: let a pipeline go on from an older epoch."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

import click

from lamina.cli.support.consent import ask, require_somebody
from lamina.cli.support.places import PipelinePlace, pipeline_argument
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.shapes import Shape
from lamina.cli.support.words import counted, size
from lamina.engine.rewinding import Rewound
from lamina.engine.surveying import OnSink, SinkSurvey, Survey, choose
from lamina.front.rewind import Rewind, open_rewind

CHOICES = [choice.value for choice in OnSink]


def _by_sink(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, OnSink]:
    found: dict[str, OnSink] = {}
    for text in given:
        name, equals, choice = text.rpartition("=")
        if not equals or not name or choice not in CHOICES:
            raise click.BadParameter(f"write NAME=keep or NAME=truncate, not {text!r}")
        found[name] = OnSink(choice)
    return found


@click.command("rewind")
@pipeline_argument
@click.option(
    "--to",
    metavar="EPOCH|ID|SAVEPOINT|latest",
    required=True,
    help="Where to: an epoch, a checkpoint or a savepoint.",
)
@click.option(
    "--sinks",
    "default",
    type=click.Choice(CHOICES),
    help="What becomes of the rows that sinks have since then; default: refuse.",
)
@click.option(
    "--sink",
    "by_sink",
    metavar="NAME=CHOICE",
    multiple=True,
    callback=_by_sink,
    help="The same for one sink: keep or truncate; may be repeated.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="The process that has this home in an object store is gone; if not, it stops.",
)
@click.option(
    "--reuse-state",
    metavar="STREAM",
    multiple=True,
    help="Confirm that a changed stream may continue its old state, as in `lamina run`.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def rewind_command(
    *,
    place: PipelinePlace,
    to: str,
    default: str | None,
    by_sink: Mapping[str, OnSink],
    take_over: bool,
    reuse_state: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    screen: Screen,
) -> None:
    """Let a stopped pipeline go on from an older epoch.

    State, offsets and watermarks go back together; nothing is deleted, and the epochs left behind
    can be rewound to again while their checkpoints exist. Says first what each sink has since then.
    Spark is started only if the file has changed: to see whether it can continue that state.
    """
    require_somebody(yes=yes, dry_run=dry_run, does="rewinds a pipeline")
    choice = None if default is None else OnSink(default)
    with open_rewind(
        place, to, take_over=take_over, read_only=dry_run, reuse_state=frozenset(reuse_state)
    ) as found:
        if not screen.as_json:
            for line in _plan(place, found):
                screen.line(line)
            _table(screen, found.survey)
        is_chosen = choice is not None or bool(by_sink) or not dry_run
        choices = choose(found.survey, choice, by_sink) if is_chosen else {}
        if dry_run:
            if screen.as_json:
                screen.json(_shape(place, found, choices) | {"dry_run": True, "rewound": None})
            return
        ask(f"Rewind to epoch {found.survey.target.point.epoch}?", yes=yes)
        done = found.run(choices)
    if screen.as_json:
        screen.json(_shape(place, found, choices) | {"dry_run": False, "rewound": _done(done)})
        return
    for line in _told(place, found.survey, choices, done):
        screen.line(line)


# for people


def _plan(place: PipelinePlace, found: Rewind) -> Iterator[str]:
    target = found.survey.target
    yield f"{place.name} is at epoch {found.survey.head.epoch}"
    replayed = f" and {counted(len(target.commits), 'epoch')} of the log" if target.commits else ""
    yield f"rewind to epoch {target.point.epoch}: checkpoint {target.checkpoint.id}{replayed}"
    if found.changes:
        listed = ", ".join(map(str, found.changes))
        yield f"the pipeline has changed since then: {listed}"


def _table(screen: Screen, found: Survey) -> None:
    if found.sinks:
        screen.line()
        screen.table(
            ("SINK", ">EPOCHS", ">ROWS", ">BYTES", "CHOICES"),
            [
                (
                    sink.name,
                    _count(sink, sink.beyond.epochs),
                    _count(sink, sink.beyond.rows),
                    ("" if sink.is_counted else ">=") + size(sink.beyond.bytes),
                    " or ".join(each.value for each in sink.can) if sink.has_more else "-",
                )
                for sink in found.sinks
            ],
        )
        screen.line()


def _count(sink: SinkSurvey, count: int) -> str:
    return str(count) if sink.is_counted else f">={count}"


def _told(
    place: PipelinePlace, found: Survey, choices: Mapping[str, OnSink], done: Rewound
) -> Iterator[str]:
    epoch = found.target.point.epoch
    yield f"rewound: epoch {done.epoch} continues epoch {epoch}"
    for name, choice in sorted(choices.items()):
        if choice is OnSink.TRUNCATE:
            yield f"  {name} is as it was at epoch {epoch}"
        else:
            yield f"  {name} keeps what it has since then; the same rows come again"
    for name, why in sorted(done.behind.items()):
        yield f"  {name} has not got it yet, the next start tries again: {why}"
    if done.checkpoint is not None:
        yield f"checkpoint {done.checkpoint}"
    elif not done.behind:
        yield f"no checkpoint of it yet, the next start makes it: {done.unsaved}"
    yield f"go on with: lamina run {shlex.quote(str(place.file))}"


# for programs


def _shape(place: PipelinePlace, found: Rewind, choices: Mapping[str, OnSink]) -> Shape:
    target = found.survey.target
    return {
        "home": place.given_home,
        "store": place.store,
        "epoch": found.survey.head.epoch,
        "to": {
            "epoch": target.point.epoch,
            "checkpoint": str(target.checkpoint.id),
            "checkpoint_epoch": target.checkpoint.epoch,
        },
        "changes": [
            {"part": each.part, "name": each.name, "change": each.what} for each in found.changes
        ],
        "sinks": [_sink(sink, choices.get(sink.name)) for sink in found.survey.sinks],
    }


def _sink(sink: SinkSurvey, choice: OnSink | None) -> Shape:
    return {
        "name": sink.name,
        "epochs": sink.beyond.epochs,
        "rows": sink.beyond.rows,
        "bytes": sink.beyond.bytes,
        "counted": sink.is_counted,
        "missing_epochs": sink.beyond.missing,
        "choices": [each.value for each in sink.can] if sink.has_more else [],
        "choice": None if choice is None else choice.value,
    }


def _done(done: Rewound) -> Shape:
    return {
        "epoch": done.epoch,
        "checkpoint": None if done.checkpoint is None else str(done.checkpoint),
        "behind": dict(done.behind),
        "unsaved": done.unsaved,
    }
