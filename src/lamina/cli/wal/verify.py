"""`lamina wal verify`: is every byte of the write-ahead log still what was written?"""

from __future__ import annotations

import click

from lamina.checkpoint.progress import Progress, Report
from lamina.cli.support.exits import Exit
from lamina.cli.support.homes import HomeTarget, find_segment, home_option
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.shapes import Shape
from lamina.cli.support.words import counted, size
from lamina.cli.wal.list import end_shape
from lamina.disk.base import Disk
from lamina.errors import NotFound, WalDamaged
from lamina.format.findings import Severity
from lamina.format.home_names import IDENTITY
from lamina.wal.examination import Examined, Trouble, examine_all, missing_ranges
from lamina.wal.lost_segments import lost_segments
from lamina.wal.scan import all_segments
from lamina.wal.strangers import strangers

COLUMNS = ("SEVERITY", "CODE", "FILE", ">BYTE", "MESSAGE", "EXPECTED", "ACTUAL")


@click.command("verify")
@home_option
@click.argument("segments", metavar="[SEGMENT]...", nargs=-1)
@json_option
def wal_verify_command(home_target: HomeTarget, segments: tuple[str, ...], screen: Screen) -> None:
    """Verify every byte of the log.

    Reads the segments that are named, or all of them. For all it also checks that every record
    that a COMMIT names is there, and that no segment is missing that has epochs after the last
    checkpoint. Exits with 0 if all is well, 1 if there are warnings, 4 if anything is damaged or
    missing. A torn end is only a note: a crash leaves it behind, and recovery skips it.
    """
    disk = home_target.disk()
    troubles, identity = _identity(home_target)
    chosen = [find_segment(disk, each) for each in segments] or list(all_segments(disk))
    with screen.progress("verifying") as report:
        examined = _examine_all(disk, list(dict.fromkeys(chosen)), identity, report)
    troubles += [trouble for each in examined.values() for trouble in each.troubles]
    if not segments:
        lost = lost_segments(disk, identity) if identity else ()
        troubles += [*missing_ranges(examined), *lost, *strangers(disk)]
    if screen.as_json:
        where = {"folder": disk.root, "home": identity.hex() if identity else None}
        screen.json(where | _shape(list(examined.values()), troubles))
    else:
        _print(screen, list(examined.values()), troubles)
    click.get_current_context().exit(_exit(troubles))


def _identity(home_target: HomeTarget) -> tuple[list[Trouble], bytes | None]:
    """Without home.json the segments can still be read: its damage is the first finding."""
    try:
        return [], home_target.to_read().identity
    except WalDamaged as error:
        advice = error.advice
        trouble = Trouble(Severity.ERROR, error.code, IDENTITY, 0, error.message, advice=advice)
        return [trouble], None


def _examine_all(
    disk: Disk, paths: list[str], home: bytes | None, report: Report
) -> dict[str, Examined]:
    total, done = sum(_size(disk, path) for path in paths), 0
    examined: dict[str, Examined] = {}

    def note(path: str, at: int) -> None:
        report(Progress(done + at, total, "bytes", path))

    for each in examine_all(disk, paths, home, note):
        examined[each.path] = each
        done += each.size
    return examined


def _size(disk: Disk, path: str) -> int:
    try:
        return disk.size(path)
    except NotFound:
        return 0


def _shape(examined: list[Examined], troubles: list[Trouble]) -> Shape:
    return {
        "ok": not _count(troubles, Severity.ERROR),
        "bytes_read": sum(each.size for each in examined),
        "segments": [
            {
                "path": each.path,
                "ok": each.ok,
                "records": each.records,
                "entries": each.entries,
                "size_bytes": each.size,
                "torn_bytes": end_shape(each.end)["torn_bytes"] if each.end else 0,
            }
            for each in examined
        ],
        "problems": [trouble_shape(each) for each in troubles],
    }


def trouble_shape(trouble: Trouble) -> Shape:
    return {
        "severity": str(trouble.severity),
        "code": trouble.code,
        "path": trouble.path,
        "offset": trouble.offset,
        "message": trouble.message,
        "expected": trouble.expected,
        "actual": trouble.actual,
        "advice": trouble.advice,
    }


def _print(screen: Screen, examined: list[Examined], troubles: list[Trouble]) -> None:
    if troubles:
        screen.table(COLUMNS, [_row(each) for each in troubles])
        print_advice(screen, troubles)
        screen.line()
    screen.line(
        f"{verdict(troubles)}: {counted(len(examined), 'segment')}, "
        f"{counted(sum(each.records for each in examined), 'record')}, "
        f"{counted(sum(each.entries for each in examined), 'entry')}, "
        f"{size(sum(each.size for each in examined))} read"
    )


def print_advice(screen: Screen, troubles: list[Trouble]) -> None:
    """What to do, each once."""
    for advice in dict.fromkeys(each.advice for each in troubles if each.advice):
        screen.line(f"What to do: {advice}.")


def _row(trouble: Trouble) -> tuple[str, ...]:
    return (
        str(trouble.severity),
        trouble.code or "-",
        trouble.path,
        str(trouble.offset),
        trouble.message,
        trouble.expected or "-",
        trouble.actual or "-",
    )


def verdict(troubles: list[Trouble]) -> str:
    errors = _count(troubles, Severity.ERROR)
    if errors:
        return f"DAMAGED, {counted(errors, 'error')}"
    warnings, notes = _count(troubles, Severity.WARNING), _count(troubles, Severity.NOTE)
    said = [counted(n, noun) for n, noun in ((warnings, "warning"), (notes, "note")) if n]
    return ", ".join(["ok", *said])


def _exit(troubles: list[Trouble]) -> Exit:
    if _count(troubles, Severity.ERROR):
        return Exit.CORRUPT
    return Exit.FINDINGS if _count(troubles, Severity.WARNING) else Exit.OK


def _count(troubles: list[Trouble], severity: Severity) -> int:
    return sum(each.severity is severity for each in troubles)
