"""`--skip-lost` of a Kafka source: only for what is lost for good, and only once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from lamina.connectors.kafka.planning import Bounds, Part, Topic
from lamina.connectors.kafka.source import LOST_FOR_S, KafkaSource
from lamina.connectors.opening import open_source
from lamina.engine.ports import Limits
from lamina.errors import Refused
from lamina.pipeline.model import Column, DeclaredSource, Option
from lamina.testing.clock import ManualClock

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribePattern": "t.*", "compacted": "true"}
START = {"started": "earliest", "t/0": "5", "t/id": "id-1"}
WHOLE, CUT, SHORT = Bounds(0, 9), Bounds(7, 9), Bounds(0, 3)


@dataclass
class Brokers:
    """What a cluster tells, look by look; None: there is no such topic. The last one stays."""

    clock: ManualClock
    told: list[Bounds | None]
    shaken_until_s: float = 0.0
    looks_s: list[float] = field(default_factory=list)

    @property
    def is_shaken(self) -> bool:
        return self.clock.monotonic() < self.shaken_until_s

    def names(self) -> list[str]:
        return []

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        self.looks_s.append(self.clock.monotonic())
        self.now = self.told.pop(0) if len(self.told) > 1 else self.told[0]
        return {} if self.now is None else {name: Topic("id-1", (0,)) for name in names}

    def bounds(self, parts: Iterable[Part]) -> dict[Part, Bounds]:
        return {part: self.now for part in parts if self.now is not None}


def reader(*told: Bounds | None, skip_lost: str = "s", shaken_s: float = 0) -> Any:
    columns = (Column("a", "BIGINT"),)
    options = {name: Option.plain(value) for name, value in OPTIONS.items()}
    source = DeclaredSource("s", columns, "kafka", options)
    opened = open_source(source, Path(), skip_lost=[skip_lost] if skip_lost else [])
    assert isinstance(opened, KafkaSource)
    clock = ManualClock()
    opened._clock = clock  # type: ignore[assignment]
    opened.__dict__["_broker"] = Brokers(clock, list(told), shaken_s)
    return opened


def ends(source: Any, start: dict[str, str] = START) -> dict[str, str]:
    return dict(source.plan(start, Limits(), None).end)


def test_a_topic_that_was_gone_for_a_moment_was_read_again_from_its_beginning() -> None:
    source = reader(None, WHOLE)
    assert ends(source) == {**START, "t/0": "9"}
    assert source._broker.looks_s == [0, LOST_FOR_S]


def test_a_broker_that_was_just_restarted_told_what_it_did_not_know_yet() -> None:
    source = reader(None, None, None, None, WHOLE, shaken_s=4)
    assert ends(source) == {**START, "t/0": "9"}
    assert max(source._broker.looks_s) == 4, "no look counts before"
    gone = reader(None, shaken_s=4)
    assert ends(gone) == {"started": "earliest"}
    assert gone._broker.looks_s[-2:] == [4, 4 + LOST_FOR_S]


def test_what_is_gone_for_good_is_skipped_and_said() -> None:
    planned = reader(CUT).plan(START, Limits(), None)
    assert planned.end == {**START, "t/0": "9"}
    assert [(each.start, each.end) for each in planned.data] == [(7, 9)]
    assert "lost 2 offsets" in planned.notes[0]
    with pytest.raises(Refused, match="lost 2 offsets") as refused:
        ends(reader(CUT, skip_lost=""))
    assert "--skip-lost s`" in refused.value.advice


def test_what_is_lost_differently_each_time_is_not_skipped() -> None:
    source = reader(*(Bounds(6 + at % 2, 9) for at in range(30)))
    with pytest.raises(Refused, match="from look to look"):
        ends(source)


def test_it_counted_until_a_row_came_however_long_that_took() -> None:
    source = reader(Bounds(0, 5), CUT)
    assert ends(source) == START, "nothing is lost, and nothing new"
    with pytest.raises(Refused, match="lost 2 offsets"):
        ends(source)


def test_an_epoch_that_failed_is_planned_again_with_the_same_loss_and_no_other() -> None:
    source = reader(CUT, CUT, CUT, Bounds(8, 9))
    assert ends(source) == ends(source) == {**START, "t/0": "9"}
    with pytest.raises(Refused, match="lost 3 offsets"):
        ends(source)


def test_rows_came_twice_when_a_partition_ended_too_early_for_a_moment() -> None:
    """So it goes back only to the place that a person has named."""
    with pytest.raises(Refused, match="ends before") as refused:
        ends(reader(SHORT))
    assert "--skip-lost s:t/0@3`" in refused.value.advice
    with pytest.raises(Refused, match="ends before"):
        ends(reader(SHORT, skip_lost="s:t/0@4"))
    assert ends(reader(SHORT, skip_lost="s:t/0@3")) == {**START, "t/0": "3"}
    with pytest.raises(Refused, match="lost 2 offsets"):
        ends(reader(CUT, skip_lost="s:t/0@3"))
