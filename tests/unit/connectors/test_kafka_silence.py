"""Which partitions hold the watermark: those that were not silent for long."""

from __future__ import annotations

from lamina.connectors.kafka.planning import Slice
from lamina.connectors.kafka.silence import Silence
from lamina.engine.model import Seen
from lamina.engine.planning import Timing, Watermarks, parts_of, stood_at
from lamina.testing.clock import ManualClock

A, B, C = ("t", 0), ("t", 1), ("t", 2)


def test_a_partition_holds_until_it_was_silent_for_long_and_again_when_it_speaks() -> None:
    clock = ManualClock()
    silence = Silence(10_000_000, clock)
    assert silence.holding([A, B], []) == (A, B), "from the start on"
    clock.advance(9)
    assert silence.holding([A, B], [Slice("t", 0, 0, 1)]) == (A, B)
    clock.advance(1)
    assert silence.holding([A, B, C], []) == (A, C), "what is new is waited for"
    assert silence.holding([A, B, C], [Slice("t", 1, 0, 1)]) == (A, B, C)
    assert silence.numbers == {A: 0, B: 1, C: 2}


def advanced(before: Watermarks, holding: tuple[str, ...], **latest: int) -> Watermarks:
    seen = {"s": Seen(rows=1, latest_us=max(latest.values()), parts=latest)}
    return before.advanced(seen, Timing({"s": 5}), None, {"s": holding})


def test_the_slowest_part_that_holds_moves_the_watermark_and_it_never_falls() -> None:
    first = advanced(Watermarks(), ("a", "b"), a=100)
    assert first.by_source == {}, "nobody knows how far b is"
    second = advanced(first, ("a", "b"), b=50)
    assert second.by_source == {"s": 45}
    third = advanced(second, ("a",), a=200)
    assert third.by_source == {"s": 195}, "b was silent"
    fourth = advanced(third, ("a", "b"), b=60)
    assert fourth.by_source == {"s": 195}
    assert fourth.parts == {"s": {"a": 200, "b": 60}}


def test_what_parts_have_seen_is_committed_with_the_epoch() -> None:
    stood = stood_at(1, {}, applied=None, parts={"t/1": 5, "t/0": 7})
    assert parts_of({"s": stood}) == {"s": {"t/0": 7, "t/1": 5}}
    assert stood_at(1, {}, applied=None).metadata == {}
