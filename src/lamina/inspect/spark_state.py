"""Which files of state a batch of Structured Streaming loads, and which of them are missing.

A batch n needs version n of every store of every partition of every operator: a snapshot, and every
change after it, or every change from version 1 on. In state format 2 the commit before says which
of several versions of one number it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lamina.format.spark_files import DEFAULT_STORE, StateFile
from lamina.format.spark_log import SparkCommit
from lamina.inspect.spark_folder import SparkFolder


@dataclass(frozen=True, slots=True)
class StorePlace:
    """One store of one partition of one operator."""

    operator: int
    partition: int
    store: str

    @property
    def folder(self) -> str:
        name = "" if self.store == DEFAULT_STORE else f"/{self.store}"
        return f"state/{self.operator}/{self.partition}{name}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a batch loads of one store."""

    place: StorePlace
    files: tuple[str, ...]
    missing: str = ""  # which file stands in its way, in words

    @property
    def is_whole(self) -> bool:
        return not self.missing


def load_state(folder: SparkFolder, batch: int) -> Iterator[Loaded]:
    """What *batch* loads, store by store; before batch 0 there is nothing."""
    if batch == 0:
        return
    files = defaultdict[StorePlace, list[StateFile]](list)
    for each in folder.state:
        files[StorePlace(each.operator, each.partition, each.store)].append(each)
    for place in _places(folder, files, batch):
        yield _load(folder, place, files.get(place, []), batch)


def _places(
    folder: SparkFolder, files: Mapping[StorePlace, Sequence[StateFile]], batch: int
) -> list[StorePlace]:
    """Those that there must be, and those that are there: as metadata and settings have it."""
    known = set(files)
    offsets = folder.offsets.get(batch) or folder.offsets.get(batch - 1)
    partitions = offsets.partitions if offsets else None
    for id, operator in folder.operators.items():
        for store, declared in operator.stores.items():
            count = 1 if id in folder.without_keys else declared
            known.update(StorePlace(id, at, store) for at in range(count))
    for id in {place.operator for place in files} - set(folder.operators):
        stores = {place.store for place in files if place.operator == id}
        count = 1 if id in folder.without_keys else partitions or 0
        known.update(StorePlace(id, at, store) for at in range(count) for store in stores)
    return sorted(known, key=lambda place: (place.operator, place.partition, place.store))


def _load(folder: SparkFolder, place: StorePlace, files: Sequence[StateFile], batch: int) -> Loaded:
    """From *batch* back to a snapshot, or to the beginning."""
    needed: list[str] = []
    for version in range(batch, 0, -1):
        wanted = _id(folder.commits.get(version - 1), place, folder)
        here = [f for f in files if f.version == version and wanted in ("", f.id)]
        if version == batch and not wanted and any(f.id for f in here):
            message = f"commits/{version - 1}, which names version {version} in {place.folder}"
            return Loaded(place, (), message)
        whole = next((f for f in here if f.is_whole), None)
        change = next((f for f in here if not f.is_whole), None)
        found = whole or change
        if found is None:
            name = f"{version}_{wanted}" if wanted else str(version)
            return Loaded(place, tuple(needed), f"version {name} in {place.folder}")
        needed.append(found.key)
        if whole is not None:
            missing = _lacks(folder, whole, place)
            tables = (f"{place.folder}/SSTs/{name}" for name, _ in folder.tables.get(whole.key, ()))
            return Loaded(place, (*needed, *tables), missing)
    return Loaded(place, tuple(needed))


def _lacks(folder: SparkFolder, snapshot: StateFile, place: StorePlace) -> str:
    """The first file that a snapshot of RocksDB needs and that is not there, or not of its size."""
    for name, size in folder.tables.get(snapshot.key, ()):
        key = f"{place.folder}/SSTs/{name}"
        if folder.sizes.get(key) != size:
            has = folder.sizes.get(key)
            return f"{key} ({'missing' if has is None else f'{has} bytes instead of {size}'})"
    return ""


def _id(commit: SparkCommit | None, place: StorePlace, folder: SparkFolder) -> str:
    """The id of the version that a commit has left; empty where there are none."""
    if commit is None or place.operator not in commit.state_ids:
        return ""
    partitions = commit.state_ids[place.operator]
    operator = folder.operators.get(place.operator)
    stores = list(operator.stores) if operator else [place.store]
    if place.partition >= len(partitions) or place.store not in stores:
        return ""
    ids, at = partitions[place.partition], stores.index(place.store)
    return ids[at] if at < len(ids) else ""
