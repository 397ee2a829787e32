"""Staged files are what their tasks have written: proven before a sink shows them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lamina.engine.model import Staged
from lamina.errors import DigestMismatch, SizeMismatch

RESTORE = "Restore it from a copy of the home: the epoch is committed, and the sink lacks it"


def prove(path: Path, file: Staged, home: Path) -> None:
    """Corrupt if the bytes at *path*, the staged file or a link to it, are not those of *file*."""
    where, size = str(home / file.path), path.stat().st_size
    if size != file.size:
        message = f"a staged file has {size} bytes, and its COMMIT says {file.size}"
        raise SizeMismatch(message, where=where, advice=RESTORE)
    with path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != file.sha256:
        message = f"a staged file has the SHA-256 {digest[:12]}, not {file.sha256[:12]}"
        raise DigestMismatch(message, where=where, advice=RESTORE)
