"""PIPELINE, --home and --store: which pipeline a command is about."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from lamina.front.places import PipelinePlace, place_of

__all__ = ["PipelinePlace", "pipeline_argument", "place_of", "place_options"]

F = TypeVar("F", bound=Callable[..., None])


def pipeline_argument(command: F) -> F:
    """Give a command PIPELINE, --home and --store; it gets them as `place`."""

    @wraps(command)
    def run(pipeline: str, home: str | None, store: str | None, **rest: Any) -> None:
        command(place=place_of(pipeline, home, store), **rest)

    for add in reversed((click.argument("pipeline", metavar="PIPELINE"), *place_options())):
        run = add(run)
    return run  # type: ignore[return-value]


def place_options() -> tuple[Callable[[Any], Any], ...]:
    return (
        click.option(
            "--home",
            metavar="PATH|URL",
            envvar="LAMINA_HOME",
            show_envvar=True,
            help="Folder of its write-ahead log, or an address in an object store; default: "
            ".lamina/NAME/home next to the file.",
        ),
        click.option(
            "--store",
            metavar="URL",
            envvar="LAMINA_STORE",
            show_envvar=True,
            help="Store of its checkpoints; default: .lamina/NAME/store next to the file, or "
            "`store` below the address of the home.",
        ),
    )
