"""`lamina jars`: what a cluster, or a computer without a network, needs of Spark's connectors."""

from __future__ import annotations

from pathlib import Path

import click

from lamina.cli.support.places import place_of
from lamina.cli.support.screen import Screen, json_option
from lamina.connectors.jars import CLASSES, coordinates


@click.command("jars")
@click.option(
    "--pipeline",
    metavar="PIPELINE",
    type=click.Path(path_type=Path),
    help="Only what this pipeline needs; default: what any connector needs.",
)
@json_option
def jars_command(pipeline: Path | None, screen: Screen) -> None:
    """List the jars that connectors need on a cluster.

    One line each, as `spark.jars.packages` takes them, in the version of the installed Spark; they
    bring what they depend on. `lamina run` fetches them by itself, or takes them from --jars.
    """
    artifacts = tuple(CLASSES) if pipeline is None else _needed(pipeline)
    packages = coordinates(artifacts)
    if screen.as_json:
        screen.json({"packages": packages})
        return
    for package in packages:
        screen.line(package)
    if not packages:
        screen.note("this pipeline needs none")


def _needed(file: Path) -> tuple[str, ...]:
    from lamina.connectors.opening import jars_of  # noqa: PLC0415  slow to import

    place = place_of(file)
    return jars_of(place.read(), place.folder, file=str(file))
