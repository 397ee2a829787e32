"""Which checkpoints go along with a home that moves, and where to."""

from __future__ import annotations

from dataclasses import dataclass

from lamina.checkpoint import Checkpointer
from lamina.checkpoint.progress import Report
from lamina.cli.support.places import place_of
from lamina.cli.support.target import open_at
from lamina.errors import NotFound, UsageError
from lamina.recovery.moving_stores import StoreMove
from lamina.store.address import home_address


@dataclass(frozen=True, slots=True)
class StorePlan:
    """Addresses as --store has them; empty: not known."""

    home: str
    now: str
    then: str
    is_given: bool  # somebody has said so; a default is looked at: the home may use another one
    must_be_there: bool  # nothing else would work

    @property
    def moves(self) -> bool:
        return bool(self.now) and self.now.rstrip("/") != self.then.rstrip("/")

    @property
    def stays(self) -> str:
        """Where they stay, if somebody has said so."""
        return "" if self.moves or not self.is_given else self.now

    def is_below_home(self, store: str) -> bool:
        """Whether who deletes the old place deletes the checkpoints."""
        return f"{store.rstrip('/')}/".startswith(f"{self.home.rstrip('/')}/")


def plan_stores(
    pipeline: str | None, home: str, to_home: str, *, store: str | None, to_store: str | None
) -> StorePlan:
    """The default store goes by the home; one that somebody has chosen stays.

    A home in an object store cannot have its checkpoints in a folder.
    """
    place = place_of(pipeline or "unnamed", home)
    new = place_of(pipeline or "unnamed", to_home)
    is_remote, goes_remote = bool(home_address(home)), bool(home_address(to_home))
    now = store or (place.store if pipeline or is_remote else "")
    if not now and (goes_remote or to_store):
        raise UsageError("where are the checkpoints of this home? Give PIPELINE or --store")
    is_folder = goes_remote and "://" not in now
    if to_store:
        then = to_store
    elif is_folder or (not store and (pipeline or goes_remote)):
        then = new.store
    else:
        then = now
    if goes_remote and "://" not in then:
        raise UsageError(
            "a home in an object store has its checkpoints in one, too: --to-store URL"
        )
    return StorePlan(home, now, then, bool(store), bool(store or to_store or not is_remote))


def store_move(plan: StorePlan, *, is_read_only: bool, report: Report) -> StoreMove | None:
    """None if they stay where somebody has said that they are, or nobody knows where."""
    if not plan.now or plan.stays:
        return None
    found = _opened(plan.now, is_read_only=True)
    if found is None or not found.history().seq:
        if not (plan.moves and plan.must_be_there):
            return None
        raise NotFound(
            "there are no checkpoints of this home here",
            where=plan.now,
            advice="Give the --store that the pipeline was started with",
        )
    if not plan.moves:
        return StoreMove(found, None, where=plan.now, must_exist=False)
    return StoreMove(
        found if is_read_only else _opened(plan.now, is_read_only=False) or found,
        _opened(plan.then, is_read_only=is_read_only),
        where=plan.then,
        must_exist=plan.must_be_there,
        report=report,
    )


def _opened(url: str, *, is_read_only: bool) -> Checkpointer | None:
    """None if there is no such store, and none is to be made."""
    try:
        store = open_at(url, {}, writable=not is_read_only)
    except NotFound:
        if is_read_only:
            return None
        raise
    return Checkpointer(store, vnode_count=None)
