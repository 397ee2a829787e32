"""What `lamina verify` says about a home: for a person, and for a script."""

from __future__ import annotations

from lamina.cli.support.screen import Screen
from lamina.cli.support.shapes import Shape
from lamina.cli.support.words import counted, size
from lamina.cli.wal.verify import print_advice, trouble_shape, verdict
from lamina.disk.base import Disk
from lamina.inspect.verification import HomeReport

COLUMNS = ("SEVERITY", "CODE", "FILE", ">BYTE", "MESSAGE")


def home_shape(disk: Disk, found: HomeReport) -> Shape:
    return {
        "folder": disk.root,
        "id": found.identity.hex() if found.identity else None,
        "ok": found.ok,
        "bytes_read": found.bytes_read,
        "segments": len(found.segments),
        "staged_files": found.staged_files,
        "run_files": found.run_files,
        "start_epoch": found.start_epoch,
        "problems": [trouble_shape(each) for each in found.troubles],
    }


def print_home(screen: Screen, found: HomeReport) -> None:
    troubles = list(found.troubles)
    if troubles:
        rows = [
            (str(t.severity), t.code or "-", t.path, str(t.offset), t.message) for t in troubles
        ]
        screen.table(COLUMNS, rows)
        print_advice(screen, troubles)
        screen.line()
    lands = "" if found.start_epoch is None else f"; a start lands on epoch {found.start_epoch}"
    screen.line(
        f"home {verdict(troubles)}: {counted(len(found.segments), 'segment')}, "
        f"{counted(found.staged_files, 'staged file')}, {counted(found.run_files, 'run file')}, "
        f"{size(found.bytes_read)} read{lands}"
    )
