"""Files on a machine's own disk that can be made again: whole or not there, and not synced."""

from __future__ import annotations

import os
from pathlib import Path

from lamina.os_errors import typed_errors


def write_whole(path: Path, data: bytes) -> None:
    """Under its name when it is whole; two that write the same file do not meet."""
    with typed_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        aside.write_bytes(data)
        aside.replace(path)
