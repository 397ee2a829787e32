"""`lamina.open`: recovery first, then the store."""

from __future__ import annotations

import shutil
from pathlib import Path

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.clock import Clock, SystemClock, new_writer_id
from lamina.disk import LocalDisk
from lamina.embedded.store import EmbeddedStore
from lamina.errors import UsageError
from lamina.os_errors import typed_errors
from lamina.recovery.manager import Recovered, RecoveryConfig, RecoveryManager
from lamina.state.local import RunFolder
from lamina.state.vnodes import check_partitions
from lamina.store import Store
from lamina.store import open_store as open_object_store

STORE, HOME, STATE = "checkpoints", "home", "state"


def open_store(
    path_or_url: str | Path,
    *,
    home: str | Path | None = None,
    partitions: int | None = None,
    lose_after: int | None = None,
    take_over_home: bool = False,
    start_fresh: bool = False,
    retain: int = 3,
    clock: Clock | None = None,
) -> EmbeddedStore:
    """Open keyed state for reading and writing, at its last acknowledged commit.

    A folder holds both the log (`home/`) and the checkpoints (`checkpoints/`). With a URL of an
    object store, *home* is a local folder for the log. *partitions* is kept from the last time
    unless it is given. *lose_after*, *take_over_home* and *start_fresh* are what only a person may
    decide. WAL is kept back to the oldest of *retain* checkpoints.
    """
    if partitions is not None:
        check_partitions(partitions)
    clock = clock or SystemClock()
    store, home_path = places(path_or_url, home)
    checkpointer = Checkpointer(store, clock=clock)
    scratch = home_path / STATE / new_writer_id(clock)
    folder = RunFolder(scratch)
    folder.clear()
    manager = RecoveryManager(
        LocalDisk(home_path),
        checkpointer,
        scratch=scratch,
        config=RecoveryConfig(
            lose_after=lose_after,
            take_over_home=take_over_home,
            start_fresh=start_fresh,
            partitions=partitions or 1,
        ),
        clock=clock,
    )
    try:
        recovered = manager.run()
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    try:
        _remove_older(scratch)
        return EmbeddedStore(
            checkpointer,
            recovered,
            folder,
            partitions=partitions or _partitions(recovered),
            retain=retain,
        )
    except BaseException:
        recovered.close()
        raise


def places(path_or_url: str | Path, home: str | Path | None) -> tuple[Store, Path]:
    """The store and the home that belong together."""
    text = str(path_or_url)
    if "://" not in text:
        folder = Path(text)
        return open_object_store(str(folder / STORE)), Path(home) if home else folder / HOME
    if home is None:
        raise UsageError(
            f"{text} is a store: the log needs a folder of its own on a local disk",
            advice='Name it: lamina.open("s3://...", home="/var/lib/...")',
        )
    return open_object_store(text), Path(home)


def _partitions(recovered: Recovered) -> int:
    """P as it was: that of the last COMMIT or checkpoint."""
    state = recovered.state
    if state.replayed:
        return state.replayed[-1].partitions
    keyed = [
        operator.keyed.partitions
        for operator in (state.manifest.operators.values() if state.manifest else ())
        if operator.keyed is not None
    ]
    return max(keyed, default=1)


def _remove_older(scratch: Path) -> None:
    """Run files of processes that are gone; this one has the lock of the home."""
    with typed_errors(scratch.parent):
        for folder in scratch.parent.iterdir():
            if folder != scratch:
                shutil.rmtree(folder)
