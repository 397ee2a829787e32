"""The installed `lamina`, as a person and as a script start it."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.command_line import Pipeline, make_pipeline, tree
from tests.support.homes import make_home, tear

LAMINA = Path(sys.executable).parent / "lamina"
PATIENCE_SECONDS = 60


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return make_pipeline(tmp_path / "pipeline")


def environment(**more: str) -> dict[str, str]:
    ours = ("LAMINA_", "NO_COLOR", "FORCE_COLOR", "AWS_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"TERM": "xterm-256color"} | more


def run(*arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LAMINA, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(**more),
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def on_a_terminal(*arguments: str | Path, typed: str = "", **more: str) -> tuple[int, str]:
    """The exit code, and everything that the terminal showed. *typed* waits in its buffer."""
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    with subprocess.Popen(
        [LAMINA, *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(**more),
    ) as process:
        os.close(theirs)
        shown = read_all(ours)
        os.close(ours)
        return process.wait(PATIENCE_SECONDS), shown


def read_all(fd: int) -> str:
    shown = b""
    while select.select([fd], [], [], PATIENCE_SECONDS)[0]:
        try:
            part = os.read(fd, 65536)
        except OSError:  # how a terminal without a program ends
            break
        if not part:
            break
        shown += part
    return shown.decode()


def test_the_installed_command_lists_and_verifies(pipeline: Pipeline) -> None:
    listed = run("list", LAMINA_STORE=str(pipeline.root))
    assert (listed.returncode, listed.stderr) == (0, "")
    assert str(pipeline.ids[2]) in listed.stdout
    verified = run("verify", "--store", pipeline.root)
    assert (verified.returncode, verified.stderr) == (1, "")
    assert run("show", "--store", pipeline.root, "nothing").returncode == 3


def test_raw_bytes_go_through_a_real_pipe(pipeline: Pipeline) -> None:
    shown = run("show", "--store", pipeline.root, "--raw")
    assert shown.stdout.encode() == pipeline.manifest(2).read_bytes()


def test_a_terminal_without_unicode_ends_no_command(pipeline: Pipeline) -> None:
    asked = ("savepoint", "create", "--store", pipeline.root, "\u65e5\u672c")
    created = run(*asked, PYTHONIOENCODING="latin-1")
    assert created.returncode == 0
    assert "savepoint '\\u65e5\\u672c' is" in created.stdout


def test_a_terminal_sees_colours_and_progress_unless_it_says_no(pipeline: Pipeline) -> None:
    code, shown = on_a_terminal("verify", "--store", pipeline.root)
    assert code == 1
    assert "verifying" in shown
    assert "\x1b[33mwarning" in shown
    _, plain = on_a_terminal("verify", "--store", pipeline.root, NO_COLOR="1")
    assert "\x1b[33m" not in plain


def test_gc_on_a_terminal_asks_and_takes_no_for_an_answer(pipeline: Pipeline) -> None:
    before = tree(pipeline.root)
    asked = ("gc", "--store", pipeline.root, "--retain", "1")
    code, shown = on_a_terminal(*asked, typed="n\n")
    assert code == 130
    assert "Delete 1 checkpoint, 3 objects, 3.5 KiB? [y/N]" in shown
    assert tree(pipeline.root) == before
    code, shown = on_a_terminal(*asked, typed="y\n")
    assert code == 0
    assert "deleted 1 checkpoint" in shown
    assert not pipeline.manifest(1).exists()


def test_wal_and_recover_show_progress_on_a_terminal_only(tmp_path: Path) -> None:
    made = make_home(tmp_path)
    asked = ("recover", "--home", made.home, "--store", made.store, "--dry-run")
    code, shown = on_a_terminal(*asked)
    assert code == 0
    assert "verifying" in shown
    piped = run(*asked)
    assert (piped.returncode, piped.stderr) == (0, "")
    verified = run("wal", "verify", LAMINA_HOME=str(made.home))
    assert (verified.returncode, verified.stderr) == (0, "")
    assert "verifying" in on_a_terminal("wal", "verify", "--home", made.home)[1]
    assert "reading" in on_a_terminal("wal", "list", "--home", made.home)[1]


def test_repair_on_a_terminal_asks_and_takes_no_for_an_answer(tmp_path: Path) -> None:
    made = make_home(tmp_path)
    tear(made.core(0))
    before = tree(made.home)
    asked = ("wal", "repair", "--home", made.home, made.name(made.core(0)))
    code, shown = on_a_terminal(*asked, typed="n\n")
    assert code == 130
    assert "the file ends inside a record? [y/N]" in shown
    assert tree(made.home) == before
    code, shown = on_a_terminal(*asked, typed="y\n")
    assert code == 0
    assert "kept in" in shown
    assert len(list((made.home / "core-0").glob("*.cut-*"))) == 1


class Slow(BaseHTTPRequestHandler):
    """A store that lets its first answer wait until it is told to go on."""

    asked = threading.Event()
    go_on = threading.Event()

    def do_GET(self) -> None:
        self.asked.set()
        self.go_on.wait(PATIENCE_SECONDS)
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def slow_store() -> Iterator[str]:
    Slow.asked.clear()
    Slow.go_on.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        Slow.go_on.set()
        server.shutdown()


def test_an_interrupted_verify_ends_with_130(slow_store: str) -> None:
    """The signal is there before the answer is, so the order does not depend on time."""
    options = (f"endpoint={slow_store}", "client_options.allow_http=true", "skip_signature=true")
    given = [word for option in options for word in ("--option", option)]
    with subprocess.Popen(
        [LAMINA, "verify", "--store", "s3://bucket/orders", *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(AWS_REGION="us-east-1"),
    ) as process:
        assert Slow.asked.wait(PATIENCE_SECONDS)
        process.send_signal(signal.SIGINT)
        Slow.go_on.set()
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert out == ""
    assert "interrupted" in err
    assert "Traceback" not in err
