"""All commands, in the groups that `lamina --help` shows; each is imported only when it is used.

The summaries stand here too, so that the help needs none of them; a test holds them equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: the attribute of a module, and its summary."""

    module: str
    attribute: str
    summary: str


Section = Mapping[str, Entry]

PIPELINES: Section = {
    "init": Entry("init", "init_command", "Make an example project in DIR that runs as it is."),
    "check": Entry("check", "check_command", "Explain a pipeline and refuse what would not work."),
    "run": Entry("run", "run_command", "Run a pipeline, epoch after epoch."),
    "status": Entry("status", "status_command", "Show where a pipeline is, running or dead."),
    "stop": Entry("stop", "stop_command", "Stop a running pipeline, with a checkpoint."),
    "checkpoint": Entry(
        "stop", "checkpoint_command", "Let a running pipeline make a checkpoint now."
    ),
}
CHECKPOINTS: Section = {
    "list": Entry("checkpoints", "list_command", "List the checkpoints that exist, by epoch."),
    "show": Entry("manifests", "show_command", "Show the manifest of a checkpoint."),
    "log": Entry("log", "log_command", "Print the commit log, one line per entry."),
    "verify": Entry(
        "verification", "verify_command", "Verify a pipeline, or the checkpoints of a store."
    ),
    "savepoint": Entry(
        "savepoints", "savepoint_group", "Name checkpoints: they stay until the name is dropped."
    ),
    "gc": Entry("gc", "gc_command", "Forget old checkpoints and delete what nothing needs."),
    "delete": Entry("deletion", "delete_command", "Delete one checkpoint."),
    "copy": Entry("copying", "copy_command", "Copy a checkpoint and verify the copy."),
    "import": Entry("importing", "import_command", "Import a checkpoint of LaminarDB."),
}
STATE: Section = {
    "inspect": Entry("inspect", "inspect_command", "Show keyed state as rows."),
    "diff": Entry("diff", "diff_command", "Show what differs between two epochs or checkpoints."),
}
LOG: Section = {
    "wal": Entry("wal", "wal_group", "List, print, verify and repair the write-ahead log."),
    "recover": Entry("recovery", "recover_command", "Print what a start would recover."),
}
TOOLS: Section = {
    "doctor": Entry("doctor", "doctor_command", "Show what is installed and which stores answer."),
    "demo": Entry("demo", "demo_command", "Kill a pipeline again and again; compare the result."),
}
SECTIONS: Mapping[str, Section] = {
    "Pipelines": PIPELINES,
    "Checkpoints": CHECKPOINTS,
    "State": STATE,
    "Log": LOG,
    "Tools": TOOLS,
}
WAL: Section = {
    "list": Entry(
        "segments", "wal_list_command", "List the segments of the driver and of every core."
    ),
    "dump": Entry("records", "wal_dump_command", "Print the records of segments, one line each."),
    "verify": Entry("wal_verification", "wal_verify_command", "Read every byte of segments."),
    "repair": Entry("repairs", "wal_repair_command", "Cut the torn end off a segment."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def __init__(
        self, *args: Any, sections: Mapping[str, Section] | None = None, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._sections = sections or {}
        self._entries = {n: entry for each in self._sections.values() for n, entry in each.items()}

    def list_commands(self, context: click.Context) -> list[str]:
        return [*self._entries, *super().list_commands(context)]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        entry = self._entries.get(name)
        if entry is None:
            return super().get_command(context, name)
        found = getattr(import_module(f"lamina.cli.{entry.module}"), entry.attribute)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, each.summary) for name, each in section.items()])
