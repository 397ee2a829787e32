"""An engine that does nothing but count, for tests of everything around the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from lamina.engine.plans import EpochReport
from lamina.engine.ports import Listings
from lamina.errors import LaminaError, StoreUnavailable
from lamina.format.commit import StagedFile
from lamina.ids import CheckpointId
from lamina.recovery import RecoveryReport

ID = CheckpointId.parse("019a3f63-3e60-74c7-8d7a-e2e483a62529")
NEW = RecoveryReport(
    checkpoint=None,
    checkpoint_epoch=0,
    epoch=0,
    head_epoch=0,
    epochs_replayed=0,
    entries_replayed=0,
    entries_dropped=0,
    skipped=(),
    left_aside=(),
    given_up=(),
    given_up_home=None,
    watermark_regressions=(),
    bytes_restored=0,
    bytes_replayed=0,
    seconds=0.1,
)


@dataclass
class FakePublisher:
    behind: int = 0
    epoch: int = 0

    def epochs(self) -> dict[str, int]:
        return {"out": self.epoch}

    def sample(self, sink: str, files: Iterable[StagedFile], rows_max: int) -> pa.Table | None:
        return pa.table({"symbol": ["A"], "trades": [self.epoch]}) if sink == "out" else None


@dataclass
class FakeListing:
    """A source that lists a server."""

    listings: Listings


@dataclass
class FakeEngine:
    """Has *input* epochs to do; *on_step* is called before each."""

    input: int = 3
    on_step: Callable[[FakeEngine], None] = lambda _: None
    epoch: int = 0
    held: str = ""
    trouble: str = ""
    failure: LaminaError | None = None
    store_down: bool = False
    publisher: FakePublisher = field(default_factory=FakePublisher)
    report: RecoveryReport = NEW
    notes: tuple[str, ...] = ()
    sources: dict[str, object] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    @property
    def saved_epoch(self) -> int:
        return 0

    def step(self) -> EpochReport | None:
        self.calls.append("step")
        self.on_step(self)
        if self.failure is not None:
            raise self.failure
        if self.held or self.epoch >= self.input:
            return None
        self.epoch += 1
        self.publisher.epoch = self.epoch
        return EpochReport(
            epoch=self.epoch,
            rows={"trades": 100},
            rows_out={"out": 7},
            late=1,
            watermark=1_700_000_000_000_000,
            seconds=0.5,
            sinks_behind=0,
        )

    def checkpoint(self) -> CheckpointId | None:
        self.calls.append("checkpoint")
        if self.store_down:
            raise StoreUnavailable("the store is down")
        return ID if self.epoch else None

    def drain(self) -> None:
        self.calls.append("drain")
