"""`lamina doctor`: what is installed, which Java is found, which stores answer."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import click

from lamina.cli.support import shapes
from lamina.cli.support.exits import Exit
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.target import open_at, option_option
from lamina.cli.tools import machine
from lamina.clock import SystemClock
from lamina.errors import LaminaError
from lamina.format.names import normalise_base
from lamina.store.probe import probe_store
from lamina.store.retry import RetryPolicy
from lamina.version import __version__

PATIENCE = RetryPolicy(budget_seconds=10)


@dataclass(frozen=True, slots=True)
class Answer:
    """How one store answered."""

    url: str
    list_ms: float | None = None
    write_probe: bool = False
    error: LaminaError | None = None

    def shape(self) -> shapes.Shape:
        return {
            "url": self.url,
            "answers": self.error is None,
            "list_ms": self.list_ms,
            "write_probe": self.write_probe,
            "error": None if self.error is None else shapes.error(self.error),
        }


def _stores_from_environment() -> tuple[str, ...]:
    # Not click's envvar: for an option that may be repeated that would split at spaces.
    found = os.environ.get("LAMINA_STORE")
    return (found,) if found else ()


@click.command("doctor")
@click.option(
    "--store",
    "stores",
    metavar="URL",
    multiple=True,
    default=_stores_from_environment,
    help="Store to test; may be repeated.  [env var: LAMINA_STORE]",
)
@click.option(
    "--base",
    metavar="PATH",
    envvar="LAMINA_BASE",
    show_envvar=True,
    default="",
    help="The pipeline's folder within the store.",
)
@option_option("--option")
@click.option(
    "--write-probe",
    is_flag=True,
    help="Also test create-only puts: create one small key twice, then delete it.",
)
@json_option
def doctor_command(
    stores: tuple[str, ...], base: str, option: Mapping[str, Any], write_probe: bool, screen: Screen
) -> None:
    """Check what is installed and whether stores respond."""
    prefix = normalise_base(base)
    answers = [ask(url, option, prefix, write_probe=write_probe) for url in stores]
    facts = _facts()
    if screen.as_json:
        screen.json(facts | {"stores": [answer.shape() for answer in answers]})
    else:
        _print(screen, facts, answers)
    if any(answer.error for answer in answers):
        click.get_current_context().exit(Exit.FAILED)


def ask(url: str, options: Mapping[str, Any], prefix: str, *, write_probe: bool) -> Answer:
    """Open a store, list one level and, if wanted, probe it. Its errors are its answer."""
    clock = SystemClock()
    shown = _without_secrets(url)
    try:
        store = open_at(url, options, writable=False, retry=PATIENCE)
        shown = store.url
        started = clock.monotonic()
        store.list_folder(prefix)
        list_ms = round((clock.monotonic() - started) * 1000, 1)
        if write_probe:
            writable = open_at(url, options, writable=True, retry=PATIENCE)
            probe_store(writable, clock)
    except LaminaError as error:
        return Answer(shown, error=error)
    return Answer(shown, list_ms, write_probe)


def _facts() -> shapes.Shape:
    java = machine.find_java()
    return {
        "lamina": __version__,
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "os": platform.platform(),
        "extras": machine.extras(),
        "java": None
        if java is None
        else {"version": java.version, "path": java.path, "found_by": java.found_by},
        "jars": machine.jars(),
    }


def _print(screen: Screen, facts: shapes.Shape, answers: list[Answer]) -> None:
    python, java = facts["python"], facts["java"]
    rows = [
        ("lamina", facts["lamina"], ""),
        ("python", python["version"], python["executable"]),
        ("os", facts["os"], ""),
        ("java", java["version"] or "does not say", f"{java['path']} (by {java['found_by']})")
        if java
        else ("java", "not found", "needed by Spark only"),
    ]
    jars = facts["jars"]
    rows.append(("jars", jars["from"], jars["detail"]))
    rows += [(name, version or "not installed", "") for name, version in facts["extras"].items()]
    rows += [_row(answer) for answer in answers]
    screen.table(("WHAT", "STATE", "DETAIL"), rows)


def _row(answer: Answer) -> tuple[str, str, str]:
    if answer.error is not None:
        return "store", "does not answer", f"{answer.url}: {answer.error}"
    probed = ", create-only puts are honoured" if answer.write_probe else ""
    return "store", "answers", f"{answer.url}: one list took {answer.list_ms} ms{probed}"


def _without_secrets(url: str) -> str:
    """An address as it may be shown, also one that was refused for the secret in it."""
    if "://" not in url:
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(no URL)"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
