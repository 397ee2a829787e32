"""`lamina.open`: recovery first, then the store."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.clock import Clock, SystemClock
from lamina.embedded.store import EmbeddedStore
from lamina.errors import UsageError
from lamina.protocol.retention import check_retain
from lamina.recovery.config import RecoveryConfig
from lamina.recovery.manager import Recovered, RecoveryManager
from lamina.state.vnodes import check_partitions
from lamina.store import Store
from lamina.store import open_store as open_object_store
from lamina.store.address import home_address
from lamina.workspace.base import Workspace
from lamina.workspace.local import LocalWorkspace

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
        LocalWorkspace(home_path, clock),
        Checkpointer(store, clock=clock),
        config=config,
        partitions=partitions,
        retain=retain,
        compression=compression,
    )


def open_home(
    space: Workspace,
    checkpointer: Checkpointer,
    *,
    config: RecoveryConfig,
    partitions: int | None,
    retain: int,
    compression: str | None = None,
) -> EmbeddedStore:
    """The same in any workspace."""
    with ExitStack() as on_failure:
        on_failure.callback(space.discard)
        clock = checkpointer.clock
        recovered = RecoveryManager(space, checkpointer, config=config, clock=clock).run()
        on_failure.callback(recovered.close)
        store = EmbeddedStore(
            checkpointer,
            recovered,
            space,
            partitions=partitions or _partitions(recovered),
            retain=retain,
            compression=compression,
        )
        on_failure.pop_all()
    return store


def places(path_or_url: str | Path, home: str | Path | None) -> tuple[Store, Path]:
    """The store and the home that belong together."""
    text = str(path_or_url)
    if "://" not in text:
        folder = Path(text).absolute()  # the process may change its folder meanwhile
        kept = _home(home or folder / HOME)
        return open_object_store(str(folder / STORE)), kept
    if home is None:
        raise UsageError(
            f"{text} is a store: the log needs a folder of its own on a local disk",
            advice='Name it: lamina.open("s3://...", home="/var/lib/...")',
        )
    kept = _home(home)
    return open_object_store(text), kept


def _home(home: str | Path) -> Path:
    if home_address(home):
        raise UsageError(
            "the home of a store that a program opens is a folder on a local disk",
            where=str(home),
            advice='Name one: lamina.open("s3://...", home="/var/lib/...")',
        )
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
