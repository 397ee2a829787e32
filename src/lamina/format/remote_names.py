"""Every name in a home that is in an object store; built and parsed here.

<url>/home.json                               identity
<url>/epochs/<sequence>.wal                   20 digits; a piece of the driver log (format/piece.py)
<url>/runs/core-<p>/<segment>.wal             a large run, a segment of its own
<url>/staged/<generation>-<epoch>/of-....parquet   20 digits each; large output of a task
<url>/merged/<generation>/<name>.run          a run file that is not in a checkpoint
<url>/lent/<generation>/<sha256>.parquet      20 digits; a file of the driver's, for tasks of now
<url>/notes/<note>                            notes, under their names in a home
<url>/notes/holders/<generation>.json         20 digits; who has, or had, the home
<url>/preflight-<id>                          for a moment: do executors reach the store?
<url>/store/                                  checkpoints, unless they are elsewhere
"""

from __future__ import annotations

import re
import sys

from lamina.format.home_names import CoreSegment, parse_segment

EPOCHS, RUNS, MERGED, LENT, NOTES = "epochs", "runs", "merged", "lent", "notes"
HOLDERS, OLD_HOLDER = "holders", "holder.json"
NOBODY = (sys.maxsize, sys.maxsize)
_MADE = re.compile(r"(?:staged/(?:([0-9]{20})-)?([0-9]{20})|(?:merged|lent)/([0-9]{20}))/[^/]+")
_HOLDER = re.compile(r"([0-9]{20})\.json")
_PIECE = re.compile(r"epochs/([0-9]{20})\.wal")


def piece_key(sequence: int) -> str:
    return f"{EPOCHS}/{sequence:020d}.wal"


def parse_piece_key(key: str) -> int | None:
    """The sequence of a piece, or None if the key is not one."""
    found = _PIECE.fullmatch(key)
    return int(found[1]) if found else None


def run_key(segment: str) -> str:
    """Where the segment of a core is; *segment* is its path in a home."""
    return f"{RUNS}/{segment}"


def parse_run_key(key: str) -> CoreSegment | None:
    found = parse_segment(key.removeprefix(f"{RUNS}/"))
    return found if isinstance(found, CoreSegment) else None


def merged_key(generation: int, name: str) -> str:
    return f"{MERGED}/{generation:020d}/{name}"


def lent_key(generation: int, name: str) -> str:
    return f"{LENT}/{generation:020d}/{name}"


def staged_key(generation: int, file: str) -> str:
    """Where a staged file is; *file* is its path in a home."""
    folder, epoch, name = file.split("/")
    return f"{folder}/{generation:020d}-{epoch}/{name}"


def made_by(key: str) -> tuple[int, int]:
    """Generation and epoch of who has put an object; what nobody of us has put is of the end.

    Of a home that was local, output has no generation; and a segment that its core went on with
    has later epochs than its name says.
    """
    if found := _MADE.fullmatch(key):
        return int(found[1] or found[3] or 0), int(found[2] or 0)
    name = parse_run_key(key)
    return NOBODY if name is None or not name.own else (name.generation, name.epoch)


def note_key(name: str) -> str:
    return f"{NOTES}/{name}"


def holder_note(generation: int) -> str:
    """The note in which the process of a generation says where it runs, and that it has ended."""
    return f"{HOLDERS}/{generation:020d}.json"


def parse_holder_note(name: str) -> int | None:
    """The generation, of a name in the folder; None if the name is not one."""
    found = _HOLDER.fullmatch(name)
    return int(found[1]) if found else None
