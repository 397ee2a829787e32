"""Log records say what they are about, as JSON if a program wants that."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from lamina.cli.pipeline.run import _logged
from lamina.logs import ContextFilter, JsonFormatter, about
from tests.engine.pipelines import World

LOG = logging.getLogger("my.function")


@pytest.fixture
def lines() -> Iterator[StringIO]:
    """What a handler with our filter and formatter has written."""
    written = StringIO()
    handler = logging.StreamHandler(written)
    handler.addFilter(ContextFilter({"pipeline": "orders"}))
    handler.setFormatter(JsonFormatter())
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    yield written
    LOG.removeHandler(handler)


def read(lines: StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


def test_a_record_says_what_it_is_about(lines: StringIO) -> None:
    with about(epoch=3):
        with about(stream="vwap", partition=0):
            LOG.info("one\nline %s", "é")
        LOG.info("two")
    LOG.info("three", extra={"stream": "mine"})
    found = read(lines)
    assert [each["message"] for each in found] == ["one\nline é", "two", "three"]
    assert [(e.get("epoch"), e.get("stream"), e.get("partition")) for e in found] == [
        (3, "vwap", 0),
        (3, None, None),
        (None, "mine", None),
    ]
    assert found[0]["pipeline"] == "orders"
    assert found[0]["level"] == "INFO"
    assert found[0]["logger"] == "my.function"


def test_an_error_comes_with_its_trace(lines: StringIO) -> None:
    try:
        int("a\nb")
    except ValueError:
        LOG.exception("failed")
    [found] = read(lines)
    assert str(found["error"]).endswith(r"'a\nb'")


def test_the_users_code_logs_with_epoch_stream_and_partition(
    tmp_path: Path, lines: StringIO
) -> None:
    world = World(tmp_path)
    engine = world.open()
    runner = engine._runner
    run = runner.run

    def logged(work: object) -> object:
        LOG.info("run")
        return run(work)  # type: ignore[arg-type]

    runner.run = logged  # type: ignore[method-assign,assignment]
    engine.step()
    engine.close()
    found = [each for each in read(lines) if each["message"] == "run"]
    assert [(each["epoch"], each["stream"]) for each in found] == [
        (1, "vwap"),
        (1, "large"),
        (1, "totals"),
        (1, "busiest"),
    ]


def test_the_handler_of_a_run_goes_with_it() -> None:
    before = list(logging.getLogger().handlers)
    with _logged("orders", as_json=True):
        assert len(logging.getLogger().handlers) == len(before) + 1
    with _logged("orders", as_json=False):
        assert logging.getLogger().handlers == before
    assert logging.getLogger().handlers == before
    assert logging.getLogger("lamina").level == logging.NOTSET
