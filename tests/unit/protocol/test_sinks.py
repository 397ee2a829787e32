"""R6: strictly in order, never twice, never by an old generation."""

from __future__ import annotations

import pytest

from lamina.errors import Diverged, Fenced, LaminaError, Refused
from lamina.format.pipeline_record import Owner
from lamina.protocol.driver import Commit, Point
from lamina.protocol.sinks import Publish, SinkPosition, check_fence, decide_publish

P1, P2, P3 = Point(1, "a1"), Point(2, "a2"), Point(3, "a3")
SECOND = Commit(P2, parent=P1, follows=P1, generation=1)
FIRST = Commit(P1, parent=None, follows=None, generation=1)
REWIND = Commit(Point(4, "a4"), parent=P1, follows=P3, generation=1)


def at(point: Point | None, *, pipeline: str = "p", generation: int = 1) -> SinkPosition:
    return SinkPosition(Owner(pipeline), generation, point)


@pytest.mark.parametrize(
    ("position", "commit", "expected"),
    [
        (at(P1), SECOND, Publish.NOW),
        (at(P2), SECOND, Publish.DONE),
        (at(None), FIRST, Publish.NOW),
        (at(None, pipeline="", generation=0), FIRST, Publish.NOW),  # a sink nobody has used
        (at(P3), REWIND, Publish.NOW),  # after the newest, though it continues epoch 1
        (at(P1, generation=0), SECOND, Publish.NOW),
    ],
)
def test_publish_or_done(position: SinkPosition, commit: Commit, expected: Publish) -> None:
    assert decide_publish(position, commit, pipeline=Owner("p"), generation=1) is expected


@pytest.mark.parametrize(
    ("position", "commit", "error"),
    [
        (at(P1, pipeline="other"), SECOND, Refused),
        (at(P1, generation=2), SECOND, Fenced),
        (at(P2, generation=2), SECOND, Fenced),  # fenced even if it is done already
        (at(Point(2, "b2")), SECOND, Diverged),  # the same epoch of another history
        (at(None), SECOND, Refused),  # epoch 1 is missing
        (at(P3), SECOND, Refused),  # already further
        (at(Point(1, "b1")), SECOND, Refused),  # follows another epoch 1
        (at(P1), REWIND, Refused),
        (at(P1), FIRST, Publish.DONE),
    ],
)
def test_everything_else_stops(
    position: SinkPosition, commit: Commit, error: type[LaminaError] | Publish
) -> None:
    if isinstance(error, Publish):
        assert decide_publish(position, commit, pipeline=Owner("p"), generation=1) is error
        return
    with pytest.raises(error):
        decide_publish(position, commit, pipeline=Owner("p"), generation=1)


def test_a_sink_is_fenced_by_a_generation_at_least_as_high() -> None:
    check_fence(at(P1, generation=1), 2)
    check_fence(at(P1, generation=2), 2)  # the same process claims again
    with pytest.raises(Fenced):
        check_fence(at(P1, generation=3), 2)


@pytest.mark.parametrize(
    ("position", "advice"), [(at(None), "--sink-from-now"), (at(P3), "from a backup")]
)
def test_a_sink_at_another_epoch_was_told_without_what_to_do(
    position: SinkPosition, advice: str
) -> None:
    with pytest.raises(Refused) as refused:
        decide_publish(position, SECOND, pipeline=Owner("p"), generation=1)
    assert "Start the pipeline again" in refused.value.advice
    assert advice in refused.value.advice
