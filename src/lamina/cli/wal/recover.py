"""`lamina recover --dry-run`: where a start of the pipeline would land, and from what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click

from lamina.cli.support import shapes
from lamina.cli.support.exits import Exit
from lamina.cli.support.homes import HomeTarget, home_option, place
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.shapes import Shape
from lamina.cli.support.target import Target, require_log, store_options
from lamina.cli.support.words import counted, size
from lamina.cli.wal.list import epochs_text
from lamina.errors import NotFound
from lamina.format.commit import CommitRecord, Point
from lamina.format.manifest import ConnectorCheckpoint
from lamina.recovery import Proof, RecoveryConfig, Rehearsal, rehearse
from lamina.wal.home import Home

ONLY_DRY = (
    "Only `lamina recover --dry-run` exists: a pipeline recovers by being started. Nothing else "
    "may claim it, because whoever claims it must also go on with it."
)
SINKS = "unknown: this command does not open them, so what they still lack is not part of this plan"
_NEW_HOME = bytes(16)  # no home has it: a start would draw its own


@click.command("recover")
@home_option
@store_options()
@click.option(
    "--dry-run", is_flag=True, help="Required: there is no other way to run this command."
)
@click.option(
    "--lose-after",
    metavar="EPOCH",
    type=click.IntRange(min=0),
    help="Plan as if every epoch after this one were given up.",
)
@click.option(
    "--take-over-home", is_flag=True, help="Plan as if the home that owns the pipeline were lost."
)
@click.option("--start-fresh", is_flag=True, help="Plan as if everything were given up.")
@click.option(
    "--verify/--no-verify",
    default=True,
    help="Read and verify everything that would be restored and replayed. [default: --verify]",
)
@json_option
def recover_command(
    *,
    target: Target,
    home_target: HomeTarget,
    dry_run: bool,
    lose_after: int | None,
    take_over_home: bool,
    start_fresh: bool,
    verify: bool,
    screen: Screen,
) -> None:
    """Show what a start would recover, without starting.

    Claims and changes nothing. Exits with 0 if a start would land on the highest acknowledged
    epoch, 1 if it would but has to skip a damaged checkpoint, 5 if it needs a flag that only a
    person can give.
    """
    if not dry_run:
        raise click.UsageError(ONLY_DRY)
    if start_fresh and lose_after is not None:
        raise click.UsageError(
            "--start-fresh gives up everything: --lose-after has no meaning with it"
        )
    home = _home(home_target, may_be_new=take_over_home)
    checkpointer = target.to_read()
    require_log(checkpointer)
    config = RecoveryConfig(
        lose_after=lose_after, take_over_home=take_over_home, start_fresh=start_fresh
    )
    with screen.progress("verifying") as report:
        found = rehearse(home, checkpointer, config, proof=Proof(verify=verify), report=report)
    if screen.as_json:
        where = _place(home) | shapes.place(checkpointer)
        screen.json(where | {"dry_run": True, "verified": verify} | _shape(found))
    else:
        _print(screen, found, home, checkpointer.store.url, verified=verify)
    if found.state.plan.skipped:
        click.get_current_context().exit(Exit.FINDINGS)


def _home(home_target: HomeTarget, *, may_be_new: bool) -> Home:
    """A pipeline may be taken over into a home that does not exist yet; it is not made here."""
    try:
        return home_target.to_read()
    except NotFound as error:
        if may_be_new:
            return Home(home_target.disk(), _NEW_HOME)
        advice = "Check --home. A start with --take-over-home would make a new home there"
        raise NotFound(error.message, where=error.where, advice=advice) from error


def _is_new(home: Home) -> bool:
    return home.identity == _NEW_HOME


def _place(home: Home) -> Shape:
    return place(home) | ({"home": None} if _is_new(home) else {})


def _shape(found: Rehearsal) -> Shape:
    state, plan, report = found.state, found.state.plan, found.state.report
    return {
        "takes_over_from": found.takes_over_from,
        "epoch": state.epoch,
        "head": _point(plan.head),
        "next_epoch": plan.next_epoch,
        "checkpoint": shapes.checkpoint(plan.checkpoint, found.history)
        if plan.checkpoint
        else None,
        "bytes_restored": report.bytes_restored,
        "replay": [_commit_shape(commit) for commit in state.replayed],
        "epochs_replayed": report.epochs_replayed,
        "entries_replayed": report.entries_replayed,
        "bytes_replayed": report.bytes_replayed,
        "entries_dropped": report.entries_dropped,
        "skipped": [{"id": str(s.id), "epoch": s.epoch, "why": s.why} for s in plan.skipped],
        "given_up": [_point(point) for point in plan.given_up],
        "given_up_home": report.given_up_home,
        "left_aside": [
            {"path": each.path, "offset": each.offset, "bytes": each.bytes, "reason": each.reason}
            for each in report.left_aside
        ],
        "torn_bytes": report.torn_bytes,
        "source_offsets": _connectors(state.source_offsets),
        "table_offsets": _connectors(state.table_offsets),
        "watermark": state.watermark,
        "source_watermarks": dict(state.source_watermarks),
        "watermark_regressions": list(report.watermark_regressions),
        "sinks_known": False,
        "seconds": round(report.seconds, 3),
    }


def _commit_shape(commit: CommitRecord) -> Shape:
    return {
        "epoch": commit.epoch,
        "digest": commit.digest,
        "entries": sum(place.entries for place in commit.ranges),
        "bytes": sum(place.size for place in commit.ranges),
    }


def _point(point: Point | None) -> Shape | None:
    return None if point is None else {"epoch": point.epoch, "digest": point.digest}


def _connectors(found: Mapping[str, ConnectorCheckpoint]) -> Shape:
    return {
        name: {"offsets": dict(c.offsets), "epoch": c.epoch, "metadata": dict(c.metadata)}
        for name, c in found.items()
    }


def _print(screen: Screen, found: Rehearsal, home: Home, store: str, *, verified: bool) -> None:
    owner = "a start would make it" if _is_new(home) else home.name
    screen.line(f"home:       {home.disk.root} ({owner})")
    screen.line(f"store:      {store}")
    for name, text in _lines(found, verified=verified):
        screen.line(f"{name + ':':<12}{text}")
    for title, columns, rows in _tables(found):
        if rows:
            screen.line()
            screen.line(f"{title}:")
            screen.table(columns, rows)


def _lines(found: Rehearsal, *, verified: bool) -> Iterable[tuple[str, str]]:
    state, plan, report = found.state, found.state.plan, found.state.report
    if found.takes_over_from is not None:
        yield (
            "takes over",
            (f"from the home {found.takes_over_from}: epochs that only its log has are given up"),
        )
    yield "lands on", f"epoch {plan.head.epoch}, {plan.head.digest}" if plan.head else "nothing"
    yield "checkpoint", _checkpoint(found, verified=verified)
    yield "replay", _replay(found, verified=verified)
    yield "dropped", f"{counted(report.entries_dropped, 'entry')} that no COMMIT names"
    torn = counted(report.torn_bytes, "byte")
    yield "torn", f"{torn} in {counted(len(report.left_aside), 'segment')}"
    if plan.given_up or report.given_up_home is None:
        yield "given up", counted(len(plan.given_up), "epoch")
    if report.given_up_home is not None:
        yield (
            "given up",
            f"whatever the home {report.given_up_home} acknowledged after epoch "
            f"{report.head_epoch} (unknown here)",
        )
    yield "watermark", "-" if state.watermark is None else str(state.watermark)
    if report.watermark_regressions:
        epochs = ", ".join(map(str, report.watermark_regressions))
        yield "warning", f"the watermark goes back in epoch {epochs}"
    yield "next epoch", str(plan.next_epoch)
    yield "sinks", SINKS


def _checkpoint(found: Rehearsal, *, verified: bool) -> str:
    state, chosen = found.state, found.state.plan.checkpoint
    if chosen is None or state.manifest is None:
        return "none"
    files = counted(len(state.manifest.artifacts()), "file")
    amount = f"{files}, {size(state.manifest.total_size_bytes)}"
    return f"{chosen.id}, epoch {chosen.epoch}: {amount}, {_proof(verified)}"


def _replay(found: Rehearsal, *, verified: bool) -> str:
    replayed, report = found.state.replayed, found.state.report
    if not replayed:
        return "nothing"
    word = "epoch" if len(replayed) == 1 else "epochs"
    entries = counted(report.entries_replayed, "entry")
    return (
        f"{word} {epochs_text((replayed[0].epoch, replayed[-1].epoch))}: "
        f"{counted(len(replayed), 'COMMIT')}, {entries}, {size(report.bytes_replayed)}, "
        f"{_proof(verified)}"
    )


def _proof(verified: bool) -> str:
    return "verified" if verified else "not verified"


def _tables(
    found: Rehearsal,
) -> Iterable[tuple[str, tuple[str, ...], Sequence[tuple[str, ...]]]]:
    state, plan = found.state, found.state.plan
    connectors = [("source", *_connector(*item)) for item in sorted(state.source_offsets.items())]
    connectors += [("table", *_connector(*item)) for item in sorted(state.table_offsets.items())]
    yield "Offsets", ("KIND", "NAME", ">EPOCH", "OFFSETS"), connectors
    skipped = [(str(s.epoch), str(s.id), s.why) for s in plan.skipped]
    yield "Skipped checkpoints", (">EPOCH", "ID", "WHY"), skipped
    given_up = [(str(point.epoch), point.digest) for point in plan.given_up]
    yield "Given up", (">EPOCH", "COMMIT"), given_up
    torn = [(e.path, str(e.offset), str(e.bytes), e.reason) for e in state.report.left_aside]
    yield "Torn", ("SEGMENT", ">BYTE", ">BYTES", "REASON"), torn


def _connector(name: str, value: ConnectorCheckpoint) -> tuple[str, str, str]:
    offsets = ", ".join(f"{key}={offset}" for key, offset in sorted(value.offsets.items()))
    return name, str(value.epoch), offsets or "-"
