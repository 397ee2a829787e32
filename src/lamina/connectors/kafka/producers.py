"""Transactional producers: a new one for each epoch, so that no late answer of an old one counts.

`init_transactions` bumps the epoch of the transactional id: whatever an older producer has open is
aborted, whatever it has begun to commit is waited for, and nothing it sends later is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException, Producer

from lamina.connectors.kafka.failures import Call

_ABORT_S = 10.0
_SERVE_S = 0.05
_SERVES = 20
SETTINGS = {
    "acks": "all",
    "partitioner": "murmur2_random",  # a key goes where Java's clients send it
    "linger.ms": "50",
}


class Producers:
    """Producers with one transactional id; each has fenced those before it."""

    def __init__(self, settings: Mapping[str, Any], *, timeout_s: float, call: Call) -> None:
        self._settings, self._timeout_s, self._call = dict(settings), timeout_s, call
        self._unused: Producer | None = None

    def change(self, settings: Mapping[str, Any]) -> None:
        """For all that are made from now on."""
        self.drop()
        self._settings |= settings

    def new(self) -> Producer:
        """One that nobody has used. Raises KafkaException if there is none in time."""
        producer, self._unused = self._unused, None
        if producer is not None:
            return producer
        self._call("init")
        producer = Producer(self._settings)
        producer.init_transactions(self._timeout_s)
        self._call("inited")
        return producer

    def keep(self, producer: Producer) -> None:
        """One that was not used after all: it may be the next one."""
        self._unused = producer

    def drop(self) -> None:
        """Let go of one that was kept: another process may have fenced it."""
        self._unused = None


def break_off(producer: Producer) -> None:
    """Abort a transaction, and let go of what waits in it: the producer is not used again.

    Readers need not wait for the timeout of the transaction. The next producer aborts it anyway,
    so it does not matter whether this one can. But each message that has no answer keeps its
    callback, and so the producer with all of its threads and memory.
    """
    with suppress(KafkaException):
        producer.abort_transaction(_ABORT_S)
    producer.purge()
    for _ in range(_SERVES):
        if not len(producer):
            return
        with suppress(KafkaException):
            serve(producer, _SERVE_S)


def serve(producer: Producer, wait_s: float) -> None:
    """Let callbacks of messages run. KafkaException for what the producer has died of."""
    try:
        producer.poll(wait_s)
    except SystemError as error:
        # The client raises that amid the callbacks, and the next of them fails because of it.
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise
