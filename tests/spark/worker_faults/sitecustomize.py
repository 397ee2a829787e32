"""Faults inside of Spark's Python workers; Python imports this by its name when it starts.

A task opens the file for its output after its append to the WAL. There, once in every epoch, it
fails or its worker dies. What has happened is remembered in the folder that TRIP_FOLDER names.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

FOLDER = os.environ.get("TRIP_FOLDER")


def trip(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or arguments[1] not in ("x", "xb"):
        return
    path = Path(str(arguments[0]))
    if not path.name.startswith("of-totals-"):
        return
    epoch = int(path.parent.name)
    fault = "raise" if epoch % 2 else "die"
    try:
        os.close(os.open(f"{FOLDER}/{fault}-{epoch}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    if fault == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("the first attempt")


if FOLDER:
    sys.addaudithook(trip)
