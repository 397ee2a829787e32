"""`lamina verify-spark`: the checkpoint of a Structured Streaming query, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from lamina.cli.support.exits import Exit
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.shapes import Shape
from lamina.cli.support.target import open_at, option_option
from lamina.cli.support.words import counted, size, utc
from lamina.errors import NotFound
from lamina.format.findings import Severity
from lamina.inspect.spark_checkpoint import Does, SparkFinding, SparkReport, verify_spark
from lamina.store import Store

DOES = {
    Does.BEGINS: "begins with batch {batch}: {why}",
    Does.CONTINUES: "continues with batch {batch}: {why}",
    Does.REPEATS: "does batch {batch} again: {why}",
    Does.LOSES: "starts with batch {batch}, and loses rows: {why}",
    Does.TRUSTS: "at batch {batch} fails, or goes on with wrong values: {why}",
    Does.STOPS: "would fail, at batch {batch} or before: {why}",
}


@click.command("verify-spark")
@click.argument("checkpoint", metavar="CHECKPOINT_DIR")
@option_option("--option")
@json_option
def verify_spark_command(checkpoint: str, option: Mapping[str, Any], screen: Screen) -> None:
    """Verify a checkpoint of Structured Streaming.

    CHECKPOINT_DIR is the checkpointLocation of a query: a folder, or an address in an object store.
    Reads every file, compares it with its checksums, and says what a restart of the query would do.
    Needs neither Spark nor Java, and changes nothing. The query may run meanwhile.

    Exits with 0 if all is well, 1 if there are only warnings, 4 if a restart would go wrong.
    """
    store = _opened(checkpoint, option)
    with screen.progress("verifying") as report:
        found = verify_spark(store, report=report)
    if screen.as_json:
        screen.json({"checkpoint": store.url, "ok": found.ok} | _shape(found))
    else:
        _print(screen, store.url, found)
    click.get_current_context().exit(_exit(found))


def _opened(checkpoint: str, option: Mapping[str, Any]) -> Store:
    try:
        return open_at(checkpoint, option, writable=False)
    except NotFound as error:
        advice = "Give the folder that the query has as its checkpointLocation"
        raise NotFound("there is no such folder", where=error.where, advice=advice) from error


def _exit(found: SparkReport) -> Exit:
    if not found.ok:
        return Exit.CORRUPT
    warned = any(each.severity is Severity.WARNING for each in found.findings)
    return Exit.FINDINGS if warned else Exit.OK


def _print(screen: Screen, where: str, found: SparkReport) -> None:
    for name, text in _facts(where, found):
        screen.line(f"{name + ':':<12}{text}")
    if found.offsets is not None:
        screen.line()
        screen.table(
            ("SOURCE", "OFFSET"), [(n, offset or "-") for n, offset in found.offsets.sources]
        )
    if found.findings:
        screen.line()
        rows = [(str(f.severity), f.code, f.where or "-", _said(f)) for f in found.findings]
        screen.table(("SEVERITY", "CODE", "WHERE", "MESSAGE"), rows)
    restart = found.restart
    screen.line()
    screen.line(f"A restart {DOES[restart.does].format(batch=restart.batch, why=restart.why)}")


def _facts(where: str, found: SparkReport) -> list[tuple[str, str]]:
    planned = "-" if found.last_batch is None else f"{found.first_batch} to {found.last_batch}"
    operators = ", ".join(
        f"{number} {name} ({counted(partitions, 'partition')})"
        for number, name, partitions in found.operators
    )
    return [
        ("checkpoint", where),
        ("query", found.query or "-"),
        ("batches", planned),
        ("committed", "-" if found.last_commit is None else str(found.last_commit)),
        ("watermark", "-" if found.watermark_ms is None else utc(found.watermark_ms)),
        ("operators", operators or "-"),
        ("read", f"{counted(found.files, 'file')}, {size(found.bytes_read)}"),
    ]


def _said(found: SparkFinding) -> str:
    return f"{found.message}. {found.advice}" if found.advice else found.message


def _shape(found: SparkReport) -> Shape:
    """Offsets are text, as Spark has them."""
    return {
        "query": found.query,
        "first_batch": found.first_batch,
        "last_batch": found.last_batch,
        "last_commit": found.last_commit,
        "watermark_ms": found.watermark_ms,
        "sources": [
            {"source": name, "offset": offset}
            for name, offset in (found.offsets.sources if found.offsets else ())
        ],
        "operators": [
            {"operator": number, "name": name, "partitions": partitions}
            for number, name, partitions in found.operators
        ],
        "files": found.files,
        "bytes_read": found.bytes_read,
        "restart": {
            "does": str(found.restart.does),
            "batch": found.restart.batch,
            "why": found.restart.why,
        },
        "findings": [
            {
                "severity": str(each.severity),
                "code": each.code,
                "where": each.where,
                "message": each.message,
                "advice": each.advice,
            }
            for each in found.findings
        ],
    }
