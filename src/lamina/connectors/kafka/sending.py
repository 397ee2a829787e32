"""Messages into a producer, in order, with as many on their way as memory allows.

The order of a key's messages is their meaning: what comes after one that was not taken is not sent.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow.compute as pc
from confluent_kafka import KafkaException, Producer

from lamina.clock import Clock
from lamina.connectors.kafka.failures import TOO_LARGE, typed
from lamina.connectors.kafka.messages import CHUNK_BYTES, CHUNK_ROWS, Messages, headers_size
from lamina.connectors.kafka.producers import serve
from lamina.errors import LaminaError, Refused, StoreUnavailable

WAITING_MAX = 32 * CHUNK_ROWS
WAITING_BYTES_MAX = 16 * CHUNK_BYTES
QUEUE = {
    "delivery.report.only.error": True,
    "queue.buffering.max.messages": 0,  # no limit: this module has one
    "queue.buffering.max.kbytes": 2147483647,
}
_WAIT_S = 0.05
_DROPPED = ("_PURGE_QUEUE", "_PURGE_INFLIGHT")
"""Of messages that never left because the transaction had failed: they do not say why it had."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """The largest message that was not taken: those that were in one batch with it fail, too."""

    error: Any
    topic: str
    key: bytes | None
    size: int


class Sending:
    """One transaction's messages to one topic."""

    def __init__(
        self, producer: Producer, topic: str, *, size_max: int, patience_s: float, clock: Clock
    ) -> None:
        self._producer, self._topic, self._size_max = producer, topic, size_max
        self._clock, self._until = clock, clock.monotonic() + patience_s
        self._failure: _Failure | None = None

    def send(self, messages: Messages) -> None:
        sizes = messages.sizes()
        largest = int(pc.max(sizes, min_count=0).as_py() or 0)
        at = pc.index(sizes, largest).as_py()
        key = messages.keys[at].as_py() if messages.keys is not None and at >= 0 else None
        if largest > self._size_max:
            raise self._too_large(largest, key)
        self._make_room(len(messages.values), largest)
        try:
            self._produce(messages)
        except KafkaException as error:  # the client counts what it puts around a message, too
            if error.args[0].name() not in TOO_LARGE:
                raise
            raise self._too_large(largest, key) from error

    def _produce(self, messages: Messages) -> None:
        values, keys, partitions = messages.columns()
        produce, topic, told = self._producer.produce, self._topic, self._on_delivery
        if messages.has_more:
            for value, key, number, more in zip(
                values, keys, partitions, messages.more(), strict=False
            ):
                produce(topic, value, key, number, told, **more)
            return
        # By position, and without a loop in Python: that takes half as long as `produce_batch`,
        # which wants a dictionary for each message.
        calls = map(produce, repeat(topic), values, keys, partitions, repeat(told))
        deque(calls, maxlen=0)

    def send_mark(self, topic: str, key: bytes, value: bytes) -> None:
        self._producer.produce(topic, value, key, 0, on_delivery=self._on_delivery)

    @property
    def failed(self) -> Any:
        """The `KafkaError` of a message that was not taken; None if all were."""
        return None if self._failure is None else self._failure.error

    def failure(self) -> LaminaError:
        """What *failed* means."""
        assert self._failure is not None
        if self._failure.error.name() in TOO_LARGE:
            return self._too_large(self._failure.size, self._failure.key)
        return typed(self._failure.error, f"topic {self._failure.topic}")

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None or error.name() in _DROPPED:
            return
        size = len(message.value() or b"") + len(message.key() or b"")
        size += headers_size(message.headers() or [])
        if self._failure is None or size > self._failure.size:
            self._failure = _Failure(error, message.topic(), message.key(), size)

    def _too_large(self, size: int, key: bytes | None) -> Refused:
        shown = "no key" if key is None else f"the key {key[:100].decode(errors='replace')!r}"
        return Refused(
            f"a message of {size:,} bytes, with {shown}, is too large: the topic takes "
            f"{self._size_max:,}",
            where=f"topic {self._topic}",
            advice="Raise the topic's max.message.bytes (kafka-configs.sh --alter), and start "
            "again; with kafka.compression.type, set kafka.message.max.bytes as well",
        )

    def _make_room(self, messages: int, largest: int) -> None:
        """Wait until so many more may be on their way."""
        allowed = max(1, min(WAITING_MAX, WAITING_BYTES_MAX // max(1, largest)))
        while len(self._producer) and len(self._producer) + messages > allowed:
            serve(self._producer, _WAIT_S)
            if self._failure is not None:
                raise KafkaException(self._failure.error)
            if self._clock.monotonic() > self._until:
                message = f"{len(self._producer)} messages are waiting for the brokers"
                advice = "Check that they run; a large epoch may need kafka.transaction.timeout.ms"
                raise StoreUnavailable(message, where=f"topic {self._topic}", advice=advice)
        serve(self._producer, 0)
