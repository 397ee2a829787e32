"""Which folder is the store, and which the home: a folder of `lamina.open` holds both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lamina.embedded.opening import HOME, STORE
from lamina.errors import NotFound
from lamina.os_errors import typed_errors
from lamina.store.address import kept_by

LOG = "log"


@dataclass(frozen=True, slots=True)
class Places:
    """The address of the checkpoints, and the folder of the log if one is known."""

    store: str
    home: Path | None


def of_pipeline(
    store: str | Path, home: str | Path | None, given_store: str | None = None
) -> tuple[str | Path, str | Path | None]:
    """Store and home of a pipeline file, if *store* is one; else both as they are.

    A home that is not on this machine is left out: then there are only checkpoints.
    """
    file = Path(store)
    if file.suffix != ".sql" or "://" in str(store) or file.is_dir():
        return store, home
    if not file.exists():
        raise NotFound("there is no such pipeline file", where=str(store))
    kept = kept_by(file, home, given_store)
    has_home = home is not None or kept.home.is_dir()
    return kept.store, (kept.remote or kept.home) if has_home else None


def locate(address: str | Path, home: str | Path | None = None) -> Places:
    """Take the folder of checkpoints, or the one that `lamina.open` was given."""
    text = str(address)
    given = Path(home) if home is not None else None
    folder = _local(text)
    if folder is None:
        return Places(text, given)
    with typed_errors(folder):
        if (folder / LOG).exists() or not (folder / STORE / LOG).exists():
            return Places(text, given)
        beside = folder / HOME
        return Places(str(folder / STORE), given or (beside if beside.is_dir() else None))


def _local(text: str) -> Path | None:
    """The folder that an address stands for; None if it is in an object store."""
    if "://" not in text:
        return Path(text)
    parts = urlsplit(text)
    return Path(unquote(parts.path)) if parts.scheme == "file" and not parts.netloc else None
