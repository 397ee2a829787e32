"""The ends of a topic's partitions: where an epoch began, and whether readers have got past it."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

from lamina.clock import Clock
from lamina.connectors.kafka.failures import Call, kafka_errors, may_settle
from lamina.connectors.kafka.topics import Place

_SETTLED_S = 0.05


class Ends:
    """Of the topic that a sink writes to. Partition by partition: an AdminClient asks for all of
    them at once, but takes half a second, and goes on asking old leaders after an election."""

    def __init__(self, place: Place, *, clock: Clock, call: Call) -> None:
        self._place, self._clock, self._call = place, clock, call

    def now(self, client: Consumer) -> dict[int, int]:
        """What is behind the last record of each partition, as *client* may see it: one that reads
        uncommitted records, too, sees the end of the log, another one the last stable offset."""
        topic, timeout_s = self._place.topic, self._place.timeout_s
        self._call("look where the topic ends")
        with kafka_errors(self._place.where):
            found = client.list_topics(topic, timeout=timeout_s).topics[topic]
            return {number: self._end(client, number) for number in found.partitions}

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


def written_since(
    before: Mapping[int, int], *, stable: Mapping[int, int], ends: Mapping[int, int]
) -> list[int] | None:
    """Partitions with records behind *before*; None if readers may have got any of them."""
    if any(stable.get(number, start) > start for number, start in before.items()):
        return None
    return [number for number, end in ends.items() if end > before.get(number, end)]
