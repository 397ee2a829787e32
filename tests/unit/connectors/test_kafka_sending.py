"""Messages on their way to brokers that never answer."""

from __future__ import annotations

import gc
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import NewTopic

from lamina.connectors.kafka.failures import no_call
from lamina.connectors.kafka.marks import Marks
from lamina.connectors.kafka.messages import Messages
from lamina.connectors.kafka.producers import break_off
from lamina.connectors.kafka.sending import QUEUE, Sending
from lamina.connectors.kafka.topics import Place, Topics
from lamina.errors import AccessDenied
from lamina.testing.clock import ManualClock

PLACE = Place("127.0.0.1:1", "t", "t-lamina-mark", 1.0)
NOBODY = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def thread_count() -> int:
    gc.collect()
    return len(list(Path("/proc/self/task").iterdir()))


def broken_off() -> None:
    producer = Producer({**NOBODY, **QUEUE})
    sending = Sending(producer, "t", size_max=1000, patience_s=1.0, clock=ManualClock())
    sending.send(Messages(pa.array([b"x"] * 10)))
    sending.send_mark("t-lamina-mark", b"k", b"v")
    break_off(producer)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_a_transaction_that_broke_off_left_its_producer_and_its_threads_behind() -> None:
    broken_off()
    before = thread_count()
    for _ in range(3):
        broken_off()
    assert thread_count() <= before


@pytest.mark.parametrize("config", [{}, {"cleanup.policy": "compact"}])
def test_a_topic_that_may_not_be_created_was_told_with_other_rights(config: dict[str, str]) -> None:
    topics = Topics(PLACE, NOBODY, clock=ManualClock(), call=no_call)
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    denied = topics._not_created(NewTopic("t", 1, config=config), error)
    assert isinstance(denied, AccessDenied)
    assert "Create on the topic" in denied.advice
    assert ("compact" in denied.advice) == bool(config)


def test_what_clients_said_was_kept_for_ever() -> None:
    marks = Marks(PLACE, "out", NOBODY, clock=ManualClock(), call=no_call)
    for _ in range(1000):
        marks.heard.append(KafkaError(KafkaError._TRANSPORT))
    assert len(marks.heard) == 100
    marks.close()
