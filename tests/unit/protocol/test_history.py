"""R3 and R11: what the log says, and what may be written to it next."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.errors import (
    AlreadyExists,
    Fenced,
    LaminaError,
    LogDamaged,
    NotFound,
    Refused,
    StillNeeded,
)
from lamina.format.log import (
    STATE_EVERY,
    Begin,
    Body,
    Entry,
    Forget,
    Pin,
    Rewind,
    Takeover,
    Unpin,
    decode_entry,
    encode_entry,
)
from lamina.protocol.history import (
    COPY_HOME,
    EMPTY,
    History,
    due_for_state,
    follow,
    in_flight,
    judge_forget,
    preview,
    resume,
    state_of,
)
from tests.support.checkpoints import HOME, Scribe, checkpoint_body, cid
from tests.support.examples import examples


def owned() -> Scribe:
    return Scribe().take_over(1)


def line_of_three() -> Scribe:
    return owned().checkpoint(1, 1).checkpoint(2, 2, parent=1).checkpoint(3, 3, parent=2)


# who may write


def test_the_first_entry_is_a_takeover_and_names_the_owner() -> None:
    history = owned().history
    assert (history.generation, history.home, history.home_since) == (1, HOME, 1)
    assert (history.lineage_seq, history.lineage_kind) == (1, "TAKEOVER")


@pytest.mark.parametrize(
    ("body", "generation", "error"),
    [
        (Takeover(1, HOME), 1, Fenced),  # not above the owner's
        (Takeover(0, HOME), 0, Fenced),
        (Takeover(3, HOME), 2, Refused),  # says another generation than it is
        (Takeover(2, ""), 2, Refused),  # no home
        (checkpoint_body(9, 9, parent=None, after=4), 0, Fenced),
        (checkpoint_body(9, 9, parent=None, after=4), 2, Refused),  # has not taken over
        (Rewind(9, cid(1), 1), 0, Fenced),
        (Rewind(9, cid(1), 1), 2, Refused),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)[:40]),
)
def test_only_the_owner_may_write_what_moves_the_pipeline(
    body: Body, generation: int, error: type[LaminaError]
) -> None:
    scribe = line_of_three()
    with pytest.raises(error) as caught:
        scribe.write(body, generation=generation)
    assert type(caught.value) is error


def test_a_takeover_fences_everybody_before_it() -> None:
    scribe = line_of_three().take_over(2)
    with pytest.raises(Fenced):
        scribe.checkpoint(4, 4, parent=3, generation=1)
    with pytest.raises(Fenced):
        scribe.rewind(9, 1, 1, generation=1)
    scribe.checkpoint(4, 4, parent=3)
    assert scribe.history.base == cid(4)


def test_generations_may_be_skipped_but_never_fall() -> None:
    scribe = owned().take_over(7)
    with pytest.raises(Fenced):
        scribe.take_over(6)
    assert scribe.take_over(8).history.generation == 8


def test_a_home_is_since_the_generation_that_brought_it_there() -> None:
    scribe = owned().take_over(2).take_over(3, "home-b").take_over(4, "home-b")
    assert (scribe.history.home, scribe.history.home_since) == ("home-b", 3)
    assert scribe.take_over(5, HOME).history.home_since == 5  # its old segments stay void


# checkpoints and their parents


def test_a_checkpoint_begun_before_a_takeover_a_rewind_or_another_checkpoint_is_refused() -> None:
    moves: list[Callable[[Scribe], Scribe]] = [
        lambda s: s.take_over(2),
        lambda s: s.rewind(4, 1, 1),
        lambda s: s.checkpoint(4, 4, parent=3),
    ]
    for move in moves:
        scribe = line_of_three()
        begun_after = scribe.history.lineage_seq
        move(scribe)
        with pytest.raises(Refused, match=f"begun after log entry {begun_after}"):
            scribe.checkpoint(9, 9, after=begun_after)


def test_pins_and_forgets_do_not_disturb_a_checkpoint_in_flight() -> None:
    scribe = line_of_three()
    begun_after = scribe.history.lineage_seq
    scribe.pin("monday", 1).unpin("monday").forget(1)
    scribe.checkpoint(9, 9, parent=3, after=begun_after)
    assert scribe.history.base == cid(9)


@pytest.mark.parametrize(
    ("id", "epoch", "parent", "error"),
    [
        (3, 4, 3, AlreadyExists),  # the same id again
        (9, 4, 2, Refused),  # not what the pipeline stands on
        (9, 2, 3, Refused),  # an epoch below its parent's
    ],
)
def test_a_checkpoint_stands_on_the_base(
    id: int, epoch: int, parent: int, error: type[LaminaError]
) -> None:
    with pytest.raises(error):
        line_of_three().checkpoint(id, epoch, parent=parent)


def test_after_a_takeover_any_existing_checkpoint_may_be_the_parent_and_no_other() -> None:
    for parent in (1, 2, 3):
        scribe = line_of_three().take_over(2).checkpoint(9, 4, parent=parent)
        assert scribe.history.base == cid(9)
    with pytest.raises(NotFound, match="parent"):
        line_of_three().take_over(2).checkpoint(9, 4, parent=8)


def test_a_full_checkpoint_needs_no_parent_and_one_epoch_may_be_checkpointed_twice() -> None:
    scribe = line_of_three().checkpoint(4, 3)
    newest = scribe.history.newest
    assert newest is not None
    assert newest.id == cid(4)  # the later entry of two with the same epoch


def test_the_newest_is_the_highest_epoch_whatever_the_order_of_ids() -> None:
    scribe = owned().checkpoint(50, 1).checkpoint(7, 2, parent=50)
    newest = scribe.history.newest
    assert newest is not None
    assert newest.id == cid(7)
    assert scribe.history.highest == newest


# rewinds


def test_one_epoch_may_be_checkpointed_on_top_of_itself() -> None:
    assert line_of_three().checkpoint(4, 3, parent=3).history.base == cid(4)


def test_a_rewind_lets_the_next_checkpoint_stand_on_its_target() -> None:
    scribe = line_of_three().rewind(4, 1, 1)
    assert scribe.history.base == cid(1)
    assert scribe.history.epoch_max == 4
    with pytest.raises(Refused):
        scribe.checkpoint(9, 5, parent=3)
    scribe.checkpoint(9, 5, parent=1)


@pytest.mark.parametrize(
    ("epoch", "to", "to_epoch", "error"),
    [
        (4, 8, 1, NotFound),
        (4, 1, 2, Refused),  # the target holds another epoch
        (3, 1, 1, Refused),  # epochs only rise
        (2, 1, 1, Refused),
    ],
)
def test_a_rewind_names_what_is_there_and_a_new_epoch(
    epoch: int, to: int, to_epoch: int, error: type[LaminaError]
) -> None:
    with pytest.raises(error):
        line_of_three().rewind(epoch, to, to_epoch)


def test_epochs_of_rewinds_count_for_the_next_rewind() -> None:
    scribe = line_of_three().rewind(10, 1, 1)
    with pytest.raises(Refused, match="only rise"):
        scribe.rewind(10, 2, 2)


# pins and forgets, in both orders


def test_a_pin_before_the_forget_holds_the_checkpoint() -> None:
    scribe = line_of_three().pin("monday", 1)
    with pytest.raises(StillNeeded, match="monday"):
        scribe.forget(1)
    scribe.unpin("monday").forget(1)
    assert scribe.history.find(cid(1)) is None


def test_a_forget_before_the_pin_leaves_nothing_to_pin() -> None:
    with pytest.raises(NotFound):
        line_of_three().forget(1).pin("monday", 1)


def test_every_name_of_a_checkpoint_holds_it() -> None:
    scribe = line_of_three().pin("b", 1).pin("a", 1)
    assert scribe.history.pinned(cid(1)) == ("a", "b")
    with pytest.raises(StillNeeded):
        scribe.unpin("a").forget(1)
    scribe.unpin("b").forget(1)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (Pin("monday", cid(2)), AlreadyExists),  # the name is taken
        (Pin("monday", cid(1)), AlreadyExists),  # also by the same checkpoint
        (Pin("", cid(2)), Refused),
        (Pin("x", cid(8)), NotFound),
        (Unpin("tuesday"), NotFound),
        (Forget(()), Refused),
        (Forget((cid(8),)), NotFound),
        (Forget((cid(2), cid(8))), NotFound),  # one wrong id spoils the whole entry
        (Forget((cid(3),)), StillNeeded),  # the newest
    ],
    ids=str,
)
def test_pins_and_forgets_against_the_rules(body: Body, error: type[LaminaError]) -> None:
    scribe = line_of_three().pin("monday", 1)
    with pytest.raises(error) as caught:
        scribe.write(body)
    assert type(caught.value) is error


def test_what_the_pipeline_goes_on_from_is_kept_also_when_it_is_not_the_newest() -> None:
    scribe = line_of_three().take_over(2).checkpoint(9, 2)
    with pytest.raises(StillNeeded, match="continues from"):
        scribe.forget(9)
    scribe.forget(2)


def test_nothing_is_forgotten_between_a_takeover_and_its_first_checkpoint() -> None:
    scribe = line_of_three().take_over(2)
    with pytest.raises(StillNeeded, match="recovering"):
        scribe.forget(1)
    scribe.checkpoint(4, 4, parent=3).forget(1)


def test_a_rewind_gives_up_nothing_before_its_first_checkpoint() -> None:
    """Its COMMIT may never become durable: then recovery needs what the line before stood on.

    Found by the simulation: epoch 19 stood on a checkpoint, a second REWIND was in the log and its
    COMMIT was not, gc forgot that checkpoint, and the acknowledged epoch 19 was lost.
    """
    scribe = line_of_three().rewind(4, 2, 2).rewind(5, 3, 3)
    with pytest.raises(StillNeeded, match="rewind"):
        scribe.forget(2)
    scribe.checkpoint(9, 5, parent=3).forget(2)
    with pytest.raises(StillNeeded):
        line_of_three().take_over(2).rewind(4, 2, 2).forget(1)


def test_after_a_rewind_a_checkpoint_of_the_line_it_left_is_refused() -> None:
    """Begun after the REWIND, but of an epoch from before it: it would end the hold too early."""
    scribe = line_of_three().rewind(7, 1, 1)
    for epoch in (3, 6):
        with pytest.raises(Refused, match="rewind"):
            scribe.checkpoint(9, epoch, parent=1)
        with pytest.raises(Refused, match="rewind"):
            scribe.checkpoint(9, epoch)
    scribe.checkpoint(9, 7, parent=1)


def test_copies_are_nobodys_so_no_takeover_holds_them() -> None:
    scribe = Scribe().take_over(1, f"{COPY_HOME}file:///a").checkpoint(1, 1)
    scribe.take_over(2, f"{COPY_HOME}file:///b").checkpoint(2, 2)
    scribe.take_over(3, f"{COPY_HOME}file:///c").forget(1)
    with pytest.raises(StillNeeded):
        judge_forget(scribe.history, cid(2))


def test_a_pipeline_that_starts_on_a_copy_holds_it_again() -> None:
    scribe = Scribe().take_over(1, f"{COPY_HOME}x").checkpoint(1, 1).checkpoint(2, 2)
    with pytest.raises(StillNeeded, match="recovering"):
        scribe.take_over(2).forget(1)


# in flight


def begin_at(history: History, *, generation: int | None = None) -> Begin:
    owner = history.generation if generation is None else generation
    return Begin(cid(9), owner, None, history.lineage_seq, "w", 0)


def test_once_not_in_flight_never_in_flight_again() -> None:
    scribe = line_of_three()
    begin = begin_at(scribe.history)
    assert in_flight(scribe.history, begin)
    assert in_flight(scribe.pin("x", 1).history, begin)
    for move in (
        lambda: scribe.rewind(4, 2, 2),
        lambda: scribe.take_over(2),
        lambda: scribe.checkpoint(4, 5),
    ):
        move()
        assert not in_flight(scribe.history, begin)


def test_another_generation_is_never_in_flight() -> None:
    history = line_of_three().history
    assert not in_flight(history, begin_at(history, generation=2))
    assert not in_flight(history, begin_at(history, generation=0))


# following: a reader judges again what a writer has judged


def test_a_reader_refuses_an_entry_that_is_against_the_rules() -> None:
    scribe = line_of_three()
    bad = Entry(5, scribe.history.digest, 1, "w", 0, Unpin("nobody"))
    with pytest.raises(LogDamaged, match="entry 5 is against the rules") as caught:
        follow(scribe.history, bad, "d", "log/5")
    assert caught.value.where == "log/5"
    assert isinstance(caught.value.__cause__, NotFound)


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 4},
        {"seq": 6},
        {"previous": None},
        {"previous": "e" * 64},
    ],
    ids=str,
)
def test_an_entry_stands_exactly_behind_its_predecessor(change: dict[str, object]) -> None:
    scribe = line_of_three()
    good = Entry(5, scribe.history.digest, 1, "w", 0, Pin("x", cid(1)))
    follow(scribe.history, good, "d", "")
    with pytest.raises(LogDamaged):
        follow(scribe.history, replace(good, **change), "d", "")  # type: ignore[arg-type]


# the state that every 32nd entry carries


def long_log(count: int) -> Scribe:
    scribe = owned().checkpoint(1, 1)
    while scribe.history.seq < count:
        number = scribe.history.seq
        scribe.pin(f"s{number}", 1) if number % 3 else scribe.checkpoint(number, number)
    return scribe


def test_every_32nd_entry_carries_the_state_and_no_other() -> None:
    carrying = [entry.seq for entry, _ in long_log(100).entries if entry.state is not None]
    assert carrying == [32, 64, 96]
    assert [seq for seq in range(1, 100) if due_for_state(seq)] == carrying
    assert STATE_EVERY == 32


def test_an_entry_with_a_wrong_state_is_damage() -> None:
    scribe = long_log(STATE_EVERY - 1)
    before = scribe.history
    scribe.pin("last", 1)
    entry, digest = scribe.entries[-1]
    assert entry.state is not None
    follow(before, entry, digest, "")
    for wrong in (
        replace(entry.state, epoch_max=entry.state.epoch_max + 1),
        replace(entry.state, pins=()),
        replace(entry.state, checkpoints=entry.state.checkpoints[1:]),
        replace(entry.state, base=None),
        replace(entry.state, home="elsewhere"),
        replace(entry.state, lineage_seq=entry.state.lineage_seq - 1),
    ):
        with pytest.raises(LogDamaged, match="wrong state"):
            follow(before, replace(entry, state=wrong), digest, "")


def test_an_entry_that_lacks_the_state_it_should_carry_is_damage_for_every_reader() -> None:
    scribe = long_log(STATE_EVERY - 1)
    before = scribe.history
    bare = Entry(STATE_EVERY, before.digest, 1, "w", 0, Pin("last", cid(1)))
    with pytest.raises(LogDamaged, match="state"):
        resume(bare, "d", "")
    with pytest.raises(LogDamaged, match="state"):
        follow(before, bare, "d", "")


def test_a_state_where_none_belongs_is_damage() -> None:
    scribe = long_log(5)
    entry = Entry(6, scribe.history.digest, 1, "w", 0, Pin("last", cid(1)))
    entry = replace(entry, state=state_of(preview(scribe.history, entry)))
    with pytest.raises(LogDamaged, match="should not"):
        follow(scribe.history, entry, "d", "")


BODIES = st.one_of(
    st.builds(Takeover, st.integers(1, 6), st.sampled_from([HOME, "home-b", f"{COPY_HOME}x"])),
    st.builds(
        checkpoint_body,
        st.integers(1, 12),
        st.integers(1, 20),
        parent=st.none() | st.integers(1, 12),
        after=st.just(-1),
    ),
    st.builds(Rewind, st.integers(1, 30), st.integers(1, 12).map(cid), st.integers(1, 20)),
    st.builds(Pin, st.sampled_from("abc"), st.integers(1, 12).map(cid)),
    st.builds(Unpin, st.sampled_from("abc")),
    st.builds(Forget, st.lists(st.integers(1, 12).map(cid), min_size=1, max_size=3).map(tuple)),
)


def write_if_legal(scribe: Scribe, body: Body) -> None:
    generation = body.generation if isinstance(body, Takeover) else None
    if hasattr(body, "after"):
        body = replace(body, after=scribe.history.lineage_seq)
    with contextlib.suppress(LaminaError):
        scribe.write(body, generation=generation)


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(BODIES, min_size=20, max_size=90))
def test_resuming_at_a_state_equals_folding_from_the_start(bodies: list[Body]) -> None:
    scribe = Scribe().take_over(1).checkpoint(100, 1)
    for body in bodies:
        write_if_legal(scribe, body)
    number = 0
    while scribe.history.seq < STATE_EVERY + 2:  # at least one state, however unlucky the draw
        scribe.write(Pin(f"fill-{number}", scribe.history.checkpoints[-1].id))
        number += 1
    folded = EMPTY
    resumed: History | None = None
    for entry, digest in scribe.entries:
        assert decode_entry(encode_entry(entry), "") == entry
        folded = follow(folded, entry, digest, "")
        if resumed is not None:
            resumed = follow(resumed, entry, digest, "")
            assert resumed == folded
        if entry.state is not None:
            assert resume(entry, digest, "") == folded
            resumed = resume(entry, digest, "")
    assert resumed == folded == scribe.history
