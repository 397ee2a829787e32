"""STORE or PIPELINE, --base, --option and --home: which keyed state a command looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeVar

import click

from lamina.cli.support.homes import HomeTarget, home_target
from lamina.cli.support.shapes import Shape
from lamina.cli.support.target import Target, option_option, require_log
from lamina.format.manifest_model import StateColumn
from lamina.inspect import Archive, OperatorInfo, View
from lamina.inspect.places import locate, of_pipeline

F = TypeVar("F", bound=Callable[..., None])
REFERENCE = "ID|SAVEPOINT|EPOCH|latest|head"


@dataclass(frozen=True, slots=True)
class StateTarget:
    """A store, or the folder that `lamina.open` was given; and a home, if one is named."""

    store: Target
    home: str | None


def state_target(command: F) -> F:
    """Give a command STORE, --base, --option and --home; it gets them as one `target`."""

    @wraps(command)
    def run(
        store: str, base: str, option: Mapping[str, Any], home: str | None, **rest: Any
    ) -> None:
        command(target=_target(store, base, option, home), **rest)

    for add in reversed(_options()):
        run = add(run)
    return run  # type: ignore[return-value]


def _target(store: str, base: str, option: Mapping[str, Any], home: str | None) -> StateTarget:
    """A pipeline file stands for its store, and for its home if that is there."""
    url, kept = of_pipeline(store, home)
    return StateTarget(Target(str(url), base, option), None if kept is None else str(kept))


def _options() -> tuple[Callable[[Any], Any], ...]:
    return (
        click.argument("store", metavar="PIPELINE|STORE"),
        click.option(
            "--base",
            metavar="PATH",
            envvar="LAMINA_BASE",
            show_envvar=True,
            default="",
            help="The pipeline's folder within the store; default: the store itself.",
        ),
        option_option("--option"),
        click.option(
            "--home",
            metavar="PATH|URL",
            envvar="LAMINA_HOME",
            show_envvar=True,
            help="Folder of the write-ahead log, or its address in an object store; needed for "
            "epochs between checkpoints.",
        ),
    )


@contextmanager
def opened(target: StateTarget) -> Iterator[Archive]:
    """What is looked at, without claiming it."""
    with ExitStack() as stack:
        given = stack.enter_context(home_target(target.home)) if target.home is not None else None
        store, place = target.store, None if given is None else given.path
        if not store.base:
            places = locate(store.url, place)
            store, place = replace(store, url=places.store), places.home
        checkpointer = store.to_read()
        require_log(checkpointer)
        if place is not None:
            HomeTarget(str(place)).to_read()  # a mistyped home is no home without epochs
        yield stack.enter_context(Archive(checkpointer, place))


def view_shape(view: View) -> Shape:
    """Which state it is: a checkpoint, and the epochs of the log that come on top."""
    return {
        "epoch": view.epoch,
        "checkpoint": None if view.checkpoint is None else str(view.checkpoint),
        "replayed": [commit.epoch for commit in view.commits],
    }


def view_text(view: View) -> str:
    """`epoch 12: checkpoint 019a... and epochs 11 to 12 of the log`."""
    parts = [] if view.checkpoint is None else [f"checkpoint {view.checkpoint}"]
    if view.commits:
        first, last = view.commits[0].epoch, view.commits[-1].epoch
        epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
        parts.append(f"{epochs} of the log")
    return f"epoch {view.epoch}: {' and '.join(parts)}"


def info_shape(info: OperatorInfo, keys: int | None) -> Shape:
    return {
        "name": info.name,
        "partitions": info.partitions,
        "key": [column_shape(column) for column in info.key],
        "value": [column_shape(column) for column in info.value],
        "time": info.time,
        "rows_stored": info.rows_stored,
        "keys": keys,
        "runs": info.runs,
        "size_bytes": info.size,
    }


def column_shape(column: StateColumn) -> Shape:
    return {"name": column.name, "type": column.type, "nullable": column.nullable}


def columns_text(columns: tuple[StateColumn, ...]) -> str:
    """`customer string, region string not null`."""
    return ", ".join(f"{c.name} {c.type}{'' if c.nullable else ' not null'}" for c in columns)


def parse_keys(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> Mapping[str, str | None]:
    """COLUMN=VALUE, or COLUMN alone for null; each column once."""
    keys: dict[str, str | None] = {}
    for text in given:
        column, equals, value = text.partition("=")
        if not column:
            raise click.BadParameter("a key is written COLUMN=VALUE, or COLUMN for null")
        if column in keys:
            raise click.BadParameter(f"the column {column[:80]!r} is given twice")
        keys[column] = value if equals else None
    return keys
