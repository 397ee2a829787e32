"""Homes in a bucket: many drivers, hosts that are lost, late requests, outages, lifecycle rules."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from lamina.errors import StoreUnavailable
from lamina.protocol import pieces
from lamina.protocol.pieces import Slot, Verdict
from lamina.store import retry
from lamina.store.base import Data
from tests.sim import remote_driver
from tests.sim.remote_disk import RemoteDisk
from tests.sim.remote_driver import RemoteTask
from tests.sim.remote_run import run_remote_seed
from tests.sim.remote_store import BucketStore
from tests.sim.tasks import Range

SEEDS = int(os.environ.get("LAMINA_SIM_SEEDS", "80"))
FIRST = int(os.environ.get("LAMINA_SIM_FIRST", "0"))
SEEDS_MAX = 80  # for a mutant: what the simulation tries by default
Patch = Callable[[Any, str, Any], None]


def test_the_guarantees_hold_in_a_remote_home_under_every_seed() -> None:
    worlds = [run_remote_seed(seed) for seed in range(FIRST, FIRST + SEEDS)]
    # A simulation in which nothing happens proves nothing.
    assert sum(world.recoveries for world in worlds) > 3 * SEEDS
    assert sum(len(world.acks) for world in worlds) > 5 * SEEDS
    assert sum(world.fenced for world in worlds) > 3 * SEEDS
    assert sum(world.dropped for world in worlds) > 3 * SEEDS
    assert sum(world.checkpoints for world in worlds) > SEEDS
    assert min(sum(world.outages for world in worlds), sum(w.named for w in worlds)) > SEEDS // 4
    assert sum(world.bucket.late for world in worlds) > SEEDS // 4


def test_a_seed_of_a_remote_home_replays_to_the_same_outcome() -> None:
    one, two = run_remote_seed(5), run_remote_seed(5)
    assert (one.acks, one.stopped, one.dropped) == (two.acks, two.stopped, two.dropped)


# The rules are needed: without any one of them the same seeds fail.


def r1_a_task_returns_before_its_run_is_in_the_bucket(patch: Patch) -> None:
    run = RemoteTask._run

    def early(self: RemoteTask, store: Any, copy: int, large: bool) -> None:
        if large:
            key = f"{self.driver.home}/runs/{self.name(copy)}"
            self.result = self.result or Range(self.core, key, 0, self.content)
        run(self, store, copy, large)

    patch(RemoteTask, "_run", early)


def r1_runs_of_two_processes_have_one_name(patch: Patch) -> None:
    def same(self: RemoteTask, copy: int) -> str:
        return f"000000-{self.epoch:06d}-c{self.core}-{copy}"

    patch(RemoteTask, "name", same)


def r2_a_number_that_is_taken_is_overwritten(patch: Patch) -> None:
    def overwrite(self: BucketStore, key: str, data: Data) -> None:
        self._arrive(key, data)

    patch(BucketStore, "create", overwrite)


def r2_an_unclear_answer_is_a_success(patch: Patch) -> None:
    create = RemoteDisk._create

    def hopeful(self: RemoteDisk, *args: Any, claiming: bool) -> Verdict:
        try:
            return create(self, *args, claiming=claiming)
        except StoreUnavailable:
            self.head += 1
            return Verdict.DONE

    patch(RemoteDisk, "_create", hopeful)


def r5_the_piece_of_another_is_taken_for_the_own(patch: Patch) -> None:
    judge = pieces.judge_slot

    def trusting(generation: int, *, claiming: bool, **rest: Any) -> Verdict:
        return judge(generation, claiming=claiming, **rest) if claiming else Verdict.DONE

    patch(pieces, "judge_slot", trusting)


def r5_the_own_piece_is_taken_for_that_of_another(patch: Patch) -> None:
    patch(retry, "same_bytes", lambda *_: False)


def r5_a_driver_goes_on_behind_the_claim_of_another(patch: Patch) -> None:
    judge = pieces.judge_slot

    def pushing(generation: int, *, claiming: bool, **rest: Any) -> Verdict:
        return judge(generation, claiming=claiming, **rest) if claiming else Verdict.NEXT

    patch(pieces, "judge_slot", pushing)


def r5_who_is_fenced_publishes_first(patch: Patch) -> None:
    sync = RemoteDisk.sync

    def late(self: RemoteDisk, path: str) -> None:
        if getattr(self, "fenced", None):
            raise self.fenced  # type: ignore[attr-defined]
        try:
            sync(self, path)
        except Exception as error:  # noqa: BLE001  the next sync raises it
            self.fenced = error  # type: ignore[attr-defined]

    patch(RemoteDisk, "sync", late)


def r5_a_claim_behind_an_equal_generation(patch: Patch) -> None:
    judge = pieces.judge_slot

    def equal(generation: int, *, claiming: bool, **rest: Any) -> Verdict:
        return judge(generation + claiming, claiming=claiming, **rest)

    patch(pieces, "judge_slot", equal)


def r5_a_claim_that_does_not_count_is_deleted(patch: Patch) -> None:
    restore = RemoteDisk.restore

    def tidy(self: RemoteDisk) -> None:
        if self.slots and self.slots[-1].is_claim and self.generations:
            with suppress(StoreUnavailable):
                self.store.delete(self._key(self.head))
        restore(self)

    patch(RemoteDisk, "restore", tidy)


def r11_claims_are_dropped_with_their_segments(patch: Patch) -> None:
    drop = pieces.droppable

    def greedy(slots: Any, kept: Any) -> tuple[int, ...]:
        first = pieces._truth(sorted(slots, key=lambda slot: slot.sequence))
        claims = {s.sequence for s in slots if s.is_claim and s.segment not in kept}
        return tuple(sorted({*drop(slots, kept), *(s for s in claims if s < first)}))

    patch(pieces, "droppable", greedy)


def r7_pieces_and_runs_above_the_floor_are_dropped(patch: Patch) -> None:
    patch(remote_driver, "wal_floor", lambda history, *_: history.epoch_max + 1)


def r11_leftovers_of_later_processes_are_dropped(patch: Patch) -> None:
    patch(pieces, "is_leftover", lambda _, epoch, *, own, head: epoch > head)


def r12_a_log_that_is_gone_is_a_new_one(patch: Patch) -> None:
    patch(remote_driver, "has_lost_its_log", lambda *_, **__: False)


def r12_what_is_deleted_while_it_is_read_is_damage(patch: Patch) -> None:
    piece = RemoteDisk._piece

    def absent(self: RemoteDisk, sequence: int) -> tuple[Slot, list[Any]]:
        # A slot of nothing: it is where the listing said, and holds no bytes of any segment.
        found = piece(self, sequence)
        if found is None:
            raise pieces._missing(sequence, self._key)
        return found

    patch(RemoteDisk, "_piece", absent)


MUTANTS = [
    value
    for name, value in list(globals().items())
    if name[:1] == "r" and name[1:2].isdigit() and callable(value)
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_the_simulation_of_a_remote_home_fails_when_a_rule_is_broken(
    mutant: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(lambda target, name, value: monkeypatch.setattr(target, name, value, raising=False))
    for seed in range(SEEDS_MAX):
        try:
            run_remote_seed(seed)
        except Exception as error:  # noqa: BLE001  a broken rule may show in any way but silence
            print(f"seed {seed}: {error}")
            return
    pytest.fail(f"{SEEDS_MAX} seeds without a complaint: the rule or the simulation is idle")
