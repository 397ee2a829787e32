"""`lamina show`: what one checkpoint holds, from a store or from any manifest file."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from lamina.checkpoint import Checkpointer, artifacts
from lamina.checkpoint.finding import LATEST, find_checkpoint
from lamina.cli.checkpoints.manifest_text import print_manifest
from lamina.cli.support import shapes
from lamina.cli.support.exits import Exit
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.session import Answered
from lamina.cli.support.target import Target, missing_is_damage, store_options
from lamina.errors import Corrupt, NotFound
from lamina.format import manifest as manifests
from lamina.format import validation
from lamina.format.findings import Finding, Severity
from lamina.format.log import Committed
from lamina.format.manifest import MANIFEST_BYTES_MAX, Artifact, CheckpointManifest


@dataclass(frozen=True, slots=True)
class Found:
    """A manifest with everything that is known about it; a file's has no checkpoint."""

    where: str
    manifest: CheckpointManifest
    findings: tuple[Finding, ...]
    checkpoint: shapes.Shape | None = None


@click.command("show")
@store_options(required=False)
@click.argument("reference", metavar="[ID|SAVEPOINT|EPOCH|latest]", required=False)
@click.option(
    "--manifest",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Show this manifest file instead; any version, including LaminarDB's 1 and 2.",
)
@click.option("--raw", is_flag=True, help="Print only the exact bytes of manifest.json.")
@json_option
def show_command(
    target: Target | None, reference: str | None, file: Path | None, raw: bool, screen: Screen
) -> None:
    """Show the manifest of a checkpoint.

    By default the newest one. Validation findings are shown, too; with an error among them the
    exit code is 4.
    """
    if raw and screen.as_json:
        raise click.UsageError("--raw and --json exclude each other.")
    if file is not None:
        if reference is not None:
            raise click.UsageError("--manifest shows a file: it takes no checkpoint.")
        _show_file(file, screen, raw=raw)
    elif target is None:
        raise click.UsageError("Missing option '--store' (env var: 'LAMINA_STORE').")
    else:
        _show_stored(target.to_read(), reference or LATEST, screen, raw=raw)


def _show_file(file: Path, screen: Screen, *, raw: bool) -> None:
    data = _read(file)
    if raw:
        _write(data)
    else:
        _answer(_found(data, str(file)), screen)


def _show_stored(checkpointer: Checkpointer, reference: str, screen: Screen, *, raw: bool) -> None:
    committed = find_checkpoint(checkpointer, reference)
    key = checkpointer.paths.manifest(committed.id)
    with missing_is_damage():
        if raw:
            _write_stored(checkpointer, committed, key)
            return
        data = artifacts.download(checkpointer.store, key, _named(committed, key))
    found = _found(data, f"{checkpointer.store.url}/{key}")
    checkpoint = shapes.checkpoint(committed, checkpointer.history())
    _answer(Found(found.where, found.manifest, found.findings, checkpoint), screen)


def _write_stored(checkpointer: Checkpointer, committed: Committed, key: str) -> None:
    """The bytes as they are, damaged ones too: somebody may want to look at the damage."""
    _write(checkpointer.store.get(key))
    try:
        artifacts.check(checkpointer.store, key, _named(committed, key))
    except Corrupt as error:
        raise Answered(error) from error


def _named(committed: Committed, key: str) -> Artifact:
    return Artifact(key, committed.entry.manifest_size, committed.entry.manifest_sha256)


def _found(data: bytes, where: str) -> Found:
    manifest = manifests.decode(data, where)
    findings = validation.validate(manifest, expected_vnodes=manifest.vnode_count)
    return Found(where, manifest, findings)


def _answer(found: Found, screen: Screen) -> None:
    if screen.as_json:
        screen.json(
            {
                "where": found.where,
                "checkpoint": found.checkpoint,
                "manifest": json.loads(manifests.encode(found.manifest)),
                "findings": [shapes.finding(each) for each in found.findings],
            }
        )
    else:
        print_manifest(screen, found.where, found.manifest, found.findings)
    if any(each.severity is Severity.ERROR for each in found.findings):
        click.get_current_context().exit(Exit.CORRUPT)


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(MANIFEST_BYTES_MAX + 1)  # decode refuses what is longer
    except FileNotFoundError:
        raise NotFound("there is no such file", where=str(file)) from None
    except OSError as error:
        raise click.UsageError(f"cannot read the file: {error.strerror}") from error


def _write(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
