"""Which pipelines the page shows: pipeline files, homes, stores, or what is in this folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lamina.errors import LaminaError, NotFound, UsageError
from lamina.format.home_names import IDENTITY
from lamina.format.names import CheckpointPaths
from lamina.front.places import PipelinePlace, place_of
from lamina.store import Store, open_store
from lamina.store.address import FOLDER, home_address

LOG = "log"
_UNSAFE = re.compile(r"[^a-z0-9]+")
_KEY_MAX = 40


@dataclass(frozen=True, slots=True)
class Subject:
    """One pipeline; what is not known of it is empty."""

    key: str  # in addresses of the page; made by us, so safe in any of them
    name: str
    home: str = ""  # a folder, or an address in an object store
    store: str = ""
    base: str = ""
    file: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may hold secrets

    @property
    def remote(self) -> str:
        return home_address(self.home)

    @property
    def place(self) -> PipelinePlace:
        """As other commands have it; *file* may be a mere name."""
        return place_of(self.file or self.name, self.home or None, self.store or None)

    @property
    def folder(self) -> Path | None:
        """Of this machine: where a process would be seen; None without a home."""
        return self.place.home if self.home else None

    def open_store(self, *, writable: bool = False) -> Store:
        if not self.store:
            raise NotFound("no store is known of this home", advice="Start the page with --store")
        return open_store(self.store, writable=writable, **self.options)

    @property
    def paths(self) -> CheckpointPaths:
        return CheckpointPaths(self.base)


def find_subjects(
    files: Sequence[str],
    homes: Sequence[str],
    stores: Sequence[str],
    *,
    base: str = "",
    options: Mapping[str, Any] | None = None,
    here: Path | None = None,
) -> tuple[Subject, ...]:
    """What a command line names; of nothing at all, the pipelines of this folder.

    One home and one store belong together, and to the one file that is named with them.
    """
    given = options or {}
    if len(homes) == 1 and len(stores) == 1 and len(files) <= 1:
        file = Path(files[0]) if files else None
        name = file.stem if file else _name_of(homes[0])
        return _keyed([Subject("", name, homes[0], stores[0], base, file, given)])
    if files and (homes or stores):
        raise UsageError(
            "several pipelines cannot share one home or store",
            advice="Name one file with its --home and --store, or files and homes in two calls",
        )
    found = [_of_file(Path(each), given) for each in files]
    found += [_of_home(each, given) for each in homes]
    for each in stores:
        found += _of_store(each, base, given)
    if not (files or homes or stores):
        found = list(_around(here or Path.cwd(), given))
        if not found:
            raise UsageError(
                "there is no pipeline in this folder",
                where=str(here or Path.cwd()),
                advice="Name a pipeline file, --home or --store",
            )
    return _keyed(found)


def _of_file(file: Path, options: Mapping[str, Any]) -> Subject:
    place = place_of(file)
    if not file.exists() and not place.home.exists():
        raise NotFound("there is no such pipeline file", where=str(file))
    return Subject("", place.name, str(place.home), place.store, file=file, options=options)


def _of_home(home: str, options: Mapping[str, Any]) -> Subject:
    """A home by itself has its store beside it, where `lamina run` puts it."""
    if home_address(home):
        return Subject("", _name_of(home), home, f"{home.rstrip('/')}/store", options=options)
    beside = Path(home).absolute().parent / "store"
    store = str(beside) if beside.is_dir() else ""
    return Subject("", _name_of(home), home, store, options=options)


def _of_store(url: str, base: str, options: Mapping[str, Any]) -> list[Subject]:
    """A store of one pipeline; or, if there is no log at its top, those of its folders that have.

    A store that cannot be read is one, too: its page says why.
    """
    alone = Subject("", base.rpartition("/")[2] or _name_of(url), "", url, base, options=options)
    try:
        store = alone.open_store()
        paths = alone.paths
        top = store.list_folder(base)
        if LOG in top.folders:
            return [alone]
        bases = [paths.absolute(name) for name in top.folders]
        inside = [each for each in bases if LOG in store.list_folder(each).folders]
    except LaminaError:
        return [alone]
    if not inside:
        return [alone]
    return [Subject("", each.rpartition("/")[2], "", url, each, options=options) for each in inside]


def _around(folder: Path, options: Mapping[str, Any]) -> Iterable[Subject]:
    """Pipeline files of a folder, and pipelines whose file is gone."""
    files = {file.stem: file for file in sorted(folder.glob("*.sql"))}
    kept = folder / FOLDER
    homes = (
        {each.name for each in kept.iterdir() if (each / "home" / IDENTITY).exists()}
        if (kept.is_dir())
        else set()
    )
    for name in sorted({*files, *homes}):
        yield _of_file(files.get(name, folder / f"{name}.sql"), options)


def _name_of(address: str) -> str:
    """`s3://bucket/orders/home` and `orders/store` are of `orders`."""
    parts = [part for part in re.split(r"[/\\]+", address) if part and not part.endswith(":")]
    named = [part for part in parts if part not in ("home", "store", FOLDER)]
    return (named or parts or ["pipeline"])[-1]


def _keyed(found: Iterable[Subject]) -> tuple[Subject, ...]:
    """Each with a key of its own."""
    keyed: dict[str, Subject] = {}
    for each in found:
        plain = _UNSAFE.sub("-", each.name.lower()).strip("-")[:_KEY_MAX] or "pipeline"
        key, number = plain, 2
        while key in keyed:
            key, number = f"{plain}-{number}", number + 1
        keyed[key] = Subject(
            key, each.name, each.home, each.store, each.base, each.file, each.options
        )
    return tuple(keyed.values())
