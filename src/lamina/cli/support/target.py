"""--store, --base and --option: which pipeline's folder, and how it is opened."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from lamina.checkpoint import Checkpointer
from lamina.cli.support.session import Session
from lamina.errors import Corrupt, NotFound, UsageError
from lamina.format.names import CheckpointPaths
from lamina.store import Store, open_store

F = TypeVar("F", bound=Callable[..., None])

_RESERVED = frozenset(inspect.signature(open_store).parameters)


@dataclass(frozen=True, slots=True)
class Target:
    """A pipeline's folder in a store; opening it for reading creates and changes nothing."""

    url: str
    base: str
    options: Mapping[str, Any]

    def to_read(self) -> Checkpointer:
        return self._checkpointer(writable=False)

    def to_write(self) -> Checkpointer:
        """For changing a pipeline that is there: a mistyped address must not become a new one."""
        require_log(self.to_read())
        return self._checkpointer(writable=True)

    def to_create(self) -> Checkpointer:
        return self._checkpointer(writable=True)

    def _checkpointer(self, *, writable: bool) -> Checkpointer:
        paths = CheckpointPaths(self.base)
        store = open_at(self.url, self.options, writable=writable)
        return Checkpointer(store, paths, vnode_count=None)  # a tool takes what it finds


def open_at(url: str, options: Mapping[str, Any], *, writable: bool, **more: Any) -> Store:
    """Open a store; every way to write its address wrongly is a UsageError."""
    try:
        urlsplit(url)
    except ValueError:
        raise UsageError("the address of the store is not a URL") from None
    cancel = _session().cancel
    try:
        return open_store(url, writable=writable, cancel=cancel, **more, **options)
    except NotFound as error:
        message = f"there is no such store: {error.message}"
        raise NotFound(message, where=error.where, advice="Check --store") from error


def require_log(checkpointer: Checkpointer) -> None:
    if not checkpointer.history().seq:
        raise nothing_here(checkpointer)


def nothing_here(checkpointer: Checkpointer) -> NotFound:
    base = checkpointer.paths.base
    return NotFound(
        "there is no commit log" + (f" below the base {base!r}" if base else ""),
        where=checkpointer.store.url,
        advice="Check --store and --base",
    )


@contextmanager
def missing_is_damage() -> Iterator[None]:
    """What the log says exists must be there: without it something is lost, not mistyped."""
    try:
        yield
    except NotFound as error:
        message = f"a file that the checkpoint needs is missing: {error.message}"
        raise Corrupt(message, where=error.where) from error


def store_options(*, required: bool = True, always: bool = False) -> Callable[[F], F]:
    """Give a command --store, --base and --option; it gets them as one `target`.

    Without --store the target is None; with *always* it is one without an address.
    """

    def decorate(command: F) -> F:
        @wraps(command)
        def run(store: str | None, base: str, option: Mapping[str, Any], **rest: Any) -> None:
            is_there = always or store is not None
            target = Target(store or "", base, option) if is_there else None
            command(target=target, **rest)

        for add in reversed(_store_options(required=required and not always)):
            run = add(run)
        return run  # type: ignore[return-value]

    return decorate


def _store_options(*, required: bool) -> tuple[Callable[[Any], Any], ...]:
    return (
        click.option(
            "--store",
            metavar="URL",
            envvar="LAMINA_STORE",
            show_envvar=True,
            required=required,
            help="Store of the checkpoints: a folder, or a URL (s3://, gs://, az://, abfs://, abfss://).",
        ),
        click.option(
            "--base",
            metavar="PATH",
            envvar="LAMINA_BASE",
            show_envvar=True,
            default="",
            help="The pipeline's folder within the store; default: the store itself.",
        ),
        option_option("--option"),
    )


def option_option(name: str) -> Callable[[Any], Any]:
    """An option that collects KEY=VALUE for the store client. Values are never printed."""
    return click.option(
        name,
        metavar="KEY=VALUE",
        multiple=True,
        callback=_parse_options,
        help="An option of the store client, e.g. region=eu-central-1; may be repeated. "
        "client_options.timeout=5s sets one of its HTTP client.",
    )


def _parse_options(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            # Not quoted: what was typed may be the secret itself.
            raise click.BadParameter("an option is written KEY=VALUE")
        group, dot, name = key.partition(".")
        if group in _RESERVED:
            raise click.BadParameter(f"no store client has an option {group!r}")
        if not dot:
            options[key] = value
        elif isinstance(nested := options.setdefault(group, {}), dict):
            nested[name] = value
        else:
            raise click.BadParameter(f"the option {group!r} is given whole and in parts")
    return options


def _session() -> Session:
    context = click.get_current_context(silent=True)
    found = context.find_object(Session) if context else None
    return found or Session()
