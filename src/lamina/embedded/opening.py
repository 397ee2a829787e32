"""`lamina.open`: recovery first, then the store."""

from __future__ import annotations

import shutil
from pathlib import Path

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.clock import Clock, SystemClock, new_writer_id
from lamina.disk import LocalDisk
from lamina.disk.base import Disk
from lamina.embedded.store import EmbeddedStore
from lamina.errors import UsageError
from lamina.format.home_names import STATE
from lamina.os_errors import typed_errors
from lamina.protocol.retention import check_retain
from lamina.recovery.config import RecoveryConfig
from lamina.recovery.manager import Recovered, RecoveryManager
from lamina.state.local import RunFolder
from lamina.state.vnodes import check_partitions
from lamina.store import Store
from lamina.store import open_store as open_object_store

STORE, HOME = "checkpoints", "home"


def open_store(
    path_or_url: str | Path,
    *,
    home: str | Path | None = None,
    partitions: int | None = None,
    lose_after: int | None = None,
    take_over_home: bool = False,
    start_fresh: bool = False,
    retain: int = 3,
    compression: str | None = None,
    clock: Clock | None = None,
) -> EmbeddedStore:
    """Open keyed state for reading and writing, at its last acknowledged commit.

    A folder holds both the log (`home/`) and the checkpoints (`checkpoints/`). With a URL of an
    object store, *home* is a local folder for the log. *partitions* is that of the last time unless
    it is given. *lose_after*, *take_over_home* and *start_fresh* accept a loss, so a person decides
    about them each time. The log is kept back to the oldest of *retain* checkpoints. With
    *compression* ("zstd" or "lz4") files of checkpoints are smaller, and slower to open.
    """
    if partitions is not None:
        check_partitions(partitions)
    if compression not in (None, "zstd", "lz4"):
        raise UsageError(f"compression is zstd or lz4, not {compression!r}")
    check_retain(retain)
    clock = clock or SystemClock()
    store, home_path = places(path_or_url, home)
    config = RecoveryConfig(
        lose_after=lose_after,
        take_over_home=take_over_home,
        start_fresh=start_fresh,
        partitions=partitions or 1,
    )
    return open_home(
        LocalDisk(home_path),
        Checkpointer(store, clock=clock),
        home_path / STATE,
        config=config,
        partitions=partitions,
        retain=retain,
        compression=compression,
    )


def open_home(
    disk: Disk,
    checkpointer: Checkpointer,
    local: Path,
    *,
    config: RecoveryConfig,
    partitions: int | None,
    retain: int,
    compression: str | None = None,
) -> EmbeddedStore:
    """The same with a log on any disk; run files are in a folder of their own below *local*.

    That folder is made after the home is claimed: the home makes its own path durable, if it does
    not find it there already.
    """
    clock = checkpointer.clock
    scratch = local / new_writer_id(clock)
    manager = RecoveryManager(disk, checkpointer, scratch=scratch, config=config, clock=clock)
    try:
        recovered = manager.run()
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    try:
        _prepare(scratch)
        return EmbeddedStore(
            checkpointer,
            recovered,
            RunFolder(scratch),
            partitions=partitions or _partitions(recovered),
            retain=retain,
            compression=compression,
        )
    except BaseException:
        recovered.close()
        raise


def places(path_or_url: str | Path, home: str | Path | None) -> tuple[Store, Path]:
    """The store and the home that belong together."""
    text = str(path_or_url)
    if "://" not in text:
        folder = Path(text).absolute()  # the process may change its folder meanwhile
        return open_object_store(str(folder / STORE)), _home(home or folder / HOME)
    if home is None:
        raise UsageError(
            f"{text} is a store: the log needs a folder of its own on a local disk",
            advice='Name it: lamina.open("s3://...", home="/var/lib/...")',
        )
    return open_object_store(text), _home(home)


def _home(home: str | Path) -> Path:
    return Path(home).absolute()


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


def _prepare(scratch: Path) -> None:
    """Remove the run files of processes that are gone: this one has the lock of the home."""
    with typed_errors(scratch):
        scratch.mkdir(parents=True, exist_ok=True)
        for folder in scratch.parent.iterdir():
            if folder != scratch:
                shutil.rmtree(folder)
