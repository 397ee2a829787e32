"""A real Chromium, if there is one: Debian's package, or what LAMINA_CHROMIUM names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium_missing() -> str:
    """Why there is none; empty if there is one."""
    return "" if _path() else "chromium is not installed: apt-get install chromium"


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=_path(), args=list(FLAGS))
        try:
            yield opened
        finally:
            opened.close()


@contextmanager
def served(folder: Path, *arguments: str) -> Iterator[str]:
    """The address of a `lamina ui` of its own process, in a folder."""
    command = [sys.executable, "-c", "from lamina.cli.main import main; main()", "ui"]
    process = subprocess.Popen(
        [*command, "--port", "0", "--json", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield _told(process)["url"]
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=60)
        assert "Traceback" not in errors, errors


class Complaints:
    """What the console of a page said that nobody wants to read there."""

    def __init__(self, page: Page) -> None:
        self.found: list[str] = []
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.found.append(str(error)))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.found.append(f"{message.type}: {message.text}")


def _path() -> str | None:
    return os.environ.get("LAMINA_CHROMIUM") or shutil.which("chromium")


def _told(process: subprocess.Popen[str]) -> dict[str, str]:
    """The JSON that it prints when it listens; its last line is a brace by itself."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line == "}\n":
            return dict(json.loads("".join(lines)))
    assert process.stderr is not None
    raise AssertionError(process.stderr.read())
