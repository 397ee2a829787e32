"""Every rule is needed: the simulation must fail when any one of them is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lamina.checkpoint import commit_log
from lamina.protocol import history, recovery, retention
from lamina.protocol.driver import Adopt
from lamina.protocol.sinks import Due, Publish, is_ahead
from lamina.store.base import Data
from tests.sim import driver, tasks, tools, world
from tests.sim.disk import Disk
from tests.sim.run import RARE, run_seed
from tests.sim.store import SimStore
from tests.sim.tasks import Range, Run

SEEDS = (RARE, *range(150))  # what the simulation tries by default
Patch = Callable[[Any, str, Any], None]


def r1_a_task_cuts_to_what_is_synced(patch: Patch) -> None:
    whole = tasks._append

    def cut(disk: Disk, path: str, run: Run) -> Range:
        committed = len(disk.files[path].records)
        disk._scheduler.pause("about to cut")
        disk.truncate(path, min(committed, len(disk.files[path].records)))
        return whole(disk, path, run)

    patch(tasks, "_append", cut)
    patch(Disk, "locks", property(lambda _: {}, lambda _, __: None))


def r2_a_home_takes_over_although_a_sink_is_ahead(patch: Patch) -> None:
    due = recovery.plan_sink

    def blind(name: str, at: Any, head: Any, commits: Any, **flags: Any) -> Any:
        return Due(()) if is_ahead(at, head) else due(name, at, head, commits, **flags)

    patch(recovery, "plan_sink", blind)


def r3_a_taken_slot_is_overwritten(patch: Patch) -> None:
    def overwrite(self: SimStore, key: str, data: Data) -> None:
        self.inner.put(key, data)
        self.version += 1

    patch(SimStore, "create", overwrite)


def r3_an_older_generation_may_still_checkpoint(patch: Patch) -> None:
    patch(history, "_judge_owner", lambda *_: None)
    patch(history, "_judge_checkpoint", lambda *_: None)
    patch(history, "_judge_rewind", lambda *_: None)


def r3_a_checkpoint_begun_before_a_rewind_is_still_accepted(patch: Patch) -> None:
    patch(history, "_judge_checkpoint", lambda *_: None)


def r4_epochs_continue_from_the_driver_log_alone(patch: Patch) -> None:
    def forgetful(found: recovery.Found) -> list[int]:
        head = recovery.accepted_head(found.segments)
        return [head.epoch if head else 0]

    patch(recovery, "_epochs", forgetful)


def r5_a_driver_does_not_look_for_a_newer_segment(patch: Patch) -> None:
    patch(driver, "check_not_superseded", lambda *_: None)


def r5_commits_are_adopted_without_a_sync(patch: Patch) -> None:
    def unsynced(self: driver.Driver, plan: recovery.Plan, records: Any) -> None:
        copied = tuple(self._pending_record(c, records) for c in plan.adopt.commits)
        self.disk.append(self._segment(self.generation), (plan.adopt, copied))

    patch(driver.Driver, "_adopt", unsynced)


def r5_only_the_head_is_adopted_not_the_commits(patch: Patch) -> None:
    plan = recovery.plan_recovery

    def headless(found: recovery.Found) -> recovery.Plan:
        return replace(plan(found), adopt=Adopt(None, ()))

    patch(driver, "plan_recovery", headless)


def r5_sinks_are_not_fenced_before_the_look(patch: Patch) -> None:
    patch(world.Sink, "fence", lambda *_: None)


def r5_look_first_claim_later(patch: Patch) -> None:
    claim = driver.Driver._claim

    def early(self: driver.Driver) -> None:
        seen = self._segments(), self._records()
        claim(self)
        self._segments, self._records = lambda: seen[0], lambda: seen[1]  # type: ignore[method-assign]

    patch(driver.Driver, "_claim", early)


def r4_a_rewind_that_is_adopted_takes_nothing_back(patch: Patch) -> None:
    pending = driver.Driver._pending_record

    def forgetful(self: driver.Driver, *args: Any) -> Any:
        return replace(pending(self, *args), takes_back=False)

    patch(driver.Driver, "_pending_record", forgetful)


def r4_a_sink_takes_back_to_the_newest_epoch(patch: Patch) -> None:
    show = world.Sink._show

    def blind(self: world.Sink, record: world.Record) -> None:
        show(self, replace(record, takes_back=False))

    patch(world.Sink, "_show", blind)


def r6_a_sink_publishes_whatever_it_is_given(patch: Patch) -> None:
    patch(world, "decide_publish", lambda *_, **__: Publish.NOW)


def r7_a_manifest_carries_no_output_for_slow_sinks(patch: Patch) -> None:
    save = driver.save_state
    patch(driver, "save_state", lambda *a, **k: save(*a, **{**k, "carried": ()}))


def r7_wal_is_dropped_up_to_the_newest_checkpoint(patch: Patch) -> None:
    def greedy(history: history.History, *_: Any) -> int:
        return history.epoch_max

    patch(driver, "wal_floor", greedy)


def r11_gc_forgets_savepoints_and_what_is_stood_upon(patch: Patch) -> None:
    patch(retention, "judge_forget", lambda *_: None)
    patch(history, "judge_forget", lambda *_: None)


def r11_a_forgotten_checkpoint_may_be_pinned(patch: Patch) -> None:
    patch(history, "_judge_pin", lambda *_: None)


def r11_an_unfinished_checkpoint_counts_as_garbage(patch: Patch) -> None:
    patch(retention, "in_flight", lambda *_: False)


def r11_files_that_others_share_are_deleted(patch: Patch) -> None:
    sweep = retention.plan_sweep
    patch(tools, "plan_sweep", lambda objects, begin, _: sweep(objects, begin, ()))


def r11_gc_does_not_choose_again_when_the_log_has_moved_on(patch: Patch) -> None:
    forget = commit_log.CommitLog.forget

    def stale(self: commit_log.CommitLog, choose: Any) -> history.History:
        chosen = choose(self.read())
        return forget(self, lambda h: tuple(i for i in chosen if h.find(i)))

    patch(commit_log.CommitLog, "forget", stale)
    patch(history, "judge_forget", lambda *_: None)


def r12_recovery_goes_by_the_store_alone(patch: Patch) -> None:
    patch(recovery, "accepted_head", lambda _: None)


def r12_a_damaged_checkpoint_is_used(patch: Patch) -> None:
    load = driver.load_state

    def trusting(*args: Any) -> Any:
        found = load(*args)
        return (driver.SimManifest(0, (), ()), ()) if isinstance(found, str) else found

    patch(driver, "load_state", trusting)


def g1_the_log_entry_comes_before_the_manifest(patch: Patch) -> None:
    append = commit_log.CommitLog.checkpoint

    def early(self: Any, head: Any, state: Any, carried: Any) -> None:
        log = commit_log.CommitLog(self.store, self.world.paths, self.clock)
        log.generation = self.generation
        begin = self._begin(log.read())
        append(log, begin, epoch=head.epoch, manifest_sha256="", manifest_size=0, total_size=0)

    patch(driver.Driver, "_checkpoint", early)


MUTANTS = [
    value
    for name, value in list(globals().items())
    if name[:1] in "rg" and name[1:2].isdigit() and callable(value)
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_the_simulation_fails_when_a_rule_is_broken(
    mutant: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(lambda target, name, value: monkeypatch.setattr(target, name, value, raising=False))
    for seed in SEEDS:
        try:
            run_seed(seed)
        except Exception:  # noqa: BLE001  a broken rule may show in any way but silence
            return
    pytest.fail(f"{len(SEEDS)} seeds without a complaint: the rule or the simulation is idle")


def test_every_rule_of_the_protocol_has_a_mutant() -> None:
    covered = {mutant.__name__.split("_")[0] for mutant in MUTANTS}
    assert covered >= {"r2", "r3", "r4", "r5", "r6", "r11", "r12"}
