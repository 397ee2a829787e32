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
    """A command: an attribute of a module below lamina.cli, and its summary."""

    module: str
    attribute: str
    summary: str


Section = Mapping[str, Entry]

PIPELINES: Section = {
    "init": Entry(
        "pipeline.init", "init_command", "Create an example project in DIR, ready to run."
    ),
    "check": Entry(
        "pipeline.check", "check_command", "Explain a pipeline and report what would not work."
    ),
    "run": Entry("pipeline.run", "run_command", "Run a pipeline, epoch after epoch."),
    "status": Entry(
        "pipeline.status", "status_command", "Show how far a pipeline has come, running or not."
    ),
    "history": Entry(
        "pipeline.history", "history_command", "Show the epochs of a pipeline, newest first."
    ),
    "top": Entry("pipeline.top", "top_command", "Watch a pipeline run, from another terminal."),
    "stop": Entry(
        "pipeline.stop", "stop_command", "Stop a running pipeline after a final checkpoint."
    ),
    "checkpoint": Entry(
        "pipeline.checkpoint",
        "checkpoint_command",
        "Make a running pipeline take a checkpoint now.",
    ),
    "rewind": Entry(
        "pipeline.rewind",
        "rewind_command",
        "Let a stopped pipeline go on from an older epoch.",
    ),
    "move": Entry(
        "pipeline.move",
        "move_command",
        "Move the home of a pipeline to another folder or object store.",
    ),
}
CHECKPOINTS: Section = {
    "list": Entry("checkpoints.list", "list_command", "List the checkpoints, by epoch."),
    "show": Entry("checkpoints.show", "show_command", "Show the manifest of a checkpoint."),
    "log": Entry("checkpoints.log", "log_command", "Print the commit log, one line per entry."),
    "verify": Entry(
        "checkpoints.verify", "verify_command", "Verify a pipeline, or the checkpoints of a store."
    ),
    "savepoint": Entry(
        "checkpoints.savepoint",
        "savepoint_group",
        "Name checkpoints, to keep them until you drop the name.",
    ),
    "gc": Entry(
        "checkpoints.gc", "gc_command", "Delete old checkpoints and files that nothing needs."
    ),
    "delete": Entry("checkpoints.delete", "delete_command", "Delete one checkpoint."),
    "copy": Entry("checkpoints.copy", "copy_command", "Copy a checkpoint and verify the copy."),
    "verify-spark": Entry(
        "checkpoints.verify_spark",
        "verify_spark_command",
        "Verify a checkpoint of Structured Streaming.",
    ),
    "fork": Entry(
        "checkpoints.fork",
        "fork_command",
        "Let a second pipeline start from a checkpoint, by reference.",
    ),
    "export": Entry("checkpoints.export", "export_command", "Write a checkpoint to one tar file."),
    "import": Entry(
        "checkpoints.import_", "import_command", "Import an exported or a LaminarDB checkpoint."
    ),
}
STATE: Section = {
    "state": Entry("state.state", "state_command", "Show keyed state as rows."),
    "diff": Entry(
        "state.diff", "diff_command", "Show what differs between two epochs or checkpoints."
    ),
}
LOG: Section = {
    "wal": Entry("wal.group", "wal_group", "List, print, verify and repair the write-ahead log."),
    "recover": Entry(
        "wal.recover", "recover_command", "Show what a start would recover, without starting."
    ),
}
TOOLS: Section = {
    "ui": Entry("tools.ui", "ui_command", "Show pipelines as a page in the browser."),
    "doctor": Entry(
        "tools.doctor", "doctor_command", "Check what is installed and whether stores respond."
    ),
    "jars": Entry("tools.jars", "jars_command", "List the jars that connectors need on a cluster."),
    "demo": Entry("demo.demo", "demo_command", "Kill a pipeline repeatedly and check its results."),
}
SECTIONS: Mapping[str, Section] = {
    "Pipelines": PIPELINES,
    "Checkpoints": CHECKPOINTS,
    "State": STATE,
    "Log": LOG,
    "Tools": TOOLS,
}
ALIASES = {"inspect": "state"}
"""Names that commands had before."""

WAL: Section = {
    "list": Entry(
        "wal.list", "wal_list_command", "List the segments of the driver and of every core."
    ),
    "dump": Entry("wal.dump", "wal_dump_command", "Print the records of the log, one line each."),
    "verify": Entry("wal.verify", "wal_verify_command", "Verify every byte of the log."),
    "repair": Entry("wal.repair", "wal_repair_command", "Cut the torn end off a segment."),
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
        entry = self._entries.get(name) or self._entries.get(ALIASES.get(name, ""))
        if entry is None:
            return super().get_command(context, name)
        found = getattr(import_module(f"lamina.cli.{entry.module}"), entry.attribute)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, each.summary) for name, each in section.items()])
