"""The `lamina` command: its group, and the one way out of it.

An error of ours is printed with its code, place and advice, never as a traceback; with --json it
is also the answer on stdout. Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn

import click

from lamina.cli.commands import SECTIONS, LazyGroup
from lamina.cli.support.exits import MEANINGS, Exit, error_shape, exit_code
from lamina.cli.support.session import Answered, Session
from lamina.cli.support.words import printable
from lamina.errors import LaminaError, UsageError
from lamina.version import __version__

EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {c:>3}  {text}" for c, text in MEANINGS.items())


class LaminaGroup(LazyGroup):
    """A group whose errors leave by our exit codes."""

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> NoReturn:
        """Run a command line and exit; also what click's CliRunner calls."""
        arguments = list(sys.argv[1:] if args is None else args)
        extra |= {"prog_name": "lamina", "standalone_mode": False}
        try:
            code = super().main(arguments, **extra)
        except Answered as answered:
            _print_error(answered.error)
            code = exit_code(type(answered.error))
        except LaminaError as error:
            code = _fail(error, as_json="--json" in arguments)
        except click.ClickException as error:
            code = _fail(_usage(error), as_json="--json" in arguments)
        except click.Abort:
            click.echo("interrupted; run the command again to go on", err=True)
            code = Exit.INTERRUPTED
        except SystemExit:  # click's answer to a closed pipe; its exit code would mean warnings
            code = Exit.PIPE_CLOSED
        except OSError as error:
            if error.filename is not None:
                raise  # of a file, and without a type of ours: a bug, and not stdout's doing
            code = _stdout_failed(error)
        sys.exit(int(code or 0))


@click.group(
    cls=LaminaGroup,
    sections=SECTIONS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="lamina", message="%(prog)s %(version)s")
def cli() -> None:
    """Streaming SQL on Spark that never loses, doubles or guesses.

    A pipeline is a SQL file. `lamina init my-project` creates one that runs; `lamina COMMAND
    --help` explains each command, and every command takes --json. Commands that only read change
    nothing. Credentials come from the usual environment variables or from --option, and are never
    printed.
    """


def main() -> NoReturn:
    """The entry point of the installed command."""
    _never_fail_to_print(sys.stdout, sys.stderr)
    session = Session()
    _stop_waiting_on_interrupt(session)
    try:
        cli.main(obj=session)
    except Exception:  # noqa: BLE001  Python's own exit code would be 1, and that means warnings
        traceback.print_exc()
        sys.exit(int(Exit.FAILED))


def _never_fail_to_print(*streams: object) -> None:
    """A terminal without UTF-8 shows \\u escapes instead of ending the command."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _stop_waiting_on_interrupt(session: Session) -> None:
    """Uploads and retries in other threads must not keep a person waiting after Ctrl-C."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        session.cancel.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)


def _stdout_failed(error: OSError) -> Exit:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing more can be said there, also at exit
    click.echo(f"error: cannot write the output: {error.strerror}", err=True)
    return Exit.FAILED


def _usage(error: click.ClickException) -> UsageError:
    context = getattr(error, "ctx", None)
    advice = f"`{context.command_path} --help` shows what it takes" if context else ""
    return UsageError(error.format_message(), advice=advice)


def _fail(error: LaminaError, *, as_json: bool) -> Exit:
    _print_error(error)
    if as_json:
        click.echo(json.dumps({"error": error_shape(error)}, indent=2))
    return exit_code(type(error))


def _print_error(error: LaminaError) -> None:
    click.echo(printable(f"error {error.code}: {error.message}"), err=True)
    for name, text in (("where", error.where), ("advice", error.advice)):
        if text:
            click.echo(printable(f"  {name + ':':<8}{text}"), err=True)
