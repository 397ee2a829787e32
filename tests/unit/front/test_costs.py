"""What `lamina status` says of the requests of a home in an object store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lamina.errors import UsageError
from lamina.front.costs import pace_of
from lamina.front.status import PipelineStatus
from lamina.running.control import Status

REMOTE = "s3://bucket/home"


def status(said: Status | None, remote: str = REMOTE) -> PipelineStatus:
    return PipelineStatus(remote, f"{remote}/store", None, None, said, 0, 0, {}, remote=remote)


def said(interval_ms: int) -> Status:
    return Status("orders", 1, "host", "running", 0, 0, interval_ms=interval_ms)


@pytest.mark.parametrize(("last", "seconds"), [(None, 10), (said(2_500), 2.5)])
def test_requests_are_those_of_the_interval_of_the_last_run(
    last: Status | None, seconds: float
) -> None:
    found = status(last).requests()
    assert found is not None
    assert found["epoch_seconds"] == seconds
    epochs = 30 * 24 * 3600 / seconds
    assert found["puts_per_month"] == epochs + epochs / 10 * 10


def test_checkpoints_are_those_of_the_last_run() -> None:
    found = status(replace(said(10_000), checkpoint_epochs=100)).requests()
    assert found is not None
    assert found["puts_per_month"] == 259_200 + 2_592 * 10
    never = status(replace(said(10_000), checkpoint_epochs=0)).requests()
    assert never is not None
    assert never["puts_per_month"] == 259_200


def test_what_cannot_be_priced_is_not() -> None:
    assert status(said(0)).requests() is None
    assert status(said(1_000), remote="").requests() is None
    with pytest.raises(UsageError, match="--interval"):
        pace_of(0, every=10, files=0)
