"""The ends of a topic's partitions: where an epoch began, and whether readers have got past it."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

from lamina.clock import Clock
from lamina.connectors.kafka.failures import Call, kafka_errors, may_settle, typed
from lamina.connectors.kafka.topics import Place
from lamina.errors import StoreUnavailable

_SETTLED_S = 0.05
_LOOK_S = 0.002
_OPEN_S = 2.0


class Ends:
    """Of the topic that a sink writes to. Partition by partition: an AdminClient asks for all of
    them at once, but takes half a second, and goes on asking old leaders after an election."""

    def __init__(self, place: Place, *, clock: Clock, call: Call) -> None:
        self._place, self._clock, self._call = place, clock, call

    def now(self, client: Consumer) -> dict[int, int]:
        """What is behind the last record of each partition, as *client* may see it: one that reads
        uncommitted records, too, sees the end of the log, another one the last stable offset."""
        self._call("look where the topic ends")
        with kafka_errors(self._place.where):
            return {number: self._end(client, number) for number in self._partitions(client)}

    def check_closed(
        self, client: Consumer, *, before: Mapping[int, int], ends: Mapping[int, int]
    ) -> None:
        """StoreUnavailable if rows behind *before*, where the last epoch began, are still open.

        Its mark is committed, and it may be that a broker has forgotten to show its rows: they
        would vanish with the next transaction that is aborted.
        """
        started = self._clock.monotonic()
        while True:
            stable = self.now(client)
            hanging = open_since(before, stable=stable, ends=ends)
            if not hanging:
                return
            if self._clock.monotonic() - started > min(_OPEN_S, self._place.timeout_s):
                raise StoreUnavailable(
                    f"a transaction is open in partition {hanging[0]} from offset "
                    f"{stable[hanging[0]]} on: rows of the last epoch may be in it",
                    where=self._place.where,
                    advice="See `A transaction that hangs` in docs/connectors.md",
                )
            self._clock.wait(_LOOK_S)

    def _partitions(self, client: Consumer) -> list[int]:
        """All of them, never none: a broker that has just started may not have heard of the topic,
        and whoever is told that it has no partitions takes it for empty."""
        topic, timeout_s = self._place.topic, self._place.timeout_s
        started = self._clock.monotonic()
        while True:
            found = client.list_topics(topic, timeout=timeout_s).topics[topic]
            if found.error is None and found.partitions:
                return sorted(found.partitions)
            is_late = self._clock.monotonic() - started > timeout_s
            if found.error is not None and (is_late or not may_settle(found.error)):
                raise typed(found.error, self._place.where)
            if is_late:
                message = "the brokers name no partitions of the topic"
                raise StoreUnavailable(message, where=self._place.where)
            self._clock.wait(_SETTLED_S)

    def _end(self, client: Consumer, number: int) -> int:
        """A partition that has no leader for a moment is waited for."""
        asked, started = TopicPartition(self._place.topic, number), self._clock.monotonic()
        while True:
            try:
                return int(client.get_watermark_offsets(asked, timeout=self._place.timeout_s)[1])
            except KafkaException as error:
                waited_s = self._clock.monotonic() - started
                if not may_settle(error.args[0]) or waited_s > self._place.timeout_s:
                    raise
                self._clock.wait(_SETTLED_S)
                client.list_topics(self._place.topic, timeout=self._place.timeout_s)


def open_since(
    before: Mapping[int, int], *, stable: Mapping[int, int], ends: Mapping[int, int]
) -> list[int]:
    """Partitions with records behind *before* that are neither committed nor aborted."""
    return [n for n, end in ends.items() if before.get(n, 0) <= stable.get(n, 0) < end]


def written_since(
    before: Mapping[int, int], *, stable: Mapping[int, int], ends: Mapping[int, int]
) -> list[int] | None:
    """Partitions with records behind *before*; None if readers may have got any of them, or if
    nobody can tell. One that *before* does not name was empty."""
    if not before.keys() <= stable.keys() or stable.keys() != ends.keys():
        return None
    if any(end > before.get(number, 0) for number, end in stable.items()):
        return None
    return [number for number, end in ends.items() if end > before.get(number, 0)]
