"""Processes that publish to Kafka, killed anywhere: a reader gets every row once, in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lamina.clock import SystemClock
from lamina.engine.ports import Output
from tests.contract.kafka_child import ROWS, rows_of
from tests.servers import KafkaServer
from tests.support.kafka import TopicReader, create_topic, kafka_sink

KILLS = int(os.environ.get("LAMINA_KILLS", "6"))
PARTITIONS = 3
EPOCHS = 20 * KILLS
ROOT = Path(__file__).parents[2]


@pytest.mark.server
def test_killed_anywhere_every_row_is_there_once(kafka_server: KafkaServer, tmp_path: Path) -> None:
    clock, topic = SystemClock(), "kills"
    create_topic(kafka_server.bootstrap, topic, PARTITIONS)
    reached = []
    for generation in range(1, KILLS + 1):
        child = start(kafka_server, topic, tmp_path, generation)
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "claimed\n"
            clock.wait(clock.random_bits(20) % 400 / 1000)
        finally:
            child.kill()
            child.communicate()
        at = kafka_sink(kafka_server.bootstrap, topic, Output(rows_of(0).schema)).position().point
        reached.append(at.epoch if at else 0)
        check(kafka_server, topic, whole=False)
    assert reached == sorted(reached)
    last = start(kafka_server, topic, tmp_path, KILLS + 1)
    assert last.communicate(timeout=300)[0].splitlines() == ["claimed", "done"]
    check(kafka_server, topic, whole=True)


def start(server: KafkaServer, topic: str, home: Path, generation: int) -> subprocess.Popen[str]:
    words = [server.bootstrap, topic, str(home / "home"), str(generation), str(EPOCHS)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.contract.kafka_child", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
    )


def check(server: KafkaServer, topic: str, *, whole: bool) -> None:
    """No row twice; what there is of an epoch is all of it, as far as it is visible everywhere."""
    read = TopicReader(server.bootstrap, topic, PARTITIONS).read()
    values = [json.loads(message.value or b"")["v"] for message in read]
    assert len(values) == len(set(values)), "a row is there twice"
    if whole:
        assert sorted(values) == list(range(ROWS, (EPOCHS + 1) * ROWS))
    for partition in range(PARTITIONS):
        own = [v for v, message in zip(values, read, strict=True) if message.partition == partition]
        assert own == sorted(own), "rows are out of order in a partition"
