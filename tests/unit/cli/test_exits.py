"""The way out of a command: exit codes, how errors look, and what is never printed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lamina import errors
from lamina.cli.main import LaminaGroup
from lamina.cli.support.exits import CODES, MEANINGS, Exit, exit_code
from lamina.errors import Fenced, LaminaError, all_errors
from tests.support.command_line import answer, lamina

SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"
KINDS = [kind for kind in all_errors() if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_an_exit_code(kind: type[LaminaError]) -> None:
    assert exit_code(kind) > Exit.FINDINGS
    assert kind is LaminaError or set(kind.__mro__) & set(CODES), "add it to CODES"


def test_every_exit_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Exit)


def failing(error: BaseException) -> LaminaGroup:
    @click.group(cls=LaminaGroup)
    def group() -> None:
        pass

    @group.command()
    @click.option("--json", is_flag=True)
    def work(json: bool) -> None:
        raise error

    return group


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_printed_without_a_traceback(kind: type[LaminaError]) -> None:
    error = kind("it broke\x1b[2J", where="over there", advice="Mend it")
    result = CliRunner().invoke(failing(error), ["work", "--json"])
    assert result.exit_code == exit_code(kind)
    assert result.stderr == (
        f"error {kind.code}: it broke\\x1b[2J\n  where:  over there\n  advice: Mend it\n"
    )
    assert json.loads(result.stdout)["error"] == {
        "code": kind.code,
        "kind": kind.__name__,
        "message": "it broke\x1b[2J",
        "where": "over there",
        "advice": "Mend it",
        "exit_code": exit_code(kind),
    }


def test_without_json_stdout_stays_empty() -> None:
    result = CliRunner().invoke(failing(Fenced("it broke")), ["work"])
    assert result.stdout == ""
    assert result.exit_code == 5


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), click.Abort(), EOFError()])
def test_an_interrupt_ends_with_130(stop: BaseException) -> None:
    result = CliRunner().invoke(failing(stop), ["work"])
    assert result.exit_code == 130
    assert "interrupted" in result.stderr


def test_a_bug_keeps_its_traceback() -> None:
    result = CliRunner().invoke(failing(ZeroDivisionError()), ["work"])
    assert isinstance(result.exception, ZeroDivisionError)


# secrets


class Denied(BaseHTTPRequestHandler):
    """A store that refuses everybody, and says back what it was told."""

    def do_GET(self) -> None:
        body = f"<Error><Code>AccessDenied</Code><M>{self.headers} {SECRET}</M></Error>".encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Denied) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def options(endpoint: str) -> list[str]:
    given = (
        f"endpoint={endpoint}",
        "client_options.allow_http=true",
        "region=us-east-1",
        "access_key_id=AKIAIOSFODNN7EXAMPLE",
        f"secret_access_key={SECRET}",
    )
    return [word for option in given for word in ("--option", option)]


@pytest.mark.parametrize(
    "command",
    [
        ("list",),
        ("show",),
        ("verify",),
        ("gc", "--retain", "1", "--yes"),
        ("savepoint", "create", "x"),
        ("doctor",),
        ("doctor", "--write-probe"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_store_that_denies_access(
    endpoint: str, command: tuple[str, ...], more: tuple[str, ...]
) -> None:
    result = lamina(*command, "--store", "s3://bucket/orders", *options(endpoint), *more)
    assert result.exit_code == 6
    assert "LAM-5002" in result.output
    assert SECRET not in result.output
    if more:
        answer(result)


@pytest.mark.parametrize("more", [(), ("--json",)])
@pytest.mark.parametrize(
    "arguments",
    [
        ("--store", "s3://bucket", "--option", f"secret_access_key={SECRET}", "--option", "no=1"),
        ("--store", "s3://bucket", "--option", f"client_options={SECRET}"),
        ("--store", "s3://bucket", "--option", SECRET),
        ("--store", "s3://bucket", "--option", "secret_access_key", SECRET),
        ("--store", "s3://bucket", "--option", f"={SECRET}"),
        ("--store", f"s3://key:{SECRET}@bucket/x"),
        ("--store", f"az://container?sig={SECRET}"),
        ("--store", f"ftp://key:{SECRET}@host/x"),
        ("--store", f"s3://[{SECRET}"),
        ("--store", "nowhere", "--option", f"secret_access_key={SECRET}"),
    ],
)
@pytest.mark.parametrize("command", ["list", "doctor", "verify"])
def test_what_was_typed_wrongly_may_be_a_secret(
    command: str, arguments: tuple[str, ...], more: tuple[str, ...]
) -> None:
    result = lamina(command, *arguments, *more)
    assert result.exit_code in (2, 3, 6)
    assert SECRET not in result.output


def test_options_reach_both_ends_of_a_copy(tmp_path: Path, endpoint: str) -> None:
    asked = ("copy", "latest", "--store", tmp_path, "--to", "s3://bucket", "--to-option")
    result = lamina(*asked, f"secret_access_key={SECRET}", "--to-option", "no=1")
    assert result.exit_code == 3, "the source is looked at first"
    assert SECRET not in result.output
